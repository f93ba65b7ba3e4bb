"""The Gaussian density against scipy, and against what integrals must be."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from density_regression.nn.density import GaussianDensity


def rows(n: int = 200, d: int = 3, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(d, d, generator=generator, dtype=torch.float64) + 2 * torch.eye(d, dtype=torch.float64)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) @ mix - 3.0


@pytest.mark.parametrize("d", [1, 3, 7])
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_scipy_with_weighted_moments(d: int, weighted: bool) -> None:
    z = rows(d=d)
    weight = torch.linspace(0.2, 2.0, len(z), dtype=torch.float64) if weighted else None
    density = GaussianDensity(variance=1.0).double().fit(z, weight)
    share = np.ones(len(z)) if weight is None else weight.numpy()
    mean = np.average(z.numpy(), axis=0, weights=share)
    covariance = np.atleast_2d(np.cov(z.numpy().T, ddof=0, aweights=share))
    points = rows(n=50, d=d, seed=2) * 3
    expected = stats.multivariate_normal(mean, covariance).logpdf(points.numpy())
    np.testing.assert_allclose(density.log_prob(points).numpy(), expected, rtol=1e-9)


def test_integrates_to_one() -> None:
    z = rows(d=2)
    density = GaussianDensity(variance=1.0).double().fit(z)
    axes = [torch.linspace(-8, 8, 401, dtype=torch.float64) * z[:, j].std() + z[:, j].mean() for j in range(2)]
    grid = torch.cartesian_prod(*axes)
    cell = math.prod((axis[1] - axis[0]).item() for axis in axes)
    assert density.log_prob(grid).exp().sum().item() * cell == pytest.approx(1.0, abs=1e-6)


def test_integrates_to_one_over_kept_and_residual_coordinates() -> None:
    z = torch.cat([rows(d=1), torch.zeros(200, 1).double()], dim=1)
    density = GaussianDensity().double().fit(z)
    assert density.dims == 2
    first = torch.linspace(-8, 8, 401, dtype=torch.float64) * z[:, 0].std() + z[:, 0].mean()
    second = torch.linspace(-8, 8, 401, dtype=torch.float64) * density.whitening.residual_scale
    mass = density.log_prob(torch.cartesian_prod(first, second)).exp().sum()
    assert (mass * (first[1] - first[0]) * (second[1] - second[0])).item() == pytest.approx(1.0, abs=1e-6)
