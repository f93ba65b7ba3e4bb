"""Fits of a benchmark: one method on several splits at once, each scored as one record."""

import math
import time
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from density_regression.datasets import Rows
from density_regression.estimators.base import DeepRegressor
from density_regression.estimators.fit_together import fit_together
from density_regression.experiments.protocols import Hyperparameters
from density_regression.experiments.records import FitKey, Record
from density_regression.experiments.scoring import held_out_scale, score
from density_regression.experiments.suites import Suite, find_suite, shift_kind
from density_regression.registry import import_plugin, methods
from density_regression.tabular.table import split_rows

__all__ = ["estimators_by_method", "run_fits", "search_splits"]

HELD_OUT_FRACTION: Final = 0.15
"""Fraction of the training rows that is held out, the same rows for every method."""

VALIDATION_FRACTION: Final = 0.2
"""Fraction of the training rows of a split on which a search compares settings."""

ENOUGH_VALIDATION_ROWS: Final = 1000
MAX_SEARCH_SPLITS: Final = 5
"""A search uses as many splits as give this many validation rows together, up to five."""

MAX_SEARCH_ROWS: Final = 4000
"""Most training rows of one fit of a search."""


def estimators_by_method() -> dict[str, type[DeepRegressor]]:
    """Classes of all methods, by the names used in tables."""
    return {method.name: method.estimator for method in methods()}


@lru_cache(maxsize=64)
def search_splits(suite: str, dataset: str, data_dir: str | None, own: Suite | None = None) -> list[str]:
    """First splits of one kind, on whose training rows a search compares settings; few where rows are many."""
    found = find_suite(suite, own)
    splits = found.splits(dataset, data_dir)
    data = found.load(dataset, splits[0], data_dir)
    if data.held_out is not None:
        # A time series, whose splits differ only in their seed.
        return splits[:1]
    number = min(math.ceil(ENOUGH_VALIDATION_ROWS / (VALIDATION_FRACTION * len(data.train.y))), MAX_SEARCH_SPLITS)
    return [split for split in splits if shift_kind(split) == shift_kind(splits[0])][:number]


def run_fits(
    keys: Sequence[FitKey],
    settings: Hyperparameters,
    data_dir: str | None,
    provenance: dict[str, Any],
    plugin: str | None = None,
    own_suite: Suite | None = None,
) -> list[Record]:
    """Fit one method to several splits together, and score each; an error is recorded, not raised.

    `provenance` is copied into each record; its `device` is where the fits run. `plugin` is imported first.
    `own_suite` takes the place of the suite of that name.
    """
    if plugin is not None:
        import_plugin(plugin)
    records: list[Record] = [{**key._asdict(), **provenance, "settings": settings} for key in keys]
    if keys[0].is_search:
        records = [record | {"search": True} for record in records]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            on_device = settings | {"device": provenance.get("device", "cpu")}
            results = _fit_and_score(keys, on_device, data_dir, own_suite)
        except Exception as error:  # one fit in thousands must not end the others
            if len(keys) > 1:
                rest = settings, data_dir, provenance, plugin, own_suite
                return [record for key in keys for record in run_fits([key], *rest)]
            results = [{"error": f"{type(error).__name__}: {error}"}]
    return [record | result for record, result in zip(records, results, strict=True)]


def _fit_and_score(
    keys: Sequence[FitKey], settings: Hyperparameters, data_dir: str | None, own_suite: Suite | None
) -> list[Record]:
    estimator = estimators_by_method()[keys[0].method]
    inputs = [_fit_inputs(key, data_dir, own_suite) for key in keys]
    regressors = [estimator(**settings, random_state=each.seed, n_threads=1, verbose=False) for each in inputs]
    start = time.perf_counter()
    fit_together(regressors, [each.train for each in inputs], [each.held_out for each in inputs])
    seconds = (time.perf_counter() - start) / len(inputs)
    return [_scored(regressor, each, len(inputs), seconds) for regressor, each in zip(regressors, inputs, strict=True)]


class FitInputs(NamedTuple):
    """Rows and seed of one fit, how it is scored, and further fields of its record."""

    train: Rows
    held_out: Rows
    tests: dict[str, Rows]
    seed: int
    levels: int
    sample: str | None
    facts: dict[str, Any]


def _fit_inputs(key: FitKey, data_dir: str | None, own_suite: Suite | None = None) -> FitInputs:
    suite, search = find_suite(key.suite, own_suite), key.is_search
    split = search_splits(key.suite, key.dataset, data_dir, own_suite)[key.seed] if search else key.split
    index = suite.splits(key.dataset, data_dir).index(split)
    train, tests, held_out, facts = suite.load(key.dataset, split, data_dir)
    seed = index if search else 1000 * key.seed + index
    if search and held_out is not None:
        # Blocks of rows in time order: single rows drawn at random would lie among the training hours.
        held_out, validation = _alternate_blocks(held_out)
        tests = {"validation": validation}
    elif search:
        train, validation = _split_off(train, VALIDATION_FRACTION, seed)
        tests = {"validation": validation}
    if held_out is None:
        # The same rows for every method, as they depend on the split alone.
        train, held_out = _split_off(train, HELD_OUT_FRACTION, seed)
    if search and len(train.y) > MAX_SEARCH_ROWS:
        train = _split_off(train, 1 - MAX_SEARCH_ROWS / len(train.y), seed)[0]
    sample = suite.sample if seed == 0 and not search else None
    return FitInputs(train, held_out, tests, seed, suite.levels, sample, {} if search else facts)


def _scored(regressor: DeepRegressor, inputs: FitInputs, together: int, seconds: float) -> Record:
    scale = held_out_scale(regressor, inputs.held_out)
    target_sd = float(inputs.train.y.std()) or 1.0
    tests, predict_seconds = score(
        regressor, inputs.tests, levels=inputs.levels, scale=scale, target_sd=target_sd, sample=inputs.sample
    )
    return {
        "tests": tests,
        "rows": {"train": len(inputs.train.y), "held_out": len(inputs.held_out.y)},
        "scale": scale,
        "target_sd": target_sd,
        "epochs": len(regressor.report_.history),
        "seconds": {"fit": round(seconds, 4), "predict": round(predict_seconds, 5)},
        "together": together,
        "parameters": sum(parameter.numel() for parameter in regressor.model_.parameters()),
        **inputs.facts,
    }


def _split_off(rows: Rows, fraction: float, seed: int) -> tuple[Rows, Rows]:
    """The other rows, and a random fraction of them."""
    kept, apart = split_rows(len(rows.y), fraction, seed)
    return Rows(rows.X[kept], rows.y[kept]), Rows(rows.X[apart], rows.y[apart])


def _alternate_blocks(rows: Rows, blocks: int = 8) -> tuple[Rows, Rows]:
    """Every other block of consecutive rows, and the blocks between."""
    even = np.arange(len(rows.y)) * blocks // len(rows.y) % 2 == 0
    return Rows(rows.X[even], rows.y[even]), Rows(rows.X[~even], rows.y[~even])
