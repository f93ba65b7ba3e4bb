"""Several fits of one shape as one batched computation."""

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

from density_regression.estimators.base import DeepRegressor
from density_regression.estimators.fingerprint import network_checksum
from density_regression.estimators.fits import unchanged_on_failure
from density_regression.nn.runtime import may_draw, own_draws, taking_turns, threads, usual_torch

__all__ = ["fit_together"]


def fit_together(
    regressors: Sequence[DeepRegressor],
    tables: Sequence[tuple[ArrayLike, ArrayLike]],
    held_outs: Sequence[tuple[ArrayLike, ArrayLike] | None] | None = None,
    groups: Sequence[ArrayLike | None] | None = None,
) -> None:
    """Fit several regressors, each to a table of its own, as one batched computation where that can be.

    Twenty small networks at once take two to five times as long as one. Each ends as its own `fit` would leave it, but
    for rounding, and for what is drawn while training (dropout, sampled weights). If one fails, all are left as they
    were.

    Parameters
    ----------
    regressors : sequence of DeepRegressor
        Of one class, with the same settings but for `random_state`.
    tables : sequence of (X, y)
        What to fit each to, (n, c) and (n,) or (n, k) in any units. Tables of unequal length, networks that cannot be
        stacked, checkpoints and callbacks are possible, but then one is fitted after another.
    held_outs : sequence of (X, y) or None, optional
        Rows to hold out, for each.
    groups : sequence of array-like or None, optional
        Labels of the rows' groups, for each, as in `fit`. Groups of unequal size may leave unequal numbers of rows to
        train on; then, too, one is fitted after another.

    Examples
    --------
    >>> from density_regression import DensityRegressor, fit_together
    >>> from density_regression.datasets import make_cubic
    >>> regressors = [DensityRegressor(epochs=5, random_state=seed) for seed in range(3)]
    >>> fit_together(regressors, [make_cubic(n=100, random_state=seed) for seed in range(3)])
    >>> [regressor.predict([[1.0]]).shape for regressor in regressors]
    [(1,), (1,), (1,)]
    """
    if len({type(regressor) for regressor in regressors}) > 1:
        raise ValueError("regressors must be of one class, and have the same settings but for random_state.")
    if len({id(regressor) for regressor in regressors}) < len(regressors):
        raise ValueError("regressors must not hold the same one twice: it could keep one fit only.")
    differing = sorted({name for regressor in regressors for name in _differing(regressor, regressors[0])})
    if differing:
        names = ", ".join(differing)
        raise ValueError(f"regressors must have the same settings but for random_state; they differ in {names}.")
    given = [None] * len(tables) if held_outs is None else held_outs
    labels = [None] * len(tables) if groups is None else groups
    if not len(regressors) == len(tables) == len(given) == len(labels):
        counts = f"{len(regressors)} regressors, {len(tables)} tables and {len(given)} held_outs"
        raise ValueError(f"{counts}{'' if groups is None else f' and {len(labels)} groups'} do not match.")
    with ExitStack() as stack:
        for regressor in regressors:
            stack.enter_context(unchanged_on_failure(regressor))
        if not _fit_as_one(regressors, tables, given, labels):
            for regressor, (X, y), held_out, own in zip(regressors, tables, given, labels, strict=True):
                regressor.fit(X, y, held_out=held_out, groups=own)


def _differing(one: DeepRegressor, other: DeepRegressor) -> list[str]:
    """Names of settings that differ; objects are compared by what they hold, for clones have copies of them."""
    mine, theirs = one._json_params(), other._json_params()
    names = [name for name in mine if name not in ("encoder", "random_state") and mine[name] != theirs[name]]
    return names if _same_encoder(one.encoder, other.encoder) else ["encoder", *names]


def _same_encoder(one: object, other: object) -> bool:
    if isinstance(one, nn.Module) and isinstance(other, nn.Module) and one is not other:
        return network_checksum(one) == network_checksum(other)
    return one == other


def _fit_as_one(
    regressors: Sequence[DeepRegressor],
    tables: Sequence[tuple[ArrayLike, ArrayLike]],
    held_outs: Sequence[tuple[ArrayLike, ArrayLike] | None],
    groups: Sequence[ArrayLike | None],
) -> bool:
    # A generator gives other numbers when it is asked again, as it would be if this came to nothing.
    generators = any(isinstance(regressor.random_state, np.random.RandomState) for regressor in regressors)
    # Each is to tell its own callbacks of its own losses.
    watched = any(regressor.callbacks for regressor in regressors)
    alone = regressors[0].checkpoint_dir is not None or regressors[0].target == "auto"
    if len(regressors) < 2 or generators or watched or alone:
        return False
    with taking_turns(), usual_torch():
        together = list(zip(regressors, tables, held_outs, groups, strict=True))
        prepared = [one._prepare(X, y, None, held_out, groups=own) for one, (X, y), held_out, own in together]
        if len({(part.train.x.shape, part.train.y.shape, part.held_out.x.shape) for part in prepared}) > 1:
            return False
        with threads(regressors[0].n_threads), own_draws() as restore_draws:
            models, draws = [], []
            for regressor, part in zip(regressors, prepared, strict=True):
                models.append(regressor._built(part))
                draws.append(torch.get_rng_state())
            if not may_draw(models[0]):
                restore_draws()
            rows, held, runs = ([getattr(part, name) for part in prepared] for name in ("train", "held_out", "run"))
            reports = regressors[0]._train_together(models, rows, held, runs, draws)
            if reports is None:
                return False
            for regressor, model, report, part in zip(regressors, models, reports, prepared, strict=True):
                regressor._take(model, report, part)
    return True
