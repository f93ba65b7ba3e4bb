"""Temperings: how the density of the features enters the predictive variance."""

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self

import torch
from torch import Tensor

from density_regression.nn.density.base import FEW_DIMENSIONS, FittedModule, weighted_quantiles

__all__ = [
    "DEFAULT_REACH",
    "TEMPERINGS",
    "ExactTempering",
    "RescaledTempering",
    "RobustTempering",
    "Tempering",
]

DEFAULT_EXPONENT: Final = 2.0
DEFAULT_REACH: Final = 3.0
"""Exponent, and reach of a model that has not learnt its own."""


class Growth(NamedTuple):
    """How the disagreement of networks grows: see `RobustTempering`."""

    exponent: float
    reach: float
    start: float


USUAL_GROWTH: Final = Growth(exponent=0.3, reach=0.02, start=0.0)
FAST_GROWTH: Final = Growth(exponent=1.5, reach=0.07, start=2.0)


class Tempering(FittedModule, ABC):
    """Monotone map from log p(z) to log p~(z), the log-density that multiplies the precision.

    The buffer `reference` is the median log-density of held-out rows.

    Examples
    --------
    >>> import torch
    >>> class Halved(Tempering):
    ...     def forward(self, log_prob):
    ...         return 0.5 * log_prob
    >>> Halved().fit(torch.zeros(3), torch.zeros(3))(torch.tensor(-2.0)).item()
    -1.0
    """

    reference: Tensor

    reads_training_rows: ClassVar[bool] = False
    """Whether `fit` uses the log-densities of training rows."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("reference", torch.tensor(0.0))

    @torch.no_grad()
    def fit(self, train: Tensor, held_out: Tensor, held_out_weight: Tensor | None = None) -> Self:
        """Learn from log-densities of training rows (n,) and of held-out rows (m,)."""
        (reference,) = weighted_quantiles(held_out, [0.5], held_out_weight)
        self._store(reference=reference)
        self._fit(train, held_out, held_out_weight)
        return self

    @property
    def reference_level(self) -> Tensor:
        """log p~ at the reference."""
        level: Tensor = self(self.reference)
        return level

    def _fit(self, train: Tensor, held_out: Tensor, held_out_weight: Tensor | None) -> None:
        """Learn what is left beside the reference."""

    @abstractmethod
    def forward(self, log_prob: Tensor) -> Tensor:
        """log p~ of the same shape as `log_prob`."""


class ExactTempering(Tempering):
    """No tempering: log p~ = log p, as in the paper (Eq. 8, `eq:exp`).

    Examples
    --------
    >>> import torch
    >>> log_prob = torch.tensor([-9.0, -2.0, -1.0, -0.5, 0.0])
    >>> bool((ExactTempering().fit(log_prob, log_prob)(log_prob) == log_prob).all())
    True
    """

    def forward(self, log_prob: Tensor) -> Tensor:
        """Return `log_prob`."""
        return log_prob


class RescaledTempering(Tempering):
    """Min-max scaling of training log-densities to [low, high], as in the authors' code.

    log p~ = low + (high - low) (log p - least) / (largest - least), of training log-densities.

    Parameters
    ----------
    low, high : float
        The range; the authors set it by hand for each experiment, [0, 0.4] for the cubic toy.

    Examples
    --------
    >>> import torch
    >>> log_prob = torch.tensor([-9.0, -2.0, -1.0, -0.5, 0.0])
    >>> RescaledTempering().fit(log_prob, log_prob)(log_prob)[[0, -1]]
    tensor([0.0000, 0.4000])
    """

    lowest: Tensor
    slope: Tensor

    reads_training_rows = True

    def __init__(self, low: float = 0.0, high: float = 0.4) -> None:
        super().__init__()
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"Need finite low < high, got low={low}, high={high}.")
        self.low = low
        self.high = high
        self.register_buffer("lowest", torch.tensor(0.0))
        self.register_buffer("slope", torch.tensor(1.0))

    def _fit(self, train: Tensor, held_out: Tensor, held_out_weight: Tensor | None) -> None:
        spread = (train.amax() - train.amin()).clamp_min(1e-3)
        self._store(lowest=train.amin(), slope=(self.high - self.low) / spread)

    def forward(self, log_prob: Tensor) -> Tensor:
        """Linear in `log_prob`."""
        return self.low + self.slope * (log_prob - self.lowest)


class RobustTempering(Tempering):
    r"""Polynomial instead of exponential growth of the variance, and none inside the training data.

    With the excess e = max(0, reference - start * spread - log p) / (reach * spread),

    .. math:: \log \tilde p = -g \log(1 + 2 e).

    The spread is the distance from the median of held-out log-densities to their 16 % quantile, so that "far" means
    the same in any number of dimensions. The reach is the length scale on which the variance grows, in spreads. For a
    Gaussian density the variance grows as the squared Mahalanobis distance to the power g; g = 1 is Bayesian linear
    regression.

    Parameters
    ----------
    exponent : float
        The g above, positive.
    reach : float or "auto"
        In spreads, positive. "auto" is 3 until a fit learns it from rows hidden from a few networks.
    start : float
        How far below the median the variance begins to grow, in spreads.

    Examples
    --------
    >>> import torch
    >>> log_prob = torch.tensor([-9.0, -2.0, -1.0, -0.5, 0.0])
    >>> tempered = RobustTempering().fit(log_prob, log_prob)(log_prob)
    >>> bool(tempered[0] < tempered[1] < 0), bool((tempered[2:] == 0).all())
    (True, True)
    """

    exponent: Tensor
    spread: Tensor
    learnt_reach: Tensor

    LOW: Final = 0.16
    LEAST_SPREAD: Final = 0.5
    ROUNDINGS: Final = 16.0
    """Lower quantile; least spread in nats (0.76 for one Gaussian dimension), and in roundings of the reference."""

    def __init__(
        self, exponent: float = DEFAULT_EXPONENT, reach: float | Literal["auto"] = "auto", start: float = 0.0
    ) -> None:
        super().__init__()
        if not (math.isfinite(exponent) and exponent > 0):
            raise ValueError(f"exponent must be positive and finite, got {exponent}.")
        if reach != "auto" and not (math.isfinite(reach) and reach > 0):
            raise ValueError(f'reach must be "auto" or positive and finite, got {reach}.')
        if not (math.isfinite(start) and start >= 0):
            raise ValueError(f"start must be at least 0 and finite, got {start}.")
        self.reach = reach
        self.start = start
        self._given_exponent = float(exponent)
        self.register_buffer("exponent", torch.tensor(float(exponent)))
        self.register_buffer("spread", torch.tensor(1.0))
        self.register_buffer("learnt_reach", torch.tensor(DEFAULT_REACH if reach == "auto" else float(reach)))

    def _fit(self, train: Tensor, held_out: Tensor, held_out_weight: Tensor | None) -> None:
        (low,) = weighted_quantiles(held_out, [self.LOW], held_out_weight)
        # Differences of huge log-densities, of held-out rows unlike the others, are rounding.
        rounding = self.ROUNDINGS * torch.finfo(torch.float32).eps * self.reference.abs()
        self._store(spread=(self.reference - low).clamp_min(self.LEAST_SPREAD).maximum(rounding))

    def config(self) -> dict[str, Any]:
        """Arguments of `__init__`; the exponent as it was given."""
        return {"exponent": self._given_exponent, "reach": self.reach, "start": self.start}

    def suit(self, dims: int) -> None:
        """Set how disagreement grows in so many dimensions of the density, after `fit`, unless a reach was given.

        An exponent other than the default is kept.

        In few dimensions a row that is far away is far in the direction that matters: the growth is faster, and begins
        further out, at a reference of its own.
        """
        if self.reach != "auto":
            return
        growth = FAST_GROWTH if self.grows_fast(dims) else USUAL_GROWTH
        given = self._given_exponent
        self._store(
            exponent=torch.tensor(growth.exponent if given == DEFAULT_EXPONENT else given),
            learnt_reach=torch.tensor(growth.reach),
            reference=self.reference - growth.start * self.spread,
        )

    def grows_fast(self, dims: int) -> bool:
        """Whether disagreement grows fast in so many dimensions; never where a reach was given."""
        return self.reach == "auto" and dims <= FEW_DIMENSIONS

    def set_reach(self, reach: float) -> None:
        """Set the reach that was learnt."""
        self._store(learnt_reach=torch.tensor(reach))

    def forward(self, log_prob: Tensor) -> Tensor:
        """At most 0, and 0 wherever `log_prob` is at or above the reference."""
        begin = self.reference - self.start * self.spread if self.start else self.reference
        excess = (begin - log_prob).clamp_min(0.0) / (self.learnt_reach * self.spread)
        return -self.exponent * torch.log1p(2.0 * excess)


TEMPERINGS: dict[str, type[Tempering]] = {
    "robust": RobustTempering,
    "exact": ExactTempering,
    "rescaled": RescaledTempering,
}
"""Temperings by the name that `tempering=` takes."""
