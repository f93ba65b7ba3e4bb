"""The paper's own results, where they are of the same data."""

import csv
from functools import cache
from importlib import resources
from typing import Final

__all__ = ["IN_PAPER", "paper_result"]

IN_PAPER: Final = {"Density-Regression": "Ours", "Gaussian": "Deterministic", "Deep Ensembles": "Ensembles"}
"""Names in the paper where they differ; our Deterministic, with one std for all rows, is not in its tables."""

_METRICS: Final = {"nll": "NLL", "rmse": "RMSE", "cal": "Cal", "sharpness_sd": "Sharp"}
_UCI: Final = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "yacht", "year")
_TABLES: Final = {("uci", name): (name, "") for name in _UCI} | {
    ("uci", "wine_red"): ("wine", ""),
    ("wine", "wine_red"): ("wine", ""),
    ("wine", "wine_white"): ("wine", "o"),
}
"""Table of the paper, and prefix of its metrics, by suite and data set (wine: test set); its weather is other data."""


def paper_result(suite: str, protocol: str, dataset: str, test_set: str, method: str, metric: str) -> str:
    """The paper's result as "2.64 ± 0.26"; empty where it has none for the same data. Names are as in a record."""
    place = _TABLES.get((suite, test_set if suite == "wine" else dataset))
    if protocol != "paper" or place is None or metric not in _METRICS or method == "Deterministic":
        return ""
    table, prefix = place
    return _results().get((table, IN_PAPER.get(method, method), prefix + _METRICS[metric]), "")


@cache
def _results() -> dict[tuple[str, str, str], str]:
    text = resources.files(__package__).joinpath("paper_tables.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {(row["table"], row["method"], row["metric"]): f"{row['mean']} ± {row['sd']}" for row in rows}
