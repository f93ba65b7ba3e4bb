"""Normalising flows on whitened features, built by zuko."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from density_regression._extras import import_extra
from density_regression.density._tail import continue_radially, trusted_radius
from density_regression.density.base import Density

__all__ = ["FlowDensity", "TrainedFlow", "fit_flow"]


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
    """Maximise the likelihood of `t` (n, q) by Adam, and keep the parameters that suit `held_out` (m, q) best.

    Parameters
    ----------
    log_prob : callable
        Log-density (n,) of rows (n, q) under the current parameters.
    parameters : iterable of nn.Parameter
        What is learnt, in place.
    weight : Tensor of shape (n,)
        Weights of mean 1.
    patience : int
        Stop after this many epochs in which the held-out likelihood did not rise.

    Returns
    -------
    list of float
        Mean held-out log-density in nats, before training and after each epoch.
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
            # One row far out must not throw away what the epoch has learnt.
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
    """What flows share: training, a trusted radius with a tail beyond it, and state that loads into a fresh object.

    A subclass says how its flow is built for q coordinates, and how its log-density is read.
    """

    radius: Tensor
    flow: nn.Module | None

    def __init__(
        self,
        *,
        epochs: int,
        batch_size: int,
        learning_rate: float,
        patience: int,
        variance: float,
        max_dims: int | None,
        max_rows: int,
    ) -> None:
        super().__init__(variance=variance, max_dims=max_dims, max_rows=max_rows)
        for name, value in (("epochs", epochs), ("batch_size", batch_size), ("patience", patience)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
        if not (math.isfinite(learning_rate) and learning_rate > 0):
            raise ValueError(f"learning_rate must be positive and finite, got {learning_rate}.")
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.patience = patience
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
        seed = int(torch.randint(2**31, (1,), generator=generator))
        self._rebuild(t.shape[1], seed)
        assert self.flow is not None
        fit_flow(
            self._log_prob,
            self.flow.requires_grad_(True).parameters(),
            t,
            weight,
            held_out,
            generator,
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            patience=self.patience,
        )
        # Step 3 of Algorithm 1 trains the head alone: the density must not move with it.
        self.flow.requires_grad_(False).zero_grad()

    def _log_prob(self, t: Tensor) -> Tensor:
        return continue_radially(self._flow_log_prob, t, self.radius)

    def _rebuild(self, q: int, seed: int = 0) -> None:
        # Only the CPU's generator is used, so only that one is seeded and put back.
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
        (Durkan et al., 2019). A single coordinate has no other to be conditioned on, and affine flows of it are
        Gaussian; there, splines are used for every kind.
    transforms : int
        Number of transformations.
    hidden : sequence of int
        Widths of the hidden layers of each transformation's network.
    epochs : int
        Most passes over the rows.
    batch_size : int
        Rows in a mini-batch.
    learning_rate : float
        Of Adam.
    patience : int
        Stop after this many epochs in which the held-out likelihood did not rise.
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
        super().__init__(
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            patience=patience,
            variance=variance,
            max_dims=max_dims,
            max_rows=max_rows,
        )
        if kind not in ("realnvp", "maf", "nsf"):
            raise ValueError(f'kind must be "realnvp", "maf" or "nsf", got {kind!r}.')
        if transforms < 1:
            raise ValueError(f"transforms must be at least 1, got {transforms}.")
        # Now, and not in step 2, when a network has been trained for nothing.
        _zuko_flows()
        self.kind = kind
        self.transforms = transforms
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


def _zuko_flows() -> Any:
    return import_extra("zuko.flows", needed_by="FlowDensity", extra="flow")
