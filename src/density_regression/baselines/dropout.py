"""MC Dropout: dropout also at prediction, averaged over sampled networks."""

import copy
from numbers import Integral, Real
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from density_regression.baselines.mixture import MixtureRegressor
from density_regression.baselines.stochastic_layers import DRAWS, StochasticNetwork, replace_modules
from density_regression.estimators.settings import About, Settings
from density_regression.io.sklearn_private import Interval
from density_regression.nn.encoders import MLP, Embedded
from density_regression.nn.heads import Moments

__all__ = ["DropoutNetwork", "MCDropout", "MCDropoutRegressor"]


class MCDropout(nn.Module):
    """Dropout with probability `p` that stays active at prediction, with one mask per sampled network for all rows.

    In training every row has its own mask; in eval mode, unless networks are sampled, it is the identity. `channels`
    drops whole channels of (batch, channels, ...), as nn.Dropout2d does, instead of single elements.
    """

    def __init__(self, p: float, *, channels: bool = False) -> None:
        super().__init__()
        self.p = p
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        """`x` with dropped units set to zero and the others scaled by 1 / (1 - p)."""
        draws = DRAWS.get()
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
        """Probability, and whether channels are dropped."""
        return f"p={self.p}, channels={self.channels}"


class DropoutNetwork(StochasticNetwork):
    """A Gaussian network with dropout in training and at prediction (Gal & Ghahramani, 2016).

    With T passes: mean = average of mean_t, var = average of std_t^2 + variance of mean_t.

    Dropout acts on the features, with one mask for all positions of an image, and in an `MLP` also before every other
    layer but the first. Any other encoder keeps its own nn.Dropout, nn.Dropout1d, 2d and 3d layers, which stay active
    at prediction; dropout without such a layer, as in nn.MultiheadAttention, is active in training only.

    Arguments are described in `Network` and `MCDropoutRegressor`. The encoder is copied.

    Examples
    --------
    >>> import torch
    >>> from density_regression import MLP, TrainingOptions
    >>> from density_regression.baselines import fit_baseline
    >>> x = torch.linspace(-1, 1, 40)[:, None]
    >>> model = DropoutNetwork(MLP(1, (8,)), features=8, dropout=0.1)
    >>> rows = list(zip(x.split(10), (2 * x).split(10), strict=True))
    >>> report = fit_baseline(model, rows, options=TrainingOptions(epochs=2))
    >>> tuple(model(x).stddev.shape)
    (40, 1)
    """

    def __init__(
        self, encoder: nn.Module, features: int, targets: int = 1, *, dropout: float = 0.05, n_samples: int = 50
    ) -> None:
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}.")
        super().__init__(_with_dropout(encoder, dropout), features, targets, n_samples=n_samples)
        self.dropout = MCDropout(dropout)

    def row_moments(self, z: Tensor) -> Moments:
        """Moments (n, k) at features `z` (n, features), after dropout."""
        return super().row_moments(self.dropout(z))


def _with_dropout(encoder: nn.Module, p: float) -> nn.Module:
    """A copy of the encoder with its dropout: in an `MLP`, embedded or not, between the layers."""
    if type(encoder) is Embedded:
        return Embedded(copy.deepcopy(encoder.embedding), _with_dropout(encoder.encoder, p))
    return _between_layers(encoder, p) if type(encoder) is MLP else replace_modules(encoder, _to_mc)


def _between_layers(encoder: MLP, p: float) -> nn.Sequential:
    """The encoder with dropout before each linear layer but the first."""
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


class MCDropoutRegressor(MixtureRegressor):
    """MC Dropout: a Gaussian network with dropout also at prediction, where `n_samples` networks are averaged.

    Parameters
    ----------
    dropout : float
        Probability of dropping a unit, at least 0 and below 1. With your own `encoder` it applies to the features
        only; dropout layers of the encoder keep theirs.
    n_samples : int
        Number of sampled networks, and of forward passes, for a prediction.
    weight_decay : float
        Weight decay of AdamW; see `GaussianRegressor`.
    **settings
        See `DeepRegressor`.

    Examples
    --------
    >>> from density_regression.baselines import MCDropoutRegressor
    >>> from density_regression.datasets import make_cubic
    >>> reg = MCDropoutRegressor(n_samples=20, epochs=5, random_state=0).fit(*make_cubic(n=200, random_state=0))
    >>> means, stds = reg.predict_members([[0.0]])
    >>> means.shape
    (20, 1)
    """

    network_class = DropoutNetwork
    about = About("MC Dropout", "Gal & Ghahramani, 2016", passes=50)

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **MixtureRegressor._parameter_constraints,
        "dropout": [Interval(Real, 0, 1, closed="left")],
        # Bounded, as a saved model may ask for any number.
        "n_samples": [Interval(Integral, 1, 10_000, closed="both")],
    }

    def __init__(  # type: ignore[misc]
        self, *, dropout: float = 0.05, n_samples: int = 50, weight_decay: float = 1e-4, **settings: Unpack[Settings]
    ) -> None:
        super().__init__(weight_decay=weight_decay, **settings)
        self.dropout = dropout
        self.n_samples = n_samples
