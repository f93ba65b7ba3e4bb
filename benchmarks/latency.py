"""How long a prediction takes, and how large a model is: ours, and the ten it is compared with.

    python benchmarks/latency.py [--rounds 30] [--no-compile] [--json FILE]

An MLP 2 x 100 on 20 columns, one thread, batches of 1, 1,000 and 100,000 rows, all methods by turns within one run:
`predict` through the estimator, the bare module's forward, that compiled, and ONNX Runtime. Also `predict` of ours
against the bare module, and against scikit-learn's MLPRegressor for one row.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from _timing import by_turns, finish, machine
from sklearn.datasets import make_friedman1
from sklearn.neural_network import MLPRegressor
from torch import Tensor, nn

import density_regression
from density_regression import DensityRegressor
from density_regression.estimators.base import DeepRegressor
from density_regression.estimators.prediction import PREDICTED_ROWS
from density_regression.inference.onnx import ExportError

COLUMNS = 20
BATCHES = (1, 1000, 100_000)
OURS = "Density-Regression"
Call = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="blocks of calls of each")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    X, y = make_friedman1(n_samples=max(BATCHES), n_features=COLUMNS, noise=1.0, random_state=0)
    settings = {"hidden": (100, 100), "epochs": 5, "random_state": 0, "verbose": False}
    fitted = {
        method.name: method.estimator(**settings).fit(X[:10_000], y[:10_000]) for method in density_regression.methods()
    }
    ours = fitted[OURS]
    assert isinstance(ours, DensityRegressor)
    assert ours.model_.density is not None
    figures: dict[str, Any] = {
        "machine": machine(),
        "components of the density": len(ours.model_.density.log_norm),
        "size": {name: size(model) for name, model in fitted.items()},
        "predict against others": against_others(ours, X, y, args.rounds),
        "microseconds": {},
    }
    kinds = {"predict": predictions, "module": modules, "onnx": sessions} | (
        {"compiled": compiled} if args.compile else {}
    )
    for kind, calls_of in kinds.items():
        figures["microseconds"][kind] = {}
        for batch in BATCHES:
            calls = calls_of(fitted, X[:batch])
            # Slow ones are not called as often: a Gaussian process takes seconds for 100,000 rows.
            rounds, block = (args.rounds, 50) if batch == 1 else (args.rounds, 2) if batch == 1000 else (3, 1)
            with torch.inference_mode():
                times = by_turns(list(calls.values()), rounds, block)
            figures["microseconds"][kind][str(batch)] = {
                name: 1e6 * seconds for name, seconds in zip(calls, times, strict=True)
            }
            print(kind, batch, flush=True)
    finish(figures, args.json)


def size(model: DeepRegressor) -> dict[str, int | None]:
    """Numbers trained, all numbers, and bytes of the files."""
    parts = list(model.model_.parameters())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        model.save(path / "model")
        saved = sum(file.stat().st_size for file in (path / "model").iterdir())
        files: dict[str, int | None] = {}
        for name, int8 in (("onnx", False), ("onnx, int8", True)):
            try:
                model.to_onnx(path / "model.onnx", int8=int8)
                files[name] = (path / "model.onnx").stat().st_size
            except ExportError:
                files[name] = None
    numbers = sum(part.numel() for part in parts)
    every = numbers + sum(buffer.numel() for buffer in model.model_.buffers())
    return {"parameters": numbers, "parameters and buffers": every, "saved": saved, **files}


def against_others(ours: DensityRegressor, X: np.ndarray, y: np.ndarray, rounds: int) -> dict[str, float]:
    """Ratios of `predict`: to the bare module on 100,000 rows, and to scikit-learn's network on one."""
    network = MLPRegressor(hidden_layer_sizes=(100, 100), max_iter=5, random_state=0).fit(X[:10_000], y[:10_000])
    x, row = ours.x_scaling_.apply(X), X[:1]
    model = ours.model_
    with torch.inference_mode():
        through, at_once, in_chunks = by_turns(
            [
                lambda: ours.predict(X, return_std=True),
                lambda: model.moments(x),
                lambda: [model.moments(part) for part in x.split(PREDICTED_ROWS)],
            ],
            max(rounds // 4, 3),
        )
    one, theirs = by_turns([lambda: ours.predict(row, return_std=True), lambda: network.predict(row)], 4 * rounds, 50)
    return {
        "100,000 rows, predict / bare module at once": through / at_once,
        "100,000 rows, predict / bare module in chunks": through / in_chunks,
        "1 row, predict / MLPRegressor.predict": one / theirs,
        "1 row, predict (microseconds)": 1e6 * one,
        "1 row, MLPRegressor.predict (microseconds)": 1e6 * theirs,
    }


def predictions(fitted: dict[str, DeepRegressor], X: np.ndarray) -> dict[str, Call]:
    """Through the estimators."""
    return {name: lambda model=model: model.predict(X, return_std=True) for name, model in fitted.items()}


def modules(fitted: dict[str, DeepRegressor], X: np.ndarray) -> dict[str, Call]:
    """Bare modules on scaled rows, in chunks as `predict` has them."""
    return {name: chunked(model.model_.moments, model.x_scaling_.apply(X)) for name, model in fitted.items()}


def compiled(fitted: dict[str, DeepRegressor], X: np.ndarray) -> dict[str, Call]:
    """Bare modules, compiled; without those that cannot be."""
    # All methods at once: torch keeps 8 variants of a function, and would run further ones as they are.
    torch._dynamo.config.recompile_limit = 100
    torch.compiler.reset()
    calls = {}
    for name, model in fitted.items():
        call = chunked(torch.compile(Moments(model.model_), dynamic=False), model.x_scaling_.apply(X))
        try:
            with torch.inference_mode():
                call()
            calls[name] = call
        # Whatever a compiler cannot follow, it has an exception of its own for it.
        except Exception as error:
            print(f"{name} is not compiled: {type(error).__name__}", flush=True)
    return calls


def sessions(fitted: dict[str, DeepRegressor], X: np.ndarray) -> dict[str, Call]:
    """ONNX Runtime, one thread; without those that cannot be exported."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    parts = [X[start : start + PREDICTED_ROWS] for start in range(0, len(X), PREDICTED_ROWS)]
    calls = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, model in fitted.items():
            try:
                model.to_onnx(Path(folder) / "model.onnx")
            except ExportError:
                continue
            session = onnxruntime.InferenceSession(Path(folder) / "model.onnx", options)
            calls[name] = lambda session=session: [session.run(None, {"X": part}) for part in parts]
    return calls


class Moments(nn.Module):
    """Mean and standard deviation of a module's prediction."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """From scaled rows."""
        mean, log_std = self.model.moments(x)
        return mean, log_std.exp()


def chunked(function: Callable[[Tensor], object], x: Tensor) -> Call:
    """A call on all rows."""
    parts = x.split(PREDICTED_ROWS)
    return lambda: [function(part) for part in parts]


if __name__ == "__main__":
    main()
