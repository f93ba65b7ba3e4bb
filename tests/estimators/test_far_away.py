"""Far away every answer is finite, and wider than anywhere near."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from density_regression import DensityRegressor, FlowDensity, RadialFlowDensity
from density_regression.datasets import make_cubic
from estimators.helpers import assert_sound, moments, quick

# -- far away: finite, and wider than anywhere near -------------------------------------------------------------

FAR = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("which", ["default_cubic", "default_friedman"])
@FAR
@given(data=st.data(), exponent=st.floats(3, 30))
def test_far_away_is_wider_than_every_row_at_hand(request, friedman, which: str, data, exponent: float) -> None:
    reg = request.getfixturevalue(which)
    assert next(reg.model_.parameters()).dtype == torch.float32
    columns = reg.n_features_in_
    row = np.array(data.draw(st.lists(st.floats(-1, 1), min_size=columns, max_size=columns)))
    assume(np.abs(row).max() > 0.25)
    # All rows at hand, the held-out ones among them.
    near = friedman.X if columns > 1 else make_cubic(300, random_state=0)[0]
    largest = moments(reg, near)[1].max()
    mean, std = reg.predict([10.0**exponent * row], return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert std > largest


DENSITIES = {
    "mixture": "mixture",
    "gaussian": "gaussian",
    "kernel": "kernel",
    "realnvp": FlowDensity(epochs=2, transforms=2, hidden=(8,)),
    "maf": FlowDensity("maf", epochs=2, transforms=2, hidden=(8,)),
    "nsf": FlowDensity("nsf", epochs=2, transforms=2, hidden=(8,)),
    "radial": RadialFlowDensity(epochs=2),
    "none": None,
}


@pytest.fixture(
    scope="module",
    params=product(DENSITIES, ["robust", "exact", "rescaled"], ["natural", "mean"]),
    ids="-".join,
)
def every_kind(request, friedman) -> DensityRegressor:
    """Each density with each tempering and each head, fitted in a moment to four columns."""
    density, tempering, head = request.param
    reg = quick(density=DENSITIES[density], tempering=tempering, head=head, epochs=4)
    return reg.fit(friedman.X[:120, :4], friedman.y[:120])


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), exponents=st.lists(st.floats(0, 30), min_size=4, max_size=4))
def test_every_kind_is_finite_everywhere(every_kind, friedman, seed: int, exponents: list[float]) -> None:
    directions = np.random.default_rng(seed).normal(size=(20, 4))
    assert_sound(every_kind, directions * 10.0 ** np.array(exponents))
    assert_sound(every_kind, friedman.X[:20, :4] * 10.0 ** max(exponents))
