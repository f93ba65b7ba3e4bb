"""How the variance grows where a head has disagreement: by the number of dimensions, unless a reach is given."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch
from torch import nn

from density_regression import DensityRegression
from density_regression.nn.heads import MeanHead
from density_regression.nn.network import Features
from density_regression.nn.tempering import DEFAULT_REACH, RobustTempering
from density_regression.training.algorithm import fit_density


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("dims", "expected"), [(1, (1.5, 0.07, 2.0)), (9, (1.5, 0.07, 2.0)), (10, (0.3, 0.02, 0.0))])
def test_growth_suits_the_number_of_dimensions(dims: int, expected: tuple[float, float, float]) -> None:
    tempering = RobustTempering()
    tempering.suit(dims)
    exponent, reach, start = expected
    assert (tempering.exponent.item(), tempering.learnt_reach.item()) == pytest.approx((exponent, reach))
    # At a spread of 1 and a reference of 0.
    found = tempering(torch.tensor([1.0, -start, -start - 1.0, -start - 10.0]))
    np.testing.assert_allclose(found, [0.0, 0.0, *(-exponent * np.log1p([2 / reach, 20 / reach]))], rtol=1e-6)
    # Fitted again, it begins where it did.
    assert RobustTempering().config() == tempering.config()


@pytest.mark.parametrize("dims", [2, 20])
def test_a_reach_of_ones_own_is_left_alone(dims: int) -> None:
    tempering = RobustTempering(1.5, reach=7.0)
    tempering.suit(dims)
    assert (tempering.exponent.item(), tempering.learnt_reach.item()) == (1.5, 7.0)


@pytest.mark.parametrize("disagreement", [False, True])
@pytest.mark.parametrize("dims", [3, 12])
def test_step_two_suits_the_tempering_of_heads_with_disagreement_alone(dims: int, disagreement: bool) -> None:
    z = torch.randn(100, dims, generator=generator())
    rows = Features(z, z[:, :1], torch.ones(100))
    model = DensityRegression(nn.Identity(), dims, head=MeanHead(dims, disagreement=disagreement), density="gaussian")
    fit_density(model, rows, rows)
    assert isinstance(model.tempering, RobustTempering)
    usual = {3: (1.5, 0.07), 12: (0.3, 0.02)}[dims] if disagreement else (2.0, DEFAULT_REACH)
    assert (model.tempering.exponent.item(), model.tempering.learnt_reach.item()) == pytest.approx(usual)


@pytest.mark.parametrize(("dims", "reach", "capped"), [(3, "auto", True), (3, 2.0, False), (12, "auto", False)])
def test_in_few_dimensions_the_density_alone_grows(dims: int, reach: float | Literal["auto"], capped: bool) -> None:
    """Log r has no more than what 99 in 100 training rows have."""
    z = torch.randn(300, dims, generator=generator())
    weight = 0.5 + torch.rand(300, generator=generator(1))
    head = MeanHead(dims, disagreement=True)
    with torch.no_grad():
        head.linear.weight.copy_(torch.randn(3, dims, generator=generator(2)))
        head.bound_ratio(torch.tensor([-4.0]), torch.tensor([20.0]))
        before = head.taught(z)[2]
        far = head.taught(100 * z)[2]
    assert before is not None
    assert far is not None
    model = DensityRegression(
        nn.Identity(), dims, head=head, density="gaussian", tempering=RobustTempering(reach=reach)
    )
    rows = Features(z, z[:, :1], weight)
    fit_density(model, rows, rows)
    with torch.no_grad():
        after = head.taught(100 * z)[2]
    assert after is not None
    values, order = before[:, 0].sort()
    share = weight[order].cumsum(0) / weight.sum()
    high = values[(share >= 0.99).nonzero()[0, 0]]
    assert far.max() > high + 5
    torch.testing.assert_close(after.max(), high if capped else far.max())
    assert head.ratio_low == -4


def test_a_cap_above_the_bounds_changes_nothing() -> None:
    head = MeanHead(2, disagreement=True)
    z = torch.randn(50, 2, generator=generator())
    head.bound_ratio(torch.tensor([0.0]), torch.tensor([0.0]))
    head.cap_ratio(z, torch.ones(50))
    assert head.ratio_range == 0
    assert head.taught(z)[2].isfinite().all()  # type: ignore[union-attr]
