"""The alarm: false alarms beside its promise, and delays after changes beside other detectors.

python benchmarks/alarm.py --data-dir DATA [--out FILE.json] [--cache FOLDER] [--parts false fresh ...] [--streams 1000]

Parts, one table each:
  fixed     ranks among a fixed reference, as it is often done, beside sequential ranks
  false     streams of rows like those before: share with an alarm within N rows, and rows for each alarm
  fresh     the same from end to end: held-out rows of real models, then rows that these have never seen
  workers   several processes with the same reference, each with its own share of the rows
  wine      red wine turns into white
  shifts    delays after natural shifts, beside ADWIN (river) and a Kolmogorov-Smirnov window at the same rate
  order     rows that depend on their neighbours: a made-up series and hours of weather, and what mends it
  speed     processor time of a row, and size of the state

Models are fitted to at most 2,000 rows with 60 epochs; their scores are kept in the folder --cache. river must be
installed for ADWIN; otherwise its column is empty.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _alarm_changes import shifts, wine
from _alarm_false import false, fixed, fresh, workers
from _alarm_order import order

from density_regression.serve.alarm import Alarm


def speed(_: argparse.Namespace) -> list[dict[str, Any]]:
    """Time for each row, with and without columns, in one batch and one by one; size of the state."""
    rng = np.random.default_rng(0)
    result = []
    for columns in (0, 10):
        X = rng.normal(size=(200_000, columns)) if columns else None
        for rows, batch in ((200_000, 200_000), (2_000, 1)):
            alarm = Alarm(rng.normal(size=1_000))
            alarm.update_scores(rng.normal(size=300), columns=None if X is None else X[:300])
            scores = rng.normal(size=rows)
            started = time.process_time()
            for start in range(0, rows, batch):
                part = slice(start, start + batch)
                alarm.update_scores(scores[part], columns=None if X is None else X[part])
            each = 1e6 * (time.process_time() - started) / rows
            size = len(json.dumps(alarm.state)) / 1e3
            result.append(
                {"columns": columns, "rows at once": batch, "microseconds for a row": each, "state, kB": size}
            )
    return result


PARTS = {part.__name__: part for part in (fixed, false, fresh, workers, wine, shifts, order, speed)}


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as a Markdown table."""
    heads = list(dict.fromkeys(name for row in rows for name in row))
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(_text(row.get(name)) for name in heads)} |" for row in rows]
    return "\n".join(lines)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        # A median delay, and the share of streams in which the change was found, if not all.
        found = "" if value["found"] == 1.0 else f" ({value['found']:.0%})"
        delay = value["median delay"]
        return f"{'-' if delay is None or math.isinf(delay) else f'{delay:.0f}'}{found}"
    return (
        f"{value:,.0f}"
        if isinstance(value, float) and 1_000 <= value < math.inf
        else f"{value:.4g}"
        if isinstance(value, float)
        else str(value)
    )


def main() -> None:
    """Print the tables, and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--cache", type=Path, default=Path("alarm-scores"))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--streams", type=int, default=1_000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    results = json.loads(args.out.read_text()) if args.out and args.out.exists() else {}
    for name in args.parts:
        started = time.perf_counter()
        results[name] = PARTS[name](args)
        print(f"\n{name} ({time.perf_counter() - started:.0f} s)\n\n{table(results[name])}", flush=True)
        if args.out:
            args.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
