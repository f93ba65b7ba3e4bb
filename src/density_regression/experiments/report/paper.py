"""The paper's own figures, where they speak of the same data."""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources
from typing import Final

__all__ = ["IN_PAPER", "paper_figure"]

IN_PAPER: Final = {"Density-Regression": "Ours", "Gaussian": "Deterministic", "Deep Ensembles": "Ensembles"}
"""Methods that the paper calls otherwise; our Deterministic, with one std for all rows, is not in its tables."""

_METRICS: Final = {"nll": "NLL", "rmse": "RMSE", "cal": "Cal", "sharpness_sd": "Sharp"}
_UCI: Final = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "yacht", "year")


def paper_figure(suite: str, protocol: str, dataset: str, test_set: str, method: str, metric: str) -> str:
    """The paper's figure for a cell, as "2.64 ± 0.26"; empty where it has none for the same data.

    Parameters
    ----------
    suite, protocol, dataset, test_set, method, metric : str
        As in a record.
    """
    place = _place(suite, dataset, test_set)
    if protocol != "paper" or place is None or metric not in _METRICS or method == "Deterministic":
        return ""
    table, prefix = place
    return _figures().get((table, IN_PAPER.get(method, method), prefix + _METRICS[metric]), "")


def _place(suite: str, dataset: str, test_set: str) -> tuple[str, str] | None:
    """The paper's table and the prefix of its metrics. Weather is another year here, so it has none."""
    if suite == "uci":
        return ("wine", "") if dataset == "wine_red" else (dataset, "") if dataset in _UCI else None
    if suite == "wine":
        return {"wine_red": ("wine", ""), "wine_white": ("wine", "o")}.get(test_set)
    return None


@cache
def _figures() -> dict[tuple[str, str, str], str]:
    text = resources.files(__package__).joinpath("paper_tables.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {(row["table"], row["method"], row["metric"]): f"{row['mean']} ± {row['sd']}" for row in rows}
