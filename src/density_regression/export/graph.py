"""A fitted regressor as one module, from rows in their own units to mean and standard deviation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from density_regression.model import DensityRegression
from density_regression.network import Network, Predictor, along
from density_regression.tables import Scaling

__all__ = [
    "DTYPES",
    "INPUT",
    "OUTPUTS",
    "Dtype",
    "ExportError",
    "Graph",
    "export_features",
    "export_program",
    "first_line",
    "refuse_lost_digits",
]

Dtype = Literal["float64", "float32"]
DTYPES: Final[dict[str, torch.dtype]] = {"float64": torch.float64, "float32": torch.float32}

INPUT: Final = "X"
OUTPUTS: Final = ("mean", "std", "log_density")
"""Names in the graph; the last only of a model with a density."""


ROUNDING: Final = 1e-3
"""Largest rounding of a column by the type of inputs and results, in the column's standard deviations."""

SHIFT: Final = 1e-5
"""Likewise the largest rounding of its centre; beyond, what is left of the centre is subtracted too."""


class ExportError(ValueError):
    """A model, or a part of it, cannot be written as a graph."""


class Graph(nn.Module):
    """Scaling, encoder, density, head and the target's units in one module without any choice left to make.

    Parameters
    ----------
    model : Predictor
        Fitted to scaled rows.
    x_scaling, y_scaling : Scaling
        Of inputs and targets.
    dtype : torch.dtype
        Of inputs and results: rows are scaled in it, and the network computes in float32.
    shape : tuple of int, optional
        Shape of one row; by default it has as many columns as `x_scaling`, which is of the last axis otherwise.

    Attributes
    ----------
    x_rest : Tensor or None
        What `dtype` leaves of the centres (c,), to be subtracted after them; None if that is nothing that matters.
    """

    x_center: Tensor
    x_rest: Tensor | None
    x_scale: Tensor
    y_center: Tensor
    y_scale: Tensor
    largest: Tensor

    def __init__(
        self,
        model: Predictor,
        x_scaling: Scaling,
        y_scaling: Scaling,
        *,
        dtype: torch.dtype,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__()
        self.shape = shape or (len(x_scaling.center),)
        self.model = model.requires_grad_(False)
        self.dtype = dtype
        self.farthest = x_scaling.farthest
        self.register_buffer("largest", torch.tensor(torch.finfo(dtype).max, dtype=dtype))
        for name, scaling in (("x", x_scaling), ("y", y_scaling)):
            for part, values in zip(("center", "scale"), scaling, strict=True):
                self.register_buffer(f"{name}_{part}", _representable(values, dtype))
        self.register_buffer("x_rest", _rest(x_scaling, self.x_center))
        # A standard deviation is e^80 at most, times the scale.
        self.may_overflow = bool(self.y_scale.max() > 1e-36 * self.largest)

    @property
    def has_density(self) -> bool:
        """Whether the log-density is among the results."""
        return (
            isinstance(self.model, DensityRegression) and self.model.density is not None and self.model.density.fitted
        )

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Mean and standard deviation (n, k, ...) of rows (n, ...), and their log-density (n, ...) if there is one."""
        centred = x - self.x_center if self.x_rest is None else x - self.x_center - self.x_rest
        scaled = (centred / self.x_scale).clamp(-self.farthest, self.farthest).float()
        mean, log_std = self.model.moments(scaled)
        center, scale = self.y_center, self.y_scale
        if mean.ndim > 2:
            center, scale = along(center, mean), along(scale, mean)
        mean = mean.to(self.dtype) * scale + center
        std = log_std.to(self.dtype).exp() * scale
        if self.may_overflow:
            mean, std = mean.maximum(-self.largest).minimum(self.largest), std.minimum(self.largest)
        if not self.has_density:
            return mean, std
        # One pass of the encoder serves both: the exporter sees that they are the same.
        return mean, std, cast(DensityRegression, self.model).log_density(scaled)


class _Features(nn.Module):
    """What an encoder makes of scaled inputs."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.encoder(x)
        return z.float()


def refuse_lost_digits(scaling: Scaling, dtype: torch.dtype, names: Sequence[str]) -> None:
    """Raise an `ExportError` that names the columns which `dtype` cannot tell values of apart.

    Judged by how it rounds values around the centre. (The rounding of the centre itself is mended, by `Graph.x_rest`.)
    """
    size = torch.from_numpy(np.abs(scaling.center) + scaling.scale).to(dtype)
    step = torch.nextafter(size, torch.full_like(size, math.inf)) - size
    rounding = 0.5 * step.double().numpy() / scaling.scale
    # Where numbers overflow, the step is infinity less infinity.
    lost = ~(rounding <= ROUNDING) & ~_constant(scaling)
    if lost.any():
        kind = str(dtype).removeprefix("torch.")
        columns = [
            f"{name} (around {center:.6g}, standard deviation {scale:.3g})"
            for name, center, scale, too_few in zip(names, *scaling, lost, strict=True)
            if too_few
        ]
        more = f" and {len(columns) - 3} more" if len(columns) > 3 else ""
        raise ExportError(
            f"{kind} has too few digits for {', '.join(columns[:3])}{more}: it would round values by more than "
            f'{ROUNDING:g} standard deviations. Export with dtype="float64", or subtract an offset before fitting.'
        )


def export_program(graph: Graph) -> ExportedProgram:
    """The graph by `torch.export`, for any number of rows.

    Raises
    ------
    ExportError
        If some part of the model depends on more than the rows.
    """
    if graph.model.no_graph:
        raise ExportError(f"A {type(graph.model).__name__} cannot be written as a graph: {graph.model.no_graph}.")
    return _program(graph, graph.shape, graph.dtype)


def export_features(graph: Graph) -> ExportedProgram:
    """Likewise the features (n, D) of scaled inputs, of a model that has an encoder; of any size, or NaN."""
    return _program(_Features(cast(Network, graph.model).encoder), graph.shape, torch.float32)


def _program(module: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> ExportedProgram:
    module.eval()
    rows = torch.zeros(3, *shape, dtype=dtype)
    try:
        with torch.no_grad():
            return torch.export.export(module, (rows,), dynamic_shapes=({0: Dim("rows")},), strict=False)
    # Whatever an encoder does that a graph cannot hold, torch has an exception of its own for it.
    except Exception as error:
        raise ExportError(f"This model cannot be written as a graph: {first_line(error)}") from error


def _representable(values: Any, dtype: torch.dtype) -> Tensor:
    """Numbers in `dtype`; those too large or too small for it are its largest or smallest."""
    limits = torch.finfo(dtype)
    result = torch.from_numpy(np.asarray(values)).clamp(limits.min, limits.max).to(dtype)
    return torch.where(result == 0, torch.where(torch.from_numpy(np.asarray(values)) == 0, 0.0, limits.tiny), result)


def _rest(scaling: Scaling, center: Tensor) -> Tensor | None:
    """What is left of the centres (c,) beyond those that a graph subtracts; None if that is nothing that matters."""
    rest = scaling.center - center.double().numpy()
    # Of a constant column every value is rounded as its centre is, which leaves nothing.
    rest = np.where((np.abs(rest) > SHIFT * scaling.scale) & ~_constant(scaling), rest, 0.0)
    return torch.from_numpy(rest).to(center.dtype) if rest.any() else None


def _constant(scaling: Scaling) -> NDArray[np.bool_]:
    """Which columns (c,) keep their own units, as constant ones do."""
    return np.asarray(scaling.scale == 1.0)


def first_line(error: Exception | None) -> str:
    """What an exception says, in a line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
