"""The README's code runs as it stands."""

import re
from pathlib import Path

import pytest
import torch

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_there_are_two_examples():
    assert len(BLOCKS) == 2


@pytest.mark.parametrize("block", BLOCKS, ids=["scikit-learn", "torch"])
def test_example_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(compile(block, "README.md", "exec"), names)
    if "reg" in names:
        assert (names["same"].predict(names["X_test"]) == names["mean"]).all()
        assert ((names["low"] < names["mean"]) & (names["mean"] < names["high"])).all()
    else:
        assert names["law"].mean.shape == names["y"].shape
        assert torch.isfinite(names["law"].stddev).all()


def test_linked_files_exist():
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (Path(__file__).parent.parent / link).exists()] == []
