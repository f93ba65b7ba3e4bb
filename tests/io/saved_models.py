"""What tests of saved models share."""

import hashlib
import json
import os
import pickle
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor, nn

from density_regression import DensityRegressor, InvalidModelError, load
from density_regression.nn.density.base import FittedModule

Config = dict[str, Any]

Tensors = dict[str, Tensor]


def rows(n: int = 60, columns: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(5.0, 2.0, (n, columns))
    return X, 100.0 + X[:, 0] ** 2 + rng.normal(size=n)


X, y = rows()

FAR = np.concatenate([X, 30.0 * X, -1e6 * X[:5]])


def fitted(target: np.ndarray = y, **params: Any) -> DensityRegressor:
    return DensityRegressor(**{"hidden": (8, 6), "epochs": 2, "random_state": 0, **params}).fit(X, target)


class Net(nn.Module):
    """An encoder that the package could not build itself, with statistics and tied weights."""

    def __init__(self, columns: int = 2, width: int = 5) -> None:
        super().__init__()
        self.first = nn.Linear(columns, width)
        self.norm = nn.BatchNorm1d(width)
        self.second = nn.Linear(width, width)
        self.third = nn.Linear(width, width)
        self.third.weight = self.second.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.third(torch.tanh(self.second(self.norm(self.first(x)))))


def assert_same(loaded: DensityRegressor, saved: DensityRegressor, points: Any = FAR) -> None:
    np.testing.assert_array_equal(loaded.predict(points, return_std=True), saved.predict(points, return_std=True))
    np.testing.assert_array_equal(loaded.predict_quantiles(points, [0.9]), saved.predict_quantiles(points, [0.9]))
    np.testing.assert_array_equal(loaded.decompose(points), saved.decompose(points))
    if saved.density is not None:
        np.testing.assert_array_equal(loaded.score_samples(points), saved.score_samples(points))
        np.testing.assert_array_equal(loaded.familiarity(points), saved.familiarity(points))
    assert plain(loaded) == plain(saved)
    assert loaded.n_features_in_ == saved.n_features_in_
    assert loaded.report_ == saved.report_


def plain(regressor: DensityRegressor) -> Config:
    """Hyper-parameters in a form that compares by value; the encoder is the caller's affair."""
    params = {name: value for name, value in regressor.get_params().items() if name != "encoder"}
    return {
        name: (type(value), value.config()) if isinstance(value, FittedModule) else value
        for name, value in params.items()
    }


@contextmanager
def inert() -> Iterator[None]:
    """Whatever could run code from a file fails loudly."""

    def forbidden(*args: Any, **kwargs: Any) -> None:
        pytest.fail(f"loading called something it must not, with {args!r}")

    with pytest.MonkeyPatch.context() as patch:
        for module, names in ((pickle, ("load", "loads", "Unpickler")), (os, ("system", "popen", "execv"))):
            for name in names:
                patch.setattr(module, name, forbidden)
        patch.setattr(torch, "load", forbidden)
        patch.setattr(subprocess, "Popen", forbidden)
        yield


def assert_refused(folder: Path, match: str | None = None) -> None:
    """Loading says no in one way only, and has run nothing by then."""
    with inert(), pytest.raises(InvalidModelError, match=match):
        load(folder)


def weights_of(folder: Path) -> Path:
    (path,) = folder.glob("*.safetensors")
    return path


def config_of(folder: Path) -> Config:
    config: Config = json.loads((folder / "model.json").read_text())
    return config


def forge(
    folder: Path,
    config: Callable[[Config], None] | None = None,
    tensors: Callable[[Tensors], None] | None = None,
    content: bytes | None = None,
) -> None:
    """Change a folder and make all its checksums right again, as somebody who knows the format would."""
    body = config_of(folder)
    body.pop("sha256")
    old = weights_of(folder)
    if tensors is not None:
        changed = tensors_from_bytes(old.read_bytes())
        tensors(changed)
        content = tensors_to_bytes(changed)
    if content is not None:
        old.unlink()
        body["weights_sha256"] = hashlib.sha256(content).hexdigest()
        body["weights"] = f"weights-{body['weights_sha256'][:16]}.safetensors"
        (folder / body["weights"]).write_bytes(content)
    if config is not None:
        config(body)
    body["sha256"] = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps(body))
