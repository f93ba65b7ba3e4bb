"""What each choice of the default is worth: counts of wins over Deep Ensembles on shifts hidden in training sides.

    python benchmarks/hidden.py --data-dir DIR [--variants "default,no teacher"] [--seeds 2] [--json FILE]

The tables are those of `bench shift`. `hidden_shifts.json` cuts the training side of each into rows to train on and
rows that are shifted (earlier months, other stations, other kinds), so that no test row of `bench shift` is in them.
What the file has already is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from density_regression import DensityRegressor, metrics
from density_regression.baselines import DeepEnsembleRegressor
from density_regression.datasets import ShiftTable, load_natural_shift
from density_regression.nn.tempering import RobustTempering
from density_regression.training import distillation, refit, teacher

SHIFTS = Path(__file__).with_name("hidden_shifts.json")
MOST_ROWS = 3000
RIVAL = "Deep Ensembles"
TESTS = ("in distribution", "shifted")

VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "default": ({}, {}),
    "the former default": ({"members": 0, "embedding": None, "weight_decay": 0.1}, {}),
    "no teacher": ({"members": 0}, {}),
    "4 members": ({"members": 4}, {}),
    "16 members": ({"members": 16}, {}),
    "no embedding": ({"embedding": None}, {}),
    "no density": ({"density": None}, {}),
    "no made-up rows": ({}, {"distillation.MOST_AT_ONCE": 1}),
    "made-up rows without noise": ({}, {"distillation.JITTER": 0.0}),
    "made-up rows between others only": ({}, {"distillation.EXTRAPOLATED": 0.0}),
    "share of the likelihood 1": ({}, {"distillation.LIKELIHOOD_WEIGHT": 1.0}),
    "all of the detail": ({}, {"refit.TAUGHT_DETAIL": 1.0}),
    "no share for log r": ({}, {"distillation.RATIO_WEIGHT": 0.0}),
    "blocks of one row": ({}, {"teacher.BLOCK_ROWS": 1}),
    "reach 1": ({"tempering": RobustTempering(1.0, reach=1.0)}, {}),
    "reach 4": ({"tempering": RobustTempering(1.0, reach=4.0)}, {}),
    "exponent 2, reach 4": ({"tempering": RobustTempering(2.0, reach=4.0)}, {}),
}
"""Settings of the regressor, and constants of modules."""


@contextmanager
def changed(constants: dict[str, Any]) -> Iterator[None]:
    """Give constants of the training other values."""
    modules = {"distillation": distillation, "refit": refit, "teacher": teacher}
    before = {}
    for place, value in constants.items():
        module, name = modules[place.partition(".")[0]], place.partition(".")[2]
        before[place] = getattr(module, name)
        setattr(module, name, value)
    try:
        yield
    finally:
        for place, value in before.items():
            setattr(modules[place.partition(".")[0]], place.partition(".")[2], value)


def tables(data_dir: str) -> dict[str, ShiftTable]:
    """The tables with their hidden shifts."""
    folder = Path(data_dir) / "shift" if (Path(data_dir) / "shift").is_dir() else Path(data_dir)
    described = json.loads(SHIFTS.read_text(encoding="utf-8"))
    return {
        name: ShiftTable(
            name, str(folder / f"{name}.csv.gz"), own["train"], own["test"], own["target"], tuple(own["drop"])
        )
        for name, own in described.items()
    }


def run(variant: str, dataset: str, seed: int, data_dir: str) -> dict[str, Any]:
    """Fit one variant, or the rival, and score it at home and shifted."""
    warnings.simplefilter("ignore")
    data = load_natural_shift(tables(data_dir)[dataset], random_state=seed, max_rows=MOST_ROWS)
    settings, constants = VARIANTS.get(variant, ({}, {}))
    method = DeepEnsembleRegressor if variant == RIVAL else DensityRegressor
    with changed(constants):
        regressor = method(**settings, random_state=seed, n_threads=1, verbose=False).fit(*data.train)
    scores = {}
    for test, (X, y) in data.tests.items():
        mean, std = regressor.predict(X, return_std=True)
        factor = float(np.sqrt(np.mean(((y - mean) / std) ** 2)))
        scores[test] = {"nll": metrics.nll(y, mean, std), "crps": metrics.crps(y, mean, std), "factor": factor}
    return {"variant": variant, "dataset": dataset, "seed": seed, "tests": scores}


def table(results: list[dict[str, Any]]) -> str:
    """Markdown: on how many tables each variant beats the rival, and by how much in the middle."""

    def means(variant: str, test: str, score: str) -> dict[str, float]:
        own = [one for one in results if one["variant"] == variant]
        names = {one["dataset"] for one in own}
        return {
            name: float(np.mean([one["tests"][test][score] for one in own if one["dataset"] == name])) for name in names
        }

    lines = [
        "| | tables | NLL: home / shifted | CRPS | median change of NLL | factor at home |",
        "|---|---:|---|---|---|---|",
    ]
    for variant in dict.fromkeys(one["variant"] for one in results if one["variant"] != RIVAL):
        wins, medians, count = {}, [], 0
        for score in ("nll", "crps"):
            for test in TESTS:
                own, rival = means(variant, test, score), means(RIVAL, test, score)
                both = sorted(own.keys() & rival.keys())
                changes = np.array([own[name] - rival[name] for name in both])
                wins[score, test], count = int((changes < 0).sum()), len(both)
                medians += [f"{np.median(changes):+.3f}"] if score == "nll" else []
        factors = np.array(list(means(variant, TESTS[0], "factor").values()))
        cells = (
            f"{wins['nll', TESTS[0]]} / {wins['nll', TESTS[1]]}",
            f"{wins['crps', TESTS[0]]} / {wins['crps', TESTS[1]]}",
            " / ".join(medians),
            f"{factors.mean():.2f} ({factors.min():.2f} to {factors.max():.2f})",
        )
        lines.append(f"| {variant} | {count} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default=os.environ.get("DENSITY_REGRESSION_DATA"), help="has the folder shift")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--datasets", default="", help="all without it")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, default=Path("hidden.json"))
    args = parser.parse_args()
    if args.data_dir is None:
        parser.error("give --data-dir, or set DENSITY_REGRESSION_DATA: a folder with the tables of bench shift.")
    names = args.datasets.split(",") if args.datasets else list(tables(args.data_dir))
    results = json.loads(args.json.read_text()) if args.json.exists() else []
    done = {(one["variant"], one["dataset"], one["seed"]) for one in results}
    wanted = [
        (variant, name, seed)
        for variant in (RIVAL, *args.variants.split(","))
        for name in names
        for seed in range(args.seeds)
        if (variant, name, seed) not in done
    ]
    work = (delayed(partial(run, data_dir=args.data_dir))(*each) for each in wanted)
    for result in Parallel(n_jobs=args.jobs, return_as="generator_unordered")(work):
        results.append(result)
        args.json.write_text(json.dumps(results, indent=0))
        print(f"{len(results)}: {result['variant']}, {result['dataset']}, seed {result['seed']}", flush=True)
    print(table(results))


if __name__ == "__main__":
    main()
