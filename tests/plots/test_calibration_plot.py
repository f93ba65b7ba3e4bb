"""The calibration curve: its points, its range by chance, and how curves are told apart."""

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D

from density_regression import metrics, plots


def line(ax: Axes, label: str) -> Line2D:
    (found,) = [artist for artist in ax.get_lines() if artist.get_label() == label]
    return found


def ranges(ax: Axes) -> list[PolyCollection]:
    return [artist for artist in ax.collections if isinstance(artist, PolyCollection)]


def limits_at(area: PolyCollection, level: float) -> list[float]:
    corners = np.asarray(area.get_paths()[0].vertices)
    heights = corners[np.isclose(corners[:, 0], level), 1]
    return [float(heights.min()), float(heights.max())]


def test_calibration_curve(ax: Axes) -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=200)
    zeros, ones = np.zeros(200), np.ones(200)
    plots.calibration_curve(ax, y, zeros, ones, levels=20, label="right")
    plots.calibration_curve(ax, y, zeros, 0.2 * ones, label="too narrow")
    expected, observed = metrics.calibration_curve(y, zeros, ones, levels=20)
    np.testing.assert_array_equal(line(ax, "right").get_xydata(), np.column_stack([expected, observed]))
    assert len(np.asarray(line(ax, "too narrow").get_xdata())) == 100
    np.testing.assert_array_equal(line(ax, "calibrated").get_xydata(), [[0, 0], [1, 1]])
    assert line(ax, "right").get_color() != line(ax, "too narrow").get_color()
    assert ax.get_xlabel() == "expected fraction"
    assert ax.get_ylabel() == "observed fraction"
    assert ax.get_xlim() == ax.get_ylim() == (0, 1)


def test_calibration_curve_without_a_label_stays_out_of_the_legend(ax: Axes) -> None:
    plots.calibration_curve(ax, [0.0, 1.0], [0.0, 0.0], [1.0, 1.0])
    assert ax.get_legend_handles_labels()[1] == ["calibrated"]


@pytest.mark.parametrize("band", [0.95, 0.5])
def test_the_range_holds_what_binomial_draws_do(ax: Axes, band: float) -> None:
    rows, level = 40, 0.3
    plots.calibration_from_curve(ax, [0.0, 1.0], [0.0, 1.0], rows=rows, band=band)
    low, high = limits_at(ranges(ax)[0], level)
    fractions = np.random.default_rng(0).binomial(rows, level, size=200_000) / rows
    assert low == pytest.approx(np.quantile(fractions, (1 - band) / 2))
    assert high == pytest.approx(np.quantile(fractions, (1 + band) / 2))
    assert limits_at(ranges(ax)[0], 0.0) == [0, 0]
    assert limits_at(ranges(ax)[0], 1.0) == [1, 1]


def test_the_range_is_of_95_per_cent_unless_told(ax: Axes) -> None:
    plots.calibration_from_curve(ax, [0.0, 1.0], [0.0, 1.0], rows=50)
    assert ax.get_legend_handles_labels()[1] == ["calibrated", "95 % range if calibrated"]


def test_the_range_counts_entries_and_is_drawn_once(ax: Axes) -> None:
    y = np.random.default_rng(0).normal(size=(20, 2))
    plots.calibration_curve(ax, y, np.zeros_like(y), np.ones_like(y), label="a", band=0.9)
    plots.calibration_curve(ax, y, np.zeros_like(y), np.ones_like(y), label="b", band=0.9)
    (area,) = ranges(ax)
    fractions = np.random.default_rng(0).binomial(40, 0.3, size=200_000) / 40
    assert limits_at(area, 0.3) == pytest.approx(np.quantile(fractions, [0.05, 0.95]))
    assert area.get_zorder() < line(ax, "calibrated").get_zorder()
    assert min(to_rgb(area.get_facecolor()[0])) > 0.8


def test_no_range_unless_asked(ax: Axes) -> None:
    plots.calibration_curve(ax, [0.0, 1.0], [0.0, 0.0], [1.0, 1.0])
    plots.calibration_from_curve(ax, [0.0, 1.0], [0.0, 1.0])
    assert ranges(ax) == []


def test_a_stored_curve_looks_like_a_new_one(ax: Axes) -> None:
    y, zeros, ones = np.random.default_rng(0).normal(size=50), np.zeros(50), np.ones(50)
    plots.calibration_from_curve(ax, *metrics.calibration_curve(y, zeros, ones, 30), rows=50, label="stored")
    stored = ax.get_lines()[-1]
    other = ax.figure.add_subplot()
    plots.calibration_curve(other, y, zeros, ones, levels=30, band=0.95, label="new")
    np.testing.assert_array_equal(stored.get_xydata(), other.get_lines()[-1].get_xydata())
    np.testing.assert_array_equal(*(np.asarray(ranges(each)[0].get_paths()[0].vertices) for each in (ax, other)))
    assert stored.get_color() == other.get_lines()[-1].get_color()
    assert len(ax.get_lines()) == len(other.get_lines()) == 2


def test_eleven_curves_differ_without_colour(ax: Axes) -> None:
    for index in range(11):
        plots.calibration_from_curve(ax, [0.0, 0.5, 1.0], [0.0, index / 10, 1.0], label=f"{index}")
    curves = [line(ax, f"{index}") for index in range(11)]
    assert len({curve.get_marker() for curve in curves}) == 11
    assert len({(curve.get_color(), curve.get_linestyle()) for curve in curves}) == 11
    assert len({curve.get_linestyle() for curve in curves}) == 4
    greys = sorted({float(np.dot(to_rgb(curve.get_color()), (0.299, 0.587, 0.114))) for curve in curves})
    assert np.all(np.diff(greys) > 0.1)


def test_bad_curves(ax: Axes) -> None:
    with pytest.raises(ValueError, match="equally many rows, got expected 2, observed 3"):
        plots.calibration_from_curve(ax, [0, 1], [0, 0.5, 1])
    with pytest.raises(ValueError, match=r"observed must hold fractions from 0 to 1, got 0 to 100; divide"):
        plots.calibration_from_curve(ax, [0, 1], [0, 100])
    with pytest.raises(ValueError, match="expected has 1 NaN"):
        plots.calibration_from_curve(ax, [0, np.nan], [0, 1])
    for rows in (0, 2.5):
        with pytest.raises(ValueError, match="rows, the number of targets behind the curve"):
            plots.calibration_from_curve(ax, [0, 1], [0, 1], rows=rows)  # type: ignore[arg-type]
    for band in (0.0, 1.0, 95, True):
        with pytest.raises(ValueError, match="band must lie strictly between 0 and 1"):
            plots.calibration_curve(ax, [0.0], [0.0], [1.0], band=band)
