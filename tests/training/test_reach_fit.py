"""The learnt reach as part of a fit: wide where it must be, the same again, and saved."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from density_regression import DensityRegressor, fit_together, load
from density_regression.datasets import make_cubic
from density_regression.nn.tempering import DEFAULT_REACH
from training.reach_helpers import QUICK, learnt


def test_reach_is_long_where_the_mean_holds_outside_and_short_where_it_does_not() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (600, 1))
    noise = 0.05 * rng.standard_normal(600)
    # The default network is linear beyond its data: right about a line, wrong about a wave.
    line, wave = (
        DensityRegressor(**QUICK | {"epochs": 100, "batch_size": 64}).fit(X, y + noise)
        for y in (X[:, 0], np.sin(4 * X[:, 0]))
    )
    assert learnt(line) > 2 * learnt(wave)


def test_hidden_rows_that_are_few_leave_the_reach_typical() -> None:
    X, y = make_cubic(n=99, random_state=0)
    regressor = DensityRegressor(**QUICK).fit(X, y)
    assert learnt(regressor) == DEFAULT_REACH
    assert regressor.report_.seconds["learn_reach"] == 0.0
    assert float(regressor.model_.head.detail) == 1.0


def test_same_again_gives_the_same_and_the_callers_generator_is_left_alone() -> None:
    X, y = make_cubic(n=200, random_state=0)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, other = (DensityRegressor(**QUICK).fit(X, y) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    assert learnt(one) == learnt(other)
    np.testing.assert_array_equal(one.predict(X, return_std=True), other.predict(X, return_std=True))


def test_together_as_alone() -> None:
    tables = [make_cubic(n=200, random_state=seed) for seed in range(2)]
    together = [DensityRegressor(**QUICK | {"random_state": seed}) for seed in range(2)]
    fit_together(together, tables)
    for seed, regressor in enumerate(together):
        alone = DensityRegressor(**QUICK | {"random_state": seed}).fit(*tables[seed])
        assert abs(math.log2(learnt(regressor) / learnt(alone))) <= 0.51
        assert regressor.report_.seconds["learn_reach"] > 0


def test_networks_that_cannot_be_stacked_are_trained_one_by_one() -> None:
    X, y = make_cubic(n=200, random_state=0)

    def encoder(columns: int) -> nn.Module:
        return nn.Sequential(nn.Linear(columns, 16), nn.BatchNorm1d(16), nn.ReLU())

    regressor = DensityRegressor(encoder=encoder, **QUICK).fit(X, y)
    assert regressor.report_.seconds["learn_reach"] > 0
    assert np.isfinite(regressor.predict(X * 1e6, return_std=True)).all()


def test_saved_with_the_model(tmp_path: Any) -> None:
    X, y = make_cubic(n=200, random_state=0)
    regressor = DensityRegressor(**QUICK).fit(X, y)
    again = load(regressor.save(tmp_path / "model") or tmp_path / "model")
    assert learnt(again) == learnt(regressor) != DEFAULT_REACH
    np.testing.assert_array_equal(again.predict(10 * X, return_std=True), regressor.predict(10 * X, return_std=True))


def test_filling_a_gap_with_rows_shrinks_the_epistemic_part_there_and_leaves_the_noise() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (900, 1))
    y = X[:, 0] + 0.3 * rng.standard_normal(900)
    apart = np.abs(X[:, 0]) > 1.5
    gap, filled = (
        DensityRegressor(**QUICK | {"epochs": 60, "batch_size": 64}).fit(X[rows], y[rows]).decompose([[0.0]])
        for rows in (apart, np.ones(900, dtype=bool))
    )
    assert filled.epistemic[0] < 0.5 * gap.epistemic[0]
    assert filled.aleatoric[0] == pytest.approx(gap.aleatoric[0], rel=0.3)
    assert filled.aleatoric[0] == pytest.approx(0.3, rel=0.3)
    # Twice as many rows at the same places: it measures a distance, not how many rows there were.
    twice = (
        DensityRegressor(**QUICK | {"epochs": 60, "batch_size": 64})
        .fit(np.tile(X, (2, 1)), np.tile(y, 2))
        .decompose([[0.0]])
    )
    assert twice.aleatoric[0] == pytest.approx(filled.aleatoric[0], rel=0.3)
