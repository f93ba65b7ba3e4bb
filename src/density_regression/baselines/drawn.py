"""Networks with layers that draw: what MC Dropout and Bayesian networks share."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

from density_regression.baselines.gaussian import GaussianNetwork, gaussian_nll
from density_regression.baselines.sampled import SampledBaseline, mixture_moments
from density_regression.head import Moments
from density_regression.network import position_weights, weighted_mean

__all__ = ["Draws", "RandomNetwork", "current_draws", "with_replaced"]

FEW: Final = 8
"""Networks drawn for early stopping, which wants a prediction after every epoch."""

ROWS: Final = 8192
"""Rows, over all drawn networks, that are predicted at once: memory does not grow with their number."""


WEIGHTS: Final = 2**24
"""Weights of drawn networks that are held at once."""


class Draws(NamedTuple):
    """Networks being drawn: a generator for each, what a layer used twice must draw once, and the rows of them all."""

    generators: list[torch.Generator]
    kept: dict[nn.Module, Tensor]
    rows: int

    def check(self, x: Tensor) -> None:
        """Refuse inputs of a layer that do not begin with the batch: they cannot be told apart by network."""
        if self.rows and len(x) % self.rows:
            raise ValueError(
                f"A layer of the encoder was given shape {tuple(x.shape)}, but drawn networks need the batch, here "
                f"{self.rows} rows, in the first place."
            )


# Not an attribute of the layers: threads may predict with the same network at the same time.
_DRAWS: ContextVar[Draws | None] = ContextVar("draws", default=None)


def current_draws() -> Draws | None:
    """What a layer has to draw: its batch then holds all rows for the first network, all for the second, and so on."""
    return _DRAWS.get()


@contextmanager
def _drawing(generators: list[torch.Generator], rows: int) -> Iterator[None]:
    token = _DRAWS.set(Draws(generators, {}, rows))
    fast = torch.backends.mha.get_fastpath_enabled()
    # Attention would otherwise be computed at once, from weights alone, and past the layers that draw.
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        _DRAWS.reset(token)


def with_replaced(root: nn.Module, replace: Callable[[nn.Module], nn.Module | None]) -> nn.Module:
    """A copy of `root` in which a module for which `replace` returns another one is that other one.

    A module that stands in several places is replaced by one module in all of them.
    """
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


class RandomNetwork(SampledBaseline, GaussianNetwork):
    """A Gaussian network with layers that draw: in training anew for each row, at prediction `n_samples` networks.

    The networks of the prediction are the same for all rows: each row meets independent ones, but none depends on
    the rows around it. They are drawn from generators of their own, by the seed in the module's state.

    Parameters
    ----------
    encoder, features, targets
        See `Network`.
    n_samples : int
        Networks that are averaged.
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
        return self._drawn_moments(x, self.n_samples)

    def loss(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Mean loss of a batch in training; out of it, the NLL of the moments that a few networks make together."""
        if self.training:
            return super().loss(x, y, weight)
        mean, log_std = mixture_moments(self._drawn_moments(x, FEW))
        if y.shape != mean.shape:
            raise ValueError(f"Targets have shape {tuple(y.shape)}, the model predicts {tuple(mean.shape)}.")
        losses = gaussian_nll(Moments(self.rows(mean), self.rows(log_std)), self.rows(y))
        return weighted_mean(losses, position_weights(weight, y))

    def _drawn_moments(self, x: Tensor, count: int) -> Moments:
        # A seed for each network: how many are computed at once then changes nothing.
        first = torch.Generator().manual_seed(int(self.seed))
        seeds = torch.randint(2**31, (count,), generator=first, device="cpu").tolist()
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        at_once = ROWS // max(len(x) * x.shape[2:].numel(), 1)
        at_once = max(min(at_once, WEIGHTS // sum(part.numel() for part in self.parameters())), 1)
        parts = []
        for start in range(0, count, at_once):
            group = generators[start : start + at_once]
            with _drawing(group, len(group) * len(x)):
                moments = self.scaled_moments(x.repeat(len(group), *[1] * (x.ndim - 1)))
            parts.append([part.unflatten(0, (len(group), len(x))) for part in moments])
        return Moments(*(torch.cat(part) for part in zip(*parts, strict=True)))
