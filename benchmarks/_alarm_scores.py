"""Scores of models for the benchmarks of the alarm, and the evidence that they give."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from density_regression import DensityRegressor
from density_regression.datasets.natural import load_natural_shift
from density_regression.serve.alarm.betting import BETS, Jumper

Floats = np.ndarray
ROWS = 20_000
RATES = (1_000, 10_000, 100_000)
MODEL_ROWS = 2_000


def evidence(p: Floats, rates: Sequence[float] = RATES, direction: str = "unfamiliar") -> tuple[Floats, Floats]:
    """First alarm (rates, streams), infinite if there was none, and number of alarms, of p-values (rows, streams)."""
    thresholds = np.array(rates, dtype=float)[:, None]
    R = np.zeros((len(rates), p.shape[1]))
    first, count = np.full(R.shape, np.inf), np.zeros(R.shape)
    for row, factor in enumerate(Jumper(BETS[direction]).factors(p), 1):
        R = (R + 1.0) * factor
        rings = thresholds <= R
        first = np.where(rings, np.minimum(first, row), first)
        count += rings
        R[rings] = 0.0
    return first, count


def fit_scores(cache: Path, name: str, draw: Callable[[], dict[str, Any]]) -> dict[str, Floats]:
    """Scores of a model, from the cache or from a fit to what `draw` gives: "train" (X, y), and X of other rows."""
    path = cache / f"{name}.npz"
    if not path.exists():
        rows = draw()
        reg = DensityRegressor(epochs=60, random_state=0, n_threads=1, verbose=False).fit(*rows.pop("train"))
        cache.mkdir(parents=True, exist_ok=True)
        scores = {part: reg.score_samples(X) for part, X in rows.items()}
        np.savez(path, reference=reg.held_out_levels_, **scores)
    return dict(np.load(path))


def shift_scores(args: argparse.Namespace, name: str) -> dict[str, Floats]:
    """Scores of one natural shift: "home" rows that the model has never seen, and "away" rows of the other side."""

    def draw() -> dict[str, Any]:
        data = load_natural_shift(name, args.data_dir, max_rows=10**9)
        order = np.random.default_rng(0).permutation(len(data.train.X))
        train, others = order[:MODEL_ROWS], order[MODEL_ROWS:]
        home = np.concatenate([data.tests["in distribution"].X, data.train.X[others]])
        rows = data.train.X[train], data.train.y[train]
        return {"train": rows, "home": home, "away": data.tests["shifted"].X}

    return fit_scores(args.cache, f"shift-{name}", draw)
