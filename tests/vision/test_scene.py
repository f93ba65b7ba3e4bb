"""What whole images are made of: its description, its density, and how pixels and head get along with it."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from density_regression.nn.density import MixtureDensity, SceneDensity
from density_regression.nn.encoders import UNet
from density_regression.nn.heads import MeanHead
from density_regression.nn.network import Features
from density_regression.nn.tempering import RobustTempering
from density_regression.training.algorithm import fit_density
from density_regression.training.batches import cache_features
from density_regression.training.refit import refit_head
from density_regression.training.warm_start import start_head
from density_regression.vision.encoder import Patches, WithScene
from density_regression.vision.model import SceneRegression


def some_images(n: int = 30, seed: int = 0, size: tuple[int, int] = (16, 20)) -> Tensor:
    return torch.rand(n, 3, *size, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def encoder() -> WithScene:
    torch.manual_seed(0)
    encoder = WithScene(UNet(width=4, levels=2), Patches(filters=4), max_dims=5).eval()
    encoder.fit_scene(some_images().split(8))
    return encoder


def scene(encoder: WithScene, x: Tensor) -> Tensor:
    return encoder.features_and_log_density(x)[1]


class TestPatches:
    @pytest.mark.parametrize("height", [16, 18])
    def test_against_patches_cut_out_of_a_shrunk_image(self, height: int) -> None:
        patches = Patches(filters=5)
        x = some_images(3, size=(height, 20))
        patches.fit(x)
        small = x.unfold(2, 2, 2).unfold(3, 2, 2).mean((1, -1, -2))
        cut = small.unfold(1, 3, 1).unfold(2, 3, 1)
        values = torch.einsum("nhwij,fij->nfhw", cut, patches.weight[:, 0]) + patches.bias[:, None, None]
        # Halves of an odd number of rows, as a height of 18 leaves, share one.
        expected = F.adaptive_avg_pool2d(values.clamp_min(0), (2, 1)).flatten(1)
        torch.testing.assert_close(patches(x), expected)

    def test_fit_scales_and_begins_within_the_values(self) -> None:
        patches = Patches(filters=50)
        x = some_images(10)
        patches.fit(x)
        values = F.conv2d(F.avg_pool2d(x.mean(1, keepdim=True), 2), patches.weight).movedim(1, 0).flatten(1)
        torch.testing.assert_close(values.std(1), torch.ones(50))
        assert (-patches.bias >= values.amin(1) - 1e-5).all()
        assert (-patches.bias <= values.amax(1) + 1e-5).all()
        # One begins in every fiftieth of the range.
        below = (values <= -patches.bias[:, None] + 1e-5).float().mean(1)
        assert (below.sort().values * 50).ceil().clamp_min(1).tolist() == list(range(1, 51))

    def test_colours_count_for_nothing(self) -> None:
        patches = Patches(filters=5)
        x = some_images(3)
        patches.fit(x)
        torch.testing.assert_close(patches(x.flip(1)), patches(x))

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
        torch.testing.assert_close(z[:, 4], scene(encoder, x)[:, None, None].expand(5, 16, 20))

    def test_nothing_is_known_before_the_fit(self) -> None:
        encoder = WithScene(UNet(width=4, levels=2), Patches(filters=4)).eval()
        assert torch.equal(scene(encoder, some_images(3)), torch.zeros(3))

    def test_images_of_a_batch_do_not_meet(self, encoder: WithScene) -> None:
        x = some_images(6, seed=1)
        order = torch.randperm(6, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(scene(encoder, x[order]), scene(encoder, x)[order])
        torch.testing.assert_close(torch.cat([scene(encoder, image[None]) for image in x]), scene(encoder, x))

    def test_density_of_the_description(self, encoder: WithScene) -> None:
        """Means of a level of the U-Net, and of patches, each in units of its deviation."""
        x = some_images(6, seed=1)
        first, second, third = encoder.encoder.maps(x)[:3]
        assert first.shape[2:] == (16, 20)
        assert second.shape[2:] == (8, 10)
        described = torch.cat([third.mean((2, 3)), encoder.patches(x)], 1)
        torch.testing.assert_close(scene(encoder, x), encoder.density.log_prob(described / encoder.unit))

    def test_some_noise_is_not_strange(self) -> None:
        torch.manual_seed(0)
        encoder = WithScene(UNet(width=8, levels=2), Patches(filters=16), max_dims=16).eval()
        smooth = F.avg_pool2d(some_images(90, size=(52, 68)), 5, 1)
        encoder.fit_scene(smooth[:60].split(10))
        other = smooth[60:]
        noisy = (other + 0.05 * torch.randn(other.shape, generator=torch.Generator().manual_seed(3))).clamp(0, 1)
        drop = scene(encoder, other).median() - scene(encoder, noisy).median()
        darker = scene(encoder, other).median() - scene(encoder, 0.7 * other).median()
        assert drop < 0.1 * darker

    def test_a_small_change_towards_the_strange_is_not_strange(self) -> None:
        """Images moved by 0.02 down the density's own gradient, against darker ones."""
        torch.manual_seed(0)
        encoder = WithScene(UNet(width=8, levels=2), Patches(filters=16), max_dims=16).eval()
        smooth = F.avg_pool2d(some_images(90, size=(52, 68)), 5, 1)
        encoder.fit_scene(smooth[:60].split(10))
        other = smooth[60:].clone().requires_grad_()
        before = scene(encoder, other)
        before.sum().backward()
        assert other.grad is not None
        moved = (other - 0.02 * other.grad.sign()).clamp(0, 1)
        drop = before.median() - scene(encoder, moved).median()
        darker = before.median() - scene(encoder, 0.7 * other).median()
        assert 0 < drop < 0.1 * darker

    def test_strange_images_are_unlikely(self) -> None:
        torch.manual_seed(0)
        encoder = WithScene(UNet(width=4, levels=2), Patches(filters=16), max_dims=8).eval()
        seen, other = (some_images(40, seed, size=(48, 64)) for seed in (0, 1))
        encoder.fit_scene(seen.split(8))
        familiar = scene(encoder, other).min()
        # Darker; of one colour; and with the same mean in a pattern that is not as rough.
        for strange in (0.8 * other, torch.full_like(other[:1], 0.5), F.avg_pool2d(other, 5, 1, 2)):
            assert (scene(encoder, strange) < familiar).all()

    def test_half_precision_keeps_it_finite(self, encoder: WithScene) -> None:
        x = some_images(3, seed=1)
        with torch.autocast("cpu", dtype=torch.float16):
            assert scene(encoder, x).isfinite().all()

    def test_state(self, encoder: WithScene) -> None:
        other = WithScene(UNet(width=4, levels=2), Patches(filters=4, seed=5), max_dims=5)
        other.load_state_dict(encoder.state_dict())
        x = some_images(3, seed=1)
        assert torch.equal(other.eval()(x), encoder(x))

    def test_folded(self, encoder: WithScene) -> None:
        x = some_images(6, seed=1)
        plain = scene(encoder, x)
        encoder.fold()
        torch.testing.assert_close(scene(encoder, x), plain, rtol=1e-4, atol=1e-3)


class TestSceneRegression:
    @pytest.fixture
    def model(self, encoder: WithScene) -> SceneRegression:
        model = SceneRegression(encoder, 4, density=MixtureDensity(components=2), tempering=RobustTempering()).eval()
        batches = [(some_images(), torch.rand(30, 1, 16, 20), torch.ones(30, 16, 20))]
        features = cache_features(model, batches)
        fit_density(model, features, features)
        refit_head(model, features, features, rounds=1)
        return model

    def test_folded_is_the_same(self, model: SceneRegression) -> None:
        x = torch.cat([some_images(4, seed=1), torch.zeros(1, 3, 16, 20)])
        moments, log_density = model.moments(x), model.log_density(x)
        model.fold()
        folded = model.pixels(x)
        torch.testing.assert_close(folded.mean, moments.mean, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(folded.log_std, moments.log_std, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(folded.log_density, log_density, rtol=1e-4, atol=1e-2)
        assert torch.equal(model.moments(x).mean, folded.mean)
        assert torch.equal(model.log_density(x), folded.log_density)

    def test_other_weights_undo_it(self, model: SceneRegression) -> None:
        state = {name: value.clone() for name, value in model.state_dict().items()}
        model.fold()
        assert model.state_dict().keys() == state.keys()
        state["head.linear.bias"] += 1
        model.load_state_dict(state)
        x = some_images(2, seed=1)
        rows = model.rows(model.encode(x))
        torch.testing.assert_close(model.rows(model.moments(x).mean), model.row_moments(rows).mean)
        with pytest.raises(ValueError, match="fold"):
            model.pixels(x)

    @pytest.mark.parametrize("value", [1e30, -1e30, 1e38])
    def test_always_finite(self, model: SceneRegression, value: float) -> None:
        model.fold()
        assert all(part.isfinite().all() for part in model.pixels(torch.full((1, 3, 16, 20), value)))


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
    for moments in (head(z), head.unbounded(z)):
        torch.testing.assert_close(moments.mean[:, 0], z[:, :8] @ head.linear.weight[0] + head.linear.bias[0])
    assert all(torch.equal(*parts) for parts in zip(head(z), head(moved), strict=True))
    y, weight = torch.randn(20, 1), torch.ones(20)
    for rows in (z, moved):
        start_head(head, Features(rows, y, weight))
        head.bound_log_precision(rows)
        assert torch.equal(head(z).mean, head(moved).mean)
