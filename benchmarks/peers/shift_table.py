"""Ours and the peers on the tables with a natural shift, as Markdown: a row for each, and how often ours is better.

    .venv-peers/bin/python benchmarks/peers/shift_table.py [RESULTS.jsonl] [--ours OURS.jsonl] [--peers NAME ...]

RESULTS are those of `shift.py`, OURS those of `density-regression bench shift`. Of a table, only the seeds count that
all shown methods have, and the scores are means over them. No difference is tested here.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from density_regression.experiments.records import Record, read_records

OURS = "Density-Regression"
HOME, SHIFTED = "in distribution", "shifted"
CLOSE = 1.05
"""Our RMSE counts as close to the best peer's if it is at most so many times as large."""

ROOT = Path(__file__).parents[2]

Found = dict[str, dict[str, Record]]
"""Records of one table, by method, then by seed."""


class Means(NamedTuple):
    """Of one method on one table, over the seeds."""

    home: float
    shifted: float
    rmse: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, default=Path(__file__).parent / "shift.jsonl")
    parser.add_argument("--ours", type=Path, default=ROOT / "docs" / "results" / "shift" / "shift-default.jsonl")
    parser.add_argument("--method", default=OURS, help="which of OURS is compared")
    parser.add_argument("--peers", nargs="+", metavar="NAME", help="all without it")
    args = parser.parse_args()

    results = [
        record for record in read_records(args.results) if record["method"] in (args.peers or [record["method"]])
    ]
    ours = [record for record in read_records(args.ours) if record["method"] == args.method]
    peers = list(dict.fromkeys(record["method"] for record in results))
    names = [args.method, *peers]
    by_table = {dataset: shared(found, names) for dataset, found in grouped([*ours, *results]).items()}
    by_table = {dataset: found for dataset, found in by_table.items() if found}
    if not by_table:
        raise SystemExit("There is no table yet of which all methods have a seed.")
    means = {dataset: {name: mean_of(found[name].values()) for name in names} for dataset, found in by_table.items()}
    print(table(means, {dataset: len(found[args.method]) for dataset, found in by_table.items()}, names))
    print("\n" + verdicts(list(means.values()), args.method, peers))
    print("\n" + seconds([record for found in by_table.values() for name in peers for record in found[name].values()]))
    failed = [f"{r['dataset']} {r['split']} {r['method']}: {r['error']}" for r in results if "error" in r]
    if failed:
        print("\nFailed: " + "; ".join(failed) + ".")


def grouped(records: Iterable[Record]) -> dict[str, Found]:
    """Records that did not fail, by table, method and seed."""
    found: dict[str, Found] = {}
    for record in records:
        if "error" not in record:
            found.setdefault(record["dataset"], {}).setdefault(record["method"], {})[record["split"]] = record
    return found


def shared(found: Found, names: Sequence[str]) -> Found:
    """Records of the seeds that all methods have; empty if there is none. They must be of the same rows."""
    seeds = set.intersection(*(set(found.get(name, {})) for name in names))
    kept = {name: {seed: found[name][seed] for seed in sorted(seeds)} for name in names} if seeds else {}
    records = [record for part in kept.values() for record in part.values()]
    if len({record["data"] for record in records}) > 1:
        raise SystemExit(f"The table {records[0]['dataset']} was another one in OURS than in RESULTS.")
    return kept


def mean_of(records: Iterable[Record]) -> Means:
    tests = [record["tests"] for record in records]
    values = [
        [test[HOME]["metrics"]["nll"], test[SHIFTED]["metrics"]["nll"], test[HOME]["metrics"]["rmse"]] for test in tests
    ]
    return Means(*(float(value) for value in np.mean(values, axis=0)))


def table(means: dict[str, dict[str, Means]], seeds: dict[str, int], names: Sequence[str]) -> str:
    heads = ["data set", "seeds", *(f"NLL, {name}" for name in names), *(f"RMSE, {name}" for name in names)]
    lines = [
        "NLL: in distribution / shifted. RMSE: in distribution.",
        "",
        "| " + " | ".join(heads) + " |",
        "|---" * len(heads) + "|",
    ]
    for dataset, found in means.items():
        nll = [f"{short(found[name].home)} / {short(found[name].shifted)}" for name in names]
        lines.append(
            f"| {dataset} | {seeds[dataset]} | "
            + " | ".join([*nll, *(short(found[name].rmse, "RMSE") for name in names)])
            + " |"
        )
    return "\n".join(lines)


def verdicts(tables: Sequence[dict[str, Means]], ours: str, peers: Sequence[str]) -> str:
    """On how many tables ours is better."""
    lines = []
    for name in peers:
        home = sum(found[ours].home < found[name].home for found in tables)
        shifted = sum(found[ours].shifted < found[name].shifted for found in tables)
        rmse = sum(found[ours].rmse < found[name].rmse for found in tables)
        lines.append(
            f"- {name}: our NLL is lower on {home} of {len(tables)} tables in distribution, on {shifted} shifted; "
            f"our RMSE in distribution on {rmse}."
        )
    close = sum(found[ours].rmse <= CLOSE * min(found[name].rmse for name in peers) for found in tables)
    lines.append(
        f"- Our RMSE in distribution is at most {CLOSE - 1:.0%} above that of the best of these peers on {close} of "
        f"{len(tables)} tables."
    )
    return "\n".join(lines)


def seconds(records: Iterable[Record]) -> str:
    """Median and longest fit of each peer."""
    found: dict[str, list[float]] = {}
    for record in records:
        found.setdefault(record["method"], []).append(record["seconds"]["fit"])
    parts = [f"{name} {np.median(values):.1f} ({max(values):.1f})" for name, values in found.items()]
    return "Seconds of a fit, median (longest): " + "; ".join(parts) + "."


def short(value: float, kind: str = "NLL") -> str:
    """Two decimals for an NLL, four digits for an RMSE."""
    if kind == "NLL":
        return f"{value:.2f}" if abs(value) < 1e6 else f"{value:.1e}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:#.4g}"


if __name__ == "__main__":
    main()
