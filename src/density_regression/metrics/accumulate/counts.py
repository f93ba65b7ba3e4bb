"""Calibration, from how many entries lie below each level's quantile."""

__all__ = ["CalibrationError", "MiscalibrationArea"]

from abc import abstractmethod
from typing import Any

import torch
from scipy.special import ndtri
from torch import Tensor

from density_regression.metrics._arrays import FloatArray, area_to_zero, levels_of
from density_regression.metrics.accumulate.base import Accumulator


class _Counts(Accumulator):
    """Counts of entries whose distance is at most each of some thresholds, both in standard deviations."""

    at_most: Tensor

    def __init__(self, levels: int = 100, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.levels = levels
        self.expected = levels_of(levels)
        self._add_sum("at_most", len(self.expected))

    def _take(self, residual: Tensor, std: Tensor) -> None:
        largest = torch.finfo(torch.float64).max
        # Finite, so that none ties with the quantiles of 0 and 1.
        distance = self._distance((residual / std).clamp(-largest, largest))
        thresholds = torch.from_numpy(self._thresholds()).to(distance.device)
        self.at_most += torch.searchsorted(distance.sort().values, thresholds, right=True)

    @abstractmethod
    def _distance(self, z: Tensor) -> Tensor: ...

    @abstractmethod
    def _thresholds(self) -> FloatArray: ...

    def _observed(self) -> FloatArray:
        observed: FloatArray = (self.at_most / self.count).cpu().numpy()
        return observed


class CalibrationError(_Counts):
    """`density_regression.metrics.calibration_error` over batches.

    Parameters
    ----------
    levels : int, default=100
        Number of levels, evenly spaced from 0 to 1, both ends included.
    **kwargs
        Options of ``torchmetrics.Metric``.
    """

    def _distance(self, z: Tensor) -> Tensor:
        return z

    def _thresholds(self) -> FloatArray:
        thresholds: FloatArray = ndtri(self.expected)
        return thresholds

    def compute(self) -> Tensor:
        """Error of all entries so far, as a float64 scalar; NaN if there were none."""
        return self.count.new_tensor(((self.expected - self._observed()) ** 2).sum())


class MiscalibrationArea(_Counts):
    """`density_regression.metrics.miscalibration_area` over batches.

    Parameters
    ----------
    levels : int, default=100
        Number of expected coverages, evenly spaced from 0 to 1, both ends included.
    **kwargs
        Options of ``torchmetrics.Metric``.
    """

    def _distance(self, z: Tensor) -> Tensor:
        return z.abs()

    def _thresholds(self) -> FloatArray:
        thresholds: FloatArray = ndtri(0.5 + self.expected / 2)
        return thresholds

    def compute(self) -> Tensor:
        """Area of all entries so far, as a float64 scalar; NaN if there were none."""
        return self.count.new_tensor(area_to_zero(self.expected, self._observed() - self.expected))
