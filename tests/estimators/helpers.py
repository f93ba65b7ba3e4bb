"""What tests of the estimator share beside fixtures."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor, nn

from density_regression import DensityRegressor

X20, Y20 = np.linspace(-1, 1, 20)[:, None], np.linspace(0, 3, 20)


def quick(**params: object) -> DensityRegressor:
    """A regressor that is fitted in a moment."""
    return DensityRegressor(**{"hidden": (16,), "epochs": 5, "n_threads": 1, "random_state": 0, **params})


def moments(reg: DensityRegressor, X: object) -> np.ndarray:
    """Mean and standard deviation, stacked."""
    return np.stack(reg.predict(X, return_std=True))


def everything(reg: DensityRegressor, X: object) -> list[np.ndarray]:
    """All that can be asked of the rows of X, and no warning about it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answers = [*reg.predict(X, return_std=True), *reg.predict_interval(X), *reg.decompose(X)]
        answers += [reg.predict_quantiles(X, [1e-9, 0.5, 0.999]), reg.sample(X, 3)]
        if reg.density is not None:
            answers += [reg.score_samples(X), reg.familiarity(X)]
    return answers


def assert_sound(reg: DensityRegressor, X: object) -> None:
    """Finite answers, and a positive standard deviation."""
    assert all(np.isfinite(answer).all() for answer in everything(reg, X))
    assert (moments(reg, X)[1] > 0).all()


class Recording(nn.Module):
    """Features that are the inputs themselves; notes what it was given, and with how many threads."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []
        self.threads: set[int] = set()

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x.clone())
        self.threads.add(torch.get_num_threads())
        return x


class Overflowing(nn.Module):
    """Features that leave float32 far from the training rows, one as infinity and one as not a number."""

    def forward(self, x: Tensor) -> Tensor:
        grown = x.square().exp()
        return torch.cat([x, grown, grown - grown.square() / grown], dim=1)


class Interrupting(nn.Module):
    """Raises at the tenth call, as a user would who presses Ctrl-C."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 4)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 10:
            raise KeyboardInterrupt
        return self.linear(x)
