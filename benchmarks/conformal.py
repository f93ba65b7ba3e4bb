"""Split-conformal intervals at 90 %: mean coverage over repetitions, and weights under a known covariate shift.

python benchmarks/conformal.py [--repetitions 200] [--rows 500]

First table: exchangeable rows, shared out anew in each repetition between rows aside and new ones; predictions of three
methods, fitted once, before and after `conformalize`. Second: inputs of which one column has moved by some standard
deviations, and noise that the model was not trained on and that grows with this column. Unweighted; weighted by the
model's own density (`shifted=`); and by the true density ratio, which nobody has.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import torch

from density_regression import DensityRegressor
from density_regression.baselines import GaussianRegressor, QuantileRegressor
from density_regression.estimators.base import DeepRegressor
from density_regression.estimators.conformal import Conformal

Floats = np.ndarray
COVERAGE = 0.9
COLUMNS = 5
METHODS = (DensityRegressor, GaussianRegressor, QuantileRegressor)
SETTINGS = {"epochs": 100, "random_state": 0, "n_threads": 1, "verbose": False}


def draw(rng: np.random.Generator, n: int, *, move: float = 0.0, growth: float = 0.0) -> tuple[Floats, Floats]:
    """Rows with noise of Student's t, growing by e^`growth` per unit of the first column, whose mean is `move`."""
    X = rng.normal(size=(n, COLUMNS))
    X[:, 0] += move
    noise = rng.standard_t(4, size=n) * 0.3 * np.exp(growth * X[:, 0])
    return X, X[:, 0] + np.sin(2 * X[:, 1]) + noise


def covered(reg: DeepRegressor, X: Floats, y: Floats) -> float:
    low, high = reg.predict_interval(X, COVERAGE)
    return float(((low <= y) & (y <= high)).mean())


def exchangeable(repetitions: int, rows: int) -> None:
    """Mean coverage of three methods."""
    print("| method | by its own law | conformal | standard deviation over repetitions |\n|---|---:|---:|---:|")
    for method in METHODS:
        rng = np.random.default_rng(0)
        reg = method(**SETTINGS).fit(*draw(rng, 1000))
        plain, conformal = [], []
        for _ in range(repetitions):
            X, y = draw(rng, 2 * rows)
            reg.conformal_ = None
            plain.append(covered(reg, X[rows:], y[rows:]))
            conformal.append(covered(reg.conformalize(X[:rows], y[:rows]), X[rows:], y[rows:]))
        print(f"| {method.__name__} | {np.mean(plain):.4f} | {np.mean(conformal):.4f} | {np.std(conformal):.4f} |")


def shifted(repetitions: int, rows: int) -> None:
    """Mean coverage where inputs have moved."""
    rng = np.random.default_rng(0)
    reg = DensityRegressor(**SETTINGS).fit(*draw(rng, 1000))
    head = ["moved by", "unweighted", "by own density", "by true ratio", "effective rows: own", "true"]
    head += ["too strange: own", "true"]
    print(f"\n| {' | '.join(head)} |\n|{'---:|' * len(head)}")
    for move in (0.0, 0.5, 1.0, 1.5):
        results = []
        for _ in range(repetitions):
            aside, (X, y) = draw(rng, rows, growth=0.4), draw(rng, rows, move=move, growth=0.4)
            unweighted = covered(reg.conformalize(*aside), X, y)
            reg.conformalize(*aside, shifted=draw(rng, rows, move=move)[0])
            assert reg.conformal_ is not None
            weighted = covered(reg, X, y)
            _, finite = reg.conformal_.weighted_quantiles(COVERAGE, reg.conformal_.ratio.weights(reg._familiar(X)))
            mean, std = reg.predict(aside[0], return_std=True)
            truth = Conformal.of((np.abs(aside[1] - mean) / std)[:, None], np.exp(move * aside[0][:, 0]))
            scores, known = truth.weighted_quantiles(COVERAGE, np.exp(move * X[:, 0]))
            mean, std = reg.predict(X, return_std=True)
            by_truth = float((np.abs(y - mean) <= scores[:, 0] * std).mean())
            effective = reg.conformal_.effective_rows, truth.effective_rows
            results.append([unweighted, weighted, by_truth, *effective, 1 - finite.mean(), 1 - known.mean()])
        one, two, three, own, true, strange, strangest = np.mean(results, axis=0)
        print(
            f"| {move:g} | {one:.3f} | {two:.3f} | {three:.3f} | {own:.0f} | {true:.0f} | "
            f"{100 * strange:.1f} % | {100 * strangest:.1f} % |",
            flush=True,
        )


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--rows", type=int, default=500)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    exchangeable(args.repetitions, args.rows)
    shifted(args.repetitions, args.rows)


if __name__ == "__main__":
    main()
