"""Fits of a comparison: one method on one fold, scored as one record."""

from __future__ import annotations

import time
import warnings
from typing import Any, Final

import numpy as np

from density_regression.estimators.base import DeepRegressor
from density_regression.experiments.compare.table import Fold, OwnTable
from density_regression.experiments.evaluation.forecast import Forecast, forecast
from density_regression.experiments.evaluation.totals import Totals
from density_regression.experiments.fitting import estimators_by_method
from density_regression.experiments.records import FitKey, Record
from density_regression.experiments.scoring import CURVE_LEVELS, MAX_SCORE
from density_regression.registry import import_plugin
from density_regression.tabular.columns.coders import LeftOut

__all__ = ["run_fit"]

SAMPLE_ROWS: Final = 200
"""Most test rows in a record, for figures."""

TIMED_ROWS: Final = 1000
"""Rows whose prediction is timed: test rows, repeated if they are fewer."""

REPEATS: Final = 3
"""The quickest of so many predictions counts: others on the machine only slow it down."""

SCORED_ROWS: Final = 16_384
"""Test rows that are scored at once."""


def run_fit(
    key: FitKey, table: OwnTable, fold: Fold, settings: dict[str, Any], origin: dict[str, Any], plugin: str | None
) -> Record:
    """Fit one method to one fold, and score it; an error is recorded, not raised.

    `origin` is copied into the record; its `device` is where the fit runs. `plugin` is imported first.
    """
    if plugin is not None:
        import_plugin(plugin)
    record: Record = {**key._asdict(), **origin, "settings": settings}
    with warnings.catch_warnings(action="ignore"):
        try:
            return record | _fit_and_score(key, table, fold, settings, origin["device"])
        except Exception as error:  # one fit of many must not end the others
            return record | {"error": f"{type(error).__name__}: {error}"}


def _fit_and_score(key: FitKey, table: OwnTable, fold: Fold, settings: dict[str, Any], device: str) -> Record:
    seed = 1000 * key.seed + int(key.split)
    regressor = estimators_by_method()[key.method](
        target=settings["target"], random_state=seed, n_threads=1, device=device, verbose=False
    )
    train, held_out, test = (table.take(rows) for rows in fold)
    start = time.perf_counter()
    regressor.fit(train.X, train.y, held_out=(held_out.X, held_out.y))
    fit_seconds = time.perf_counter() - start
    thousand = test.take(np.arange(TIMED_ROWS) % len(test.y)).X
    # The first rows build what later ones use.
    regressor.predict(thousand.slice(0, 1), return_std=True)
    predict_seconds = min(_seconds(regressor, thousand) for _ in range(REPEATS))
    return {
        "tests": {"test": _score(regressor, test, float(train.y.std()) or 1.0, sample=key.seed == 0)},
        "rows": {"train": len(train.y), "held_out": len(held_out.y)},
        "epochs": len(regressor.report_.history),
        "seconds": {"fit": round(fit_seconds, 4), "predict": round(predict_seconds, 6)},
        "parameters": sum(parameter.numel() for parameter in regressor.model_.parameters()),
        "left_out": _left_out(regressor),
    }


def _seconds(regressor: DeepRegressor, X: Any) -> float:
    start = time.perf_counter()
    regressor.predict(X, return_std=True)
    return time.perf_counter() - start


def _score(regressor: DeepRegressor, test: OwnTable, target_sd: float, *, sample: bool) -> dict[str, Any]:
    totals = Totals()
    parts: list[Forecast] = []
    for start in range(0, len(test.y), SCORED_ROWS):
        part = np.arange(start, min(start + SCORED_ROWS, len(test.y)))
        rows = test.take(part)
        parts.append(forecast(regressor, rows.X, rows.y))
        totals.update(parts[-1])
    found = totals.metrics()
    values = {
        "nll_own": found["nll"],
        "rmse": found["rmse"],
        "cal": found["calibration_error"],
        "sharpness_sd": found["sharpness"] / target_sd,
        "crps": found["crps"],
        "std_factor": found["std_factor"],
        "mae": found["mae"],
        "r2": found["r2"],
    }
    for one in totals.intervals():
        values[f"coverage_{100 * one.level:.0f}"] = one.coverage
        values[f"width_{100 * one.level:.0f}"] = one.width
    expected, observed = totals.curve()
    result: dict[str, Any] = {
        "rows": len(test.y),
        "metrics": {name: float(f"{np.clip(value, -MAX_SCORE, MAX_SCORE):.7g}") for name, value in values.items()},
        "curve": np.interp(np.linspace(0, 1, CURVE_LEVELS), expected, observed).round(5).tolist(),
    }
    if sample:
        step = -(-len(test.y) // SAMPLE_ROWS)
        result["sample"] = {
            name: [float(f"{value:.5g}") for value in np.concatenate([getattr(part, name) for part in parts])[::step]]
            for name in ("y", "mean", "std")
        }
    return result


def _left_out(regressor: DeepRegressor) -> list[str]:
    """Columns of text of which nearly every row has its own, which the method does not read."""
    coders = () if regressor.columns_ is None else regressor.columns_.coders
    return [coder.name for coder in coders if isinstance(coder, LeftOut)]
