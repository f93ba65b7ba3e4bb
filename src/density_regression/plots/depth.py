"""A depth map beside its image: truth, prediction, error and uncertainty."""

from __future__ import annotations

__all__ = ["DepthRow", "depth_panels", "plot_depth_panel"]

import os
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from density_regression._files import write_whole
from density_regression.plots.arrays import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure, FigureBase

# Both grow lighter throughout, and neither ends so light that it looks like the white of a missing value.
_DEPTH = "viridis"
_ERROR = "plasma"

_MISSING = "0.8"

_PANEL: Final = 2.3
_EDGES: Final = (0.4, 0.9)
"""Inches: width of a panel, and what lies beside and below all of them."""

_APART: Final = 3.0
_DEEP: Final = 20.0
"""How many times another row's values a row may have on a linear scale, and how far a log one reaches below a row."""

Limits = tuple[float, float]
_Row = dict[str, NDArray[Any]]


class DepthRow(NamedTuple):
    """An image (h, w, 3), and its depth in metres: truth (h, w) or None, mean and standard deviation (h, w).

    Where the truth is 0 or NaN it is missing.
    """

    image: ArrayLike
    truth: ArrayLike | None
    mean: ArrayLike
    std: ArrayLike
    label: str = ""


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


def plot_depth_panel(rows: Sequence[DepthRow], target: Figure | str | os.PathLike[str]) -> None:
    """Draw rows of image, truth, prediction, absolute error and uncertainty (standard deviation), to be compared.

    All truths and predictions share one colour scale, all errors and uncertainties another; it is a logarithm where
    rows are too far apart for one scale (rooms and streets). Both leave out the outermost half per cent of values;
    their colour bars are then pointed there. Pixels without a truth are grey. If no row has a truth, truth and error
    are left out.

    Parameters
    ----------
    rows : sequence of DepthRow
        From top to bottom.
    target : matplotlib Figure or path
        A figure without Axes, or the PNG to write, whole or not at all.
    """
    if len(rows) == 0:
        raise ValueError("rows is empty: give at least one DepthRow.")
    maps = [_row_maps(row) for row in rows]
    if not isinstance(target, str | os.PathLike):
        _draw_rows(target, maps, [row.label for row in rows])
        return
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = 5 if any("truth" in own for own in maps) else 3
    width = _PANEL * columns + _EDGES[0]
    figure = Figure(figsize=(width, _PANEL * sum(map(_shape, maps)) + _EDGES[1]), dpi=110)
    FigureCanvasAgg(figure)
    _draw_rows(figure, maps, [row.label for row in rows])
    content = BytesIO()
    figure.savefig(content, format="png", bbox_inches="tight", pad_inches=0.08)
    write_whole(Path(target), content.getvalue())


def _row_maps(row: DepthRow) -> _Row:
    """What a row shows, by column."""
    if row.truth is None:
        mean, std = _maps(mean=row.mean, std=row.std)
        return {"image": _picture(row.image), "prediction": mean, "uncertainty": std}
    truth, mean, std = _maps(truth=row.truth, mean=row.mean, std=row.std)
    truth = np.where(truth == 0, np.nan, truth)
    error = np.abs(truth - mean)
    picture = _picture(row.image)
    return {"image": picture, "truth": truth, "prediction": mean, "absolute error": error, "uncertainty": std}


def _shape(maps: _Row) -> float:
    height, width = maps["prediction"].shape
    return float(height / width)


def _draw_rows(figure: Figure, rows: Sequence[_Row], labels: list[str]) -> None:
    columns = max((list(row) for row in rows), key=len)
    figure.set_layout_engine("compressed")
    panels = figure.subplots(len(rows), len(columns), squeeze=False, height_ratios=[_shape(row) for row in rows])
    for ax in panels.flat:
        ax.set(xticks=[], yticks=[])
    for ax, row, label in zip(panels[:, 0], rows, labels, strict=True):
        ax.imshow(row["image"])
        ax.set_ylabel(label)
    holes = any("truth" not in row or np.isnan(row["truth"]).any() for row in rows)
    for ax, name in zip(panels[0], columns, strict=True):
        ax.set_title("truth (grey: unknown)" if name == "truth" and holes else name, fontsize="medium")
    for shown, cmap in ((("truth", "prediction"), _DEPTH), (("absolute error", "uncertainty"), "magma")):
        _draw_columns(panels, rows, columns, [name for name in shown if name in columns], cmap)


def _draw_columns(
    panels: NDArray[np.object_], rows: Sequence[_Row], columns: list[str], shown: list[str], cmap: str
) -> None:
    """Draw the maps of some columns, on one scale with a bar below them."""
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import LogLocator

    values = [np.concatenate([row[name].ravel() for name in shown if name in row]) for row in rows]
    norm = _norm(values, from_zero="uncertainty" in shown)
    scale = (float(norm.vmin or 0.0), float(norm.vmax or 1.0))
    logs = isinstance(norm, LogNorm)
    places = [columns.index(name) for name in shown]
    for i, row in enumerate(rows):
        for ax, name in zip(panels[i, places], shown, strict=True):
            ax.set_facecolor(_MISSING)
            if name not in row:
                ax.set_box_aspect(_shape(row))
                continue
            # A logarithm has no place for what is below its scale, zero above all.
            kept = np.maximum(row[name], scale[0]) if logs else row[name]
            drawn = ax.imshow(np.ma.masked_invalid(kept), cmap=colormaps[cmap], norm=norm, interpolation="nearest")
    bar = panels[0, 0].figure.colorbar(
        drawn,
        ax=list(panels[:, places].flat),
        location="bottom",
        extend=_ends(np.concatenate(values), scale),
        aspect=20 * len(places),
        fraction=0.06,
        pad=0.03,
    )
    if logs:
        bar.set_ticks(LogLocator(subs=(1, 2, 5)), minor=False)
        bar.set_ticks([], minor=True)
        bar.ax.xaxis.set_major_formatter("{x:g}")
    bar.set_label(f"{' and '.join(shown)} (m)")


def _norm(rows: list[FloatArray], *, from_zero: bool) -> Normalize:
    """One colour scale for all rows: a logarithm where one of them would vanish beside another."""
    from matplotlib.colors import LogNorm, Normalize

    tops = [_limits(row)[1] for row in rows]
    low, high = _limits(*rows)
    if min(tops) > 0 and max(tops) > _APART * min(tops):
        return LogNorm(max(low, min(tops) / _DEEP), high)
    return Normalize(0.0 if from_zero else low, high)


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
