"""The density of pixels in a scene: that of the pixels, times what is known of the scene."""

import pytest
import torch

from density_regression.nn.density import GaussianDensity, MixtureDensity, SceneDensity


def pixels(n: int = 200, seed: int = 0) -> torch.Tensor:
    """Features (n, 4), the last of which is log p(scene)."""
    return torch.randn(n, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("given", [False, True])
def test_is_the_sum_of_two_logs(given: bool) -> None:
    z, held_out = pixels(), pixels(50, seed=1)
    weight = torch.rand(200, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for held, own in ((held_out, held_out[:, :3]), (None, None)):
        density = SceneDensity(GaussianDensity() if given else None).double()
        assert not density.fitted
        generators = [torch.Generator().manual_seed(3) for _ in range(2)]
        assert density.fit(z, weight, held_out=held, generator=generators[0]) is density
        alone = (GaussianDensity() if given else MixtureDensity()).double()
        alone.fit(z[:, :3], weight, held_out=own, generator=generators[1])
        torch.testing.assert_close(density.log_prob(held_out), alone.log_prob(held_out[:, :3]) + held_out[:, 3])
        assert density.fitted
        assert density.dims == alone.dims
