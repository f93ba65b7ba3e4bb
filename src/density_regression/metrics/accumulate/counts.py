"""Calibration metrics, from counts of the entries below each level's quantile."""

__all__ = ["CalibrationError", "MiscalibrationArea"]

from typing import Any

import torch
from scipy.special import ndtri
from torch import Tensor

from density_regression.metrics._checks import FloatArray
from density_regression.metrics._numerics import absolute_area, coverage_levels
from density_regression.metrics.accumulate.base import Accumulator


class _Counts(Accumulator):
    """Number of entries whose z-score, or its absolute value, is at most the quantile of each level."""

    at_most: Tensor
    _two_sided: bool

    def __init__(self, levels: int = 100, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.levels = levels
        self.expected = coverage_levels(levels)
        self._add_sum("at_most", len(self.expected))

    def _add(self, residual: Tensor, std: Tensor) -> None:
        largest = torch.finfo(torch.float64).max
        # Finite, because the quantiles of the levels 0 and 1 are infinite.
        z = (residual / std).clamp(-largest, largest)
        values, levels = (z.abs(), 0.5 + self.expected / 2) if self._two_sided else (z, self.expected)
        quantiles = torch.from_numpy(ndtri(levels)).to(z.device)
        self.at_most += torch.searchsorted(values.sort().values, quantiles, right=True)

    def _observed(self) -> FloatArray:
        observed: FloatArray = (self.at_most / self.count).cpu().numpy()
        return observed


class CalibrationError(_Counts):
    """`density_regression.metrics.calibration_error` over batches, at ``levels`` levels.

    Examples
    --------
    >>> import torch
    >>> score = CalibrationError()
    >>> score.update(torch.tensor([0.0, 1.0]), torch.tensor([0.5, 1.0]), torch.tensor([0.5, 0.5]))
    >>> round(score.compute().item(), 3)
    5.588
    """

    _two_sided = False

    def compute(self) -> Tensor:
        """Calibration error of all entries so far."""
        return self.count.new_tensor(((self.expected - self._observed()) ** 2).sum())


class MiscalibrationArea(_Counts):
    """`density_regression.metrics.miscalibration_area` over batches, at ``levels`` expected coverages.

    Examples
    --------
    >>> import torch
    >>> score = MiscalibrationArea()
    >>> score.update(torch.tensor([0.0, 1.0]), torch.tensor([0.5, 1.0]), torch.tensor([0.5, 0.5]))
    >>> round(score.compute().item(), 3)
    0.191
    """

    _two_sided = True

    def compute(self) -> Tensor:
        """Miscalibration area of all entries so far."""
        return self.count.new_tensor(absolute_area(self.expected, self._observed() - self.expected))
