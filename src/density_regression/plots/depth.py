"""A depth map beside its image: truth, prediction, error and uncertainty."""

from __future__ import annotations

__all__ = ["depth_panels"]

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from density_regression.plots.arrays import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

# Both grow lighter throughout, and neither ends so light that it looks like the white of a missing value.
_DEPTH = "viridis"
_ERROR = "plasma"

Limits = tuple[float, float]


def depth_panels(
    axes: FigureBase | Sequence[Axes] | NDArray[np.object_],
    image: ArrayLike,
    truth: ArrayLike,
    prediction: ArrayLike,
    uncertainty: ArrayLike,
    names: Sequence[str] = ("image", "truth", "prediction", "absolute error", "uncertainty"),
    unit: str = "",
) -> None:
    """Draw an image, its true and predicted depth, the absolute error and the uncertainty, side by side.

    Truth and prediction share one colour scale. Every scale leaves out the outermost half per cent of
    values at either end; the colour bar is then pointed there.

    Parameters
    ----------
    axes : matplotlib Figure or sequence of five Axes
        A figure without Axes gets five in a row.
    image : array-like of shape (H, W, 3)
        Integers from 0 to 255, or floats from 0 to 1. Its height and width may differ from the maps'.
    truth, prediction, uncertainty : array-like of shape (h, w)
        Depths and a predicted standard deviation, all in one unit. Where ``truth`` is 0 or NaN it is
        missing; there, truth and error are left blank.
    names : sequence of five str
        Titles of the panels.
    unit : str, default=""
        The unit of depth, for the colour bars.
    """
    panels = _five_axes(axes)
    if len(names) != 5:
        raise ValueError(f"names must hold five titles, got {len(names)}: {list(names)!r}.")
    true, predicted, doubt = _maps(truth=truth, prediction=prediction, uncertainty=uncertainty)
    picture = _picture(image)
    true = np.where(true == 0, np.nan, true)
    error = np.abs(true - predicted)
    depth = _limits(true, predicted)
    panels[0].imshow(picture)
    _draw_map(panels[1], true, depth, _DEPTH, unit)
    _draw_map(panels[2], predicted, depth, _DEPTH, unit)
    _draw_map(panels[3], error, (0.0, _limits(error)[1]), _ERROR, unit)
    _draw_map(panels[4], doubt, _limits(doubt), _ERROR, unit)
    for ax, name in zip(panels, names, strict=True):
        ax.set(xticks=[], yticks=[])
        ax.set_title(name, fontsize="medium")


def _draw_map(ax: Axes, values: FloatArray, limits: Limits, cmap: str, unit: str) -> None:
    from matplotlib.ticker import MaxNLocator

    low, high = limits
    # Not smoothed: smoothing would spread the holes of a sparse truth.
    drawn = ax.imshow(np.ma.masked_invalid(values), cmap=cmap, vmin=low, vmax=high, interpolation="nearest")
    # Inset, so that the five panels keep one size, though the first has no bar.
    place = ax.inset_axes((0.05, -0.12, 0.9, 0.05))
    bar = ax.figure.colorbar(
        drawn, cax=place, orientation="horizontal", extend=_ends(values, limits), ticks=MaxNLocator(4)
    )
    bar.ax.tick_params(labelsize="x-small", length=2, pad=1.5)
    bar.set_label(unit, fontsize="x-small", labelpad=1)


def _limits(*maps: FloatArray) -> Limits:
    values = np.concatenate([each[np.isfinite(each)] for each in maps])
    if values.size == 0:
        return 0.0, 1.0
    low, high = (float(limit) for limit in np.quantile(values, (0.005, 0.995)))
    # Equal limits, as of a constant map, make no scale.
    return (low, high) if high > low else (low, low + (abs(low) or 1.0))


def _ends(values: FloatArray, limits: Limits) -> Literal["neither", "min", "max", "both"]:
    below, above = bool(np.any(values < limits[0])), bool(np.any(values > limits[1]))
    if below and above:
        return "both"
    return "min" if below else "max" if above else "neither"


def _five_axes(axes: FigureBase | Sequence[Axes] | NDArray[np.object_]) -> list[Axes]:
    from matplotlib.figure import FigureBase

    found = np.ravel(np.asarray(axes.subplots(1, 5) if isinstance(axes, FigureBase) else axes, dtype=object))
    if len(found) != 5:
        raise ValueError(f"axes must be a Figure or five Axes, got {len(found)}; make them with figure.subplots(1, 5).")
    return list(found)


def _maps(**named: ArrayLike) -> list[FloatArray]:
    maps = [np.asarray(values, dtype=np.float64) for values in named.values()]
    if maps[0].ndim != 2 or maps[0].size == 0 or len({each.shape for each in maps}) > 1:
        shapes = ", ".join(f"{name} {each.shape}" for name, each in zip(named, maps, strict=True))
        raise ValueError(f"these must have one shape (h, w), got {shapes}; drop batch and channel axes first.")
    return maps


def _picture(image: ArrayLike) -> NDArray[np.uint8] | FloatArray:
    array = np.asarray(image)
    if array.ndim != 3 or array.shape[2] != 3 or array.size == 0:
        raise ValueError(f"image must have shape (H, W, 3), got {array.shape}; move the channels to the end.")
    whole = np.issubdtype(array.dtype, np.integer)
    top = 255 if whole else 1
    if not (array.min() >= 0 and array.max() <= top):
        raise ValueError(
            f"image must hold integers from 0 to 255 or floats from 0 to 1, got {array.dtype} from "
            f"{array.min():g} to {array.max():g}; undo its normalisation first."
        )
    return array.astype(np.uint8) if whole else array.astype(np.float64)
