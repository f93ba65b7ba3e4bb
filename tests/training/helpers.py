"""What tests of training share."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from density_regression import MLP, DensityRegression, KernelDensity, MixtureDensity, RadialFlowDensity
from density_regression.nn.density import Density
from density_regression.nn.heads import Head
from density_regression.nn.network import Features
from density_regression.training.batches import TensorBatches


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def wave(n: int = 200, seed: int = 0, noise: float = 0.2) -> tuple[Tensor, Tensor]:
    """One noisy period of a sine, on [-1, 1]: x and y, each (n, 1)."""
    x = 2 * torch.rand(n, 1, generator=generator(seed)) - 1
    return x, torch.sin(3 * x) + noise * torch.randn(n, 1, generator=generator(seed + 1))


def batches(
    x: Tensor, y: Tensor, size: int = 50, weight: Tensor | None = None, seed: int | None = None
) -> TensorBatches:
    weight = torch.ones(len(x)) if weight is None else weight
    return TensorBatches(x, y, weight, size, None if seed is None else generator(seed))


def network(seed: int = 0, width: int = 16, **settings: Any) -> DensityRegression:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return DensityRegression(MLP(1, (width,)), width, **settings)


def features(n: int = 300, dims: int = 3, seed: int = 0, targets: int = 1) -> Features:
    """Gaussian features, and targets whose noise depends on the first of them; in float64."""
    source = generator(seed)
    z = torch.randn(n, dims, generator=source, dtype=torch.float64)
    noise = torch.randn(n, targets, generator=source, dtype=torch.float64) * (0.3 * z[:, :1]).exp()
    y = z.sum(1, keepdim=True) + 0.5 * noise + torch.arange(targets)
    return Features(z, y, torch.ones(n, dtype=torch.float64))


def on_features(head: str = "natural", dims: int = 3, seed: int = 0, **settings: Any) -> DensityRegression:
    """A model whose features are its inputs, in float64."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return DensityRegression(nn.Identity(), dims, head=head, **settings).double()


def nll(model: DensityRegression, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return -model(x).log_prob(y).mean().item()


def head_nll(head: Head, rows: Features, log_density: Tensor | None = None) -> float:
    """Weighted mean of -log N(y; mean, std) in nats, from torch's own Normal."""
    with torch.no_grad():
        mean, log_std = head(rows.z, log_density)
        log_prob = torch.distributions.Normal(mean, log_std.exp()).log_prob(rows.y).mean(1)
    return -(rows.weight @ log_prob / rows.weight.sum()).item()


def shifted(head: Head, offset: float) -> Head:
    """A copy of the head with another offset."""
    head = copy.deepcopy(head)
    head.offset.fill_(offset)
    return head


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def assert_equal(got: dict[str, Tensor], expected: dict[str, Tensor], prefix: str) -> None:
    names = [name for name in expected if name.startswith(prefix)]
    assert names == [name for name in got if name.startswith(prefix)]
    for name in names:
        assert torch.equal(got[name], expected[name]), name


def finite(model: nn.Module) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in model.state_dict().values())


SMALL_DENSITIES: dict[str, Callable[[], Density]] = {
    "mixture": MixtureDensity,
    "kernel": lambda: KernelDensity(max_points=50),
    "radial": lambda: RadialFlowDensity(layers=2, epochs=2),
}
