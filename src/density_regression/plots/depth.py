"""Depth maps beside their image: truth, prediction, error and uncertainty."""

from __future__ import annotations

__all__ = ["DepthRow", "depth_panels", "plot_depth_panel"]

import os
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from density_regression.io.files import write_whole
from density_regression.plots.arrays import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure, FigureBase

Limits = tuple[float, float]
_Row = dict[str, NDArray[Any]]


class DepthRow(NamedTuple):
    """Image (h, w, 3), and depth in metres: truth (h, w), 0 or NaN where missing, or None; mean and std (h, w).

    Examples
    --------
    >>> import numpy as np
    >>> depth = np.full((4, 6), 2.0)
    >>> row = DepthRow(np.zeros((4, 6, 3)), truth=None, mean=depth, std=0.1 * depth, label="a room")
    >>> row.mean.shape
    (4, 6)
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

    Truth and prediction share one colour scale. Scales reach from the 0.5 % to the 99.5 % quantile; pointed ends of the
    colour bar mark values beyond.

    Parameters
    ----------
    axes : matplotlib Figure or sequence of five Axes
        A figure without Axes gets five in a row.
    image : array-like of shape (H, W, 3)
        Integers from 0 to 255, or floats from 0 to 1. Its height and width may differ from the maps'.
    truth, prediction, uncertainty : array-like of shape (h, w)
        Depths and a predicted standard deviation, all in one unit. Where ``truth`` is 0 or NaN it is missing, and truth
        and error are left blank.
    names : sequence of five str
        Titles of the panels.
    unit : str, default=""
        The unit of depth, for the colour bars.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import numpy as np
    >>> truth = np.full((4, 6), 2.0)
    >>> figure = plt.figure()
    >>> depth_panels(figure, np.zeros((4, 6, 3)), truth, 1.1 * truth, 0.2 * truth, unit="m")
    """
    from matplotlib.figure import FigureBase

    panels = np.ravel(np.asarray(axes.subplots(1, 5) if isinstance(axes, FigureBase) else axes, dtype=object))
    if len(panels) != 5:
        raise ValueError(f"axes must be a Figure or five Axes, got {len(panels)}; make them by figure.subplots(1, 5).")
    if len(names) != 5:
        raise ValueError(f"names must hold five titles, got {len(names)}: {list(names)!r}.")
    true, predicted, std = _check_maps(truth=truth, prediction=prediction, uncertainty=uncertainty)
    true = np.where(true == 0, np.nan, true)
    error = np.abs(true - predicted)
    depth_limits = _limits(true, predicted)
    panels[0].imshow(_check_image(image))
    _draw_map(panels[1], true, depth_limits, "viridis", unit)
    _draw_map(panels[2], predicted, depth_limits, "viridis", unit)
    _draw_map(panels[3], error, (0.0, _limits(error)[1]), "plasma", unit)
    _draw_map(panels[4], std, _limits(std), "plasma", unit)
    for ax, name in zip(panels, names, strict=True):
        ax.set(xticks=[], yticks=[])
        ax.set_title(name, fontsize="medium")


def plot_depth_panel(rows: Sequence[DepthRow], target: Figure | str | os.PathLike[str]) -> None:
    """Draw rows of image, truth, prediction, absolute error and uncertainty (standard deviation), to be compared.

    All truths and predictions share one colour scale, all errors and uncertainties another, as in `depth_panels`; it is
    logarithmic where rows differ widely (rooms and streets). Pixels without a truth are grey. If no row has a truth,
    truth and error are left out.

    Parameters
    ----------
    rows : sequence of DepthRow
        From top to bottom.
    target : matplotlib Figure or path
        A figure without Axes, or the PNG to write, atomically.

    Examples
    --------
    >>> import numpy as np
    >>> depth = np.full((4, 6), 2.0)
    >>> row = DepthRow(np.zeros((4, 6, 3)), depth, 1.1 * depth, 0.2 * depth, label="a room")
    >>> plot_depth_panel([row], "rooms.png")
    """
    if len(rows) == 0:
        raise ValueError("rows is empty: give at least one DepthRow.")
    maps, labels = [_row_maps(row) for row in rows], [row.label for row in rows]
    if not isinstance(target, str | os.PathLike):
        _draw_rows(target, maps, labels)
        return
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # In inches: panels 2.3 wide, with margins beside them for labels and below them for colour bars.
    width, height = 2.3 * max(map(len, maps)) + 0.4, 2.3 * sum(map(_aspect, maps)) + 0.9
    figure = Figure(figsize=(width, height), dpi=110)
    FigureCanvasAgg(figure)
    _draw_rows(figure, maps, labels)
    content = BytesIO()
    figure.savefig(content, format="png", bbox_inches="tight", pad_inches=0.08)
    write_whole(Path(target), content.getvalue())


def _row_maps(row: DepthRow) -> _Row:
    """Image and maps of a row, by column title."""
    image = _check_image(row.image)
    if row.truth is None:
        mean, std = _check_maps(mean=row.mean, std=row.std)
        return {"image": image, "prediction": mean, "uncertainty": std}
    truth, mean, std = _check_maps(truth=row.truth, mean=row.mean, std=row.std)
    truth = np.where(truth == 0, np.nan, truth)
    error = np.abs(truth - mean)
    return {"image": image, "truth": truth, "prediction": mean, "absolute error": error, "uncertainty": std}


def _aspect(maps: _Row) -> float:
    height, width = maps["prediction"].shape
    return float(height / width)


def _draw_rows(figure: Figure, rows: Sequence[_Row], labels: list[str]) -> None:
    columns = max((list(row) for row in rows), key=len)
    figure.set_layout_engine("compressed")
    panels = figure.subplots(len(rows), len(columns), squeeze=False, height_ratios=[_aspect(row) for row in rows])
    for ax in panels.flat:
        ax.set(xticks=[], yticks=[])
    for ax, row, label in zip(panels[:, 0], rows, labels, strict=True):
        ax.imshow(row["image"])
        ax.set_ylabel(label)
    holes = any("truth" not in row or np.isnan(row["truth"]).any() for row in rows)
    for ax, name in zip(panels[0], columns, strict=True):
        ax.set_title("truth (grey: unknown)" if name == "truth" and holes else name, fontsize="medium")
    for shown, cmap in ((("truth", "prediction"), "viridis"), (("absolute error", "uncertainty"), "magma")):
        _draw_columns(panels, rows, columns, [name for name in shown if name in columns], cmap)


def _draw_columns(
    panels: NDArray[np.object_], rows: Sequence[_Row], columns: list[str], shown: list[str], cmap: str
) -> None:
    """Draw the maps of the columns ``shown``, on one scale with a colour bar below them."""
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import LogLocator

    values = [np.concatenate([row[name].ravel() for name in shown if name in row]) for row in rows]
    norm = _color_scale(values, from_zero="uncertainty" in shown)
    limits = (float(norm.vmin or 0.0), float(norm.vmax or 1.0))
    logarithmic = isinstance(norm, LogNorm)
    places = [columns.index(name) for name in shown]
    for i, row in enumerate(rows):
        for ax, name in zip(panels[i, places], shown, strict=True):
            ax.set_facecolor("0.8")
            if name not in row:
                ax.set_box_aspect(_aspect(row))
                continue
            # A logarithmic scale would leave zero blank.
            kept = np.maximum(row[name], limits[0]) if logarithmic else row[name]
            drawn = ax.imshow(np.ma.masked_invalid(kept), cmap=cmap, norm=norm, interpolation="nearest")
    bar = panels[0, 0].figure.colorbar(
        drawn,
        ax=list(panels[:, places].flat),
        location="bottom",
        extend=_extend(np.concatenate(values), limits),
        aspect=20 * len(places),
        fraction=0.06,
        pad=0.03,
    )
    if logarithmic:
        bar.set_ticks(LogLocator(subs=(1, 2, 5)), minor=False)
        bar.set_ticks([], minor=True)
        bar.ax.xaxis.set_major_formatter("{x:g}")
    bar.set_label(f"{' and '.join(shown)} (m)")


def _color_scale(rows: list[FloatArray], *, from_zero: bool) -> Normalize:
    """One scale for all rows: logarithmic if their upper limits differ by more than a factor of 3."""
    from matplotlib.colors import LogNorm, Normalize

    tops = [_limits(row)[1] for row in rows]
    low, high = _limits(*rows)
    if min(tops) > 0 and max(tops) > 3 * min(tops):
        return LogNorm(max(low, min(tops) / 20), high)
    return Normalize(0.0 if from_zero else low, high)


def _draw_map(ax: Axes, values: FloatArray, limits: Limits, cmap: str, unit: str) -> None:
    from matplotlib.ticker import MaxNLocator

    low, high = limits
    # Not interpolated, which would enlarge the holes of a sparse truth.
    drawn = ax.imshow(np.ma.masked_invalid(values), cmap=cmap, vmin=low, vmax=high, interpolation="nearest")
    # Inset, so that panels with and without a bar have one size.
    place, extend = ax.inset_axes((0.05, -0.12, 0.9, 0.05)), _extend(values, limits)
    bar = ax.figure.colorbar(drawn, cax=place, orientation="horizontal", extend=extend, ticks=MaxNLocator(4))
    bar.ax.tick_params(labelsize="x-small", length=2, pad=1.5)
    bar.set_label(unit, fontsize="x-small", labelpad=1)


def _limits(*maps: FloatArray) -> Limits:
    values = np.concatenate([each[np.isfinite(each)] for each in maps])
    if values.size == 0:
        return 0.0, 1.0
    low, high = (float(limit) for limit in np.quantile(values, (0.005, 0.995)))
    return (low, high) if high > low else (low, low + (abs(low) or 1.0))


def _extend(values: FloatArray, limits: Limits) -> Literal["neither", "min", "max", "both"]:
    below, above = bool(np.any(values < limits[0])), bool(np.any(values > limits[1]))
    if below and above:
        return "both"
    return "min" if below else "max" if above else "neither"


def _check_maps(**named: ArrayLike) -> list[FloatArray]:
    maps = [np.asarray(values, dtype=np.float64) for values in named.values()]
    if maps[0].ndim != 2 or maps[0].size == 0 or len({each.shape for each in maps}) > 1:
        shapes = ", ".join(f"{name} {each.shape}" for name, each in zip(named, maps, strict=True))
        raise ValueError(f"these must have one shape (h, w), got {shapes}; drop batch and channel axes first.")
    return maps


def _check_image(image: ArrayLike) -> NDArray[np.uint8] | FloatArray:
    array = np.asarray(image)
    if array.ndim != 3 or array.shape[2] != 3 or array.size == 0:
        raise ValueError(f"image must have shape (H, W, 3), got {array.shape}; move the channels to the end.")
    whole = np.issubdtype(array.dtype, np.integer)
    if not (array.min() >= 0 and array.max() <= (255 if whole else 1)):
        raise ValueError(
            f"image must hold integers from 0 to 255 or floats from 0 to 1, got {array.dtype} from "
            f"{array.min():g} to {array.max():g}; undo its normalisation first."
        )
    return array.astype(np.uint8) if whole else array.astype(np.float64)
