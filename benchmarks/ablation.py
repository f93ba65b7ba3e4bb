"""What each choice behind the default is worth: with and without it, on rows that training did not see.

    python benchmarks/ablation.py --data-dir DIR [--datasets yacht,boston] [--variants "natural head"] [--json FILE]

Cells are gaps and tails of features, standard splits, and `hidden`: the rows at both ends of random directions of the
first standard split's training rows. A constant of the method may be chosen by the last alone, as no test row is in it.
What the file has already is not run again.
"""

from __future__ import annotations

import argparse
import json
import warnings
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed

from density_regression import DensityRegressor, fit_together, metrics
from density_regression.baselines.spectral_normalisation import apply_spectral_norm
from density_regression.datasets import Rows
from density_regression.experiments.suites import SUITES
from density_regression.nn.density import MixtureDensity
from density_regression.nn.encoders import ResidualMLP
from density_regression.nn.tempering import RobustTempering
from density_regression.tabular.table import split_rows

MOST_ROWS = 2500
SPLITS = 4
DATASETS = ("boston", "concrete", "energy", "kin8nm", "power", "wine_red", "yacht")
KINDS = ("hidden", "gap", "tail", "standard")
CROSS_FITTED = "scale from five folds"
FOLDS = 5


def residual(columns: int) -> ResidualMLP:
    """A residual network of the default's size."""
    return ResidualMLP(columns, (100, 100))


def distance_preserving(columns: int) -> ResidualMLP:
    """The same with the spectral norm of its layers held below one."""
    encoder = residual(columns)
    apply_spectral_norm(encoder, 0.95)
    return encoder


ALONE: dict[str, Any] = {"members": 0, "embedding": None, "weight_decay": 0.1}
"""The network that learns from no other and reads plain columns, whose choices these are."""

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "natural head": {"head": "natural"},
    "no averaging": {"average": 0.0},
    "inputs not beside the features": {"with_inputs": False},
    "residual network": {"encoder": residual},
    "residual network with spectral norm": {"encoder": distance_preserving},
    "reach not learnt": {"tempering": RobustTempering(reach=3.0)},
    "exponent 1": {"tempering": RobustTempering(1.0)},
    "exponent 3": {"tempering": RobustTempering(3.0)},
    "one Gaussian": {"density": "gaussian"},
    "kernel density": {"density": "kernel"},
    "8 directions of the features": {"density": MixtureDensity(max_dims=8)},
    "32 directions": {"density": MixtureDensity(max_dims=32)},
    "a quarter held out": {"validation_fraction": 0.25},
    "no density": {"density": None},
    CROSS_FITTED: {},
}


class Split(NamedTuple):
    """Rows to train on and to test on."""

    train: Rows
    test: Rows


def splits_of(dataset: str, kind: str, data_dir: str) -> list[Split]:
    """A few splits of one kind."""
    suite = SUITES["uci-shift" if kind in ("gap", "tail") else "uci"]
    names = [name for name in suite.splits(dataset, data_dir) if kind not in ("gap", "tail") or name.startswith(kind)]
    if kind == "hidden":
        return hidden(suite.load(dataset, names[0], data_dir).train)
    chosen = [names[i] for i in np.linspace(0, len(names) - 1, min(SPLITS, len(names))).astype(int)]
    tasks = [suite.load(dataset, name, data_dir) for name in chosen]
    return [Split(some(task.train, i), some(task.tests["test"], i)) for i, task in enumerate(tasks)]


def hidden(rows: Rows) -> list[Split]:
    """The middle three quarters along random directions of the scaled inputs, and what lies at both ends."""
    rows = some(rows, 0)
    scaled = (rows.X - rows.X.mean(axis=0)) / np.maximum(rows.X.std(axis=0), 1e-12)
    splits = []
    for seed in range(SPLITS):
        order = np.argsort(scaled @ np.random.default_rng(seed).standard_normal(scaled.shape[1]), kind="stable")
        eighth = len(order) // 8
        ends, middle = np.r_[order[:eighth], order[-eighth:]], order[eighth:-eighth]
        splits.append(Split(Rows(rows.X[middle], rows.y[middle]), Rows(rows.X[ends], rows.y[ends])))
    return splits


def some(rows: Rows, seed: int) -> Rows:
    """At most `MOST_ROWS` of the rows."""
    order = np.random.default_rng(seed).permutation(len(rows.y))[:MOST_ROWS]
    return Rows(rows.X[order], rows.y[order])


def run(dataset: str, kind: str, variant: str, data_dir: str) -> dict[str, Any]:
    """Fit one variant to the splits of a cell, and score it in the target's units."""
    warnings.simplefilter("ignore")
    splits = splits_of(dataset, kind, data_dir)
    settings = ALONE | VARIANTS[variant]
    tables, held_outs, regressors = [], [], []
    for seed, (train, _) in enumerate(splits):
        kept, held = split_rows(len(train.y), settings.get("validation_fraction", 0.15), seed)
        tables.append((train.X[kept], train.y[kept]))
        held_outs.append((train.X[held], train.y[held]))
        regressors.append(DensityRegressor(**settings, random_state=seed, n_threads=1, verbose=False))
    fit_together(regressors, tables, held_outs)
    scales = [cross_fitted(train, seed) for seed, (train, _) in enumerate(splits)] if variant == CROSS_FITTED else None
    predictions = []
    for i, (regressor, (_, test)) in enumerate(zip(regressors, splits, strict=True)):
        mean, std = regressor.predict(test.X, return_std=True)
        predictions.append((mean, std if scales is None else scales[i] * std))
    scores = {
        name: [float(score(test.y, *prediction)) for prediction, (_, test) in zip(predictions, splits, strict=True)]
        for name, score in (("nll", metrics.nll), ("crps", metrics.crps))
    }
    scores["rmse"] = [
        float(metrics.rmse(test.y, mean)) for (mean, _), (_, test) in zip(predictions, splits, strict=True)
    ]
    return {"dataset": dataset, "kind": kind, "variant": variant, **scores}


def cross_fitted(rows: Rows, seed: int) -> float:
    """How much too small the deviations are, by rows that each of five further fits has not seen at all."""
    fold = np.random.default_rng(seed).permutation(len(rows.y)) % FOLDS
    squares = []
    for i in range(FOLDS):
        kept = np.flatnonzero(fold != i)
        inner, held = split_rows(len(kept), 0.15, seed)
        regressor = DensityRegressor(**ALONE, random_state=seed, n_threads=1, verbose=False)
        inner, held = kept[inner], kept[held]
        regressor.fit(rows.X[inner], rows.y[inner], held_out=(rows.X[held], rows.y[held]))
        mean, std = regressor.predict(rows.X[fold == i], return_std=True)
        squares.append(((rows.y[fold == i] - mean) / std) ** 2)
    return float(np.sqrt(np.concatenate(squares).mean()))


def table(results: list[dict[str, Any]], kind: str) -> str:
    """Markdown: NLL of the default, and how much higher it is without each choice."""
    found = {(one["dataset"], one["variant"]): np.mean(one["nll"]) for one in results if one["kind"] == kind}
    datasets = [name for name in DATASETS if (name, "default") in found]
    lines = [f"| {kind} | " + " | ".join(datasets) + " | higher in |", "|---|" + "---:|" * (len(datasets) + 1)]
    for variant in VARIANTS:
        values = [found.get((dataset, variant)) for dataset in datasets]
        if all(value is None for value in values):
            continue
        if variant == "default":
            lines.append(f"| {variant} | " + " | ".join(f"{value:.2f}" for value in values) + " | |")
            continue
        changes = [
            None if value is None else value - found[dataset, "default"]
            for dataset, value in zip(datasets, values, strict=True)
        ]
        known = [change for change in changes if change is not None]
        cells = ["" if change is None else f"{change:+.2f}" for change in changes]
        lines.append(f"| {variant} | " + " | ".join(cells) + f" | {sum(c > 0 for c in known)} of {len(known)} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, default=Path("ablation.json"))
    args = parser.parse_args()
    results = json.loads(args.json.read_text()) if args.json.exists() else []
    done = {(one["dataset"], one["kind"], one["variant"]) for one in results}
    cells = [
        (dataset, kind, variant)
        for variant in args.variants.split(",")
        for kind in args.kinds.split(",")
        for dataset in args.datasets.split(",")
        if (dataset, kind, variant) not in done
    ]
    work = (delayed(partial(run, data_dir=args.data_dir))(*cell) for cell in cells)
    for result in Parallel(n_jobs=args.jobs, return_as="generator_unordered")(work):
        results.append(result)
        args.json.write_text(json.dumps(results, indent=0))
        print(f"{len(results)}: {result['dataset']} {result['kind']} {result['variant']}", flush=True)
    for kind in KINDS:
        print("\n" + table(results, kind))


if __name__ == "__main__":
    main()
