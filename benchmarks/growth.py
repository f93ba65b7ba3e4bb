"""How fast should the variance grow away from the data? Exponents and reaches on shifts hidden in training sides.

    python benchmarks/growth.py --data-dir DIR [--seeds 2] [--folder growth]

Tables and shifts are those of `hidden.py`. Each is fitted once, beside five networks on the same rows. What the
network says of the rows is kept in the folder, and for each choice the variance, and its scale by the held-out rows,
are computed from that. Printed are means over tables: the gain in NLL over the five networks, of each table at most one
nat; the ratio of the CRPS; and the factor that would suit the standard deviation.
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path

import numpy as np
import torch
from hidden import MOST_ROWS, TESTS, tables

from density_regression import DensityRegressor, metrics
from density_regression.baselines import DeepEnsembleRegressor
from density_regression.datasets import load_natural_shift
from density_regression.nn.tempering import FEW_DIMENSIONS
from density_regression.tabular.table import split_rows

CHOICES = [(1, 2), (1, 1), (2, 4), (0.5, 0.5), (0.5, 0.2), (0.5, 0.1), (0.4, 0.1), (0.3, 0.05), (0.3, 0.02)]
"""Exponents and reaches."""

Fit = dict[str, np.ndarray]


def fitted(name: str, seed: int, data_dir: str) -> Fit:
    """What the network of one fit says of held-out and test rows, and what five networks say of these."""
    warnings.simplefilter("ignore")
    data = load_natural_shift(tables(data_dir)[name], random_state=seed, max_rows=MOST_ROWS)
    kept, apart = split_rows(len(data.train.y), 0.15, seed)
    held_out = data.train.X[apart], data.train.y[apart]
    settings = {"random_state": seed, "n_threads": 1, "verbose": False}
    ours, five = (
        method(**settings).fit(data.train.X[kept], data.train.y[kept], held_out=held_out)
        for method in (DensityRegressor, DeepEnsembleRegressor)
    )
    model, result = ours.model_, {}
    for part, (X, y) in {"held out": held_out, **data.tests}.items():
        x = ours.x_scaling_.apply(X)
        with torch.no_grad():
            log_ratio = model.head.taught(model.encode(x))[2]
            log_density = model.log_density(x)
        assert log_ratio is not None
        below = (model.tempering.reference - log_density).clamp_min(0.0) / model.tempering.spread
        mean, std = ours.predict(X, return_std=True)
        own = {"y": y, "mean": mean, "noise": ours.decompose(X).aleatoric ** 2, "below": below.double().numpy()}
        own |= {"ratio": log_ratio[:, 0].double().exp().numpy(), "std": std}
        own |= dict(zip(("five mean", "five std"), five.predict(X, return_std=True), strict=True))
        result |= {f"{part} {key}": value for key, value in own.items()}
    return result | {"dims": np.array(model.density.dims)}


def gains(fit: Fit, exponent: float, reach: float) -> list[float]:
    """Of both tests: gain in NLL, ratio of the CRPS, factor of the standard deviation."""

    def variance(part: str) -> np.ndarray:
        growth = (1.0 + 2.0 * fit[f"{part} below"] / reach) ** exponent
        return fit[f"{part} noise"] * (1.0 + fit[f"{part} ratio"] * growth)

    squared = (fit["held out y"] - fit["held out mean"]) ** 2 / variance("held out")
    # And what `squared_error_doubt` adds.
    scale = np.mean(squared) * (1.0 + np.var(squared) / (len(squared) * np.mean(squared) ** 2))
    result = []
    for part in TESTS:
        y, mean, std = fit[f"{part} y"], fit[f"{part} mean"], np.sqrt(scale * variance(part))
        five = fit[f"{part} five mean"], fit[f"{part} five std"]
        result.append(metrics.nll(y, *five) - metrics.nll(y, mean, std))
        result.append(metrics.crps(y, mean, std) / metrics.crps(y, *five))
        result.append(float(np.sqrt(np.mean(((y - mean) / std) ** 2))))
    return result


def main() -> None:
    """Fit what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default=os.environ.get("DENSITY_REGRESSION_DATA"), help="has the folder shift")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("growth"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.folder.mkdir(parents=True, exist_ok=True)
    by_table: list[list[Fit]] = []
    for name in tables(args.data_dir):
        fits = []
        for seed in range(args.seeds):
            path = args.folder / f"{name}-{seed}.npz"
            if not path.exists():
                np.savez(path, **fitted(name, seed, args.data_dir))
                print(path, flush=True)
            fits.append(dict(np.load(path)))
        if fits[0]["dims"] > FEW_DIMENSIONS:
            by_table.append(fits)
    print("| exponent, reach | NLL gained at home / shifted | CRPS, ratio | factor |\n|---|---|---|---|")
    for choice in CHOICES:
        each = np.array([np.mean([gains(fit, *choice) for fit in fits], axis=0) for fits in by_table])
        nll = [np.clip(each[:, place], -1, 1).mean() for place in (0, 3)]
        crps = [np.exp(np.log(each[:, place]).mean()) for place in (1, 4)]
        factor = [each[:, place].mean() for place in (2, 5)]
        cells = [f"{choice[0]:g}, {choice[1]:g}", f"{nll[0]:.3f} / {nll[1]:.3f}", f"{crps[0]:.3f} / {crps[1]:.3f}"]
        print(f"| {' | '.join([*cells, f'{factor[0]:.2f} / {factor[1]:.2f}'])} |")


if __name__ == "__main__":
    main()
