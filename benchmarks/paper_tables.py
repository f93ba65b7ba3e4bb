"""The paper's own tables beside ours, as Markdown, from the records in docs/results; fits nothing.

    python benchmarks/paper_tables.py

Ours are those by the paper's settings (`bench --protocol paper`), but for the last table, of the present default: mean
over splits of NLL, RMSE, the paper's calibration error and sharpness in standard deviations of the training targets.
The paper's "Deterministic" is the Gaussian network, and its NLL of EDL that of Student's t. Its weather is in units of
the training targets' sd, with NLL' = 2 log std + r^2 / std^2, so ours becomes 2 (NLL - log sd) - log(2 pi).
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from density_regression.experiments.records import read_records
from density_regression.experiments.report import paper

RESULTS = Path(__file__).parents[1] / "docs" / "results"
OURS, FIVE = "Density-Regression", "Deep Ensembles"
RIVALS = ("Gaussian", "Quantile", "MC Dropout", "MFVI-BNN", "EDL", "SNGP", "DUE", FIVE)
UCI = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine_red", "yacht")
METRICS = {"NLL": "nll", "RMSE": "rmse", "Cal": "cal", "Sharp": "sharpness_sd"}
LOG_2_PI = math.log(2 * math.pi)

Record = dict[str, Any]
Results = dict[tuple[str, str, str], list[Record]]
"""Records of splits by data set, test and method."""


class Printed(NamedTuple):
    """A mean that the paper prints, and its standard deviation, as strings."""

    mean: str
    sd: str


def main() -> None:
    printed = paper_figures()
    uci = records_of("uci")
    one_method(uci, printed)
    wins(uci, printed)
    wine(records_of("wine"), printed)
    weather(records_of("weather"), printed)
    cubic(records_of("cubic"))
    present_default(printed)


def paper_figures() -> dict[tuple[str, str, str], Printed]:
    """By table, method and metric, as in the file that the report reads."""
    with (Path(paper.__file__).parent / "paper_tables.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {(row["table"], row["method"], row["metric"]): Printed(row["mean"], row["sd"]) for row in rows}


def records_of(suite: str, folder: Path = RESULTS, protocol: str = "paper") -> Results:
    found: Results = defaultdict(list)
    for record in read_records(folder / f"{suite}-{protocol}.jsonl"):
        for test in () if record.get("search") else record["tests"]:
            found[record["dataset"], test, record["method"]].append(record)
    return found


def mean(records: list[Record], test: str, metric: str) -> float:
    return float(np.mean([record["tests"][test]["metrics"][metric] for record in records]))


def uci_mean(uci: Results, name: str, method: str, metric: str) -> float:
    # What the paper prints as the NLL of EDL is possible for its own law only.
    own = "nll_own" if (method, metric) == ("EDL", "nll") else metric
    return mean(uci[name, "test", method], "test", own)


def in_paper(method: str) -> str:
    return paper.IN_PAPER.get(method, method)


def one_method(uci: Results, printed: dict[tuple[str, str, str], Printed]) -> None:
    """Density-Regression and five networks, here and in the paper, for each set."""
    for metric, ours in METRICS.items():
        header(f"{metric}, UCI", ["ours", "ours, paper", "five networks", "five networks, paper"])
        for name in UCI:
            table = "wine" if name == "wine_red" else name
            cells = []
            for method in (OURS, FIVE):
                figure = printed[table, in_paper(method), metric]
                cells += [short(uci_mean(uci, name, method, ours)), f"{figure.mean} ± {figure.sd}"]
            row(name, cells)


def wins(uci: Results, printed: dict[tuple[str, str, str], Printed]) -> None:
    """On how many sets Density-Regression is better than each rival, here and in the paper."""
    header("UCI sets on which Density-Regression is better: here / paper", METRICS)
    for method in RIVALS:
        cells = []
        for metric, ours in METRICS.items():
            here = sum(uci_mean(uci, name, OURS, ours) < uci_mean(uci, name, method, ours) for name in UCI)
            there = sum(_better(printed, "wine" if name == "wine_red" else name, method, metric) for name in UCI)
            cells.append(f"{here} / {there}")
        row(method, cells)
    print(f"\nOf {len(UCI)} sets. Sets that the paper prints alike count as not better there.")


def _better(printed: dict[tuple[str, str, str], Printed], table: str, method: str, metric: str) -> bool:
    ours, theirs = (printed[table, in_paper(name), metric] for name in (OURS, method))
    return float(ours.mean) < float(theirs.mean)


def both_tests(results: Results, printed: dict[tuple[str, str, str], Printed], layout: Layout) -> None:
    for test, prefix, title in layout.tests:
        header(title, METRICS)
        for method in (OURS, *RIVALS):
            records = results[layout.dataset, test, method]
            here = layout.figures(records, test, method)
            cells = [f"{short(here[m])} ({printed[layout.table, in_paper(method), prefix + m].mean})" for m in METRICS]
            row(method, cells)


class Layout(NamedTuple):
    """A table of the paper with a test at home and one shifted."""

    table: str
    dataset: str
    tests: tuple[tuple[str, str, str], ...]
    figures: Callable[[list[Record], str, str], dict[str, float]]


def wine(results: Results, printed: dict[tuple[str, str, str], Printed]) -> None:
    def figures(records: list[Record], test: str, method: str) -> dict[str, float]:
        own = {"NLL": "nll_own"} if method == "EDL" else {}
        return {name: mean(records, test, (METRICS | own)[name]) for name in METRICS}

    tests = (("wine_red", "", "Red wine: ours (paper)"), ("wine_white", "o", "White wine: ours (paper)"))
    both_tests(results, printed, Layout("wine", "wine_red", tests, figures))


def weather(results: Results, printed: dict[tuple[str, str, str], Printed]) -> None:
    def figures(records: list[Record], test: str, method: str) -> dict[str, float]:
        return {name: float(np.mean([value(record, test)[name] for record in records])) for name in METRICS}

    def value(record: Record, test: str) -> dict[str, float]:
        found, sd = record["tests"][test]["metrics"], record["target_sd"]
        return {
            "NLL": in_their_units(found["nll"], sd),
            "RMSE": found["rmse"] / sd,
            "Cal": found["cal"],
            "Sharp": found["sharpness_sd"],
        }

    tests = (
        ("jena_climate_2020", "", "Weather, Jena 2020: ours (paper, 2009 to 2016)"),
        ("jena_climate_2022_ood", "o", "Weather, 2022: ours (paper, Saaleaue 2022)"),
    )
    both_tests(results, printed, Layout("time-series", "jena_climate_2020", tests, figures))


def in_their_units(nll: float, sd: float) -> float:
    """The paper's loss on weather, 2 log std + r^2 / std^2 with targets divided by `sd`, from an NLL in their units."""
    return 2 * (nll - math.log(sd)) - LOG_2_PI


def cubic(results: Results) -> None:
    """The toy: the paper has a figure of it, and no numbers."""
    header("Cubic toy, inside / outside", ["NLL", "RMSE", "coverage of 95 % intervals"])
    for method in dict.fromkeys(method for _, _, method in results):
        both = [
            " / ".join(short(mean(results["cubic", test, method], test, metric)) for test in ("inside", "outside"))
            for metric in ("nll", "rmse", "coverage_95")
        ]
        row(method, both)


def present_default(printed: dict[tuple[str, str, str], Printed]) -> None:
    """The default as it is now, on plain columns, where there are records of it."""
    found = {suite: records_of(suite, RESULTS / "members", "tuned") for suite in ("uci", "wine")}
    places = [("uci", name, "test", "wine" if name == "wine_red" else name, "") for name in UCI if name != "wine_red"]
    places += [("wine", "wine_red", "wine_red", "wine", ""), ("wine", "wine_red", "wine_white", "wine", "o")]
    header("Present default: ours (paper)", ["splits", *METRICS])
    for suite, name, test, table, prefix in places:
        if records := found[suite][name, test, OURS]:
            figures = {metric: short(mean(records, test, own)) for metric, own in METRICS.items()}
            cells = [f"{value} ({printed[table, 'Ours', prefix + metric].mean})" for metric, value in figures.items()]
            row(name if suite == "uci" else test, [str(len(records)), *cells])


def header(title: str, columns: Iterable[str]) -> None:
    names = list(columns)
    print(f"\n| {title} | " + " | ".join(names) + " |")
    print("|---|" + "---:|" * len(names))


def row(name: str, cells: list[str]) -> None:
    print(f"| {name} | " + " | ".join(cells) + " |")


def short(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
