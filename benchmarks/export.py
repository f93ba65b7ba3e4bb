"""What the density costs in ONNX Runtime on a CPU, and whether its results are torch's.

    python benchmarks/export.py [--rows 1000000] [--rounds 200] [--json FILE]

Ours, a Gaussian network and an ensemble of five, each written by hand with the same folding and run by one thread, in
blocks by turns within one run, each in three sessions, as it matters where weights lie in memory; ours also when asked
for mean and std alone, which are all that the Gaussian network gives. MLPs of 2 x 100 and of a million parameters, with
as many components as the density chooses and with one; batches of 1 and of 1,000.
Likewise with an encoder of one's own, convolutions of a million parameters, which torch's exporter writes, as it does
the whole ensemble of them. The results of ours are compared with torch's on rows of which half lie up to 10^9
deviations away; and those of an encoder in int8 on test rows.
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from _timing import by_turns, finish, machine
from sklearn.datasets import make_friedman1
from torch import Tensor, nn

from density_regression import DensityRegressor
from density_regression.baselines import DeepEnsembleRegressor, GaussianRegressor
from density_regression.estimators.base import DeepRegressor
from density_regression.metrics import crps, nll
from density_regression.nn.density import MixtureDensity

COLUMNS = 20
SHAPES = {
    "MLP 2 x 100": ((100, 100), "auto"),
    "MLP 2 x 100, one component": ((100, 100), 1),
    "MLP of a million": ((990, 990), "auto"),
    "MLP of a million, one component": ((990, 990), 1),
}
CONVOLUTIONS = "convolutions of a million"
BATCHES = (1, 1000)
LONGEST = 60.0
"""Seconds that one comparison may take, within the fewest rounds that have a median."""
FEWEST = 5
SESSIONS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows on which results are compared")
    parser.add_argument("--rounds", type=int, default=200, help="blocks of runs of each")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    X, y = make_friedman1(n_samples=5000, n_features=COLUMNS, noise=1.0, random_state=0)
    train = (X[:4000], y[:4000])
    figures: dict[str, Any] = {"machine": machine() | {"onnxruntime": onnxruntime.__version__}}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        for name, (hidden, components) in SHAPES.items():
            settings = {"hidden": hidden, "epochs": 5, "random_state": 0, "verbose": False}
            ours = DensityRegressor(**settings, density=MixtureDensity(components)).fit(*train)
            sessions = [in_sessions(method, path) for method in beside(ours, settings, *train)]
            figures[name] = {"components": len(ours.model_.density.log_norm)}
            if name == "MLP 2 x 100":
                figures["largest relative difference from torch"] = differences(ours, sessions[1][0], args.rows)
            for batch in BATCHES:
                figures[name][str(batch)] = compared(sessions, X[:batch], args.rounds)
            figures[name]["int8"] = rounded(ours, path, X[4000:], y[4000:])
        figures[CONVOLUTIONS] = convolutions(path, args.rounds)
    finish(figures, args.json)


class Windows(nn.Sequential):
    """Convolutions along windows of 64 steps of 4 sensors, to the means of 258 features."""

    def __init__(self) -> None:
        sizes = (4, 258, 258, 258, 258)
        parts = [
            part
            for before, after in pairwise(sizes)
            for part in (nn.Conv1d(before, after, 5, stride=2, padding=2), nn.ReLU())
        ]
        super().__init__(nn.Unflatten(1, (4, 64)), *parts)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).mean(-1)


def convolutions(path: Path, rounds: int) -> dict[str, Any]:
    """The same comparison with convolutions for an encoder; what they learn does not matter here."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    X = rng.normal(size=(max(BATCHES), 256))
    y = X[:, :64].mean(1) + 0.1 * rng.normal(size=len(X))
    settings = {"encoder": Windows(), "epochs": 1, "random_state": 0, "verbose": False}
    ours = DensityRegressor(**settings).fit(X, y)
    sessions = [in_sessions(method, path) for method in beside(ours, settings, X, y)]
    about = {
        "parameters of the encoder": sum(part.numel() for part in settings["encoder"].parameters()),
        "components": len(ours.model_.density.log_norm),
    }
    return about | {str(batch): compared(sessions, X[:batch], rounds) for batch in BATCHES}


def beside(ours: DensityRegressor, settings: dict[str, Any], X: np.ndarray, y: np.ndarray) -> list[DeepRegressor]:
    """A Gaussian network, ours, ours once more, and an ensemble of five."""
    return [GaussianRegressor(**settings).fit(X, y), ours, ours, DeepEnsembleRegressor(**settings).fit(X, y)]


def in_sessions(model: DeepRegressor, path: Path, *, int8: bool = False) -> list[onnxruntime.InferenceSession]:
    """Sessions of one thread."""
    model.to_onnx(path, int8=int8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return [onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]) for _ in range(SESSIONS)]


def compared(sessions: list[list[onnxruntime.InferenceSession]], x: np.ndarray, rounds: int) -> dict[str, float]:
    """Times of a Gaussian network, ours and an ensemble, medians over their sessions, and their ratios."""
    wanted = (None, None, ["mean", "std"], None)
    turns = [turn for each in zip(*sessions, strict=True) for turn in zip(each, wanted, strict=True)]
    calls = [lambda session=session, names=names: session.run(names, {"X": x}) for session, names in turns]
    block = max(200 // len(x), 2)
    seconds = sum(by_turns(calls, 1)) * (block + 1)
    times = by_turns(calls, min(rounds, max(int(LONGEST / seconds), FEWEST)), block)
    plain, ours, alone, ensemble = np.median(np.reshape(times, (SESSIONS, -1)), axis=0)
    return {
        "Gaussian network (microseconds)": 1e6 * plain,
        "ours (microseconds)": 1e6 * ours,
        "ours, mean and std alone (microseconds)": 1e6 * alone,
        "five networks (microseconds)": 1e6 * ensemble,
        "ours / Gaussian network": ours / plain,
        "ours, mean and std alone / Gaussian network": alone / plain,
        "five networks / ours": ensemble / ours,
    }


def rounded(model: DensityRegressor, path: Path, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """What the encoder in int8 does to the file and to the results on test rows."""
    found: dict[str, float] = {}
    for name, int8 in (("float32", False), ("int8", True)):
        mean, std, _ = in_sessions(model, path, int8=int8)[0].run(None, {"X": X})
        found[f"bytes, {name}"] = path.stat().st_size
        found[f"NLL, {name}"] = float(nll(y, mean[:, 0], std[:, 0]))
        found[f"CRPS, {name}"] = float(crps(y, mean[:, 0], std[:, 0]))
    expected, deviation = model.predict(X, return_std=True)
    found["largest change of a mean, in its deviations"] = float((np.abs(mean[:, 0] - expected) / deviation).max())
    found["largest relative change of a deviation"] = float(np.abs(std[:, 0] / deviation - 1).max())
    return found


def differences(model: DensityRegressor, session: onnxruntime.InferenceSession, rows: int) -> dict[str, float]:
    """Largest differences from torch's results."""
    rng = np.random.default_rng(0)
    worst = {"mean / (|mean| + std)": 0.0, "std": 0.0, "log-density": 0.0}
    for start in range(0, rows, 50_000):
        x = rng.random((min(50_000, rows - start), COLUMNS))
        half = len(x) // 2
        x[half:] = 0.5 + (x[half:] - 0.5) * 10 ** rng.uniform(0, 9, size=(len(x) - half, 1))
        mean, std = model.predict(x, return_std=True)
        log_density = model.score_samples(x)
        found = session.run(None, {"X": x})
        own = (
            np.abs(found[0][:, 0] - mean) / (np.abs(mean) + std),
            np.abs(found[1][:, 0] / std - 1),
            np.abs(found[2] - log_density) / np.maximum(np.abs(log_density), 1),
        )
        assert all(np.isfinite(part).all() for part in own)
        worst = {name: max(value, float(part.max())) for (name, value), part in zip(worst.items(), own, strict=True)}
    return worst


if __name__ == "__main__":
    main()
