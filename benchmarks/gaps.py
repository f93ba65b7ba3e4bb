"""Gaps, tails and standard splits: the default beside its former self and five networks, all with settings searched.

    python benchmarks/gaps.py [uci-shift | uci] [OURS.jsonl RECORDS.jsonl]

OURS are records of `bench uci-shift --protocol tuned --budget 8 --methods Density-Regression` (of `uci` a budget of
2, but 8 for naval and protein), RECORDS those of the tuned comparison. Prints Markdown: means over the splits of each
cell, and on how many cells ours is lower.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from density_regression.experiments.records import Record, read_records

RESULTS = Path(__file__).parents[1] / "docs" / "results"
OURS, FIVE = "Density-Regression", "Deep Ensembles"

Cells = dict[tuple[str, str], dict[str, dict[str, float]]]


def cells(records: list[Record], method: str) -> Cells:
    """Metrics of each split of a method, by data set and kind of split."""
    found: Cells = defaultdict(dict)
    for record in records:
        if record["method"] == method and not record.get("search"):
            (test,) = (name for name in record["tests"] if name != "validation")
            kind = record["split"].partition(":")[0] if record["suite"] == "uci-shift" else "standard"
            found[record["dataset"], kind][record["split"]] = record["tests"][test]["metrics"]
    return found


def main() -> None:
    """Print the table."""
    suite, *files = sys.argv[1:] or ["uci-shift"]
    ours_file, others_file = files or (RESULTS / part / f"{suite}-tuned.jsonl" for part in ("members", "tuned"))
    ours, records = cells(read_records([Path(ours_file)]), OURS), read_records([Path(others_file)])
    former, five = cells(records, OURS), cells(records, FIVE)
    wins = dict.fromkeys(("NLL, rescaled", "NLL, as they come", "CRPS", "NLL of the former default"), 0)
    print("| | NLL, ours | former default | five networks | rescaled | CRPS, ours / five |")
    print("|---|---:|---:|---:|---:|---:|")
    for cell, splits in sorted(ours.items()):

        def mean(of: Cells, metric: str, cell: tuple[str, str] = cell, names: tuple[str, ...] = tuple(splits)) -> float:
            return float(np.mean([of[cell][name][metric] for name in names]))

        nll = mean(ours, "nll"), mean(former, "nll"), mean(five, "nll"), mean(five, "nll_rescaled")
        ratio = mean(ours, "crps") / mean(five, "crps")
        for name, won in zip(wins, (nll[0] < nll[3], nll[0] < nll[2], ratio < 1, nll[0] < nll[1]), strict=True):
            wins[name] += won
        print(f"| {cell[0]}, {cell[1]} | {' | '.join(f'{value:.3f}' for value in nll)} | {ratio:.3f} |")
    print(f"\nLower on, of {len(ours)}: {', '.join(f'{name} {count}' for name, count in wins.items())}")


if __name__ == "__main__":
    main()
