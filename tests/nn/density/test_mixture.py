"""The Gaussian mixture against sums of scipy normals, and EM against its own promises."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from density_regression.nn.density import MixtureDensity
from density_regression.nn.density.clusters import _draw, k_means
from density_regression.nn.density.mixture import _maximise, _Mixture

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


def test_mean_log_prob_is_that_of_rows_summed_over_components() -> None:
    generator = torch.Generator().manual_seed(0)
    t = torch.randn(2, 30, generator=generator, dtype=torch.float64)
    mixture = _maximise(t, torch.ones(30).double(), torch.rand(3, 30, generator=generator).double().softmax(0), 1.0)
    rows = [
        sum(
            math.exp(w) * stats.multivariate_normal(m, torch.linalg.inv(p @ p.T)).pdf(row)
            for w, m, p in zip(*mixture, strict=True)
        )
        for row in t.T
    ]
    assert mixture.mean_log_prob(t) == pytest.approx(np.mean(np.log(rows)))


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
    mixture = _maximise(t.T, weight, k_means(t, weight, 4, generator), 1.0)
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


@pytest.mark.parametrize("wide", [True, False])
def test_covariances_by_hand(wide: bool) -> None:
    """A prior worth q rows at the identity, or a tenth as many where held-out rows lie closer."""
    z = clusters(90)
    held_out = z + 3 * torch.randn(90, 2, generator=torch.Generator().manual_seed(0)).double() if wide else z
    density = MixtureDensity(3, variance=1.0).double().fit(z, held_out=held_out)
    weight, mean, covariance = parameters(density)
    t = density.whitening(z)[0]
    prior = 2 * (1.0 if wide else 0.1)
    label = torch.cdist(z, CENTERS).argmin(1)
    for own in (t[label == k] for k in range(3)):
        k = (mean - own.mean(0)).norm(dim=1).argmin()
        expected = ((own - own.mean(0)).T @ (own - own.mean(0)) + prior * torch.eye(2)) / (len(own) + prior)
        torch.testing.assert_close(mean[k], own.mean(0), atol=1e-6, rtol=0)
        torch.testing.assert_close(covariance[k], expected, atol=1e-6, rtol=1e-4)
        assert weight[k].item() == pytest.approx(len(own) / len(t), abs=1e-6)


def test_candidates_are_powers_of_two_with_ten_rows_each() -> None:
    assert MixtureDensity()._candidates(10_000) == [1, 2, 4, 8]
    assert MixtureDensity(max_components=2)._candidates(10_000) == [1, 2]
    assert MixtureDensity()._candidates(40) == [1, 2, 4]
    assert MixtureDensity()._candidates(39) == [1, 2]
    assert MixtureDensity()._candidates(3) == [1]
    assert MixtureDensity(5)._candidates(100) == [5]
    assert MixtureDensity(5)._candidates(3) == [3]
    assert MixtureDensity(1)._candidates(100) == [1]


def em(t: torch.Tensor, weight: torch.Tensor, start: torch.Tensor, **settings: float) -> tuple[_Mixture, _Mixture, int]:
    """What EM by the class ends with, and a loop that is obviously right; and how many steps that took."""
    density = MixtureDensity(len(start), **settings)
    mixture, last, steps = _maximise(t, weight, start, 1.0), -math.inf, 0
    while steps < density.max_iterations:
        log_joint = mixture.log_joint(t)
        now = (weight @ log_joint.logsumexp(0) / weight.sum()).item()
        mixture = _maximise(t, weight, log_joint.softmax(0), 1.0)
        steps += 1
        if now - last < density.tolerance:
            break
        last = now
    return density._expectation_maximisation(t, weight, start), mixture, steps


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"max_iterations": 1, "tolerance": 0.0}, 1),
        ({"max_iterations": 3, "tolerance": 0.0}, 3),
        ({"max_iterations": 500, "tolerance": 1e-2}, None),
        # The first has none before it to compare with.
        ({"max_iterations": 500, "tolerance": 1e9}, 2),
    ],
)
@pytest.mark.parametrize("k", [2, 3])
def test_em_stops_where_a_plain_loop_does(k: int, settings: dict[str, float], steps: int | None) -> None:
    generator = torch.Generator().manual_seed(0)
    t = torch.randn(2, 100, generator=generator, dtype=torch.float64) ** 3
    weight = torch.rand(100, generator=generator, dtype=torch.float64)
    start = torch.rand(k, 100, generator=generator, dtype=torch.float64).softmax(0)
    found, expected, taken = em(t, weight, start, **settings)
    assert steps in (None, taken)
    assert 0 < taken < 500
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_k_means_finds_clusters_by_weight() -> None:
    z = clusters(90)
    weight = torch.rand(90, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    label = torch.cdist(z, CENTERS).argmin(1)
    for seed in range(5):
        assigned = k_means(z, weight, 3, torch.Generator().manual_seed(seed))
        assert assigned.shape == (3, 90)
        # Each row to one, and the rows of a cluster to the same.
        assert torch.equal(assigned.sum(0), torch.ones(90).double())
        assert all(len(assigned.argmax(0)[label == k].unique()) == 1 for k in range(3))
    # Means of two, of which a far row of little weight is not one.
    t = torch.tensor([[0.0], [1.0], [10.0], [11.0], [1e3]]).double()
    small = torch.tensor([1.0, 1.0, 1.0, 1.0, 1e-9]).double()
    for seed in range(5):
        assigned = k_means(t, small, 2, torch.Generator().manual_seed(seed)).argmax(0).tolist()
        assert assigned[0] == assigned[1] != assigned[2] == assigned[3] == assigned[4]


def test_draws_are_in_proportion_and_uniform_where_all_is_zero() -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.tensor([_draw(torch.tensor([0.0, 1.0, 3.0]), generator) for _ in range(2000)]).bincount(minlength=3)
    assert drawn[0] == 0
    assert drawn[2].item() == pytest.approx(1500, abs=80)
    drawn = torch.tensor([_draw(torch.zeros(3), generator) for _ in range(600)]).bincount(minlength=3)
    assert drawn.min() > 140


def test_few_rows_take_few_components() -> None:
    z = clusters(n=6)
    assert len(MixtureDensity(20).double().fit(z).log_norm) < 6
    assert len(MixtureDensity("auto").double().fit(z).log_norm) == 1


def test_bad_number_of_components_is_named() -> None:
    with pytest.raises(ValueError, match="components"):
        MixtureDensity(0)
    with pytest.raises(ValueError, match="max_components must be at least 1, got 0"):
        MixtureDensity(max_components=0)


def test_the_prior_weakens_for_tight_clusters_only() -> None:
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
