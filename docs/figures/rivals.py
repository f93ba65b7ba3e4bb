"""docs/how/rivals.md: on how many tables with a natural shift each rival is better, from the committed records.

python docs/figures/rivals.py
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from drawing import DARK, GREY, ORANGE, new_figure, save
from matplotlib.figure import Figure

from density_regression.experiments.records import read_records

RECORDS = Path(__file__).parents[1] / "results" / "shift" / "shift-default.jsonl"
OURS = "Density-Regression"
HOME, SHIFTED = "in distribution", "shifted"
METRICS = ("nll", "crps", "cal", "rmse")

Cells = dict[tuple[str, str], list[dict[str, Any]]]


def main() -> None:
    cells: Cells = defaultdict(list)
    for record in read_records(RECORDS):
        cells[record["method"], record["dataset"]].append(record)
    methods = list(dict.fromkeys(method for method, _ in cells))
    tables = sorted({table for _, table in cells})
    wins = {
        (method, test, metric): sum(
            mean(cells[method, table], test, metric) < mean(cells[OURS, table], test, metric) for table in tables
        )
        for method in methods
        if method != OURS
        for test in (HOME, SHIFTED)
        for metric in METRICS
    }
    save(chart(wins, len(tables)), "rivals")
    print_tables(cells, wins, methods, tables)


def mean(records: list[dict[str, Any]], test: str, metric: str) -> float:
    values = [record["tests"][test]["metrics"].get(metric) for record in records]
    return float("nan") if None in values else float(np.mean(values))


def chart(wins: dict[tuple[str, str, str], int], tables: int) -> Figure:
    order = sorted({method for method, _, _ in wins}, key=lambda method: (wins[method, SHIFTED, "nll"], method))
    figure = new_figure(5.6)
    ax = figure.subplots()
    for shift, (test, color) in enumerate(((SHIFTED, ORANGE), (HOME, DARK))):
        counts = [wins[method, test, "nll"] for method in order]
        places = np.arange(len(order)) + 0.38 * shift - 0.19
        ax.barh(places, counts, height=0.36, color=color, label="at home" if test == HOME else "shifted")
        for place, count in zip(places, counts, strict=True):
            ax.text(count + 0.2, place, str(count), va="center", fontsize=10)
    ax.axvline(tables / 2, color=GREY, linewidth=1, linestyle=":")
    ax.set(
        yticks=range(len(order)),
        yticklabels=order,
        xlim=(0, tables),
        xticks=range(0, tables, 4),
        xlabel=f"of {tables} tables",
    )
    ax.set_title("Lower NLL than Density-Regression", x=-0.35)
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles[::-1], labels[::-1], loc="lower right")
    return figure


def print_tables(cells: Cells, wins: dict[tuple[str, str, str], int], methods: list[str], tables: list[str]) -> None:
    """Counts, and detection and cost, as Markdown."""
    print("| lower than ours on, of 17: at home / shifted | NLL | by its own law | CRPS | calibration error | RMSE |")
    print("|---|---:|---:|---:|---:|---:|")
    for method in methods:
        if method != OURS:
            counts = [f"{wins[method, HOME, metric]} / {wins[method, SHIFTED, metric]}" for metric in METRICS]
            print(f"| {method} | " + " | ".join([counts[0], own_law(cells, method, tables), *counts[1:]]) + " |")
    print(
        "\n| best of all on, of 17: home / shifted | NLL | CRPS | calibration error | RMSE |\n|---|---:|---:|---:|---:|"
    )
    best = {(t, m): Counter(best_of(cells, methods, table, t, m) for table in tables) for _, t, m in wins}
    for method in methods:
        print(
            f"| {method} | "
            + " | ".join(f"{best[HOME, m][method]} / {best[SHIFTED, m][method]}" for m in METRICS)
            + " |"
        )
    print("\n| home / shifted | NLL above ours | AUROC of std / of score | std too small by | seconds to fit |")
    print("|---|---:|---:|---:|---:|")
    for method in methods:
        own = [cells[method, table] for table in tables]
        above = [
            np.median([mean(cells[method, t], test, "nll") - mean(cells[OURS, t], test, "nll") for t in tables])
            for test in (HOME, SHIFTED)
        ]
        auroc = [np.mean([mean(records, SHIFTED, name) for records in own]) for name in ("auroc_std", "auroc_score")]
        factor = [np.median([mean(records, test, "std_factor") for records in own]) for test in (HOME, SHIFTED)]
        seconds = np.median([np.mean([record["seconds"]["fit"] for record in records]) for records in own])
        shown = [*(" / ".join(f"{v:.2f}" for v in pair) for pair in (above, auroc, factor)), f"{seconds:.1f}"]
        print(f"| {method} | " + " | ".join(shown).replace(" / nan", "") + " |")


def best_of(cells: Cells, methods: list[str], table: str, test: str, metric: str) -> str:
    return min(methods, key=lambda method: mean(cells[method, table], test, metric))


def own_law(cells: Cells, method: str, tables: list[str]) -> str:
    """On how many tables the NLL of a method's own law is lower than ours; empty where it has none."""
    if np.isnan(mean(cells[method, tables[0]], HOME, "nll_own")):
        return ""
    own = {test: [mean(cells[method, table], test, "nll_own") for table in tables] for test in (HOME, SHIFTED)}
    ours = {test: [mean(cells[OURS, table], test, "nll") for table in tables] for test in (HOME, SHIFTED)}
    return " / ".join(str(int(np.sum(np.less(own[test], ours[test])))) for test in (HOME, SHIFTED))


if __name__ == "__main__":
    main()
