"""One product must give what whitening, components and a layer give one after another."""

import pytest
import torch
from torch import Tensor, nn

from density_regression.nn.density import Density, Folded, GaussianDensity, KernelDensity, MixtureDensity
from density_regression.nn.density import folded as folding
from density_regression.nn.density.base import FEATURE_LIMIT


@pytest.fixture
def z() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    mixed = torch.randn(2000, 12, generator=generator) @ torch.randn(12, 12, generator=generator)
    return mixed + 3 * torch.rand(12, generator=generator)


@pytest.mark.parametrize(
    "density",
    [
        GaussianDensity(max_dims=5),
        GaussianDensity(max_dims=None, variance=1.0),
        MixtureDensity(1, max_dims=5),
        MixtureDensity(3, max_dims=5),
        MixtureDensity(4, max_dims=None, variance=1.0),
    ],
)
class TestFolded:
    def test_is_the_same(self, density: Density, z: Tensor) -> None:
        density.fit(z)
        layer = nn.Linear(12, 3)
        log_prob, output = Folded.of(density, beside=layer)(z)
        torch.testing.assert_close(log_prob, density.log_prob(z), rtol=1e-5, atol=1e-3)
        torch.testing.assert_close(output, layer(z))
        alone, nothing = Folded.of(density)(z)
        torch.testing.assert_close(alone, log_prob, rtol=1e-5, atol=1e-3)
        assert nothing.shape == (len(z), 0)
        # Made from the density's state, so without one of its own.
        assert not Folded.of(density, beside=layer).state_dict()

    def test_units(self, density: Density, z: Tensor) -> None:
        unit = 0.1 + torch.arange(12.0)
        density.fit(z / unit)
        torch.testing.assert_close(
            Folded.of(density, unit=unit)(z)[0], density.log_prob(z / unit), rtol=1e-5, atol=1e-3
        )

    def test_far_away(self, density: Density, z: Tensor) -> None:
        density.fit(z)
        folded = Folded.of(density)
        assert folded(FEATURE_LIMIT * z.sign())[0].isfinite().all()
        assert (folded(1e4 * (z - z.mean(0)))[0] < density.log_prob(z).min()).all()


@pytest.mark.parametrize(
    "density",
    [GaussianDensity(max_dims=5), GaussianDensity(max_dims=None, variance=1.0), MixtureDensity(1, max_dims=5)],
)
def test_by_sums_is_the_same(density: Density, z: Tensor) -> None:
    unit = 0.1 + torch.arange(12.0)
    density.fit(z / unit)
    layer = nn.Linear(12, 3)
    folded = Folded.of(density, beside=layer, unit=unit)
    log_prob, output = folded.by_sums(z)
    torch.testing.assert_close(log_prob, density.log_prob(z / unit), rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(output, layer(z))
    far = folded.by_sums(FEATURE_LIMIT * z.sign())[0]
    assert far.isfinite().all()
    assert (far < log_prob.min()).all()


def test_a_single_component_is_summed_where_sums_are_fused(z: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    monkeypatch.setattr(folding, "is_fused", lambda _: True)
    monkeypatch.setattr(Folded, "by_sums", lambda self, rows: called.append(len(rows)))
    layer = nn.Linear(12, 2)
    Folded.of(GaussianDensity(max_dims=4).fit(z), beside=layer)(z)
    assert called == [len(z)]
    Folded.of(GaussianDensity(max_dims=10).fit(z), beside=layer)(z)  # too many columns
    Folded.of(MixtureDensity(2, max_dims=2).fit(z), beside=layer)(z)  # two components
    assert called == [len(z)]


def test_few_rows_are_summed_whole_where_sums_are_fused(z: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    folded = Folded.of(MixtureDensity(3, max_dims=5).fit(z), beside=nn.Linear(12, 2))
    few = z[: folding.MAX_SUMMED_ROWS]
    expected = folded(few)
    monkeypatch.setattr(folding, "is_fused", lambda _: True)
    summed = folded(few)
    torch.testing.assert_close(summed, expected, rtol=1e-5, atol=1e-3)
    monkeypatch.setattr(folding.F, "linear", None)
    assert torch.equal(folded(few)[0], summed[0])
    with pytest.raises(TypeError):
        folded(z)  # too many rows: a product


def test_others_cannot_be_folded(z: Tensor) -> None:
    with pytest.raises(ValueError, match="KernelDensity"):
        Folded.of(KernelDensity().fit(z))
