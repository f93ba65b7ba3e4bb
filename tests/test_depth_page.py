"""The tables of docs/results/depth.md, against the records that they are said to come from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from density_regression.experiments.records import Record, read_records

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = DOCS / "results" / "depth"

METHODS = {
    "ours": "Density-Regression",
    "five networks": "Deep Ensembles",
    "one": "Gaussian",
    "one, smooth": "Gaussian (smooth)",
    "five, smooth": "Deep Ensembles (smooth)",
}
SETS = {
    "NYU test": ("test",),
    "attacked by the method's own loss": tuple(f"own 0.0{i}" for i in range(1, 5)),
    "attacked by another network's loss": tuple(f"common 0.0{i}" for i in range(1, 5)),
    "KITTI, outdoors": ("outdoor",),
}
METRICS = {"NLL": "nll", "RMSE": "rmse", "calibration error": "cal", "CRPS": "crps"}
PLACES = {
    "farthest away": "far away",
    "at edges of the prediction": "edges of the prediction, within 1",
    "at true edges": "edges, within 1",
    "within four pixels of them": "edges, within 4",
}


def table(first: str) -> list[list[str]]:
    """The cells below the header that begins with `first`."""
    lines = (DOCS / "results" / "depth.md").read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(first))
    rows = []
    for line in [lines[start], *lines[start + 2 :]]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip(" *") for cell in line.strip("|").split("|")])
    return rows


def says(cell: str, value: float) -> bool:
    """Whether a cell is the value, rounded to as many digits as it has."""
    number = cell.split(maxsplit=1)[0]
    return format(value, f".{len(number.partition('.')[2])}f") == number


@pytest.fixture(scope="module")
def runs() -> dict[str, list[Record]]:
    records = read_records(RESULTS / "depth.jsonl")
    return {name: [one for one in records if one["method"] == method] for name, method in METHODS.items()}


def larger_outdoors(record: Record) -> float:
    outdoor, test = (np.array(record["tests"][name]["image_std"]) for name in ("outdoor", "test"))
    return float((outdoor[:, None] > test).mean())


def test_results(runs: dict[str, list[Record]]) -> None:
    (_, _, *names), *rows = table("| | | ours")
    assert names == list(METHODS)
    where, checked = "", 0
    for place, label, *cells in rows:
        where = place or where
        for name, cell in zip(names, cells, strict=True):
            if where in SETS:
                values = [
                    record["tests"][part]["metrics"][METRICS[label]] for record in runs[name] for part in SETS[where]
                ]
            elif where.startswith("larger"):
                values = [larger_outdoors(record) for record in runs[name]]
            elif where.startswith("seconds"):
                values = [record["seconds"] for record in runs[name]]
            else:
                continue
            assert says(cell, float(np.mean(values))), (where, label, name, cell, np.mean(values))
            checked += 1
    assert checked == 15 * len(METHODS)


def test_edges() -> None:
    figures = json.loads((RESULTS / "edges.json").read_text())
    key = ""
    for place, std, share, error in table("| A tenth")[1:]:
        key = f"{key}, at the same distance" if place.startswith("...") else PLACES[place]
        found = figures[key]
        assert says(std, found["std"])
        assert says(share, 100 * found["images where that of the std is above 1"])
        assert says(error, found["error"])


def test_cost() -> None:
    figures = json.loads((RESULTS / "latency.json").read_text())
    for batch, *cells in table("| Images at once")[1:]:
        expected = [f"{name} (ms)" for name in ("Gaussian network", "ours", "ensemble")]
        expected += ["ours / Gaussian network", "ensemble / ours"]
        for cell, name in zip(cells, expected, strict=True):
            assert says(cell, figures[f"batch {batch}, {name}"]), (batch, name, cell)
