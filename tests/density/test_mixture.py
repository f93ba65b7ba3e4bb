"""The Gaussian mixture against sums of scipy normals, and EM against its own promises."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from density_regression.density import MixtureDensity
from density_regression.density.mixture import _k_means, _maximise, _Mixture

CENTERS = torch.tensor([[-6.0, 0.0], [6.0, 0.0], [0.0, 9.0]], dtype=torch.float64)


def clusters(n: int = 600, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(3, (n,), generator=generator)
    return CENTERS[label] + 0.5 * torch.randn(n, 2, generator=generator, dtype=torch.float64)


def parameters(density: MixtureDensity) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Weights (K,), means (K, q) and covariances (K, q, q) of whitened features, from what is stored."""
    k, q = len(density.log_norm), density.whitening.kept
    factor = density.factor.reshape(q, k, q).permute(1, 0, 2)
    mean = torch.linalg.solve(factor.transpose(1, 2), density.shift.reshape(k, q))
    covariance = torch.linalg.inv(factor @ factor.transpose(1, 2))
    weight = (density.log_norm - torch.linalg.slogdet(factor).logabsdet).exp() * (2 * math.pi) ** (q / 2)
    return weight, mean, covariance


def penalised(mixture: _Mixture, t: torch.Tensor, weight: torch.Tensor) -> float:
    """Log-likelihood plus log-prior, up to a constant: what EM may only raise."""
    q = len(t)
    precision = mixture.precision_factor @ mixture.precision_factor.transpose(1, 2)
    log_prior = 0.5 * q * (torch.linalg.slogdet(precision).logabsdet - precision.diagonal(dim1=1, dim2=2).sum(1))
    return (weight @ mixture.log_joint(t).logsumexp(0) + log_prior.sum()).item()


@pytest.mark.parametrize("k", [1, 3, 5])
def test_equals_a_naive_sum_of_normals(k: int) -> None:
    z = clusters()
    density = MixtureDensity(k, variance=1.0).double().fit(z)
    weight, mean, covariance = parameters(density)
    assert weight.sum().item() == pytest.approx(1.0)
    points = clusters(50, seed=1) * 1.5
    t, rest = density.whitening(points)
    naive = sum(
        weight[i].item() * stats.multivariate_normal(mean[i].numpy(), covariance[i].numpy()).pdf(t.numpy())
        for i in range(k)
    )
    np.testing.assert_allclose(density.log_prob(points).numpy(), np.log(naive) + rest.numpy(), rtol=1e-8)


def test_integrates_to_one() -> None:
    density = MixtureDensity(3, variance=1.0).double().fit(clusters())
    axis = torch.linspace(-25, 25, 501, dtype=torch.float64)
    mass = density.log_prob(torch.cartesian_prod(axis, axis)).exp().sum() * (axis[1] - axis[0]) ** 2
    assert mass.item() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_em_never_lowers_the_penalised_likelihood(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    t = torch.randn(150, 3, generator=generator, dtype=torch.float64) ** 3
    weight = torch.rand(150, generator=generator, dtype=torch.float64) + 0.1
    mixture = _maximise(t.T, weight, _k_means(t, weight, 4, generator), 1.0)
    values = [penalised(mixture, t.T, weight)]
    for _ in range(30):
        log_joint = mixture.log_joint(t.T)
        mixture = _maximise(t.T, weight, log_joint.softmax(0), 1.0)
        values.append(penalised(mixture, t.T, weight))
    assert np.diff(values).min() > -1e-8
    assert values[-1] > values[0] + 1


def test_m_step_is_a_maximum() -> None:
    """Moving any parameter away from the M step's answer lowers the expected penalised likelihood."""
    generator = torch.Generator().manual_seed(0)
    t = torch.randn(2, 80, generator=generator, dtype=torch.float64)
    weight = torch.rand(80, generator=generator, dtype=torch.float64)
    responsibility = torch.rand(2, 80, generator=generator, dtype=torch.float64).softmax(0)
    best = _maximise(t, weight, responsibility, 1.0)

    def expected(mixture: _Mixture) -> float:
        precision = mixture.precision_factor @ mixture.precision_factor.transpose(1, 2)
        log_prior = torch.linalg.slogdet(precision).logabsdet - precision.diagonal(dim1=1, dim2=2).sum(1)
        return ((weight * responsibility * mixture.log_joint(t)).sum() + log_prior.sum()).item()

    for step in (-1e-3, 1e-3):
        assert expected(best._replace(mean=best.mean + step)) < expected(best)
        assert expected(best._replace(precision_factor=best.precision_factor * (1 + step))) < expected(best)
        tilted = (best.log_weight + torch.tensor([step, 0.0])).log_softmax(0)
        assert expected(best._replace(log_weight=tilted)) < expected(best)


def test_integer_weights_equal_repeated_rows_in_the_m_step() -> None:
    generator = torch.Generator().manual_seed(0)
    t = torch.randn(3, 40, generator=generator, dtype=torch.float64)
    responsibility = torch.randn(2, 40, generator=generator, dtype=torch.float64).softmax(0)
    times = torch.arange(40) % 3
    weighted = _maximise(t, times.double(), responsibility, 1.0)
    repeated = _maximise(
        t.repeat_interleave(times, dim=1),
        torch.ones(int(times.sum()), dtype=torch.float64),
        responsibility.repeat_interleave(times, dim=1),
        1.0,
    )
    for one, other in zip(weighted, repeated, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("seed", range(3))
def test_finds_three_separated_clusters(seed: int) -> None:
    density = MixtureDensity(3, variance=1.0).double().fit(clusters(), generator=torch.Generator().manual_seed(seed))
    weight, mean, _ = parameters(density)
    whitening = density.whitening
    found = whitening.center + mean @ whitening.reconstruction[: whitening.kept]
    distance = torch.cdist(CENTERS, found)
    assert sorted(distance.argmin(1).tolist()) == [0, 1, 2]
    assert distance.amin(1).amax() < 0.2
    assert (weight - 1 / 3).abs().amax() < 0.1


@pytest.mark.parametrize("seed", range(3))
def test_held_out_rows_choose_the_number_of_components(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    gaussian = torch.randn(600, 3, generator=generator, dtype=torch.float64)
    held_out = torch.randn(600, 3, generator=generator, dtype=torch.float64)
    assert len(MixtureDensity().double().fit(gaussian, held_out=held_out, generator=generator).log_norm) == 1
    clustered = (
        MixtureDensity().double().fit(clusters(seed=seed), held_out=clusters(seed=seed + 9), generator=generator)
    )
    assert len(clustered.log_norm) > 1


def test_few_rows_take_few_components() -> None:
    z = clusters(n=6)
    assert len(MixtureDensity(20).double().fit(z).log_norm) < 6
    assert len(MixtureDensity("auto").double().fit(z).log_norm) == 1


def test_bad_number_of_components_is_named() -> None:
    with pytest.raises(ValueError, match="components"):
        MixtureDensity(0)
    with pytest.raises(ValueError, match="max_components must be at least 1, got 0"):
        MixtureDensity(max_components=0)


def test_tight_clusters_are_not_blurred_and_others_are_not_torn() -> None:
    """The weaker prior is taken where held-out rows like it better, as where a column has few values."""
    generator = torch.Generator().manual_seed(0)

    def rows(n: int, width: float) -> torch.Tensor:
        centers = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        return centers[torch.arange(n) % 4] + width * torch.randn(n, 2, generator=generator)

    tight = MixtureDensity(4).fit(rows(80, 0.005), held_out=rows(80, 0.005))
    between = torch.tensor([[0.5, 0.5], [0.5, 0.0]])
    assert (tight.log_prob(rows(40, 0.005)).min() - tight.log_prob(between).max()).item() > 20
    one = torch.randn(40, 8, generator=generator)
    density = MixtureDensity(4).fit(one, held_out=torch.randn(40, 8, generator=generator))
    assert density.log_prob(torch.randn(200, 8, generator=generator)).mean().item() > -16
