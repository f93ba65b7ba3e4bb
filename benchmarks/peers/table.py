"""The comparison as Markdown: a table for each data set, and where ours is not better.

    .venv-peers/bin/python benchmarks/peers/table.py [RESULTS.jsonl]

Mean and standard deviation are over the splits. Differences are taken split by split; p is that of the corrected
resampled t-test (Nadeau & Bengio, 2003), two-sided, not corrected for the number of comparisons.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from density_regression.experiments.records import Record, read_records
from density_regression.experiments.significance import paired_p_value

OURS = "ours (DensityRegressor)"
SCORES = {"nll": "NLL", "crps": "CRPS", "rmse": "RMSE"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, default=Path(__file__).parent / "results.jsonl")
    args = parser.parse_args()
    records = read_records(args.results)
    print(made_by(records))
    for dataset in dict.fromkeys(record["dataset"] for record in records):
        found = [record for record in records if record["dataset"] == dataset]
        print("\n" + table(dataset, found) + "\n\n" + verdicts(found))


def made_by(records: Sequence[Record]) -> str:
    """Machines, commits and versions, each once."""

    def once(values: Sequence[str]) -> str:
        return "; ".join(dict.fromkeys(values))

    machines = once([f"{r['machine']['cpu']} ({r['machine']['cores']} cores, 1 thread used)" for r in records])
    commits = once([str(record["commit"]) for record in records])
    versions = once([", ".join(f"{k} {v}" for k, v in (r["versions"] | r["peers"]).items()) for r in records])
    return f"Machine: {machines}. Commit: {commits}. Versions: {versions}."


def table(dataset: str, records: Sequence[Record]) -> str:
    """One row for each method, in the order of the run."""
    methods = by_method(records)
    rows = next(iter(records))["rows"]
    splits = max(len(found) for found in methods.values())
    lines = [
        f"### {dataset}: {rows['train']:,} training rows, {rows['test']:,} test rows, {splits} splits",
        "",
        "| | fit, s | predict, s | NLL | CRPS | RMSE | 90 % interval covers | fit / ours |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, found in methods.items():
        shared = sorted(set(found) & set(methods.get(OURS, {})))
        ratios = [found[split]["seconds"]["fit"] / methods[OURS][split]["seconds"]["fit"] for split in shared]
        values = {score: [record["metrics"][score] for record in found.values()] for score in SCORES}
        cells = [
            f"{np.mean([record['seconds']['fit'] for record in found.values()]):.1f}",
            f"{np.mean([record['seconds']['predict'] for record in found.values()]):.3f}",
            *(mean_sd(values[score]) for score in SCORES),
            f"{100 * np.mean([record['metrics']['coverage_90'] for record in found.values()]):.0f} %",
            f"{np.median(ratios):.2f} x" if ratios else "",
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    failed = [f"{r['method']}, split {r['split']}: {r['error']}" for r in records if "error" in r]
    return "\n".join(lines + (["", "Failed: " + "; ".join(failed) + "."] if failed else []))


def verdicts(records: Sequence[Record]) -> str:
    """Where a rival's mean is as low as ours, and where ours is lower but the test does not say so."""
    methods = by_method(records)
    ours = methods.pop(OURS, {})
    test_to_train = records[0]["rows"]["test"] / records[0]["rows"]["train"]
    behind, unclear = [], []
    for name, found in methods.items():
        splits = sorted(set(found) & set(ours))
        if not splits or name.startswith("ours"):
            continue
        for score, label in SCORES.items():
            mine, theirs = (np.array([part[split]["metrics"][score] for split in splits]) for part in (ours, found))
            p = paired_p_value(mine, theirs, test_to_train)
            difference, lower = np.mean(theirs - mine), int(np.sum(theirs < mine))
            words = f"{label} {difference:+.3g}, p = {p:.2g}"
            if difference <= 0:
                behind.append(f"- {name}: {words}; lower in {lower} of {len(splits)} splits.")
            elif p >= 0.05:
                unclear.append(f"{name} ({words})")
    lines = ["Ours is not better (theirs minus ours, paired):", "", *(behind or ["- nowhere."])]
    if unclear:
        lines += ["", "Ours is lower, but not significantly (p >= 0.05): " + "; ".join(unclear) + "."]
    return "\n".join(lines)


def by_method(records: Sequence[Record]) -> dict[str, dict[str, Record]]:
    """Records that did not fail, by method, then by split."""
    found: dict[str, dict[str, Record]] = {}
    for record in records:
        if "error" not in record:
            found.setdefault(record["method"], {})[record["split"]] = record
    return found


def mean_sd(values: Sequence[float]) -> str:
    """Mean and standard deviation, with decimals to suit the size of the mean."""
    mean, sd = float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    decimals = 4 if abs(mean) < 0.2 else 3
    return f"{mean:.{decimals}f} ± {sd:.{decimals}f}"


if __name__ == "__main__":
    main()
