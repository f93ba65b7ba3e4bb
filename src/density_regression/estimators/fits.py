"""What a fit works on, and the choice among fits under several laws of the target."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from density_regression.estimators.hooks import Run
from density_regression.estimators.prediction import PREDICTED_ROWS
from density_regression.io.sklearn_private import _check_sample_weight, _num_samples, _safe_indexing
from density_regression.nn.heads import Moments, gaussian_losses, weighted_mean
from density_regression.tabular.groups import group_codes, split_groups
from density_regression.tabular.laws import Law
from density_regression.tabular.profile import Profile
from density_regression.tabular.table import Scaling, TrainingRows, split_rows
from density_regression.training.loop import TrainingReport

__all__ = [
    "Fit",
    "Prepared",
    "RowsAside",
    "checkpoints_apart",
    "held_out_log_likelihood",
    "keep_aside",
    "likeliest",
    "refuse_groups",
    "refuse_in_memory",
    "refuse_no_pair",
    "unchanged_on_failure",
]


class Prepared(NamedTuple):
    """Scaled rows to train on and to hold out, the scaling of inputs and of targets, and the run they are for.

    Targets are those of the law `target`; `other` are the same rows for another law to try, if there is one. Where
    nothing was held out, `held_out` is `train`. `profile` is that of the rows to train on.
    """

    train: TrainingRows
    held_out: TrainingRows
    scalings: tuple[Scaling, Scaling]
    run: Run
    profile: Profile
    target: Law = "identity"
    other: Prepared | None = None


class Fit(NamedTuple):
    """A trained module, the report of its training, and what it was trained on."""

    model: Any
    report: TrainingReport
    prepared: Prepared


def likeliest(fits: Sequence[Fit]) -> Fit:
    """The fit under which the held-out targets are the likeliest; the first of equal ones."""
    return fits[0] if len(fits) == 1 else max(fits, key=held_out_log_likelihood)


@torch.no_grad()
def held_out_log_likelihood(fit: Fit) -> float:
    """Mean log-density of the held-out targets in their own units, Normal or log-normal; the mean over targets."""
    x, y, weight = fit.prepared.held_out
    device = next(fit.model.parameters()).device
    parts = [fit.model.moments(x[i : i + PREDICTED_ROWS].to(device)) for i in range(0, len(x), PREDICTED_ROWS)]
    moments = Moments(*(torch.cat(part).cpu().double() for part in zip(*parts, strict=True)))
    center, scale = (torch.from_numpy(part) for part in fit.prepared.scalings[1])
    y = y.double()
    losses = gaussian_losses(moments, y) + scale.log().mean()
    if fit.prepared.target == "log":
        # d log y / dy = 1 / y.
        losses = losses + (y * scale + center).mean(1)
    result = -float(weighted_mean(losses, weight.double()))
    return -math.inf if math.isnan(result) else result


@contextmanager
def checkpoints_apart(estimator: Any, prepared: Prepared) -> Iterator[None]:
    """Let the second of two fits keep its checkpoints in a folder of their own, so that both can be taken up again."""
    folder = estimator.checkpoint_dir
    if folder is None or prepared.target == "identity" or estimator.target != "auto":
        yield
        return
    estimator.checkpoint_dir = Path(os.fspath(folder)) / prepared.target
    try:
        yield
    finally:
        estimator.checkpoint_dir = folder


def refuse_no_pair(held_out: Any) -> None:
    """Raise a `ValueError` for held-out rows that are not (X, y)."""
    if held_out is not None and not (isinstance(held_out, tuple | list) and len(held_out) == 2):
        got = f"{len(held_out)} parts" if isinstance(held_out, tuple | list) else type(held_out).__name__
        raise ValueError(f"held_out must be a pair (X, y), without weights; got {got}.")


def refuse_groups(groups: Any, held_out: Any, validation_fraction: float) -> None:
    """Raise a `ValueError` for groups that have no rows to choose."""
    if groups is not None and (held_out is not None or validation_fraction == 0):
        reason = "held_out says which these are" if held_out is not None else "validation_fraction=0 leaves none"
        raise ValueError(f"groups choose the rows to hold out, but {reason}: give one of the two.")


def refuse_in_memory(**given: Any) -> None:
    """Raise a `ValueError` for arguments that only a table in memory can have."""
    if names := [name for name, value in given.items() if value is not None]:
        raise ValueError(f"{names[0]} is for a table in memory, and X is on disk: leave it out, or read X first.")


class RowsAside(NamedTuple):
    """X, y and weights to train on, their groups if there are any, and X and y kept aside."""

    train: tuple[Any, Any, Any]
    groups: Any
    aside: tuple[Any, Any]


def keep_aside(estimator: Any, share: float, X: Any, y: Any, sample_weight: Any, groups: Any) -> RowsAside:
    """Keep a share of the rows aside, at random, for `conformalize`; those without weight do not count there."""
    if not (isinstance(share, Real) and 0 < share < 1):
        raise ValueError(f"conformal must be a share of the rows, between 0 and 1, got {share!r}.")
    n = _num_samples(X)
    # A fit that is to be resumed must keep the same rows aside.
    resumed = estimator.random_state is None and estimator.checkpoint_dir is not None
    seed = int(check_random_state(0 if resumed else estimator.random_state).randint(2**31 - 1))
    if groups is None:
        kept, aside = split_rows(n, float(share), seed)
    else:
        kept, aside = split_groups(group_codes(groups, n), float(share), seed)
    if sample_weight is not None:
        weight = _check_sample_weight(sample_weight, X)
        aside = aside[weight[aside] > 0]
    if not len(aside):
        raise ValueError(f"conformal={share} keeps none of {n} rows aside: give more rows, or a larger share.")
    train, others = (
        [None if v is None else _safe_indexing(v, rows) for v in (X, y, sample_weight, groups)]
        for rows in (kept, aside)
    )
    return RowsAside((train[0], train[1], train[2]), train[3], (others[0], others[1]))


@contextmanager
def unchanged_on_failure(estimator: BaseEstimator) -> Iterator[None]:
    """Leave an estimator as it was, fitted or not, if what is done to it fails or is interrupted."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
