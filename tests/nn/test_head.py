"""The head alone: where it begins, what is kept of s, and how it is calibrated."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from density_regression.nn.heads import HEADS, Head, MeanHead, NaturalHead
from density_regression.nn.network import Features
from density_regression.training.warm_start import start_head


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def plain(head: type[Head] = MeanHead, targets: int = 1) -> Head:
    """A head on one feature z, with location z and s = z for every target."""
    made = head(1, targets).double()
    with torch.no_grad():
        made.linear.weight.fill_(1.0)
        made.linear.bias.zero_()
    return made


def kept(head: Head, z: Tensor) -> Tensor:
    """The log-precision s that a head without density and offset acts on: log std = -(s + log 2) / 2."""
    with torch.no_grad():
        return -2.0 * head(z).log_std - math.log(2)


def even(n: int = 1001) -> Tensor:
    """Rows (n, 1) at equal steps from -20 to 20, the widest range that s can have."""
    return torch.linspace(-20.0, 20.0, n, dtype=torch.float64)[:, None]


# -- what is kept of s ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_s_is_kept_on_nine_rows_in_ten_and_held_beyond_the_outer_two_percent(weighted: bool) -> None:
    head, z = plain(), even()
    head.bound_log_precision(z, torch.ones(1001, dtype=torch.float64) if weighted else None)
    inner = z[z.abs() <= 18.0, None]
    assert (kept(head, inner) - inner).abs().max() < 0.3
    # Far away s is what 2 % of the rows lie beyond.
    ends = kept(head, torch.tensor([[-1e6], [1e6]], dtype=torch.float64))[:, 0]
    for end, beyond in zip(ends, (z < ends[0], z > ends[1]), strict=True):
        assert abs(end) == pytest.approx(19.2, abs=0.05)
        assert beyond.double().mean().item() == pytest.approx(0.02, abs=0.001)


def test_a_few_extreme_rows_do_not_move_the_bounds() -> None:
    heads = [plain() for _ in range(2)]
    usual = even() / 10
    strange = usual.clone()
    strange[-10:] = 20.0
    far = torch.tensor([[-50.0], [50.0]], dtype=torch.float64)
    for head, rows in zip(heads, (usual, strange), strict=True):
        head.bound_log_precision(rows)
    torch.testing.assert_close(*(kept(head, far) for head in heads))


@pytest.mark.parametrize("name", HEADS)
def test_no_row_may_take_s_beyond_twenty(name: str) -> None:
    head, far = plain(HEADS[name]), torch.tensor([[-1e6], [1e6]], dtype=torch.float64)
    head.bound_log_precision(5 * even())
    torch.testing.assert_close(kept(head, far), far.clamp(-20, 20))
    assert (head.s_min.item(), head.s_max.item()) == (-20.0, 20.0)


def test_weights_say_which_rows_bound_s() -> None:
    """A third of the rows, but of no weight, lie far up."""
    z = torch.cat([even() / 10, torch.full((500, 1), 15.0, dtype=torch.float64)])
    weight = torch.cat([torch.ones(1001), torch.zeros(500)]).double()
    one, other = plain(), plain()
    one.bound_log_precision(z, weight)
    other.bound_log_precision(even() / 10, weight[:1001])
    far = torch.tensor([[-50.0], [50.0]], dtype=torch.float64)
    torch.testing.assert_close(kept(one, far), kept(other, far))


def test_bounds_are_those_of_each_target() -> None:
    head = plain(targets=2)
    with torch.no_grad():
        head.linear.weight[3] = 0.1
    head.bound_log_precision(even())
    ends = kept(head, torch.tensor([[1e6]], dtype=torch.float64))[0]
    torch.testing.assert_close(ends, torch.tensor([19.2, 1.92], dtype=torch.float64), atol=0.05, rtol=0)
    assert head.s_max.tolist() == pytest.approx([20.0, 2.0])
    assert head.s_min.tolist() == pytest.approx([-20.0, -2.0])


def test_the_natural_mean_is_as_learnt_on_every_training_row_and_held_outside_them() -> None:
    head, z = plain(NaturalHead), even() / 10
    head.bound_log_precision(z)
    with torch.no_grad():
        # mean = -m e^-s, with m = s = z.
        torch.testing.assert_close(head(z).mean, -z * torch.exp(-z))
        far = torch.tensor([[-7.0], [7.0]], dtype=torch.float64)
        torch.testing.assert_close(head(far).mean, -far * torch.exp(-far.clamp(-2.0, 2.0)))


def test_detail_draws_s_to_the_level_of_the_mean_variance() -> None:
    head, z = plain(), even() / 10
    head.bound_log_precision(z)
    weight = torch.rand(1001, dtype=torch.float64, generator=generator())
    whole = kept(head, z)[:, 0]
    level = -((weight @ torch.exp(-whole)) / weight.sum()).log()
    for detail in (1.0, 0.25, 0.5, 0.0):
        head.shrink_log_precision(detail, z, weight)
        torch.testing.assert_close(kept(head, z)[:, 0], level + detail * (whole - level))


# -- the variance and its limits --------------------------------------------------------------------------------------


def test_variance_by_the_formula() -> None:
    head = plain()
    z = torch.linspace(-3, 3, 7, dtype=torch.float64)[:, None]
    log_density = torch.linspace(-5, 2, 7, dtype=torch.float64)
    head.offset.fill_(0.3)
    with torch.no_grad():
        variance = torch.exp(2 * head(z, log_density).log_std)[:, 0]
    torch.testing.assert_close(variance, torch.exp(-(math.log(2) + log_density + z[:, 0] + 0.3)))


@pytest.mark.parametrize("log_density", [-1e30, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_std_and_its_inverse_are_finite_at_any_density(log_density: float, dtype: torch.dtype) -> None:
    head = MeanHead(1).to(dtype)
    with torch.no_grad():
        std = head(torch.zeros(1, 1, dtype=dtype), torch.tensor([log_density], dtype=dtype)).log_std.exp()
    assert std.isfinite().all()
    assert (1 / std).isfinite().all()
    # As far as float32 allows, but for a few powers of ten.
    assert std.log().abs().item() > 70


@pytest.mark.parametrize("name", HEADS)
def test_in_step_one_s_is_free_within_twenty(name: str) -> None:
    head, z = plain(HEADS[name]), even(9)
    unbounded = head.unbounded(z)
    for moments in (unbounded, head.unbounded(50 * z)):
        assert all(part.isfinite().all() for part in moments)
    with torch.no_grad():
        torch.testing.assert_close(-2 * unbounded.log_std - math.log(2), z)
        torch.testing.assert_close(-2 * head.unbounded(50 * z).log_std - math.log(2), (50 * z).clamp(-20, 20))
        before = head.unbounded(z)
        # Whatever was bound, shrunk and calibrated.
        head.s_low.fill_(-1.0)
        head.detail.fill_(0.1)
        head.offset.fill_(3.0)
        after = head.unbounded(z)
    torch.testing.assert_close(before, after)


def test_of_wider_features_the_first_are_read_whatever_axes_lead() -> None:
    head = MeanHead(3).double()
    z = torch.randn(2, 3, 5, dtype=torch.float64, generator=generator())
    with torch.no_grad():
        torch.testing.assert_close(head.unbounded(z), head.unbounded(z[..., :3]))


# -- where it begins --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("targets", [1, 3])
def test_a_fresh_head_has_unit_variance_everywhere(name: str, targets: int) -> None:
    head = HEADS[name](4, targets)
    z = 10 * torch.randn(20, 4, generator=generator())
    with torch.no_grad():
        for moments in (head(z), head.unbounded(z)):
            torch.testing.assert_close(moments.log_std, torch.zeros(20, targets), atol=1e-6, rtol=0)


def test_a_fresh_head_holds_s_within_twenty() -> None:
    """Smoothly for the variance, exactly for the natural mean."""
    far = torch.tensor([[-1e3], [1e3]], dtype=torch.float64)
    torch.testing.assert_close(kept(plain(), far), far.clamp(-20, 20))
    inner = torch.linspace(-17, 17, 9, dtype=torch.float64)[:, None]
    torch.testing.assert_close(kept(plain(), inner), inner, atol=0.05, rtol=0)
    with torch.no_grad():
        torch.testing.assert_close(plain(NaturalHead)(far).mean, -far * torch.exp(-far.clamp(-20, 20)))


@pytest.mark.parametrize("name", HEADS)
def test_start_is_the_weighted_least_squares_of_the_rows(name: str) -> None:
    """Against torch on rows repeated by their weight; the ridge is small, and features may lie far from zero."""
    head = HEADS[name](3, 2).double()
    z = torch.randn(60, 3, dtype=torch.float64, generator=generator()) + torch.tensor([0.0, 1000.0, -5.0])
    truth = torch.tensor([[1.0, 0.0], [-2.0, 0.5], [0.0, 3.0]], dtype=torch.float64)
    noise = torch.randn(60, 2, dtype=torch.float64, generator=generator(1)) * torch.tensor([0.5, 0.1])
    y = (z - z.mean(0)) @ truth + 4.0 + noise
    weight = torch.arange(60) % 3
    # What was learnt before is forgotten.
    head.offset.fill_(3.0)
    head.detail.fill_(0.1)
    start_head(head, Features(torch.cat([z, z[:, :1]], 1), y, weight.double()))
    repeated_z, repeated_y = z.repeat_interleave(weight, 0), y.repeat_interleave(weight, 0)
    design = torch.cat([repeated_z - repeated_z.mean(0), torch.ones(len(repeated_z), 1, dtype=torch.float64)], 1)
    fitted = design @ torch.linalg.lstsq(design, repeated_y).solution
    with torch.no_grad():
        mean, log_std = head(repeated_z)
    torch.testing.assert_close(mean, fitted, atol=2e-3, rtol=0)
    variance = (repeated_y - fitted).square().mean(0)
    torch.testing.assert_close(torch.exp(2 * log_std), variance.expand_as(log_std), atol=0, rtol=1e-3)


@pytest.mark.parametrize("unit", [1.0, 1e3])
def test_the_ridge_is_a_small_share_of_the_features_variance(unit: float) -> None:
    """Whatever their unit, a slope is about a ten-thousandth smaller than that of least squares."""
    z = torch.randn(30, 1, dtype=torch.float64, generator=generator())
    head = MeanHead(1).double()
    start_head(head, Features(unit * z, 3 * z, torch.ones(30, dtype=torch.float64)))
    assert 1e-5 < 1 - unit * head.linear.weight[0, 0].item() / 3 < 1e-3


def test_the_ridge_leaves_the_level_alone() -> None:
    z = torch.randn(30, 2, dtype=torch.float64, generator=generator())
    y = 1e4 + z.sum(1, keepdim=True)
    head = MeanHead(2).double()
    start_head(head, Features(z, y, torch.ones(30, dtype=torch.float64)))
    with torch.no_grad():
        torch.testing.assert_close(head(z.mean(0, keepdim=True)).mean[0], y.mean(0), atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", HEADS)
def test_start_shrinks_what_the_rows_do_not_settle(name: str) -> None:
    """Two features that are the same share a slope, more features than rows are finite; a perfect fit has a width."""
    z = torch.randn(30, 1, generator=generator())
    head = HEADS[name](2)
    start_head(head, Features(z.expand(30, 2), 3 * z, torch.ones(30)))
    with torch.no_grad():
        slopes = head(torch.eye(2)).mean - head(torch.zeros(1, 2)).mean
        assert head(torch.zeros(1, 2)).log_std.exp().item() > 1e-5
    torch.testing.assert_close(slopes, torch.full((2, 1), 1.5), atol=2e-3, rtol=0)
    wide = HEADS[name](40)
    few = torch.randn(5, 40, generator=generator())
    start_head(wide, Features(few, few[:, :1], torch.ones(5)))
    with torch.no_grad():
        torch.testing.assert_close(wide(few).mean, few[:, :1], atol=0.01, rtol=0)


@pytest.mark.parametrize("name", HEADS)
def test_reset_undoes_what_was_learnt_after_step_one(name: str) -> None:
    head, z = plain(HEADS[name]), even() / 10
    fresh = [part.detach().clone() for part in head(z)]
    head.bound_log_precision(z[:100])
    head.shrink_log_precision(0.5, z, torch.ones(1001, dtype=torch.float64))
    head.calibrate(z, 3 * z, None, torch.ones(1001, dtype=torch.float64))
    assert not torch.allclose(head(z).log_std, fresh[1])
    head.reset()
    for part, expected in zip(head(z), fresh, strict=True):
        torch.testing.assert_close(part, expected)
