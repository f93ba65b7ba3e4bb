"""Metrics that are means over entries of a score of each."""

__all__ = ["CRPS", "MAE", "NLL", "RMSE", "Coverage", "IntervalScore", "Sharpness"]

import math
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from density_regression.metrics._checks import check_unit
from density_regression.metrics._numerics import central_quantile
from density_regression.metrics.accumulate.base import Accumulator


class _Mean(Accumulator):
    """Mean over entries of a score of each."""

    total: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._add_sum("total")

    def _add(self, residual: Tensor, std: Tensor) -> None:
        self.total += self._scores(residual, std).sum()

    @abstractmethod
    def _scores(self, residual: Tensor, std: Tensor) -> Tensor: ...

    def compute(self) -> Tensor:
        """Metric of all entries so far, as a float64 scalar; NaN if there were none."""
        return self.total / self.count


class NLL(_Mean):
    """`density_regression.metrics.nll` over batches.

    Examples
    --------
    >>> import torch
    >>> score = NLL()
    >>> score.update(torch.tensor([0.0, 1.0]), torch.tensor([0.5, 1.0]), torch.tensor([0.5, 0.5]))
    >>> round(score.compute().item(), 3)
    0.476
    """

    def _scores(self, residual: Tensor, std: Tensor) -> Tensor:
        return std.log() + 0.5 * (residual / std) ** 2 + 0.5 * math.log(2 * math.pi)


class MAE(_Mean):
    """`density_regression.metrics.mae` over batches.

    Examples
    --------
    >>> import torch
    >>> score = MAE()
    >>> score.update(torch.tensor([0.0, 1.0]), torch.tensor([0.5, 1.0]), torch.tensor([0.5, 0.5]))
    >>> round(score.compute().item(), 3)
    0.25
    """

    def _scores(self, residual: Tensor, std: Tensor) -> Tensor:
        return residual.abs()


class RMSE(_Mean):
    """`density_regression.metrics.rmse` over batches.

    Examples
    --------
    >>> import torch
    >>> score = RMSE()
    >>> score.update(torch.tensor([0.0, 1.0]), torch.tensor([0.5, 1.0]), torch.tensor([0.5, 0.5]))
    >>> round(score.compute().item(), 3)
    0.354
    """

    def _scores(self, residual: Tensor, std: Tensor) -> Tensor:
        return residual**2

    def compute(self) -> Tensor:
        """Error of all entries so far, in the target's units."""
        return super().compute().sqrt()


class CRPS(_Mean):
    """`density_regression.metrics.crps` over batches.

    Examples
    --------
    >>> import torch
    >>> score = CRPS()
    >>> score.update(torch.tensor([0.0, 1.0]), torch.tensor([0.5, 1.0]), torch.tensor([0.5, 0.5]))
    >>> round(score.compute().item(), 3)
    0.209
    """

    def _scores(self, residual: Tensor, std: Tensor) -> Tensor:
        z = residual / std
        density = torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
        return residual * torch.erf(z / math.sqrt(2)) + std * (2 * density - 1 / math.sqrt(math.pi))


class Sharpness(_Mean):
    """`density_regression.metrics.sharpness` over batches, in multiples of ``unit``.

    Examples
    --------
    >>> import torch
    >>> score = Sharpness()
    >>> score.update(torch.tensor([0.0, 1.0]), torch.tensor([0.5, 1.0]), torch.tensor([0.5, 0.5]))
    >>> round(score.compute().item(), 3)
    0.5
    """

    higher_is_better = None

    def __init__(self, unit: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.unit = check_unit(unit)

    def _scores(self, residual: Tensor, std: Tensor) -> Tensor:
        return std**2

    def compute(self) -> Tensor:
        """Sharpness of all entries so far, in multiples of ``unit``."""
        return super().compute().sqrt() / self.unit


class _IntervalMean(_Mean):
    """Mean over entries of a score of the central interval."""

    def __init__(self, level: float = 0.95, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.level, self._quantile = level, central_quantile(level)


class Coverage(_IntervalMean):
    """`density_regression.metrics.coverage` over batches, of nominal coverage ``level``.

    Examples
    --------
    >>> import torch
    >>> score = Coverage()
    >>> score.update(torch.tensor([0.0, 1.0]), torch.tensor([0.5, 1.0]), torch.tensor([0.5, 0.5]))
    >>> round(score.compute().item(), 3)
    1.0
    """

    higher_is_better = None

    def _scores(self, residual: Tensor, std: Tensor) -> Tensor:
        return (residual.abs() <= std * self._quantile).double()


class IntervalScore(_IntervalMean):
    """`density_regression.metrics.interval_score` over batches, of nominal coverage ``level``.

    Examples
    --------
    >>> import torch
    >>> score = IntervalScore()
    >>> score.update(torch.tensor([0.0, 1.0]), torch.tensor([0.5, 1.0]), torch.tensor([0.5, 0.5]))
    >>> round(score.compute().item(), 3)
    1.96
    """

    def _scores(self, residual: Tensor, std: Tensor) -> Tensor:
        half_width = std * self._quantile
        return 2 * half_width + 2 / (1 - self.level) * (residual.abs() - half_width).clamp(min=0)
