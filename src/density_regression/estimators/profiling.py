"""The profile of a fit: of the rows that train, and of its quality on those held out."""

from __future__ import annotations

from typing import Any

import numpy as np

from density_regression.estimators.conformal import ConformalPrediction
from density_regression.estimators.fits import Prepared
from density_regression.estimators.hooks import RegressorHooks
from density_regression.estimators.prediction import LARGEST_FLOAT, ScaledRows, moments_of_exponential
from density_regression.estimators.tables import column_labels
from density_regression.metrics import crps, crps_log_normal, nll, rmse
from density_regression.nn.runtime import kept_draws
from density_regression.tabular.columns import column_names, is_frame, read_frame
from density_regression.tabular.columns.profiles import number_profiles, table_profiles
from density_regression.tabular.laws import from_law
from density_regression.tabular.profile import INTERVAL, MOST_ROWS, HeldOut, Profile, TargetProfile
from density_regression.tabular.table import Floats, Index

__all__ = ["held_out_quality", "training_profile"]


def training_profile(regressor: RegressorHooks, X: Any, y: Any, rows: tuple[Any, Floats], train: Index) -> Profile:
    """Profile of the training rows `train`, in random order, of inputs and targets (n, k) that were given as X and y.

    Inputs are an array (n, c) or, once the regressor has learnt the code of its columns, a `Table`.
    """
    x, target = rows
    some = train[:MOST_ROWS]
    if regressor.columns_ is None:
        columns = number_profiles(x, some, column_labels(regressor), _types(X, x.shape[1]))
    else:
        columns = table_profiles(x[some], regressor.columns_.coders)
    names = _target_names(y, target.shape[1])
    targets = (TargetProfile.of(name, values[some]) for name, values in zip(names, target.T, strict=True))
    return Profile(len(train), columns, tuple(targets))


def _types(X: Any, columns: int) -> list[str]:
    """Types of columns without text, dates or gaps: "number" or "boolean"."""
    return [column.kind for column in read_frame(X[:1]).columns] if is_frame(X) else ["number"] * columns


def _target_names(y: Any, targets: int) -> list[str]:
    name = getattr(y, "name", None)
    if is_frame(y):
        return [str(name) for name in column_names(y)]
    if targets > 1:
        return [f"y{i}" for i in range(targets)]
    # Of a series without a name polars says "".
    return ["y" if name is None or name == "" else str(name)]


def held_out_quality(regressor: ConformalPrediction, prepared: Prepared) -> list[HeldOut]:
    """Quality for each target, in its units; none if no rows were held out, or predictions are not numbers."""
    if prepared.held_out is prepared.train:
        return []
    center, scale = prepared.scalings[1]
    rows = ScaledRows(prepared.held_out.x)
    y = prepared.held_out.y.double().numpy() * scale + center
    weight = prepared.held_out.weight.double().numpy()
    # Random numbers that an encoder may draw do not change what comes after the fit.
    with kept_draws():
        parts = [*regressor._mean_std(rows), *regressor.predict_interval(rows, INTERVAL)]
    mean, std, low, high = (part.reshape(y.shape) for part in parts)
    if not all(np.isfinite(part).all() for part in parts):
        return []
    judge = _log_normal if prepared.target == "log" else _normal
    targets = from_law(y, prepared.target)
    inside = np.average((low <= targets) & (targets <= high), axis=0, weights=weight)
    scores = (judge(*column, weight) for column in zip(y.T, mean.T, std.T, strict=True))
    return [HeldOut(len(y), *score, float(covered)) for score, covered in zip(scores, inside, strict=True)]


def _normal(y: Floats, mean: Floats, std: Floats, weight: Floats) -> tuple[float, float, float]:
    """NLL, RMSE and CRPS."""
    own = nll(y, mean, std, sample_weight=weight)
    return _finite(own), _rmse(y, mean, weight), _finite(crps(y, mean, std, sample_weight=weight))


def _log_normal(log_y: Floats, mean: Floats, std: Floats, weight: Floats) -> tuple[float, float, float]:
    """The same of y, from the mean and standard deviation of log y."""
    # d log y / dy = 1 / y.
    own = nll(log_y, mean, std, sample_weight=weight) + np.average(log_y, weights=weight)
    y = from_law(log_y, "log")
    error = _rmse(y, moments_of_exponential(mean, std)[0], weight)
    return _finite(own), error, _finite(crps_log_normal(y, mean, std, sample_weight=weight))


def _rmse(y: Floats, mean: Floats, weight: Floats) -> float:
    root = np.sqrt(weight / weight.mean())
    return _finite(rmse(root * y, root * mean))


def _finite(value: float) -> float:
    """A number that JSON can hold."""
    return float(np.nan_to_num(value, nan=LARGEST_FLOAT, posinf=LARGEST_FLOAT, neginf=-LARGEST_FLOAT))
