"""Parity, and errors against standard deviations: points, bars, bins and diagonals."""

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.lines import Line2D

from density_regression import metrics, plots

RNG = np.random.default_rng(0)
MEAN = RNG.normal(10, 3, size=500)
STD = RNG.uniform(0.5, 1.5, size=500)
Y = MEAN + STD * RNG.normal(size=500)
SKEWED = np.exp(RNG.normal(0, 2.5, size=400))


def line(ax: Axes, label: str) -> Line2D:
    (found,) = [artist for artist in ax.get_lines() if artist.get_label() == label]
    return found


def points(ax: Axes) -> np.ndarray:
    (drawn,) = [artist for artist in ax.get_lines() if artist.get_marker() == "o"]
    return np.asarray(drawn.get_xydata())


def segments(ax: Axes) -> np.ndarray:
    (drawn,) = [artist for artist in ax.collections if isinstance(artist, LineCollection)]
    return np.array(drawn.get_segments())


def test_parity(ax: Axes) -> None:
    plots.parity(ax, Y[:50], MEAN[:50, np.newaxis], STD[:50], k=2.0, unit="m")
    order = np.argsort(Y[:50])
    np.testing.assert_array_equal(points(ax), np.column_stack([Y[:50], MEAN[:50]])[order])
    np.testing.assert_allclose(segments(ax)[:, 0, 1], (MEAN[:50] - 2 * STD[:50])[order])
    np.testing.assert_allclose(segments(ax)[:, 1, 1], (MEAN[:50] + 2 * STD[:50])[order])
    diagonal = np.asarray(line(ax, "equal").get_xydata())
    np.testing.assert_array_equal(diagonal[:, 0], diagonal[:, 1])
    assert line(ax, "equal").get_linestyle() == "--"
    assert ax.get_xlim() == ax.get_ylim() == tuple(diagonal[:, 0])
    assert ax.get_xlim()[0] < (MEAN[:50] - 2 * STD[:50]).min()
    assert ax.get_xlabel() == "true value (m)"
    assert ax.get_ylabel() == "predicted value (m)"
    assert "mean ± 2 std" in ax.get_legend_handles_labels()[1]
    assert not ax.texts


def test_parity_of_many_rows_draws_evenly_chosen_ones(ax: Axes) -> None:
    plots.parity(ax, Y, MEAN, STD, limit=11)
    ranks = np.searchsorted(np.sort(Y), points(ax)[:, 0])
    assert ranks[0] == 0
    assert ranks[-1] == 499
    assert len(ranks) == 11
    assert np.ptp(np.diff(ranks)) <= 1
    assert [text.get_text() for text in ax.texts] == ["11 of 500 rows"]


def test_a_huge_error_bar_does_not_flatten_the_rest(ax: Axes) -> None:
    plots.parity(ax, Y, MEAN, np.where(np.arange(500) == np.argmax(Y), 1e4, STD))
    both = np.concatenate([Y, MEAN])
    assert np.ptp(ax.get_xlim()) < 2.2 * np.ptp(both)
    assert ax.get_xlim()[0] < both.min()
    assert ax.get_xlim()[1] > both.max()


def test_parity_of_skewed_values_is_logarithmic(ax: Axes) -> None:
    y = SKEWED
    plots.parity(ax, y, 1.1 * y, y, k=3.0)
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert 0 < ax.get_xlim()[0] < y.min()
    assert ax.get_xlim()[1] > 1.1 * y.max()


def test_values_that_touch_zero_stay_linear(ax: Axes) -> None:
    y = np.append(SKEWED, 0.0)
    plots.parity(ax, y, y, np.ones_like(y))
    assert ax.get_xscale() == ax.get_yscale() == "linear"


@pytest.mark.parametrize("mean", [3.0, 5.0])
def test_parity_of_one_row(ax: Axes, mean: float) -> None:
    plots.parity(ax, [3.0], [mean], [0.5])
    low, high = ax.get_xlim()
    assert low < 3 <= mean < high
    assert low < mean - 0.5 * 1.96 or mean == 5
    assert high > mean + 0.5 * 1.96


def test_error_against_std(ax: Axes) -> None:
    plots.error_against_std(ax, Y, MEAN, STD, bins=5, unit="m")
    (dots,) = [artist for artist in ax.collections if isinstance(artist, PathCollection)]
    np.testing.assert_array_equal(dots.get_offsets(), np.column_stack([STD, np.abs(Y - MEAN)]))
    order = np.argsort(STD)
    expected = []
    for start in range(0, 500, 100):
        rows = order[start : start + 100]
        expected.append([np.sqrt(np.mean(STD[rows] ** 2)), np.sqrt(np.mean((Y - MEAN)[rows] ** 2))])
    np.testing.assert_allclose(np.asarray(line(ax, "bins, RMSE against RMV").get_xydata()), expected)
    diagonal = np.asarray(line(ax, "as predicted").get_xydata())
    np.testing.assert_array_equal(diagonal[:, 0], diagonal[:, 1])
    assert diagonal[0, 0] < STD.min() < STD.max() < diagonal[1, 0]
    assert ax.get_ylim()[0] == 0
    assert ax.get_xscale() == ax.get_yscale() == "linear"
    assert ax.get_xlabel() == "predicted standard deviation (m)"
    assert ax.get_ylabel() == "absolute error (m)"


def test_stds_of_many_sizes_are_logarithmic(ax: Axes) -> None:
    std = np.geomspace(0.1, 10, 500)
    mean = Y + std
    mean[:2] = np.add(Y[:2], [0.0, 1e-5])
    plots.error_against_std(ax, Y, mean, std)
    assert ax.get_xscale() == ax.get_yscale() == "log"
    (dots,) = [artist for artist in ax.collections if isinstance(artist, PathCollection)]
    drawn = np.asarray(dots.get_offsets())[:, 1]
    np.testing.assert_allclose(drawn[:2], 1e-3)
    np.testing.assert_allclose(drawn[2:], std[2:])
    assert ax.get_ylim()[0] == pytest.approx(1e-3)
    middle = np.asarray(line(ax, "bins, RMSE against RMV").get_xydata())[1:]
    np.testing.assert_allclose(middle[:, 0], middle[:, 1])


@pytest.mark.parametrize("rows", [1, 3])
def test_fewer_rows_than_bins(ax: Axes, rows: int) -> None:
    plots.error_against_std(ax, Y[:rows], MEAN[:rows], STD[:rows])
    order = np.argsort(STD[:rows])
    expected = np.column_stack([STD[:rows], np.abs(Y - MEAN)[:rows]])[order]
    np.testing.assert_allclose(np.asarray(line(ax, "bins, RMSE against RMV").get_xydata()), expected)


def test_intervals(ax: Axes) -> None:
    plots.ordered_intervals(ax, Y, MEAN, STD, level=0.8, limit=500, unit="m")
    inside, outside = line(ax, "true value inside"), line(ax, "outside")
    both = np.concatenate([np.asarray(each.get_xydata()) for each in (inside, outside)])
    np.testing.assert_array_equal(both[np.argsort(both[:, 0])], np.column_stack([np.arange(1, 501), np.sort(Y)]))
    assert inside.get_marker() != outside.get_marker()
    hit, missed = [artist for artist in ax.collections if isinstance(artist, LineCollection)]
    assert [hit.get_label(), missed.get_label()] == ["80 % interval", "interval that misses"]
    for drawn, truth in ((hit, inside), (missed, outside)):
        ends = np.array(drawn.get_segments())
        rows = np.argsort(Y)[ends[:, 0, 0].astype(int) - 1]
        np.testing.assert_allclose(ends[:, 0, 1], MEAN[rows] - 1.2815515655446004 * STD[rows])
        np.testing.assert_allclose(ends[:, 1, 1], MEAN[rows] + 1.2815515655446004 * STD[rows])
        np.testing.assert_array_equal(np.asarray(truth.get_xydata())[:, 0], ends[:, 0, 0])
        held = (ends[:, 0, 1] <= np.asarray(truth.get_ydata())) & (np.asarray(truth.get_ydata()) <= ends[:, 1, 1])
        assert np.all(held == (drawn is hit))
    assert len(missed.get_segments()) > 50
    assert [text.get_text() for text in ax.texts] == [
        f"coverage {100 * metrics.coverage(Y, MEAN, STD, 0.8):.1f} % (nominal 80 %)"
    ]
    assert ax.get_xlabel() == "rows in order of the true value"
    assert ax.get_ylabel() == "value (m)"


def test_intervals_of_many_rows(ax: Axes) -> None:
    plots.ordered_intervals(ax, Y, MEAN, STD, limit=11)
    drawn = [artist for artist in ax.collections if isinstance(artist, LineCollection)]
    places = np.sort([end[0, 0] for each in drawn for end in each.get_segments()])
    assert len(places) == 11
    assert places[[0, -1]].tolist() == [1, 500]
    assert np.ptp(np.diff(places)) <= 1
    (text,) = [text.get_text() for text in ax.texts]
    all_rows = 100 * metrics.coverage(Y, MEAN, STD)
    assert text == f"coverage {all_rows:.1f} % (nominal 95 %)\n11 of 500 rows drawn"


def test_skewed_and_single_intervals(ax: Axes) -> None:
    plots.ordered_intervals(ax, SKEWED, SKEWED, SKEWED)
    assert ax.get_yscale() == "log"
    other = ax.figure.add_subplot()
    plots.ordered_intervals(other, [3.0], [1.0], [0.5])
    assert other.get_ylim()[1] > 3
    assert other.get_ylim()[0] < 1 - 1.96 * 0.5
    assert other.get_xlim() == (0, 2)
    assert "coverage 0.0 %" in other.texts[0].get_text()


def test_bad_arguments(ax: Axes) -> None:
    for draw in (plots.parity, plots.ordered_intervals, plots.error_against_std):
        with pytest.raises(ValueError, match="equally many rows, got y_true 500, mean 499, std 500"):
            draw(ax, Y, MEAN[1:], STD)
        with pytest.raises(ValueError, match="std must be positive"):
            draw(ax, Y, MEAN, 0 * STD)
        with pytest.raises(ValueError, match="y_true has 1 NaN"):
            draw(ax, np.append(Y[1:], np.nan), MEAN, STD)
    for limit in (0, 1.5):
        with pytest.raises(ValueError, match="limit, the number of rows to draw"):
            plots.parity(ax, Y, MEAN, STD, limit=limit)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="k, half the length of an error bar"):
        plots.parity(ax, Y, MEAN, STD, k=0.0)
    with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
        plots.ordered_intervals(ax, Y, MEAN, STD, level=95)
    with pytest.raises(ValueError, match="bins must be a whole number >= 1, got 0"):
        plots.error_against_std(ax, Y, MEAN, STD, bins=0)
