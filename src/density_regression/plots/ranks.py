"""Critical difference diagram: methods compared over several data sets by their mean ranks."""

from __future__ import annotations

__all__ = ["critical_difference"]

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import ArrayLike

from density_regression.plots.arrays import FloatArray, finite_columns
from density_regression.plots.style import short_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BAR_SPACING: Final = 0.45
"""Distance of two bars, in rows of labels."""


def critical_difference(ax: Axes, ranks: ArrayLike, names: Sequence[str], critical: float) -> None:
    """Draw mean ranks on a line, best on the left, with bars that join methods without a significant difference.

    A bar joins methods whose mean ranks differ by at most ``critical``, unless a longer bar holds all of them. The font
    shrinks with the height of the Axes; for eleven methods, 7 by 3 inches are comfortable.

    Parameters
    ----------
    ax : matplotlib Axes
        Of its final size; its frame is hidden.
    ranks : array-like of shape (m,) or (m, 1)
        Mean rank of each method, between 1 (best) and m, m > 1.
    names : sequence of m str
        The methods.
    critical : float
        Smallest difference of mean ranks that is significant.

    References
    ----------
    Demšar, "Statistical Comparisons of Classifiers over Multiple Data Sets", JMLR 2006.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> figure, ax = plt.subplots()
    >>> critical_difference(ax, [1.2, 2.1, 2.7], ["A", "B", "C"], critical=1.0)
    """
    (mean_ranks,) = finite_columns(ranks=ranks)
    _check(mean_ranks, names, critical)
    order = np.argsort(mean_ranks, kind="stable")
    ordered = mean_ranks[order]
    labels = [f"{names[index]} ({mean_ranks[index]:.2f})" for index in order]
    bars = _assign_levels(_groups(ordered, critical), ordered)
    first_row = -1.0 - _BAR_SPACING * max((level for _, _, level in bars), default=0)
    bottom, top = first_row - ((len(ordered) + 1) // 2 - 1) - 0.6, 2.4
    fontsize = float(np.clip(0.75 * 72 * ax.bbox.height / ax.figure.dpi / (top - bottom), 5, 10))
    ax.set_axis_off()
    ax.set_ylim(bottom, top)
    for start, stop, level in bars:
        y = -0.35 - _BAR_SPACING * level
        ax.plot(ordered[[start, stop]], [y, y], color="0.1", linewidth=3.5, solid_capstyle="round", gid="group")
    _draw_methods(ax, ordered, labels, first_row, fontsize)
    _draw_scale(ax, len(ordered), critical, fontsize)


def _check(ranks: FloatArray, names: Sequence[str], critical: float) -> None:
    if len(ranks) < 2:
        raise ValueError("ranks must hold at least two methods, got 1; there is nothing to compare.")
    if len(names) != len(ranks):
        raise ValueError(f"names must hold one name a rank, got {len(names)} names and {len(ranks)} ranks.")
    if ranks.min() < 1 or ranks.max() > len(ranks):
        raise ValueError(
            f"ranks must lie between 1 and the number of methods, {len(ranks)}, "
            f"got {ranks.min():g} to {ranks.max():g}; pass mean ranks, not scores."
        )
    if not (np.isfinite(critical) and critical > 0):
        raise ValueError(f"critical, a difference of mean ranks, must be > 0, got {critical!r}.")


def _groups(ordered: FloatArray, critical: float) -> list[tuple[int, int]]:
    """First and last index of each maximal run of two or more methods whose ranks differ by at most ``critical``."""
    # The tolerance is for rounding errors of mean ranks.
    last = np.searchsorted(ordered, ordered + critical * (1 + 1e-12), side="right") - 1
    runs = [(start, int(stop)) for start, stop in enumerate(last) if stop > start]
    return [run for place, run in enumerate(runs) if place == 0 or run[1] > runs[place - 1][1]]


def _assign_levels(groups: list[tuple[int, int]], ordered: FloatArray) -> list[tuple[int, int, int]]:
    """Each group with the uppermost level at which its bar overlaps no other."""
    ends: list[float] = []
    placed = []
    gap = 0.02 * len(ordered)
    for start, stop in groups:
        level = next((index for index, end in enumerate(ends) if end + gap < ordered[start]), len(ends))
        ends[level : level + 1] = [float(ordered[stop])]
        placed.append((start, stop, level))
    return placed


def _draw_scale(ax: Axes, methods: int, critical: float, fontsize: float) -> None:
    ax.plot([1, methods], [0, 0], color="0.1", linewidth=1.2, gid="scale")
    first, last = ax.get_xlim()
    pixels_per_point = ax.figure.dpi / 72
    crowded = ax.bbox.width / (last - first) < 1.8 * fontsize * pixels_per_point
    for rank in range(1, methods + 1):
        ax.plot([rank, rank], [0, 0.2], color="0.1", linewidth=1.2)
        if rank % 2 or not crowded:
            ax.text(rank, 0.3, f"{rank}", ha="center", va="bottom", fontsize=fontsize)
    text = f"mean rank (1 is best), critical difference {short_number(critical)}"
    ax.text(1, 1.85, text, ha="left", va="bottom", fontsize=fontsize)
    # A difference longer than the scale would leave the figure.
    if critical <= methods - 1:
        ax.plot([1, 1 + critical], [1.6, 1.6], color="0.1", linewidth=1.2, marker="|", gid="critical")


def _draw_methods(ax: Axes, ordered: FloatArray, labels: list[str], first_row: float, fontsize: float) -> None:
    methods = len(ordered)
    left = (methods + 1) // 2
    # Outside the scale, so that the line of a rank at its end is visible.
    start, stop = 0.8, methods + 0.2
    texts = []
    for index, (rank, label) in enumerate(zip(ordered.tolist(), labels, strict=True)):
        # The outermost method of each side is uppermost, so that lines do not cross.
        on_left = index < left
        row = first_row - (index if on_left else methods - 1 - index)
        edge, side = (start, "right") if on_left else (stop, "left")
        ax.plot([rank, rank, edge], [0, row, row], color="0.45", linewidth=0.9, gid="method")
        texts.append(ax.text(edge, row, f" {label} ", ha=side, va="center", fontsize=fontsize))
    # The scale takes the width that the labels leave.
    before, after = (max(text.get_window_extent().width for text in part) for part in (texts[:left], texts[left:]))
    scale = (stop - start) / max(0.3 * ax.bbox.width, ax.bbox.width - before - after)
    ax.set_xlim(start - before * scale, stop + after * scale)
