"""Density-Regression as a module: forward returns a Normal."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeVar

import torch
from torch import Tensor, nn

from density_regression.density import DENSITIES, TEMPERINGS, Density, Tempering
from density_regression.head import HEADS, Head, Moments
from density_regression.loop import kept_draws, usual_torch
from density_regression.network import Network
from density_regression.parts import check_encoder, described_encoder, encoder_of, rebuilt, to_json
from density_regression.persistence import InvalidModelError, read_model, write_model

__all__ = ["Decomposition", "DensityRegression"]

T = TypeVar("T")

LEVELS: Final = 1001
"""Most held-out log-densities kept, as quantiles, for `familiarity`."""


class Decomposition(NamedTuple):
    """Standard deviations of the two parts of the predictive variance, which add up as variances."""

    aleatoric: Tensor
    epistemic: Tensor


class DensityRegression(Network):
    r"""Encoder f, density p(z; alpha) on its features, and a Gaussian head g (`eq:exp`).

    .. math:: z = f(x), \quad \log \sigma^2 = -(\log 2 + \log \tilde p(z) + s)

    with the mean and the log-precision s from a head that is linear in z.

    Until its density is fitted (step 2 of `alg:algorithm`) the model predicts without one, as step 1 trains it.
    Train it with `fit_density_regression`: it then answers in the target's units. Results are finite for every finite
    input; where an input is NaN, and so are the features that the encoder makes of it, they are NaN.

    Parameters
    ----------
    encoder : nn.Module
        Any module whose output has shape (batch, features) or, for sequences and images, (batch, features, ...).
    features : int
        Width of that output.
    targets : int
        Number k of targets.
    head : "mean", "natural" or Head
        The mean itself linear in z, or, as in the paper, the natural parameters.
    density : "mixture", "gaussian", "kernel", "flow", "maf", "nsf", "radial", Density or None
        Density on the features; None for a plain Gaussian network, to compare with.
    tempering : "robust", "exact", "rescaled" or Tempering
        How the density enters the precision.

    Examples
    --------
    >>> import torch
    >>> model = DensityRegression(encoder=torch.nn.Linear(3, 8), features=8)
    >>> model(torch.zeros(5, 3)).mean.shape
    torch.Size([5, 1])
    """

    LEARNT: ClassVar[tuple[str, ...]] = (*Network.LEARNT, "familiar_levels")

    familiar_levels: Tensor | None

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        targets: int = 1,
        *,
        head: str | Head = "mean",
        density: str | Density | None = "mixture",
        tempering: str | Tempering = "robust",
    ) -> None:
        super().__init__(encoder, features, targets)
        self.head = head if isinstance(head, Head) else _named("head", head, HEADS)(features, targets)
        if self.head.targets != targets or self.head.features > features:
            raise ValueError(
                f"The head reads {self.head.features} features for {self.head.targets} target(s), "
                f"but the model has features={features} and targets={targets}."
            )
        self.density = _named("density", density, DENSITIES)() if isinstance(density, str) else density
        self.tempering = tempering if isinstance(tempering, Tempering) else _named("tempering", tempering, TEMPERINGS)()

    def log_density(self, x: Tensor) -> Tensor:
        """log p(z), in nats, of shape (batch,) or (batch, ...)."""
        if self.density is None or not self.density.fitted:
            raise ValueError("This model has no fitted density to ask.")
        z = self.encode(x)
        return self.positions(self.precisely(self.density, self.rows(z))[:, None], z).squeeze(1)

    @torch.no_grad()
    def familiarity(self, x: Tensor) -> Tensor:
        """Share of held-out training rows (or positions) that are no more familiar, of shape (batch,) or (batch, ...).

        An input below 0.01 is stranger than 99 in 100 of those that the model was checked on.
        """
        levels = self.familiar_levels
        if levels is None:
            raise ValueError("This model knows no held-out log-densities: train it with fit_density_regression.")
        log_density = self.log_density(x).to(levels.dtype).contiguous()
        return torch.searchsorted(levels, log_density, right=True) / len(levels)

    def keep_levels(self, log_density: Tensor) -> None:
        """Keep log-densities (m,) of held-out rows, at most `LEVELS` of them, for `familiarity`."""
        levels = log_density.detach().sort().values
        if len(levels) > LEVELS:
            place = torch.linspace(0, len(levels) - 1, LEVELS, dtype=torch.float64, device=levels.device)
            below = place.long()
            above = (below + 1).clamp_max(len(levels) - 1)
            levels = levels[below].lerp(levels[above], (place - below).to(levels))
        self.familiar_levels = levels

    def decompose(self, x: Tensor) -> Decomposition:
        """Split the predictive variance into noise and strangeness: standard deviations in the target's units.

        The aleatoric part is the variance the head gives to a typical input, one at the reference density; what a
        lower density adds to it is the epistemic part. It measures the distance to the training data, not how many
        rows there were.
        """
        return Decomposition(*(self.widened(part) for part in self.by_position(self._row_parts, x)))

    def _row_parts(self, rows: Tensor) -> Decomposition:
        log_density = self.tempered(rows)
        if log_density is None:
            std = self.head(rows).log_std.exp()
            return Decomposition(std, torch.zeros_like(std))
        log_std = self.head(rows, log_density).log_std
        typical = self.head(rows, torch.maximum(log_density, self.tempering.reference_level)).log_std
        # std_total^2 - std_typical^2 without squaring what may be e^80.
        epistemic = log_std.exp() * (-torch.expm1(2.0 * (typical - log_std))).clamp_min(0.0).sqrt()
        return Decomposition(typical.exp(), epistemic)

    def row_moments(self, z: Tensor) -> Moments:
        """Moments (n, k) of the scaled target at features `z` (n, features)."""
        moments: Moments = self.head(z, self.tempered(z))
        return moments

    def tempered(self, rows: Tensor) -> Tensor | None:
        """Tempered log-density (n,) of features (n, features); None without a fitted density."""
        if self.density is None or not self.density.fitted:
            return None
        log_density: Tensor = self.tempering(self.density(rows))
        return log_density

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the model to a folder (safetensors and JSON), whole or not at all; read it with `load`.

        The encoder's weights are saved, its code is not. A density or tempering of your own must be registered with
        `density_regression.register`.
        """
        if type(self) is not DensityRegression:
            raise ValueError(f"{type(self).__name__} is a class of its own: keep its state_dict() instead.")
        heads = {head: name for name, head in HEADS.items()}
        if type(self.head) not in heads:
            raise ValueError(f"{type(self.head).__name__} is a head of your own, which could not be loaded again.")
        config: dict[str, Any] = {
            "module": "DensityRegression",
            "version": version("density-regression"),
            "torch": torch.__version__,
            "features": self.features,
            "targets": self.targets,
            "head": [heads[type(self.head)], self.head.features],
            "encoder": described_encoder(self.encoder),
            **{name: to_json(getattr(self, name)) for name in ("density", "tempering")},
        }
        for name in ("density", "tempering"):
            try:
                _rebuilt(config[name])
            except InvalidModelError as error:
                raise ValueError(f"The {name} is of a class of your own: {error}") from error
        state = self.state_dict()
        for name, value in state.items():
            if not isinstance(value, Tensor):
                raise ValueError(f"save writes tensors, but {name} of the model is a {type(value).__name__}.")
        write_model(folder, config, state)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], encoder: nn.Module | None = None) -> Self:
        """Read what `save` wrote, on the CPU and in eval mode. No code from the folder is run.

        Parameters
        ----------
        folder : path
            What `save` wrote.
        encoder : nn.Module, optional
            A module of the encoder's shape, which is copied; its weights come from the folder. It is needed unless its
            class was registered with `density_regression.register` before the model was saved.

        Raises
        ------
        InvalidModelError
            If the folder is truncated, edited, or from a newer major version; a `ValueError`.
        """
        config, tensors = read_model(folder)
        if config.get("module") != "DensityRegression":
            raise InvalidModelError(f"{folder} holds no DensityRegression, but {config.get('estimator')!r}.")
        if encoder is None:
            check_encoder(config.get("encoder"))
        try:
            with usual_torch(), kept_draws():
                return cls._from_saved(config, tensors, encoder)
        except InvalidModelError:
            raise
        # What is missing or of the wrong kind may fail anywhere, in any way; to the caller it is all the same.
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise InvalidModelError(f"{folder} does not describe a model that can be built ({reason}).") from error

    @classmethod
    def _from_saved(cls, config: dict[str, Any], tensors: dict[str, Tensor], encoder: nn.Module | None) -> Self:
        features, targets, (head, width) = config["features"], config["targets"], config["head"]
        weight = tensors["head.linear.weight"]
        # Before anything is built: a few digits could otherwise ask for more memory than there is.
        if tuple(weight.shape) != (2 * targets, width):
            raise InvalidModelError("The saved weights do not fit the saved settings.")
        encoder = encoder_of(config["encoder"], tensors) if encoder is None else copy.deepcopy(encoder)
        model = cls(
            encoder,
            features,
            targets,
            head=HEADS[head](width, targets),
            density=_rebuilt(config["density"]),
            tempering=_rebuilt(config["tempering"]),
        )
        for part in (model.head, model.density, model.tempering):
            if part is not None:
                part.to(weight.dtype)
        try:
            model.load_state_dict(tensors)
        except RuntimeError as error:
            raise InvalidModelError(f"The saved weights do not fit the model: {error}") from error
        return model.cpu().eval()


def _rebuilt(value: Any) -> Any:
    return None if value is None else rebuilt(value)


def _named(argument: str, name: str, known: Mapping[str, T]) -> T:
    if name not in known:
        raise ValueError(f"{argument} must be one of {sorted(known)} or an object, got {name!r}.")
    return known[name]
