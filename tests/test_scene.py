"""What whole images are made of: its description, its density, and how pixels and head get along with it."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from density_regression.density import GaussianDensity, MixtureDensity, SceneDensity
from density_regression.encoders import Patches, WithScene
from density_regression.head import MeanHead


def some_images(n: int = 30, seed: int = 0, size: tuple[int, int] = (16, 20)) -> Tensor:
    return torch.rand(n, 3, *size, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def encoder() -> WithScene:
    torch.manual_seed(0)
    encoder = WithScene(nn.Conv2d(3, 4, 3, padding=1), Patches(filters=4), max_dims=5)
    encoder.fit_scene(some_images().split(8))
    return encoder.eval()


class TestPatches:
    @pytest.mark.parametrize("bands", [1, 2, 3])
    def test_against_patches_cut_out(self, bands: int) -> None:
        patches = Patches(filters=5, scales=(1, 2), bands=bands)
        x = some_images(3)
        patches.fit(x)
        described = []
        for i, scale in enumerate((1, 2)):
            small = x.unfold(2, scale, scale).unfold(3, scale, scale).mean((-1, -2)) - 0.5
            cut = small.unfold(2, 3, 2).unfold(3, 3, 2)
            values = torch.einsum("nchwij,fcij->nfhw", cut, patches.weight[i]) + patches.bias[i][:, None, None]
            # Bands of a height that does not divide share a row of patches.
            edges = [(values.shape[2] * b // bands, -(-values.shape[2] * (b + 1) // bands)) for b in range(bands)]
            each = [values.clamp_min(0)[:, :, first:last].mean((2, 3)) for first, last in edges]
            described.append(torch.stack(each, 2).flatten(1))
        torch.testing.assert_close(patches(x), torch.cat(described, 1))
        assert patches(x).shape == (3, patches.width)

    def test_fit_scales_and_begins_within_the_values(self) -> None:
        patches = Patches(filters=50)
        x = some_images(10)
        patches.fit(x)
        values = F.conv2d(x - 0.5, patches.weight[0]).movedim(1, 0).flatten(1)
        torch.testing.assert_close(values.std(1), torch.ones(50))
        assert (-patches.bias[0] >= values.amin(1) - 1e-5).all()
        assert (-patches.bias[0] <= values.amax(1) + 1e-5).all()

    def test_seed(self) -> None:
        assert torch.equal(Patches(seed=1).weight, Patches(seed=1).weight)
        assert not torch.equal(Patches(seed=1).weight, Patches(seed=2).weight)

    @pytest.mark.parametrize("size", [(1, 1), (2, 30), (11, 5)])
    def test_images_smaller_than_a_patch(self, size: tuple[int, int]) -> None:
        patches = Patches(filters=4)
        patches.fit(some_images())
        assert patches(some_images(2, size=size)).isfinite().all()

    def test_constant_images(self) -> None:
        patches = Patches(filters=4)
        patches.fit(torch.full((2, 3, 16, 16), 0.3))
        assert patches(torch.rand(2, 3, 16, 16)).isfinite().all()


class TestWithScene:
    def test_last_feature_is_that_of_the_image(self, encoder: WithScene) -> None:
        x = some_images(5, seed=1)
        z = encoder(x)
        assert z.shape == (5, 5, 16, 20)
        torch.testing.assert_close(z[:, :4], encoder.encoder(x))
        torch.testing.assert_close(z[:, 4], encoder.scene(x)[:, None, None].expand(5, 16, 20))

    def test_images_of_a_batch_do_not_meet(self, encoder: WithScene) -> None:
        x = some_images(6, seed=1)
        order = torch.randperm(6, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(encoder.scene(x[order]), encoder.scene(x)[order])
        torch.testing.assert_close(torch.cat([encoder.scene(image[None]) for image in x]), encoder.scene(x))

    def test_density_of_the_description(self, encoder: WithScene) -> None:
        x = some_images(6, seed=1)
        density = GaussianDensity(max_dims=5).fit(encoder.patches(some_images()))
        torch.testing.assert_close(encoder.scene(x), density.log_prob(encoder.patches(x)))

    def test_strange_images_are_unlikely(self) -> None:
        encoder = WithScene(nn.Identity(), Patches(filters=16), max_dims=8)
        seen, other = (some_images(40, seed, size=(48, 64)) for seed in (0, 1))
        encoder.fit_scene(seen.split(8))
        familiar = encoder.scene(other).min()
        # Darker; of one colour; and with the same mean in a pattern that is not as rough.
        for strange in (0.8 * other, torch.full_like(other[:1], 0.5), F.avg_pool2d(other, 5, 1, 2)):
            assert (encoder.scene(strange) < familiar).all()

    def test_half_precision_does_not_reach_it(self, encoder: WithScene) -> None:
        x = some_images(3, seed=1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(encoder.scene(x), encoder.scene(x.float()))
            half = encoder.scene(x)
        assert torch.equal(half, encoder.scene(x))

    def test_state(self, encoder: WithScene) -> None:
        other = WithScene(nn.Conv2d(3, 4, 3, padding=1), Patches(filters=4, seed=5), max_dims=5)
        other.load_state_dict(encoder.state_dict())
        x = some_images(3, seed=1)
        assert torch.equal(other.eval()(x), encoder(x))


class TestSceneDensity:
    def test_sum(self) -> None:
        z = torch.randn(300, 6, generator=torch.Generator().manual_seed(0))
        density = SceneDensity(MixtureDensity(components=3)).fit(z)
        pixels = MixtureDensity(components=3).fit(z[:, :-1])
        torch.testing.assert_close(density.log_prob(z), pixels.log_prob(z[:, :-1]) + z[:, -1])
        moved = z.clone()
        moved[:, -1] -= 100
        torch.testing.assert_close(density.log_prob(moved), density.log_prob(z) - 100)

    def test_the_scene_is_not_fitted(self) -> None:
        z = torch.randn(300, 6, generator=torch.Generator().manual_seed(0))
        other = torch.cat([z[:, :-1], 1000 * z[:, -1:]], 1)
        kept = [SceneDensity().fit(rows, held_out=rows[:50]).pixels.state_dict() for rows in (z, other)]
        assert all(torch.equal(value, kept[1][name]) for name, value in kept[0].items())

    def test_state(self) -> None:
        z = torch.randn(300, 6, generator=torch.Generator().manual_seed(0))
        density, other = SceneDensity().fit(z), SceneDensity()
        other.load_state_dict(density.state_dict())
        assert torch.equal(other.log_prob(z), density.log_prob(z))
        assert other.fitted


def test_head_reads_its_own_features() -> None:
    torch.manual_seed(0)
    head = MeanHead(8)
    nn.init.normal_(head.linear.weight)
    z = torch.randn(20, 9)
    moved = z.clone()
    moved[:, -1] += 5
    for moments in (head(z), head.free(z)):
        torch.testing.assert_close(moments.mean[:, 0], z[:, :8] @ head.linear.weight[0] + head.linear.bias[0])
    assert all(torch.equal(*parts) for parts in zip(head(z), head(moved), strict=True))
    y, weight = torch.randn(20, 1), torch.ones(20)
    for rows in (z, moved):
        head.start(rows, y, weight)
        head.bound(rows)
        assert torch.equal(head(z).mean, head(moved).mean)
