"""The README's code runs as it stands."""

import re
from pathlib import Path

import pytest
import torch

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What the examples define, run one after another as a reader would."""
    names: dict = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("readme"))
        for block in BLOCKS:
            before = dict(names)
            exec(compile(block, "README.md", "exec"), names)
            names.setdefault("blocks", []).append({k: v for k, v in names.items() if before.get(k) is not v})
    return names["blocks"]


def test_there_are_three_examples():
    assert len(BLOCKS) == 3


def test_scikit_learn(names):
    first = names[0]
    assert (first["same"].predict(first["X_test"]) == first["mean"]).all()
    assert ((first["low"] < first["mean"]) & (first["mean"] < first["high"])).all()


def test_rivals(names):
    assert names[1]["mean"].shape == names[0]["mean"].shape
    assert len(names[1]["names"]) == 11


def test_torch(names):
    assert names[2]["law"].mean.shape == names[2]["y"].shape
    assert torch.isfinite(names[2]["law"].stddev).all()


def test_linked_files_exist():
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (Path(__file__).parent.parent / link).exists()] == []
