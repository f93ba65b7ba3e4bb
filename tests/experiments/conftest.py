"""Made-up UCI tables, and fits that take a moment."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from density_regression.experiments import bench
from experiments.bench_helpers import QUICK


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Two UCI tables of made-up numbers, with three splits each."""
    rng = np.random.default_rng(0)
    (tmp_path / "uci" / "splits").mkdir(parents=True)
    for name, columns in (("yacht", 6), ("energy", 8)):
        X = rng.normal(size=(60, columns)).round(4)
        table = np.column_stack([X, (X[:, 0] - X[:, 1] + rng.normal(size=60)).round(4)])
        header = ",".join([*(f"f{i}" for i in range(columns)), "target"])
        with gzip.open(tmp_path / "uci" / f"{name}.csv.gz", "wt") as file:
            np.savetxt(file, table, delimiter=",", header=header, comments="")
        splits = {}
        for i in range(3):
            order = rng.permutation(60)
            splits |= {f"train_{i}": order[:50].astype(np.int32), f"test_{i}": order[50:].astype(np.int32)}
        np.savez(tmp_path / "uci" / "splits" / f"{name}.npz", **splits)
    return str(tmp_path)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "paper_settings", lambda suite, dataset, method: QUICK)
