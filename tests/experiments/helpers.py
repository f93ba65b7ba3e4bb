"""Made-up records, and what a table made of them shows."""

import zlib
from typing import Any

import numpy as np

from density_regression.experiments.report.comparison import ComparisonOptions
from density_regression.experiments.report.document import ResultTable, TableCell
from density_regression.experiments.report.grouping import Group, groups_of, results_of
from density_regression.experiments.report.tables import main_tables

Record = dict[str, Any]
SETS = {
    "uci": ("test",),
    "uci-shift": ("test",),
    "wine": ("wine_red", "wine_white"),
    "weather": ("jena_climate_2020", "jena_climate_2022_ood"),
    "cubic": ("inside", "outside"),
}
NASTY = 'x_1 & 50% <b>#$^~{}\\ |"é`*'


def make(
    method: str = "Gaussian",
    dataset: str = "boston",
    split: int | str = 0,
    *,
    suite: str = "uci",
    protocol: str = "paper",
    metrics: dict[str, float] | None = None,
    sample: bool = False,
    **more: Any,
) -> Record:
    """One record whose numbers depend on all that names it."""
    rng = np.random.default_rng(zlib.crc32(repr((method, dataset, split, suite)).encode()))
    entries: Record = {}
    for index, name in enumerate(SETS[suite]):
        own = {
            "nll": 2 + rng.normal() / 10,
            "rmse": 3.0,
            "cal": rng.uniform(),
            "sharpness_sd": 0.3,
            "crps": rng.uniform(),
        }
        own |= {"coverage_95": 0.9, "mae": 2.0, "r2": 0.8} | ({"auroc_std": 0.7} if index else {}) | (metrics or {})
        entry: Record = {"rows": 10, "metrics": own, "curve": np.linspace(0, 1, 21).tolist()}
        if sample:
            y = rng.normal(size=80)
            entry["sample"] = {"y": y.tolist(), "mean": (y + 0.1).tolist(), "std": np.full(80, 0.3).tolist()}
        entries[name] = entry
    record = {
        "suite": suite,
        "protocol": protocol,
        "dataset": dataset,
        "split": str(split),
        "seed": 0,
        "method": method,
        "tests": entries,
        "rows": {"train": 80, "held_out": 10},
        "seconds": {"fit": 1.5, "predict": 0.01},
        "parameters": 1000,
        "commit": "aaa",
    }
    return record | more


def fail(record: Record, message: str = "it broke") -> Record:
    return {key: value for key, value in record.items() if key != "tests"} | {"error": message}


def column(values: dict[str, list[float]], name: str = "nll", **more: Any) -> list[Record]:
    """Records of one data set in which each method has one metric's values, split by split."""
    return [
        make(method, split=split, metrics={name: value}, **more)
        for method, own in values.items()
        for split, value in enumerate(own)
    ]


def only(records: list[Record]) -> Group:
    (group,) = groups_of(results_of(records))
    return group


def cells(table: ResultTable, label: str) -> dict[str, TableCell]:
    index = table.header.index(label)
    return {row[0].text: row[index] for row in table.rows}


def bold(records: list[Record], label: str, options: ComparisonOptions | None = None) -> set[str]:
    (table,) = main_tables(only(records), options or ComparisonOptions())
    return {method for method, cell in cells(table, label).items() if cell.bold}


NOISE = [0.01, -0.02, 0.015, 0.005, -0.01, 0.0]


def about(centre: float, sign: int = 1) -> list[float]:
    return [centre + sign * step for step in NOISE]
