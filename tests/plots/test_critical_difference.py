"""The diagram of mean ranks: stems, labels that do not meet, and bars over methods that do not differ."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from density_regression import plots

NAMES = [
    "Density-Regression",
    "Deterministic",
    "Gaussian",
    "Quantile",
    "MC dropout",
    "Bayesian network",
    "Evidential",
    "Natural Posterior Network",
    "SNGP",
    "DUE",
    "Deep ensemble",
]
RANKS = np.array([1.6, 10.2, 6.3, 6.9, 5.0, 7.7, 8.1, 5.4, 4.4, 6.0, 4.4])


def lines(ax: Axes, kind: str) -> list[np.ndarray]:
    return [np.asarray(line.get_xydata()) for line in ax.get_lines() if line.get_gid() == kind]


def groups(ax: Axes) -> list[tuple[float, float]]:
    return [(float(bar[0, 0]), float(bar[1, 0])) for bar in lines(ax, "group")]


def slow_groups(ranks: np.ndarray, critical: float) -> set[tuple[float, float]]:
    runs = set()
    for first, last in combinations(range(len(ranks)), 2):
        low, high = sorted((ranks[first], ranks[last]))
        if high - low <= critical:
            runs.add((low, high))
    return {
        run for run in runs if not any(run != other and other[0] <= run[0] and run[1] <= other[1] for other in runs)
    }


@pytest.mark.parametrize("critical", [0.35, 1.0, 2.1, 5.7, 20.0])
def test_bars_join_what_does_not_differ(ax: Axes, critical: float) -> None:
    plots.critical_difference(ax, RANKS, NAMES, critical)
    assert len(groups(ax)) == len(set(groups(ax)))
    assert set(groups(ax)) == slow_groups(RANKS, critical)


def test_bars_of_random_ranks(ax: Axes) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        ranks = rng.uniform(1, 8, size=8)
        ax.clear()
        plots.critical_difference(ax, ranks, list("abcdefgh"), 1.5)
        assert set(groups(ax)) == slow_groups(ranks, 1.5)


def test_a_difference_of_exactly_critical_is_joined(ax: Axes) -> None:
    assert 1.2 + 0.6 < 1.8
    plots.critical_difference(ax, [1.2, 1.8, 3.0], ["a", "b", "c"], 0.6)
    assert groups(ax) == [(1.2, 1.8)]


def test_bars_on_one_level_do_not_meet(ax: Axes) -> None:
    plots.critical_difference(ax, np.arange(1.0, 12.0), NAMES, 2.0)
    bars = lines(ax, "group")
    assert len(bars) == 9
    for one, other in combinations(bars, 2):
        if one[0, 1] == other[0, 1]:
            assert one[1, 0] < other[0, 0] or other[1, 0] < one[0, 0]
    lowest_bar = min(bar[0, 1] for bar in bars)
    assert lowest_bar > max(stem[1, 1] for stem in lines(ax, "method"))
    assert max(bar[0, 1] for bar in bars) < 0


def test_each_stem_leads_from_the_rank_to_its_label(ax: Axes) -> None:
    plots.critical_difference(ax, RANKS, NAMES, 2.1)
    labels = {text.get_text().strip(): text.get_position() for text in ax.texts}
    stems = {tuple(stem[2]): stem for stem in lines(ax, "method")}
    assert len(stems) == 11
    for name, rank in zip(NAMES, RANKS, strict=True):
        stem = stems[labels[f"{name} ({rank:.2f})"]]
        np.testing.assert_allclose(stem[:2, 0], rank)
        assert stem[0, 1] == 0
        assert stem[1, 1] == stem[2, 1]


def test_stems_do_not_cross(ax: Axes) -> None:
    plots.critical_difference(ax, RANKS, NAMES, 2.1)
    for (rank, row, edge), (other, end) in (
        ((one[0, 0], one[1, 1], one[2, 0]), (two[0, 0], two[1, 1]))
        for one in lines(ax, "method")
        for two in lines(ax, "method")
    ):
        passes = min(rank, edge) < other < max(rank, edge)
        assert not (passes and end < row)


def test_scale(ax: Axes) -> None:
    plots.critical_difference(ax, RANKS, NAMES, 2.1)
    (scale,) = lines(ax, "scale")
    np.testing.assert_array_equal(scale, [[1, 0], [11, 0]])
    (length,) = lines(ax, "critical")
    assert length[1, 0] - length[0, 0] == pytest.approx(2.1)
    texts = [text.get_text() for text in ax.texts]
    assert "mean rank (1 is best), critical difference 2.1" in texts
    assert {"1", "11"} <= set(texts)
    assert not ax.axison


def test_a_difference_longer_than_the_scale_is_only_written(ax: Axes) -> None:
    plots.critical_difference(ax, [1.2, 2.2, 2.6], ["a", "b", "c"], 2.4)
    assert lines(ax, "critical") == []
    assert any("critical difference 2.4" in text.get_text() for text in ax.texts)


@pytest.mark.parametrize("size", [(8.0, 3.2), (6.0, 2.4), (12.0, 6.0)])
@pytest.mark.parametrize("ranks", [RANKS, 6 + 0.01 * np.arange(11), np.arange(1.0, 12.0)])
@pytest.mark.parametrize("layout", [None, "constrained"])
def test_texts_do_not_overlap_and_stay_inside(size: tuple[float, float], ranks: np.ndarray, layout: str | None) -> None:
    figure = Figure(figsize=size, layout=layout)  # type: ignore[arg-type]
    FigureCanvasAgg(figure)
    ax = figure.subplots()
    plots.critical_difference(ax, ranks, NAMES, 1.0)
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in ax.texts]
    for one, other in combinations(boxes, 2):
        assert not one.overlaps(other)
    for box in boxes:
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= figure.bbox.width
        assert box.y1 <= figure.bbox.height
    assert min(text.get_fontsize() for text in ax.texts) >= 6


def test_bad_ranks(ax: Axes) -> None:
    with pytest.raises(ValueError, match="names must hold one name a rank, got 10 names and 11 ranks"):
        plots.critical_difference(ax, RANKS, NAMES[1:], 1.0)
    with pytest.raises(ValueError, match="at least two methods, got 1"):
        plots.critical_difference(ax, [1.0], ["a"], 1.0)
    for bad in ([0.5, 1.0], [1.0, 2.5]):
        with pytest.raises(ValueError, match="ranks must lie between 1 and the number of methods, 2"):
            plots.critical_difference(ax, bad, ["a", "b"], 1.0)
    for critical in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="critical, a difference of mean ranks, must be > 0"):
            plots.critical_difference(ax, [1.0, 2.0], ["a", "b"], critical)
