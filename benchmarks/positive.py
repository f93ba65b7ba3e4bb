"""`target="log"` against "identity" on the positive, skewed targets of the natural shifts, at home and shifted.

python benchmarks/positive.py --data-dir DIR [--seeds 2] [--rows 3000] [--methods DensityRegressor] [--json FILE]

DIR has the tables of `bench shift`. Of each whose targets are all above 0 and of a skewness of 0.5 or more: NLL of the
own law (Normal or log-normal), coverage of 90 % intervals, the lowest end of any, and whether "auto" chose what the
held-out rows prefer. The held-out rows are given, so that all three fits have the same.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import skew

from density_regression import metrics
from density_regression.datasets import Rows, ShiftData, load_natural_shift, natural_shifts
from density_regression.estimators.base import DeepRegressor
from density_regression.registry import estimators
from density_regression.tabular.table import split_rows

LEAST_SKEWNESS = 0.5
SIDES = ("in distribution", "shifted")


def positive_and_skewed(data: ShiftData) -> bool:
    """Whether the targets are above 0, in the tests too, and skewed in training."""
    lowest = min(rows.y.min() for rows in (data.train, *data.tests.values()))
    return bool(lowest > 0 and skew(data.train.y) >= LEAST_SKEWNESS)


def own_nll(reg: DeepRegressor, rows: Rows) -> np.ndarray:
    """NLL (n,) of each row."""
    return -reg.predict_dist(rows.X).log_prob(torch.from_numpy(rows.y)).numpy()


def paired(fits: dict[str, DeepRegressor], rows: Rows) -> dict[str, float]:
    """NLL of "log" less that of "identity": mean, its standard error, and median over rows."""
    less = own_nll(fits["log"], rows) - own_nll(fits["identity"], rows)
    return {"mean": float(less.mean()), "error": float(less.std() / len(less) ** 0.5), "median": float(np.median(less))}


def scores(reg: DeepRegressor, data: ShiftData) -> dict[str, Any]:
    """Of each side: NLL, coverage of 90 % intervals, the lowest end, and the error of mean and median."""
    result = {}
    for side in SIDES:
        X, y = data.tests[side]
        low, high = reg.predict_interval(X, 0.9)
        result[side] = {
            "nll": float(own_nll(reg, data.tests[side]).mean()),
            "coverage": float(((low <= y) & (y <= high)).mean()),
            "lowest": float(low.min()),
            "below zero": float((low < 0).mean()),
            "mae of median": metrics.mae(y, reg.predict_quantiles(X, [0.5])[:, 0]),
        }
    return result


def run(method: str, name: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """One table and seed under both laws, and what "auto" chooses."""
    data = load_natural_shift(name, args.data_dir, random_state=seed, max_rows=args.rows)
    kept, apart = split_rows(len(data.train.y), 0.15, seed)
    train, held_out = (Rows(data.train.X[part], data.train.y[part]) for part in (kept, apart))
    fits = {}
    for target in ("identity", "log", "auto"):
        reg = estimators()[method](target=target, random_state=seed, n_threads=1, verbose=False)
        fits[target] = reg.fit(*train, held_out=held_out)
    held_out_nll = {target: own_nll(fits[target], held_out).mean() for target in ("identity", "log")}
    return {
        "method": method,
        "dataset": name,
        "seed": seed,
        "skewness": float(skew(data.train.y)),
        "auto": fits["auto"].target_,
        "held_out": min(held_out_nll, key=held_out_nll.__getitem__),
        "less": {side: paired(fits, data.tests[side]) for side in SIDES},
        **{target: scores(fits[target], data) for target in held_out_nll},
    }


def table(records: list[dict[str, Any]]) -> str:
    """Means over seeds, in Markdown."""
    head = ["set", "skewness", "NLL at home", "log less identity", "median row", "coverage at home", "log"]
    head += ["NLL shifted", "log less identity", "ends below 0", "auto", "as held-out rows say"]
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 3)}---|---|"]
    better, agree = [0, 0], 0
    names = list(dict.fromkeys(record["dataset"] for record in records))
    for name in names:
        own = [record for record in records if record["dataset"] == name]

        def mean(law: str, what: str, side: str = SIDES[0], own: list[dict[str, Any]] = own) -> float:
            return float(np.mean([record[law][side][what] for record in own]))

        def less(side: str, own: list[dict[str, Any]] = own) -> tuple[float, str]:
            value = float(np.mean([record["less"][side]["mean"] for record in own]))
            error = float(np.sqrt(np.sum([record["less"][side]["error"] ** 2 for record in own]))) / len(own)
            return value, f"{value:+.3f} ± {error:.3f}"

        agreed = sum(record["auto"] == record["held_out"] for record in own)
        medians = np.mean([record["less"][SIDES[0]]["median"] for record in own])
        better = [better[0] + (less(SIDES[0])[0] < 0), better[1] + int(medians < 0)]
        agree += agreed
        parts = [name, f"{np.mean([record['skewness'] for record in own]):.1f}", f"{mean('identity', 'nll'):.3f}"]
        parts += [less(SIDES[0])[1], f"{medians:+.3f}"]
        parts += [f"{100 * mean(law, 'coverage'):.1f} %" for law in ("identity", "log")]
        parts += [f"{mean('identity', 'nll', SIDES[1]):.3f}", less(SIDES[1])[1]]
        parts += [f"{100 * mean('identity', 'below zero'):.1f} %, {100 * mean('log', 'below zero'):.1f} %"]
        lines.append(f"| {' | '.join(parts)} | {', '.join(r['auto'] for r in own)} | {agreed} of {len(own)} |")
    lines.append(
        f"\nlog is better at home on {better[0]} of {len(names)} sets, for the median row on {better[1]}; "
        f"auto as held-out rows say: {agree} of {len(records)}"
    )
    return "\n".join(lines)


def main() -> None:
    """Print a table; records may be kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--methods", nargs="+", default=["DensityRegressor"])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for method in args.methods:
        records = []
        for name in natural_shifts(args.data_dir):
            if not positive_and_skewed(load_natural_shift(name, args.data_dir, max_rows=args.rows)):
                continue
            records += [run(method, name, seed, args) for seed in range(args.seeds)]
            print(method, name, json.dumps(records[-1]), flush=True)
        print(f"\n{method}\n\n{table(records)}", flush=True)
        if args.json is not None:
            with args.json.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(record) + "\n" for record in records)


if __name__ == "__main__":
    main()
