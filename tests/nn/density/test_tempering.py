"""Temperings: monotone, anchored where they say, and with the tails they promise."""

import json
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from density_regression.nn.density import GaussianDensity
from density_regression.nn.tempering import (
    DEFAULT_REACH,
    TEMPERINGS,
    ExactTempering,
    RescaledTempering,
    RobustTempering,
    Tempering,
)

TRAIN = torch.tensor([-9.0, -4.0, -3.0, -2.5, -1.0], dtype=torch.float64)
HELD_OUT = torch.tensor([-6.0, -5.0, -3.5], dtype=torch.float64)


def fitted(make: Callable[[], Tempering]) -> Tempering:
    return make().double().fit(TRAIN, HELD_OUT)


MAKERS: dict[str, Callable[[], Tempering]] = {
    "exact": ExactTempering,
    "rescaled": RescaledTempering,
    "robust": RobustTempering,
    "robust-1": lambda: RobustTempering(1.0),
    "robust-far": lambda: RobustTempering(reach=50.0),
}


@pytest.mark.parametrize("name", MAKERS)
@given(values=st.lists(st.floats(-1e12, 1e4), min_size=2, max_size=20))
@settings(deadline=None, max_examples=50)
def test_every_tempering_is_monotone_and_finite(name: str, values: list[float]) -> None:
    tempering = fitted(MAKERS[name])
    tempered = tempering(torch.tensor(sorted(values), dtype=torch.float64))
    assert bool((tempered.diff() >= 0).all())
    assert bool(tempered.isfinite().all())
    assert bool(tempering.float()(torch.tensor(values)).isfinite().all())


@pytest.mark.parametrize("name", MAKERS)
def test_strictly_falls_below_the_reference(name: str) -> None:
    tempered = fitted(MAKERS[name])(-(10.0 ** torch.arange(1, 20, dtype=torch.float64)))
    assert bool((tempered.diff() < 0).all())


@pytest.mark.parametrize("name", MAKERS)
def test_reference_is_the_held_out_median(name: str) -> None:
    tempering = fitted(MAKERS[name])
    assert tempering.reference.item() == -5.0
    assert tempering.reference_level.item() == tempering(torch.tensor(-5.0).double()).item()
    weighted = MAKERS[name]().double().fit(TRAIN, HELD_OUT, torch.tensor([9.0, 1.0, 1.0]))
    assert weighted.reference.item() == -6.0


def test_exact_is_the_identity() -> None:
    values = torch.linspace(-1e6, 1e3, 50)
    assert torch.equal(fitted(ExactTempering).float()(values), values)


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.4), (1.0, 3.0), (-2.0, -1.0)])
def test_rescaled_maps_the_training_range_onto_low_and_high(low: float, high: float) -> None:
    tempering = fitted(lambda: RescaledTempering(low, high))
    assert tempering(TRAIN.min()).item() == pytest.approx(low)
    assert tempering(TRAIN.max()).item() == pytest.approx(high)
    assert tempering(torch.tensor(-5.0).double()).item() == pytest.approx((low + high) / 2)  # halfway from -9 to -1
    assert tempering(torch.tensor(-17.0).double()).item() == pytest.approx(2 * low - high)  # linear beyond


def test_rescaled_survives_equal_log_densities() -> None:
    tempering = RescaledTempering().fit(torch.zeros(5), torch.zeros(5))
    assert tempering(torch.tensor([-1.0, 0.0, 1.0])).isfinite().all()
    assert tempering(torch.tensor(0.0)).item() == 0.0


def test_robust_equals_a_hand_computation() -> None:
    # The 16 % quantile of -6, -5 and -3.5 is -5.68, so the spread is 0.68 nats, and a reach of 3 makes it 2.04.
    tempering = fitted(lambda: RobustTempering(1.5, reach=3.0))
    assert tempering(torch.tensor(-5 - 2.04).double()).item() == pytest.approx(-1.5 * math.log(3))
    assert tempering(torch.tensor(-5 - 4.08).double()).item() == pytest.approx(-1.5 * math.log(5))


def test_the_variance_begins_to_grow_where_it_is_told_to() -> None:
    # As above; two spreads below the reference of -5 is -6.36.
    tempering = fitted(lambda: RobustTempering(1.5, reach=3.0, start=2.0))
    assert tempering(torch.tensor([-5.0, -6.3]).double()).tolist() == [0.0, 0.0]
    assert tempering(torch.tensor(-6.36 - 2.04).double()).item() == pytest.approx(-1.5 * math.log(3))
    assert tempering.reference_level.item() == 0.0


def test_rescaled_takes_a_narrow_range_for_a_thousandth() -> None:
    tempering = RescaledTempering(1.0, 3.0).double().fit(TRAIN[0] + 1e-5 * TRAIN, HELD_OUT)
    lowest = TRAIN[0] + 1e-5 * TRAIN[0]
    assert tempering(lowest).item() == pytest.approx(1.0)
    assert tempering(lowest + 1e-3).item() == pytest.approx(3.0)


def test_exponent_and_reach_may_be_any_positive_number() -> None:
    """Of a tenth, too: an excess of one spread is then ten times the reach."""
    tempering = fitted(lambda: RobustTempering(0.1, reach=0.1))
    assert tempering(torch.tensor(-5 - 0.68).double()).item() == pytest.approx(-0.1 * math.log(21))


def test_reach_is_typical_until_it_is_learnt() -> None:
    auto, typical = fitted(RobustTempering), fitted(lambda: RobustTempering(reach=DEFAULT_REACH))
    values = torch.linspace(-50, 0, 20).double()
    assert torch.equal(auto(values), typical(values))
    auto.set_reach(7.0)
    assert torch.equal(auto(values), fitted(lambda: RobustTempering(reach=7.0))(values))


def test_spread_of_weighted_rows_and_of_equal_ones() -> None:
    weighted = RobustTempering().double().fit(TRAIN, HELD_OUT, torch.tensor([1.0, 9.0, 1.0]))
    assert weighted.spread.item() == RobustTempering.LEAST_SPREAD  # both quantiles are -5
    alike = RobustTempering().fit(torch.zeros(5), torch.zeros(5))
    assert alike.spread.item() == RobustTempering.LEAST_SPREAD


def test_rounding_is_no_spread() -> None:
    """Log-densities of -1e24, as of a row held out from two, differ by 1e17 by chance."""
    held_out = torch.tensor([-1e24, -1e24 * (1 + 1e-7)])
    tempering = RobustTempering().fit(torch.zeros(2), held_out)
    assert tempering(held_out).min() > -0.2


@given(above=st.floats(0, 1e6))
@settings(deadline=None, max_examples=30)
def test_robust_is_zero_at_and_above_the_reference(above: float) -> None:
    assert fitted(RobustTempering)(torch.tensor(-5.0 + above).double()).item() == 0.0


@pytest.mark.parametrize(("exponent", "expected"), [(0.5, 10.0), (1.0, 100.0), (2.0, 10_000.0)])
def test_variance_grows_polynomially_with_the_distance(exponent: float, expected: float) -> None:
    """For a Gaussian density the variance grows with the distance to the power 2 g."""
    z = torch.randn(500, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    density = GaussianDensity(variance=1.0).double().fit(z)
    tempering = RobustTempering(exponent).double().fit(density.log_prob(z), density.log_prob(z))
    direction = torch.tensor([[1.0, -2.0, 0.5, 3.0]], dtype=torch.float64)

    def factor(distance: float) -> float:
        return (-tempering(density.log_prob(distance * direction))).exp().item()

    ratios = [factor(10 * r) / factor(r) for r in (1e1, 1e2, 1e3)]
    assert ratios[-1] == pytest.approx(expected, rel=1e-3)
    errors = [abs(ratio / expected - 1) for ratio in ratios]
    assert errors[0] > errors[1] > errors[2]


@pytest.mark.parametrize("name", MAKERS)
def test_state_and_config_rebuild_it(name: str) -> None:
    tempering = fitted(MAKERS[name]).float()
    fresh = type(tempering)(**json.loads(json.dumps(tempering.config())))
    fresh.load_state_dict(tempering.state_dict())
    assert torch.equal(fresh(TRAIN.float() - 4), tempering(TRAIN.float() - 4))


def test_table_of_names() -> None:
    assert {name: type(make()) for name, make in TEMPERINGS.items()} == {
        "exact": ExactTempering,
        "rescaled": RescaledTempering,
        "robust": RobustTempering,
    }


@pytest.mark.parametrize("exponent", [0.0, -1.0, math.inf, math.nan])
def test_bad_exponent_is_named(exponent: float) -> None:
    with pytest.raises(ValueError, match="exponent"):
        RobustTempering(exponent)


@pytest.mark.parametrize("reach", [0.0, -1.0, math.inf, math.nan])
def test_bad_reach_is_named(reach: float) -> None:
    with pytest.raises(ValueError, match="reach"):
        RobustTempering(reach=reach)


@pytest.mark.parametrize("start", [-0.1, math.inf, math.nan])
def test_bad_start_is_named(start: float) -> None:
    with pytest.raises(ValueError, match="start"):
        RobustTempering(start=start)


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2.0, 1.0), (0.0, math.inf), (-math.inf, 0.0), (math.nan, 1.0)])
def test_bad_range_is_named(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="low"):
        RescaledTempering(low, high)
