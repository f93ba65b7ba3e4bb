"""Kernel densities against naive loops, integrals and scikit-learn."""

import math

import numpy as np
import pytest
import sklearn.neighbors
import torch

from density_regression.nn.density import KernelDensity, kernel

KERNELS = ["exponential", "gaussian"]


def rows(n: int = 60, d: int = 2, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * 2 + 1


def naive(density: KernelDensity, t: torch.Tensor) -> list[float]:
    """Weighted sum of kernels, one pair and one coordinate at a time."""
    h = density.width.item()
    result = []
    for row in t.tolist():
        total = 0.0
        for point, log_weight in zip(density.points.tolist(), density.log_weight.tolist(), strict=True):
            product = math.exp(log_weight)
            for a, b in zip(row, point, strict=True):
                if density.kernel == "exponential":
                    product *= math.exp(-abs(a - b) / h) / (2 * h)
                else:
                    product *= math.exp(-(((a - b) / h) ** 2) / 2) / (h * math.sqrt(2 * math.pi))
            total += product
        result.append(math.log(total))
    return result


@pytest.mark.parametrize("name", KERNELS)
def test_equals_a_naive_double_loop(name: str) -> None:
    weight = torch.linspace(0.1, 2, 60, dtype=torch.float64)
    density = KernelDensity(name, 0.3, variance=1.0).double().fit(rows(), weight)
    points = rows(20, seed=1)
    t, rest = density.whitening(points)
    np.testing.assert_allclose(density.log_prob(points).numpy(), naive(density, t) + rest.numpy(), rtol=1e-10)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("d", [1, 2])
def test_integrates_to_one(name: str, d: int) -> None:
    density = KernelDensity(name, 0.4, variance=1.0).double().fit(rows(d=d))
    axis = torch.linspace(-25, 25, 100_001 if d == 1 else 1001, dtype=torch.float64)
    grid = torch.cartesian_prod(*[axis] * d).reshape(-1, d)
    mass = density.log_prob(grid).exp().sum() * (axis[1] - axis[0]) ** d
    # The corners of the exponential kernel cost the 2-D grid some accuracy.
    assert mass.item() == pytest.approx(1.0, abs=1e-6 if d == 1 or name == "gaussian" else 3e-3)


@pytest.mark.parametrize(("name", "metric"), [("exponential", "l1"), ("gaussian", "l2")])
def test_ratios_equal_scikit_learn(name: str, metric: str) -> None:
    density = KernelDensity(name, 0.5, variance=1.0).double().fit(rows())
    reference = sklearn.neighbors.KernelDensity(kernel=name, metric=metric, bandwidth=0.5, algorithm="ball_tree")
    reference.fit(density.points.numpy())
    t = density.whitening(rows(30, seed=1))[0]
    ours, theirs = density._log_prob(t).numpy(), reference.score_samples(t.numpy())
    np.testing.assert_allclose(ours - ours[0], theirs - theirs[0], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", KERNELS)
def test_chunks_do_not_change_the_result(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    density = KernelDensity(name, 0.5).double().fit(rows())
    points = rows(37, seed=1)
    whole = density.log_prob(points)
    calls = []
    distance = KernelDensity._distance
    monkeypatch.setattr(KernelDensity, "_distance", lambda self, t: calls.append(len(t)) or distance(self, t))
    monkeypatch.setattr(kernel, "MAX_DISTANCES", 10 * len(density.points))
    torch.testing.assert_close(density.log_prob(points), whole, rtol=0, atol=0)
    assert calls == [10, 10, 10, 7]


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("seed", range(2))
def test_automatic_bandwidth_is_the_best_for_held_out_rows(name: str, seed: int) -> None:
    z, held_out = rows(300, seed=seed), rows(200, seed=seed + 10)
    chosen = KernelDensity(name).double().fit(z, held_out=held_out)

    def score(h: float) -> float:
        return KernelDensity(name, h).double().fit(z, held_out=held_out).log_prob(held_out).mean().item()

    best = max(score(h) for h in np.geomspace(0.02, 5, 200))
    assert chosen.log_prob(held_out).mean().item() > best - 1e-3


def test_more_points_take_a_narrower_kernel() -> None:
    widths = [KernelDensity("gaussian").double().fit(rows(n)).width.item() for n in (50, 2000)]
    assert widths[1] < 0.8 * widths[0]


def test_at_most_max_points_with_their_weights() -> None:
    z = rows(500)
    weight = torch.arange(500, dtype=torch.float64)
    density = KernelDensity("gaussian", 0.2, max_points=50, variance=1.0).double().fit(z, weight, held_out=z)
    assert density.points.shape == (50, 2)
    assert density.log_weight.exp().sum().item() == pytest.approx(1.0)
    t = density.whitening(z)[0]
    source = torch.cdist(density.points, t).argmin(1)
    torch.testing.assert_close(density.log_weight.exp(), weight[source] / weight[source].sum())


@pytest.mark.parametrize("name", KERNELS)
def test_integer_weights_equal_repeated_points(name: str) -> None:
    z = rows(30)
    times = torch.arange(30) % 4
    weighted = KernelDensity(name, 0.5).double().fit(z, times.double(), held_out=z)
    repeated = KernelDensity(name, 0.5).double().fit(z.repeat_interleave(times, dim=0), held_out=z)
    torch.testing.assert_close(weighted.log_prob(z), repeated.log_prob(z))


def test_a_tiny_bandwidth_stays_finite_in_float32() -> None:
    z = rows().float()
    for name in KERNELS:
        density = KernelDensity(name, 1e-10).fit(z)
        assert bool(density.log_prob(torch.full((1, 2), 1e12)).isfinite().all())


@pytest.mark.parametrize(
    ("name", "value"),
    [("kernel", "tophat"), ("bandwidth", 0.0), ("bandwidth", math.nan), ("bandwidth", math.inf), ("max_points", 0)],
)
def test_bad_arguments_are_named(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        KernelDensity(**{name: value})
