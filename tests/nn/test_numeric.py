"""The numerical helpers, on their own."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from density_regression.nn.density import folded
from density_regression.nn.density.base import FEATURE_LIMIT, bound_features, smooth_clamp, weighted_quantiles


@given(low=st.floats(-30, 30), width=st.floats(0, 40))
def test_smooth_clamp_never_leaves_its_bounds_nor_turns_back(low, width):
    far = torch.logspace(-3, 12, 400)
    value = torch.cat([-far.flip(0), far])
    low, high = torch.tensor([low]), torch.tensor([low + width])
    clamped = smooth_clamp(value, low, high)
    slack = 1e-5 * (1 + high.abs() + low.abs())
    assert (clamped >= low - slack).all()
    assert (clamped <= high + slack).all()
    assert (clamped.diff() >= -slack).all()
    assert clamped[0] == pytest.approx(low.item(), abs=slack.item())
    assert clamped[-1] == pytest.approx(high.item(), abs=slack.item())


def test_smooth_clamp_is_nearly_the_identity_inside():
    value = torch.linspace(-2, 2, 41).double()
    low, high = torch.tensor([-8.0]).double(), torch.tensor([8.0]).double()
    torch.testing.assert_close(smooth_clamp(value, low, high), value, rtol=0, atol=0.01)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_bounded_features_are_finite(dtype):
    z = torch.tensor([[0.5, float("inf"), -float("inf"), float("nan")]]).to(dtype)
    bounded = bound_features(z)
    assert torch.isfinite(bounded).all()
    assert bounded[0, 0] == 0.5
    assert bounded[0, 1] >= 0.99 * FEATURE_LIMIT
    assert bounded[0, 2] <= -0.99 * FEATURE_LIMIT
    assert bounded[0, 3] >= 0.99 * FEATURE_LIMIT


@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_features_are_bounded_alike_where_they_are_trained(values):
    z = torch.tensor([values], requires_grad=True)
    bounded = bound_features(z)
    assert torch.equal(bounded, bound_features(z.detach()))
    bounded.sum().backward()
    # What lies beyond the limit, or is no number, has no gradient.
    assert torch.equal(z.grad, (z.abs() <= FEATURE_LIMIT).float())


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.floats(0, 1))
def test_quantile_without_weights_is_numpys(values, q):
    found, largest = weighted_quantiles(torch.tensor(values, dtype=torch.float64), [q, 1.0])
    assert found.item() == pytest.approx(np.quantile(values, q), rel=1e-9, abs=1e-6)
    assert largest.item() == max(values)


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(1, 5)), min_size=1, max_size=20), st.floats(0.01, 0.99))
def test_weight_two_is_the_row_twice(rows, q):
    values, weights = (torch.tensor(column).double() for column in zip(*rows, strict=True))
    repeated = values.repeat_interleave(weights.long())
    found = weighted_quantiles(values, [q, 0.5], weights)
    assert found == weighted_quantiles(repeated, [q, 0.5], torch.ones_like(repeated))


def test_a_fused_layer_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, z = nn.Linear(7, 2), torch.randn(20, 7, generator=torch.Generator().manual_seed(0))
    expected = folded.narrow(layer, z)
    torch.testing.assert_close(expected, layer(z), rtol=0, atol=0)
    monkeypatch.setattr(folded, "is_fused", lambda _: True)
    torch.testing.assert_close(folded.narrow(layer, z), expected)
