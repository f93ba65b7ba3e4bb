"""Normalising flows on whitened features, built by zuko."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from density_regression.io.extras import import_extra
from density_regression.nn.density.base import Density
from density_regression.nn.density.flow_tail import continue_radially, trusted_radius

__all__ = ["FlowDensity", "TrainedFlow", "fit_flow", "maf", "nsf"]


def fit_flow(
    log_prob: Callable[[Tensor], Tensor],
    parameters: Iterable[nn.Parameter],
    t: Tensor,
    weight: Tensor,
    held_out: Tensor,
    generator: torch.Generator,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    patience: int,
) -> list[float]:
    """Maximise the likelihood of rows `t` (n, q) with weights (n,) of mean 1, by Adam.

    Trains the parameters of `log_prob`, from (n, q) to (n,), in place, and keeps those with the highest likelihood of
    `held_out` (m, q). Returns the mean held-out log-density in nats, before training and after each epoch.
    """
    parameters = list(parameters)
    optimizer = torch.optim.Adam(parameters, lr=learning_rate)

    def score() -> float:
        with torch.no_grad():
            return log_prob(held_out).mean().item()

    scores = [score()]
    best, best_epoch = [p.detach().clone() for p in parameters], 0
    for epoch in range(1, epochs + 1):
        for rows in torch.randperm(len(t), generator=generator).to(t.device).split(batch_size):
            with torch.enable_grad():
                loss = -(weight[rows] * log_prob(t[rows])).mean()
            optimizer.zero_grad()
            loss.backward()
            # A single outlier must not undo what the epoch has learnt.
            nn.utils.clip_grad_norm_(parameters, max_norm=5.0)
            optimizer.step()
        scores.append(score())
        if scores[-1] > scores[best_epoch]:
            best, best_epoch = [p.detach().clone() for p in parameters], epoch
        elif epoch - best_epoch >= patience:
            break
    with torch.no_grad():
        for parameter, value in zip(parameters, best, strict=True):
            parameter.copy_(value)
    return scores


class TrainedFlow(Density):
    """Base class of flows: training, the tail beyond a trusted radius, and state that loads into a fresh object.

    Parameters
    ----------
    learning_rate, variance, max_dims, max_rows
        See `FlowDensity` and `Density`.
    **counts : int
        Settings that must be at least 1: epochs, batch_size, patience, and those of the subclass. Each is stored as
        an attribute.
    """

    radius: Tensor
    flow: nn.Module | None
    epochs: int
    batch_size: int
    patience: int

    def __init__(
        self, learning_rate: float, variance: float, max_dims: int | None, max_rows: int, **counts: int
    ) -> None:
        super().__init__(variance=variance, max_dims=max_dims, max_rows=max_rows)
        for name, value in counts.items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
            setattr(self, name, value)
        if not (math.isfinite(learning_rate) and learning_rate > 0):
            raise ValueError(f"learning_rate must be positive and finite, got {learning_rate}.")
        self.learning_rate = learning_rate
        self.register_buffer("radius", torch.tensor(1.0))
        self.register_module("flow", None)

    @abstractmethod
    def _build(self, q: int) -> nn.Module:
        """A flow on q coordinates, its parameters drawn from torch's global generator."""

    @abstractmethod
    def _flow_log_prob(self, t: Tensor) -> Tensor:
        """The flow's own log-density (n,) of `t` (n, q), which may be anything far from the training rows."""

    def _fit(self, t: Tensor, weight: Tensor, held_out: Tensor, generator: torch.Generator) -> None:
        self._store(radius=trusted_radius(t))
        self._rebuild(t.shape[1], seed=int(torch.randint(2**31, (1,), generator=generator)))
        assert self.flow is not None
        parameters = self.flow.requires_grad_(True).parameters()
        settings = {name: getattr(self, name) for name in ("epochs", "batch_size", "learning_rate", "patience")}
        fit_flow(self._log_prob, parameters, t, weight, held_out, generator, **settings)
        # Step 3 of Algorithm 1 trains the head alone: the density must not move with it.
        self.flow.requires_grad_(False).zero_grad()

    def _log_prob(self, t: Tensor) -> Tensor:
        return continue_radially(self._flow_log_prob, t, self.radius)

    def _rebuild(self, q: int, seed: int = 0) -> None:
        # Only the CPU's generator is used, so only that one is seeded and restored.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.flow = self._build(q).to(self.radius).requires_grad_(False).train(self.training)

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: object) -> None:
        scales, center = (state_dict.get(f"{prefix}whitening.{name}") for name in ("scales", "center"))
        if scales is not None and center is not None and 0 < len(scales) <= len(center):
            self._rebuild(len(scales))
        elif scales is not None and len(scales) == 0:
            self.flow = None
        super()._load_from_state_dict(state_dict, prefix, *args)


class FlowDensity(TrainedFlow):
    """Normalising flow with a standard normal base.

    Parameters
    ----------
    kind : {"realnvp", "maf", "nsf"}
        RealNVP (Dinh et al., 2017), masked autoregressive flow (Papamakarios et al., 2017) or neural spline flow
        (Durkan et al., 2019). On a single coordinate, where affine flows are Gaussian, every kind uses splines.
    transforms : int
        Number of transformations.
    hidden : sequence of int
        Widths of the hidden layers of each transformation's network.
    epochs, batch_size : int
        Most passes over the rows, and rows in a mini-batch.
    learning_rate : float
        Learning rate of Adam.
    patience : int
        Stop after this many epochs without a higher held-out likelihood.
    variance, max_dims, max_rows
        See `Density`.

    Examples
    --------
    >>> import torch
    >>> z = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    >>> density = FlowDensity("maf", transforms=1, epochs=2).fit(z)
    >>> bool(density.log_prob(torch.zeros(1, 2)) > density.log_prob(torch.full((1, 2), 99.0)))
    True
    """

    transforms: int

    def __init__(
        self,
        kind: Literal["realnvp", "maf", "nsf"] = "realnvp",
        *,
        transforms: int = 4,
        hidden: Sequence[int] = (64, 64),
        epochs: int = 50,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        patience: int = 5,
        variance: float = 0.999,
        max_dims: int | None = 16,
        max_rows: int = 20_000,
    ) -> None:
        counts = {"epochs": epochs, "batch_size": batch_size, "patience": patience, "transforms": transforms}
        super().__init__(learning_rate, variance, max_dims, max_rows, **counts)
        if kind not in ("realnvp", "maf", "nsf"):
            raise ValueError(f'kind must be "realnvp", "maf" or "nsf", got {kind!r}.')
        # A missing zuko is reported here, not in step 2, after the network was trained.
        _zuko_flows()
        self.kind = kind
        self.hidden = tuple(hidden)

    def _build(self, q: int) -> nn.Module:
        flows = _zuko_flows()
        build = {"realnvp": flows.RealNVP, "maf": flows.MAF, "nsf": flows.NSF}["nsf" if q == 1 else self.kind]
        flow: nn.Module = build(q, transforms=self.transforms, hidden_features=self.hidden)
        return flow

    def _flow_log_prob(self, t: Tensor) -> Tensor:
        assert self.flow is not None
        log_prob: Tensor = self.flow().log_prob(t)
        return log_prob


maf = partial(FlowDensity, "maf")
nsf = partial(FlowDensity, "nsf")


def _zuko_flows() -> Any:
    return import_extra("zuko.flows", needed_by="FlowDensity", extra="flow")
