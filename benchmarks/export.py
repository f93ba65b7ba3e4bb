"""What the density costs in ONNX Runtime on a CPU, and whether its results are torch's.

    python benchmarks/export.py [--rows 1000000] [--rounds 200] [--json FILE]

Ours, a Gaussian network and an ensemble of five, each exported by `to_onnx` and run by one thread, in blocks by turns
within one run; MLPs of 2 x 100 and of a million parameters, at batches of 1 and of 1,000. The results of ours are
compared with torch's on rows of which half lie up to 10^9 deviations away.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from sklearn.datasets import make_friedman1

from density_regression import DensityRegressor
from density_regression.base import DeepRegressor
from density_regression.baselines import DeepEnsembleRegressor, GaussianRegressor

COLUMNS = 20
HIDDEN = {"MLP 2 x 100": (100, 100), "MLP of a million": (950, 950)}
BATCHES = (1, 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows on which results are compared")
    parser.add_argument("--rounds", type=int, default=200, help="blocks of runs of each")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    X, y = make_friedman1(n_samples=4000, n_features=COLUMNS, noise=1.0, random_state=0)
    figures: dict[str, Any] = {"torch": torch.__version__, "onnxruntime": onnxruntime.__version__}
    with tempfile.TemporaryDirectory() as folder:
        for name, hidden in HIDDEN.items():
            settings = {"hidden": hidden, "epochs": 5, "random_state": 0, "verbose": False}
            methods = (GaussianRegressor(**settings), DensityRegressor(**settings), DeepEnsembleRegressor(**settings))
            sessions = [exported(method.fit(X, y), Path(folder) / "model.onnx") for method in methods]
            figures[f"{name}, components of the density"] = len(methods[1].model_.density.log_norm)
            if hidden == (100, 100):
                figures |= differences(methods[1], sessions[1], args.rows)
            for batch in BATCHES:
                plain, ours, ensemble = timed(sessions, X[:batch], args.rounds)
                figures[f"{name}, batch {batch}, ours (microseconds)"] = 1e6 * ours
                figures[f"{name}, batch {batch}, ours / Gaussian network"] = ours / plain
                figures[f"{name}, batch {batch}, ensemble / ours"] = ensemble / ours
    for name, value in figures.items():
        print(f"{name:55s} {value if not isinstance(value, float) else format(value, '.3g')}")
    if args.json:
        args.json.write_text(json.dumps(figures, indent=2) + "\n")


def exported(model: DeepRegressor, path: Path) -> onnxruntime.InferenceSession:
    """A session of one thread."""
    model.to_onnx(path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def timed(sessions: list[onnxruntime.InferenceSession], x: np.ndarray, rounds: int) -> list[float]:
    """Median seconds of a run of each, in blocks by turns."""
    times: list[list[float]] = [[] for _ in sessions]
    block = max(200 // len(x), 2)
    for _ in range(rounds):
        for session, own in zip(sessions, times, strict=True):
            session.run(None, {"X": x})
            start = time.perf_counter()
            for _ in range(block):
                session.run(None, {"X": x})
            own.append((time.perf_counter() - start) / block)
    return [statistics.median(own) for own in times]


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
        worst = {name: max(value, float(part.max())) for (name, value), part in zip(worst.items(), own, strict=True)}
    return {f"largest relative difference, {name}": value for name, value in worst.items()}


if __name__ == "__main__":
    main()
