"""The numerical helpers, on their own."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from density_regression import _numeric
from density_regression._numeric import LARGE, smooth_clamp, tame, weighted_quantiles


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
def test_tame_makes_anything_finite(dtype):
    z = torch.tensor([[0.5, float("inf"), -float("inf"), float("nan")]]).to(dtype)
    tamed = tame(z)
    assert torch.isfinite(tamed).all()
    assert tamed[0, 0] == 0.5
    assert tamed[0, 1] >= 0.99 * LARGE
    assert tamed[0, 2] <= -0.99 * LARGE
    assert tamed[0, 3] >= 0.99 * LARGE


@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_tame_does_the_same_to_what_is_trained(values):
    z = torch.tensor([values], requires_grad=True)
    tamed = tame(z)
    assert torch.equal(tamed, tame(z.detach()))
    tamed.sum().backward()
    assert torch.equal(z.grad, torch.ones_like(z))


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
    expected = _numeric.narrow(layer, z)
    torch.testing.assert_close(expected, layer(z), rtol=0, atol=0)
    monkeypatch.setattr(_numeric, "is_fused", lambda _: True)
    torch.testing.assert_close(_numeric.narrow(layer, z), expected)
