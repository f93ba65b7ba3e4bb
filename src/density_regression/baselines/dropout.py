"""MC Dropout: units are dropped at prediction too, and several thinned networks are averaged."""

from __future__ import annotations

import copy
from numbers import Integral, Real
from typing import Any, ClassVar, Unpack

import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor, nn
from torch.nn import functional as F

from density_regression.base import About, Settings
from density_regression.baselines.drawn import RandomNetwork, current_draws, with_replaced
from density_regression.baselines.sampled import SampledRegressor
from density_regression.encoders import MLP
from density_regression.head import Moments

__all__ = ["DropoutNetwork", "MCDropout", "MCDropoutRegressor"]


class MCDropout(nn.Module):
    """Dropout that goes on at prediction, there with one mask over a layer's units for all rows.

    In training every row has a mask of its own. Outside both it does nothing.

    Parameters
    ----------
    p : float
        Probability of dropping a unit; the others grow by 1 / (1 - p).
    channels : bool
        Drop whole channels of (batch, channels, ...), as nn.Dropout2d does, instead of single elements.
    """

    def __init__(self, p: float, *, channels: bool = False) -> None:
        super().__init__()
        self.p = p
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        """Values of the shape of `x`, some of them zero."""
        draws = current_draws()
        shape = (x.shape[1], *[1] * (x.ndim - 2)) if self.channels else x.shape[1:]
        if draws is None:
            return x * F.dropout(x.new_ones(len(x), *shape), self.p) if self.training else x
        draws.check(x)
        numbers = [torch.rand(shape, generator=generator, device="cpu") for generator in draws.generators]
        kept = torch.stack(numbers) >= self.p
        scaled = kept.to(x) / max(1.0 - self.p, torch.finfo(x.dtype).tiny)
        thinned: Tensor = x.unflatten(0, (len(kept), -1)) * scaled.unsqueeze(1)
        return thinned.flatten(0, 1)

    def extra_repr(self) -> str:
        """The probability, and what it is for."""
        return f"p={self.p}, channels={self.channels}"


class DropoutNetwork(RandomNetwork):
    """A Gaussian network with dropout in training and at prediction (Gal & Ghahramani, 2016).

    The features are always dropped before the last layer, at prediction with one mask for all positions of an image.
    Of the plain `MLP` so are the units of all layers before. Any other encoder keeps its own dropout layers, which go
    on at prediction (nn.Dropout with a mask for each element, nn.Dropout1d, 2d and 3d for each channel); what it drops
    in other ways, as nn.MultiheadAttention does, remains a matter of training.

    Parameters
    ----------
    encoder, features, targets
        See `Network`; the encoder is copied.
    dropout : float
        Probability of dropping a unit.
    n_samples : int
        Thinned networks that are averaged.
    """

    def __init__(
        self, encoder: nn.Module, features: int, targets: int = 1, *, dropout: float = 0.05, n_samples: int = 50
    ) -> None:
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}.")
        encoder = _between_layers(encoder, dropout) if type(encoder) is MLP else with_replaced(encoder, _to_mc)
        super().__init__(encoder, features, targets, n_samples=n_samples)
        self.dropout = MCDropout(dropout)

    def row_moments(self, z: Tensor) -> Moments:
        """Moments (n, k) at features `z` (n, features), some of which are dropped."""
        return super().row_moments(self.dropout(z))


def _between_layers(encoder: MLP, p: float) -> nn.Sequential:
    """The plain network with dropout before each layer but the first; its last units are the features."""
    layers: list[nn.Module] = []
    for layer in copy.deepcopy(encoder):
        layers += [MCDropout(p), layer] if layers and isinstance(layer, nn.Linear) else [layer]
    return nn.Sequential(*layers)


def _to_mc(module: nn.Module) -> MCDropout | None:
    if isinstance(module, nn.Dropout):
        return MCDropout(module.p)
    if isinstance(module, nn.Dropout1d | nn.Dropout2d | nn.Dropout3d):
        return MCDropout(module.p, channels=True)
    return None


class MCDropoutRegressor(SampledRegressor):
    """A Gaussian network with dropout, also at prediction: thinned networks are averaged.

    Parameters
    ----------
    dropout : float
        Probability of dropping a unit, at least 0 and below 1. An encoder of your own keeps that of its layers, and
        this one is for its features.
    n_samples : int
        Thinned networks, and forward passes, for a prediction.
    weight_decay : float
        Of AdamW; less than for `DensityRegressor`, as it makes networks agree, and so too sure, away from the data.
    **settings
        See `DeepRegressor`.

    Examples
    --------
    >>> from density_regression.baselines import MCDropoutRegressor
    >>> from density_regression.datasets import make_cubic
    >>> X, y = make_cubic(n=200, random_state=0)
    >>> means, stds = MCDropoutRegressor(n_samples=20, epochs=5, random_state=0).fit(X, y).predict_members(X)
    >>> means.shape, stds.shape
    ((20, 200), (20, 200))
    """

    about = About("MC Dropout", "Gal & Ghahramani, 2016", passes=50)

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **SampledRegressor._parameter_constraints,
        "dropout": [Interval(Real, 0, 1, closed="left")],
        # A saved model may ask for any number.
        "n_samples": [Interval(Integral, 1, 10_000, closed="both")],
    }

    def __init__(  # type: ignore[misc]
        self, *, dropout: float = 0.05, n_samples: int = 50, weight_decay: float = 1e-4, **settings: Unpack[Settings]
    ) -> None:
        super().__init__(weight_decay=weight_decay, **settings)
        self.dropout = dropout
        self.n_samples = n_samples

    def _network(self, encoder: nn.Module, features: int, targets: int) -> DropoutNetwork:
        return DropoutNetwork(encoder, features, targets, dropout=self.dropout, n_samples=self.n_samples)
