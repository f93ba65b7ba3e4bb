"""Base class of metrics that are accumulated over batches."""

__all__ = ["Accumulator", "Metric", "check_batch"]

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from density_regression.io.extras import import_extra

if TYPE_CHECKING:
    from torchmetrics import Metric
else:
    Metric = import_extra("torchmetrics", needed_by="density_regression.metrics.accumulate", extra="metrics").Metric


class Accumulator(Metric):
    """A metric computed from float64 sums over all entries, of any shape."""

    full_state_update = False
    higher_is_better: bool | None = False
    count: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._add_sum("count")

    def _add_sum(self, name: str, *shape: int) -> None:
        """Add a state of zeros that is summed over processes."""
        self.add_state(name, torch.zeros(shape, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, y_true: Tensor, mean: Tensor, std: Tensor, mask: Tensor | None = None) -> None:
        """Add a batch.

        Parameters
        ----------
        y_true, mean, std : Tensor of any shape
            Targets, predicted means and predicted standard deviations (> 0), of one shape and in the target's units.
        mask : bool Tensor of that shape, optional
            True where an entry counts; the others may hold anything, NaN included. By default all count.
        """
        y_true, mean, std, keep = check_batch(y_true, mean, std, mask, self.device)
        self.count += keep.sum()
        self._add(y_true[keep] - mean[keep], std[keep])

    @abstractmethod
    def _add(self, residual: Tensor, std: Tensor) -> None:
        """Add the residuals and standard deviations (entries,) of the entries that count."""


def check_batch(
    y_true: Tensor, mean: Tensor, std: Tensor, mask: Tensor | None, device: torch.device
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return y_true, mean and std in float64 on `device`, and the mask, all True by default."""
    arrays = {"y_true": y_true, "mean": mean, "std": std}
    tensors = {name: torch.as_tensor(array, dtype=torch.float64, device=device) for name, array in arrays.items()}
    shape = tensors["y_true"].shape
    keep = torch.ones(shape, dtype=torch.bool, device=device) if mask is None else torch.as_tensor(mask, device=device)
    if keep.dtype != torch.bool:
        raise ValueError(f"mask must be of dtype bool, True where an entry counts, got {keep.dtype}; convert it.")
    for name, tensor in {**tensors, "mask": keep}.items():
        if tensor.shape != shape:
            raise ValueError(
                f"{name} must have the shape of y_true, got {tuple(tensor.shape)} and {tuple(shape)}; "
                "nothing is broadcast, reshape one of them."
            )
    for name, tensor in tensors.items():
        if bad := int((~tensor.isfinite() & keep).sum()):
            raise ValueError(f"{name} has {bad} NaN or infinite values out of {tensor.numel()}; mask or replace them.")
    if bad := int(((tensors["std"] <= 0) & keep).sum()):
        raise ValueError(
            f"std must be positive, got {bad} values <= 0; "
            "pass standard deviations, not log-variances, and bound them away from 0."
        )
    return tensors["y_true"], tensors["mean"], tensors["std"], keep
