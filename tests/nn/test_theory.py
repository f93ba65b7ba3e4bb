"""The paper's section 3 as tests, in float64: theorem, corollary, limits, distance awareness."""

import math
from functools import cache
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from torch import nn

from density_regression import DensityRegression
from density_regression.nn.density import DENSITIES, FlowDensity, GaussianDensity, RadialFlowDensity
from density_regression.nn.heads import HEADS, NaturalHead
from density_regression.nn.network import Features
from density_regression.nn.tempering import TEMPERINGS, ExactTempering, RobustTempering
from density_regression.training.algorithm import fit_density
from density_regression.training.refit import refit_head
from density_regression.training.warm_start import start_head

coefficients = st.floats(-2, 2)


def natural_head(m: float, s: float) -> NaturalHead:
    """A head whose parameters at z = 0 are m and s."""
    head = NaturalHead(1).double()
    with torch.no_grad():
        head.linear.bias.copy_(torch.tensor([m, s]))
    return head


def at_origin(head: NaturalHead, log_density: float) -> tuple[float, float]:
    """Mean and variance at z = 0."""
    mean, log_std = head(torch.zeros(1, 1).double(), torch.tensor([log_density]).double())
    return mean.item(), math.exp(2 * log_std.item())


def fitted(density="mixture", tempering="robust", head="natural", *, dims=3, seed=0, double=True) -> DensityRegression:
    """A model on Gaussian features (the encoder is the identity), after steps 2 and 3."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(400, dims, generator=generator)
    z = z @ torch.randn(dims, dims, generator=generator) + torch.randn(dims, generator=generator)
    y = (z[:, :1] / z.std()).sin() + 0.3 * torch.randn(400, 1, generator=generator)
    model = DensityRegression(nn.Identity(), dims, head=head, density=density, tempering=tempering)
    if double:
        model, z, y = model.double(), z.double(), y.double()
    train, held_out = (
        Features(z[part], y[part], torch.ones_like(y[part, 0])) for part in (slice(300), slice(300, 400))
    )
    with torch.no_grad():
        start_head(model.head, train)
    fit_density(model, train, held_out)
    refit_head(model, train, held_out)
    return model.eval()


def small(name):
    """A density by name, with little training where it is trained."""
    if name in ("flow", "maf", "nsf"):
        return FlowDensity({"flow": "realnvp"}.get(name, name), transforms=1, hidden=(8,), epochs=2)
    return RadialFlowDensity(layers=2, epochs=2) if name == "radial" else DENSITIES[name]()


@cache
def in_float32(name, tempering, head):
    """One fit for all of a property test's examples."""
    return fitted(small(name), tempering, head, double=False)


class TestNormal:
    """`theo:gauss` and `corol:gauss`."""

    @given(m=coefficients, s=coefficients, log_density=coefficients)
    @settings(max_examples=25, deadline=None)
    def test_equals_numerical_integration_of_eq_exp(self, m, s, log_density):
        p, precision = math.exp(log_density), math.exp(s)

        # theta_g^T Phi(z, y) with theta_g^sigma [z, 1] = e^s and theta_g^mu [z, 1] = m; the last two statistics do not
        # depend on y and cancel. Centred by its largest value, for the integral's sake.
        def unnormalised(y):
            return math.exp(-p * (precision * y * y + 2 * m * y + m * m / precision))

        centre, width = -m / precision, 12 / math.sqrt(2 * p * precision)
        bounds = (centre - width, centre + width)
        total = quad(unnormalised, *bounds)[0]
        mean = quad(lambda y: y * unnormalised(y), *bounds)[0] / total
        variance = quad(lambda y: (y - mean) ** 2 * unnormalised(y), *bounds)[0] / total
        assert at_origin(natural_head(m, s), log_density) == pytest.approx((mean, variance), rel=1e-6, abs=1e-6)

    @given(m=coefficients, s=coefficients, log_density=coefficients)
    def test_corollary_equals_theorem(self, m, s, log_density):
        p = math.exp(log_density)
        theorem = -m / math.exp(s), 1 / (2 * p * math.exp(s))
        variance = math.exp(-0.5 * (math.log(2) + log_density + s)) ** 2
        corollary = variance * (-2 * p * m), variance
        assert corollary == pytest.approx(theorem, rel=1e-12)
        assert at_origin(natural_head(m, s), log_density) == pytest.approx(theorem, rel=1e-6)

    @given(s=st.floats(-5, 5), lower=st.floats(-50, 50), step=st.floats(0, 50))
    def test_variance_and_entropy_do_not_increase_with_the_density(self, s, lower, step):
        head = natural_head(1.0, s)
        logs = torch.tensor([lower, lower + step]).double()
        mean, log_std = head(torch.zeros(2, 1).double(), logs)
        normal = torch.distributions.Normal(mean, log_std.exp())
        assert normal.variance[1] <= normal.variance[0]
        assert normal.entropy()[1] <= normal.entropy()[0]
        assert mean[0] == mean[1]


class TestLimits:
    """Both halves of `theorem:uncertainty_iid_ood` for the exact density, the far one for the default."""

    def test_exact_density_to_infinity_gives_a_point(self):
        head = natural_head(1.0, 0.0)
        levels = torch.tensor([0.0, 20.0, 60.0, 150.0])
        variances = [at_origin(head, level)[1] for level in ExactTempering()(levels).tolist()]
        assert variances == sorted(variances, reverse=True)
        assert variances[-1] < 1e-60

    @pytest.mark.parametrize("tempering", ["exact", "robust"])
    def test_far_away_the_variance_grows_without_bound(self, tempering):
        model = fitted("gaussian", tempering)
        ray = torch.tensor([[1.0, -0.5, 0.25]]).double()
        stds = [model(ray * distance).stddev.item() for distance in (10.0, 1e2, 1e3, 1e4, 1e5, 1e6)]
        # e^80 is as wide as the exact density may get.
        assert all(after > before or before > 1e34 for before, after in pairwise(stds)), stds
        assert stds[-1] > 1e4 * model(model.density.whitening.center[None]).stddev.item()
        assert math.isfinite(stds[-1])

    @given(direction=st.lists(st.floats(-1, 1), min_size=3, max_size=3), near=st.floats(0, 1e3), step=st.floats(0, 1e3))
    @settings(deadline=None)
    def test_gaussian_rays_from_the_mean_never_lose_variance_at_fixed_s(self, direction, near, step):
        model = GAUSSIAN
        center = model.density.whitening.center
        ray = torch.tensor([direction]).double()
        z = torch.cat([center + near * ray, center + (near + step) * ray])
        _, log_std = model.row_moments(z)
        # log variance + s: what the density alone contributes.
        s = -2.0 * model.head(z).log_std
        contribution = 2.0 * log_std + s
        assert contribution[1] >= contribution[0] - 1e-9

    @given(scale=st.floats(10, 1e6), seed=st.integers(0, 2**16))
    @settings(deadline=None, max_examples=50)
    def test_default_is_wider_far_away_than_anywhere_near(self, scale, seed):
        z = torch.randn(1, 3, generator=torch.Generator().manual_seed(seed)).double()
        z = z / z.norm() * 20 * scale
        std = DEFAULT(z).stddev
        near = DEFAULT(torch.randn(200, 3, generator=torch.Generator().manual_seed(1)).double()).stddev
        assert torch.isfinite(std).all()
        assert std.item() > near.max().item()


GAUSSIAN = fitted("gaussian", RobustTempering())
DEFAULT = fitted()


@pytest.mark.parametrize("name", ["mixture", "gaussian", "kernel", "radial"])
def test_a_silent_direction_that_fires_raises_the_variance(name):
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(300, 4, generator=generator).double()
    z[:, 3] = 0.0
    y = z[:, :1] + 0.1 * torch.randn(300, 1, generator=generator).double()
    model = DensityRegression(nn.Identity(), 4, density=small(name), head="mean").double()
    rows = Features(z, y, torch.ones(300).double())
    fit_density(model, rows, rows)
    refit_head(model, rows, rows)
    with torch.no_grad():
        model.head.linear.weight[:, 3] = 0.0  # so that the head itself cannot notice
    fires = z[:20].clone()
    fires[:, 3] = 1.0
    assert (model(fires).stddev > model(z[:20]).stddev).all()
    assert (model.density.log_prob(fires) < model.density.log_prob(z[:20])).all()


def test_epistemic_part_shrinks_where_data_is_added_and_the_noise_stays():
    generator = torch.Generator().manual_seed(0)

    def parts(z):
        y = 0.5 * torch.randn(len(z), 1, generator=torch.Generator().manual_seed(1)).double()
        model = DensityRegression(nn.Identity(), 1, density=GaussianDensity(), head="mean").double()
        rows = Features(z, y, torch.ones(len(z)).double())
        start_head(model.head, rows)
        fit_density(model, rows, rows)
        refit_head(model, rows, rows)
        return model.decompose(torch.tensor([[8.0]]).double())

    near = torch.randn(500, 1, generator=generator).double()
    before = parts(near)
    after = parts(torch.cat([near, near + 8.0]))
    assert after.epistemic.item() < 0.2 * before.epistemic.item()
    assert after.aleatoric.item() == pytest.approx(before.aleatoric.item(), rel=0.3)


class TestNeverNaN:
    """Every density x tempering x head, float32, inputs of any finite size."""

    @pytest.mark.parametrize("head", sorted(HEADS))
    @pytest.mark.parametrize("tempering", sorted(TEMPERINGS))
    @pytest.mark.parametrize("name", sorted(DENSITIES))
    @given(exponent=st.floats(-30, 30), seed=st.integers(0, 2**16))
    @settings(deadline=None, max_examples=15)
    def test_predictions_are_finite_and_positive(self, name, tempering, head, exponent, seed):
        model = in_float32(name, tempering, head)
        x = torch.randn(8, 3, generator=torch.Generator().manual_seed(seed)) * 10.0**exponent
        with torch.no_grad():
            law = model(x)
            aleatoric, epistemic, *_ = model.decompose(x)
        assert law.mean.dtype == torch.float32
        assert torch.isfinite(law.mean).all()
        assert torch.isfinite(law.stddev).all()
        assert (law.stddev > 0).all()
        assert torch.isfinite(aleatoric).all()
        assert torch.isfinite(epistemic).all()

    def test_features_that_overflow_count_as_far(self):
        class Overflows(nn.Module):
            def forward(self, x):
                huge = x * 1e38
                return torch.cat([huge * 10, huge * 10 - huge * 10, -huge * 10], 1)

        model = fitted(double=False)
        near = model(torch.zeros(1, 3)).stddev
        model.encoder = Overflows()
        law = model(torch.ones(1, 1))
        assert torch.isfinite(law.mean).all()
        assert law.stddev > near


@pytest.mark.parametrize("scale", [1.0, 100.0, 1e4])
@pytest.mark.parametrize("tempering", sorted(TEMPERINGS))
@pytest.mark.parametrize("head", sorted(HEADS))
def test_held_out_residuals_are_of_unit_size_whatever_the_features_scale(head, tempering, scale):
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(600, 6, generator=generator).double()
    y = z[:, :1] + 0.1 * torch.randn(600, 1, generator=generator).double()
    rows = Features(scale * z, y, torch.ones(600).double())
    train, held_out = Features(*(part[:500] for part in rows)), Features(*(part[500:] for part in rows))
    model = DensityRegression(nn.Identity(), 6, density="gaussian", tempering=tempering, head=head).double()
    start_head(model.head, train)
    fit_density(model, train, held_out)
    refit_head(model, train, held_out)
    law = model(held_out.z)
    ratio = ((held_out.y - law.mean) / law.stddev).square().mean().sqrt()
    assert ratio.item() == pytest.approx(1.0, rel=0.1)
