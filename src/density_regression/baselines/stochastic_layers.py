"""Networks with stochastic layers, which MC Dropout and Bayesian networks share."""

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

from density_regression.baselines.gaussian import GaussianNetwork, gaussian_nll
from density_regression.baselines.mixture import MixtureBaseline, mixture_moments
from density_regression.nn.heads import Moments, weighted_mean
from density_regression.nn.network import position_weights

__all__ = ["DRAWS", "Draws", "StochasticNetwork", "replace_modules"]

VALIDATION_SAMPLES: Final = 8
"""Networks sampled for the held-out loss after every epoch."""

MAX_ROWS_AT_ONCE: Final = 8192
MAX_WEIGHTS_AT_ONCE: Final = 2**24
"""Rows, summed over sampled networks, and weights of sampled networks in memory at once."""


class Draws(NamedTuple):
    """Networks being sampled: the generator of each, weights already drawn by layer, and rows over all networks."""

    generators: list[torch.Generator]
    kept: dict[nn.Module, Tensor]
    rows: int

    def check(self, x: Tensor) -> None:
        """Raise a ValueError if the first axis of a layer's input is not the batch."""
        if self.rows and len(x) % self.rows:
            raise ValueError(
                f"A layer of the encoder was given shape {tuple(x.shape)}, but drawn networks need the batch, here "
                f"{self.rows} rows, in the first place."
            )


DRAWS: Final[ContextVar[Draws | None]] = ContextVar("draws", default=None)
"""The networks being sampled, if any; batches then hold all rows for the first network, then all for the second...

Not an attribute of the layers, as several threads may predict with one network.
"""


class _AttentionFastPath:
    """Torch's fast path of attention, which reads weights without calling the layers; a setting of the process."""

    lock = threading.Lock()
    users = 0
    before = True

    @classmethod
    @contextmanager
    def off(cls) -> Iterator[None]:
        """Switch it off until the last of several threads has left."""
        with cls.lock:
            if not cls.users:
                cls.before = torch.backends.mha.get_fastpath_enabled()
                torch.backends.mha.set_fastpath_enabled(False)
            cls.users += 1
        try:
            yield
        finally:
            with cls.lock:
                cls.users -= 1
                if not cls.users:
                    torch.backends.mha.set_fastpath_enabled(cls.before)


@contextmanager
def _drawing(generators: list[torch.Generator], rows: int) -> Iterator[None]:
    token = DRAWS.set(Draws(generators, {}, rows))
    try:
        with _AttentionFastPath.off():
            yield
    finally:
        DRAWS.reset(token)


def replace_modules(root: nn.Module, replace: Callable[[nn.Module], nn.Module | None]) -> nn.Module:
    """A copy of `root` with every module replaced for which `replace` returns another, shared modules by one."""
    root = copy.deepcopy(root)
    others = {part: replace(part) for part in root.modules()}
    for name, part in list(root.named_modules(remove_duplicate=False)):
        other = others.get(part)
        if other is not None and not name:
            return other
        if other is not None:
            parent, _, last = name.rpartition(".")
            setattr(root.get_submodule(parent), last, other)
    return root


class StochasticNetwork(MixtureBaseline, GaussianNetwork):
    """A Gaussian network with stochastic layers, predicting the mixture of `n_samples` sampled networks.

    In training, layers draw for each row independently. At prediction the same sampled networks serve all rows, so
    that a prediction does not depend on the rest of the batch; they are drawn by the `seed` in the state dict.
    """

    seed: Tensor

    no_graph = "it draws at random when it predicts"
    draws = True
    """Training draws from torch's generator."""

    def __init__(self, encoder: nn.Module, features: int, targets: int = 1, *, n_samples: int = 50) -> None:
        super().__init__(encoder, features, targets)
        if n_samples < 1:
            raise ValueError(f"n_samples must be at least 1, got {n_samples}.")
        self.n_samples = n_samples
        self.register_buffer("seed", torch.empty((), dtype=torch.int64).random_(2**31))

    def scaled_member_moments(self, x: Tensor) -> Moments:
        """`member_moments` of the scaled target."""
        return self._sampled_moments(x, self.n_samples)

    def loss(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Mean loss of a batch in train mode; in eval mode, the NLL of the moments of a few sampled networks."""
        if self.training:
            return super().loss(x, y, weight)
        mean, log_std = mixture_moments(self._sampled_moments(x, VALIDATION_SAMPLES))
        if y.shape != mean.shape:
            raise ValueError(f"Targets have shape {tuple(y.shape)}, the model predicts {tuple(mean.shape)}.")
        losses = gaussian_nll(Moments(self.rows(mean), self.rows(log_std)), self.rows(y))
        return weighted_mean(losses, position_weights(weight, y))

    def _sampled_moments(self, x: Tensor, count: int) -> Moments:
        # One seed per network: results then do not depend on how many are computed at once.
        first = torch.Generator().manual_seed(int(self.seed))
        seeds = torch.randint(2**31, (count,), generator=first, device="cpu").tolist()
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        at_once = MAX_ROWS_AT_ONCE // max(len(x) * x.shape[2:].numel(), 1)
        at_once = max(min(at_once, MAX_WEIGHTS_AT_ONCE // sum(part.numel() for part in self.parameters())), 1)
        parts = []
        for start in range(0, count, at_once):
            group = generators[start : start + at_once]
            with _drawing(group, len(group) * len(x)):
                moments = self.scaled_moments(x.repeat(len(group), *[1] * (x.ndim - 1)))
            parts.append([part.unflatten(0, (len(group), len(x))) for part in moments])
        return Moments(*(torch.cat(part) for part in zip(*parts, strict=True)))
