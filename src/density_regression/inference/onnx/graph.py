"""A fitted regressor as one module, from rows in their own units to mean and standard deviation."""

import math
from collections.abc import Sequence
from typing import Final, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from density_regression.nn.model import DensityRegression
from density_regression.nn.network import Network, Predictor, along
from density_regression.tabular.laws import LOG_RANGE, Law, log_normal_moments
from density_regression.tabular.table import Floats, Scaling

__all__ = [
    "DTYPES",
    "INPUT",
    "LOG_MOMENTS",
    "OUTPUTS",
    "PARTS",
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
OUTPUTS: Final = ("mean", "std", "log_density", "low", "high")
"""Names in the graph; the third only for a model with a density, the last two only with a `quantile`."""

PARTS: Final = ("noise", "disagreement", "distance")
"""Standard deviations of the parts of the variance, as `DensityRegressor.decompose` has them."""

LOG_MOMENTS: Final = ("log_mean", "log_std")
"""Mean and standard deviation of the logarithm, for a log-normal law."""

VALUE_ROUNDING: Final = 1e-3
"""Largest rounding of a column's values by the type of the graph's inputs, in standard deviations of the column."""

CENTER_ROUNDING: Final = 1e-5
"""Largest rounding of a column's centre that is left uncorrected, in the same units."""


class ExportError(ValueError):
    """A model, or a part of it, cannot be written as a graph."""


class Graph(nn.Module):
    """A model fitted to scaled rows, with the scaling of inputs and targets, as one traceable module.

    Rows are scaled, and results returned, in `dtype`; the network computes in float32. `shape` is that of one row, by
    default (c,); its last axis is scaled. `x_rest` is the rounding error of `x_center` (c,), None if negligible.

    The model's Normal is that of the target or, by `law`, of its logarithm. With a `quantile` (k,) there is an
    interval, so many standard deviations of that Normal on either side of its mean. With `parts` there are further
    results: `PARTS` of a `DensityRegression`, and the `LOG_MOMENTS` of a log-normal law. Results stay within what
    `results` can hold, by default `dtype`.
    """

    x_center: Tensor
    x_rest: Tensor | None
    x_scale: Tensor
    y_center: Tensor
    y_scale: Tensor
    largest: Tensor
    quantile: Tensor | None

    def __init__(
        self,
        model: Predictor,
        x_scaling: Scaling,
        y_scaling: Scaling,
        *,
        dtype: torch.dtype,
        shape: tuple[int, ...] | None = None,
        law: Law = "identity",
        quantile: Floats | None = None,
        results: torch.dtype | None = None,
        parts: bool = False,
    ) -> None:
        super().__init__()
        self.law = law
        self.parts = parts
        self.results = results or dtype
        self.shape = shape or (len(x_scaling.center),)
        self.model = model.requires_grad_(False)
        self.dtype = dtype
        self.limit = x_scaling.limit
        self.register_buffer("largest", torch.tensor(torch.finfo(self.results).max, dtype=dtype))
        for name, scaling in (("x", x_scaling), ("y", y_scaling)):
            for part, values in zip(("center", "scale"), scaling, strict=True):
                self.register_buffer(f"{name}_{part}", _representable(values, dtype))
        rest = x_scaling.center - self.x_center.double().numpy()
        # The values of a constant column are rounded as their centre is.
        rest = np.where((np.abs(rest) > CENTER_ROUNDING * x_scaling.scale) & ~_constant(x_scaling), rest, 0.0)
        self.register_buffer("x_rest", torch.from_numpy(rest).to(dtype) if rest.any() else None)
        self.register_buffer("quantile", None if quantile is None else _representable(quantile, dtype))
        # A standard deviation is at most e^80 times the scale.
        self.may_overflow = bool(self.y_scale.max() > 1e-36 * self.largest)

    @property
    def has_density(self) -> bool:
        """Whether the log-density is among the results."""
        density = self.model.density if isinstance(self.model, DensityRegression) else None
        return density is not None and density.fitted

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the results."""
        always = (*OUTPUTS[:2], *OUTPUTS[2:3] * self.has_density, *OUTPUTS[3:] * (self.quantile is not None))
        return (*always, *PARTS * self.has_parts, *LOG_MOMENTS * self.has_log_moments)

    @property
    def has_parts(self) -> bool:
        """Whether the parts of the variance are among the results."""
        return self.parts and isinstance(self.model, DensityRegression)

    @property
    def has_log_moments(self) -> bool:
        """Whether the moments of the logarithm are among the results."""
        return self.parts and self.law == "log"

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Results for rows (n, ...): the `outputs`, each (n, k, ...) but for the log-density (n, ...)."""
        centred = x - self.x_center if self.x_rest is None else x - self.x_center - self.x_rest
        scaled = (centred / self.x_scale).clamp(-self.limit, self.limit).float()
        mean, log_std = self.model.moments(scaled)
        center, scale = self.y_center, self.y_scale
        if mean.ndim > 2:
            center, scale = along(center, mean), along(scale, mean)
        mean = mean.to(self.dtype) * scale + center
        std = log_std.to(self.dtype).exp() * scale
        if self.may_overflow:
            mean, std = mean.maximum(-self.largest).minimum(self.largest), std.minimum(self.largest)
        log_moments = (mean, std) if self.has_log_moments else ()
        mean, std, *ends = self._in_units(mean, normal_std := std)
        parts = self._parts(scaled, normal_std, std) if self.has_parts else ()
        if not self.has_density:
            return mean, std, *ends, *parts, *log_moments
        # The exporter merges the identical passes of the encoder.
        return mean, std, cast(DensityRegression, self.model).log_density(scaled), *ends, *parts, *log_moments

    def _parts(self, scaled: Tensor, normal_std: Tensor, std: Tensor) -> tuple[Tensor, ...]:
        """The parts of the standard deviation `std` (n, k) of the target: of the law's Normal it is `normal_std`."""
        parts = []
        decomposition = cast(DensityRegression, self.model).decompose(scaled)
        for part in (decomposition.aleatoric, decomposition.disagreement, decomposition.distance):
            assert part is not None
            in_units = part.to(self.dtype) * (along(self.y_scale, part) if part.ndim > 2 else self.y_scale)
            # The share first: the ratio of the two standard deviations may be more than the largest number.
            parts.append((in_units / normal_std * std if self.law == "log" else in_units).minimum(self.largest))
        return tuple(parts)

    def _in_units(self, mean: Tensor, std: Tensor) -> tuple[Tensor, ...]:
        """Moments of the target, and the ends of the interval if there is one, from those of the law's Normal."""
        width = None if self.quantile is None else self.quantile * std
        ends = [] if width is None else [mean - width, mean + width]
        if self.law == "log":
            limits = LOG_RANGE[self.results]
            ends = [end.clamp(*limits).exp() for end in ends]
            return *log_normal_moments(mean, std, limits), *ends
        return mean, std, *(end.maximum(-self.largest).minimum(self.largest) for end in ends)


def refuse_lost_digits(scaling: Scaling, dtype: torch.dtype, names: Sequence[str]) -> None:
    """Raise an `ExportError` that names the columns whose values `dtype` rounds too coarsely.

    (The rounding of the centre itself is corrected, by `Graph.x_rest`.)
    """
    size = torch.from_numpy(np.abs(scaling.center) + scaling.scale).to(dtype)
    step = torch.nextafter(size, torch.full_like(size, math.inf)) - size
    rounding = 0.5 * step.double().numpy() / scaling.scale
    # Not `>`: the step is NaN where numbers overflow.
    lost = ~(rounding <= VALUE_ROUNDING) & ~_constant(scaling)
    if lost.any():
        columns = [
            f"{name} (around {center:.6g}, standard deviation {scale:.3g})"
            for name, center, scale, too_few in zip(names, *scaling, lost, strict=True)
            if too_few
        ]
        more = f" and {len(columns) - 3} more" if len(columns) > 3 else ""
        raise ExportError(
            f"{str(dtype).removeprefix('torch.')} has too few digits for {', '.join(columns[:3])}{more}: it would "
            f"round values by more than {VALUE_ROUNDING:g} standard deviations. "
            'Export with dtype="float64", or subtract an offset before fitting.'
        )


def export_program(graph: Graph) -> ExportedProgram:
    """The graph by `torch.export`, for any number of rows; an `ExportError` if the model cannot be traced."""
    if graph.model.no_graph:
        raise ExportError(f"A {type(graph.model).__name__} cannot be written as a graph: {graph.model.no_graph}.")
    return _program(graph, graph.shape, graph.dtype)


class _Features(nn.Module):
    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.encoder(x)
        return z.float()


def export_features(graph: Graph) -> ExportedProgram:
    """The encoder of a `Network` by `torch.export`: from scaled inputs to features (n, D), unbounded."""
    return _program(_Features(cast(Network, graph.model).encoder), graph.shape, torch.float32)


def _program(module: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> ExportedProgram:
    module.eval()
    rows = torch.zeros(3, *shape, dtype=dtype)
    try:
        with torch.no_grad():
            return torch.export.export(module, (rows,), dynamic_shapes=({0: Dim("rows")},), strict=False)
    # Torch has many kinds of exceptions for what it cannot trace.
    except Exception as error:
        raise ExportError(f"This model cannot be written as a graph: {first_line(error)}") from error


def _representable(values: Floats, dtype: torch.dtype) -> Tensor:
    """Values in `dtype`; those too large or too small for it become its largest or smallest."""
    given, limits = torch.from_numpy(values), torch.finfo(dtype)
    result = given.clamp(limits.min, limits.max).to(dtype)
    return result.masked_fill((result == 0) & (given != 0), limits.tiny)


def _constant(scaling: Scaling) -> NDArray[np.bool_]:
    """Which columns (c,) are constant, and so keep their own units."""
    return np.asarray(scaling.scale == 1.0)


def first_line(error: Exception) -> str:
    """Type and first line of an exception."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
