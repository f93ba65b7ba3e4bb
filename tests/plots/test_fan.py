"""The fan of a time series: nested areas, their order, dates and gaps."""

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import Collection, LineCollection, PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.dates import ConciseDateFormatter, date2num
from scipy.stats import norm

from density_regression import plots

HOURS = np.arange(48)
MEAN = 20 + 5 * np.sin(HOURS / 4)
STD = 1 + HOURS / 48
Y = MEAN + STD * np.random.default_rng(0).normal(size=48)
DATES = np.datetime64("2024-03-01T00") + HOURS * np.timedelta64(1, "h")


def areas(ax: Axes) -> dict[str, Collection]:
    return {str(area.get_label()): area for area in ax.collections}


def limits_at(area: Collection, x: float) -> list[float]:
    corners = np.asarray(area.get_paths()[0].vertices)
    heights = corners[np.isclose(corners[:, 0], x, rtol=1e-12), 1]
    return [float(heights.min()), float(heights.max())]


def xy(ax: Axes, label: str) -> np.ndarray:
    (line,) = [line for line in ax.get_lines() if line.get_label() == label]
    return np.column_stack([np.asarray(line.get_xdata(orig=False)), np.asarray(line.get_ydata())])


def test_fan(ax: Axes) -> None:
    plots.fan(ax, HOURS, MEAN, STD[:, np.newaxis], Y, unit="MW")
    assert ax.get_legend_handles_labels()[1] == [
        "predicted mean",
        "true value",
        "50 % interval",
        "80 % interval",
        "95 % interval",
    ]
    for level in (0.5, 0.8, 0.95):
        area = areas(ax)[f"{100 * level:g} % interval"]
        assert isinstance(area, PolyCollection)
        assert limits_at(area, 7) == pytest.approx(norm.interval(level, MEAN[7], STD[7]))
    np.testing.assert_array_equal(xy(ax, "predicted mean"), np.column_stack([HOURS, MEAN]))
    np.testing.assert_array_equal(xy(ax, "true value"), np.column_stack([HOURS, Y]))
    assert ax.get_xlabel() == "time"
    assert ax.get_ylabel() == "value (MW)"


def test_narrow_is_dark_and_above_wide_and_truth_above_all(ax: Axes) -> None:
    plots.fan(ax, HOURS, MEAN, STD, Y, levels=(0.9, 0.1, 0.5, 0.3, 0.7))
    upwards = [areas(ax)[f"{level} % interval"] for level in (90, 70, 50, 30, 10)]
    greys = [float(np.dot(to_rgb(area.get_facecolor()[0]), (0.299, 0.587, 0.114))) for area in upwards]
    assert np.all(np.diff(greys) < -0.03)
    mean, truth = ax.get_lines()
    assert truth.get_label() == "true value"
    assert np.all(np.diff([artist.get_zorder() for artist in (*upwards, mean, truth)]) > 0)
    assert truth.get_marker() != mean.get_marker()
    assert truth.get_linewidth() < mean.get_linewidth()


def test_dates_in_any_order(ax: Axes) -> None:
    shuffled = np.random.default_rng(0).permutation(48)
    plots.fan(ax, DATES[shuffled], MEAN[shuffled], STD[shuffled], Y[shuffled])
    np.testing.assert_allclose(xy(ax, "true value"), np.column_stack([date2num(DATES), Y]))
    np.testing.assert_allclose(xy(ax, "predicted mean"), np.column_stack([date2num(DATES), MEAN]))
    low, high = limits_at(areas(ax)["95 % interval"], float(date2num(DATES[7])))
    assert (low, high) == pytest.approx(norm.interval(0.95, MEAN[7], STD[7]))
    assert isinstance(ax.xaxis.get_major_formatter(), ConciseDateFormatter)
    assert ax.get_ylabel() == "value"


def test_truth_may_have_gaps_or_be_unknown(ax: Axes) -> None:
    plots.fan(ax, HOURS, MEAN, STD, np.where(HOURS < 40, Y, np.nan))
    assert np.isnan(xy(ax, "true value")[40:, 1]).all()
    other = ax.figure.add_subplot()
    plots.fan(other, HOURS, MEAN, STD)
    assert [line.get_label() for line in other.get_lines()] == ["predicted mean"]


def test_one_row_is_a_stroke_with_its_date(ax: Axes) -> None:
    plots.fan(ax, DATES[:1], MEAN[:1], STD[:1], Y[:1])
    strokes = areas(ax)
    assert all(isinstance(stroke, LineCollection) for stroke in strokes.values())
    assert limits_at(strokes["80 % interval"], float(date2num(DATES[0]))) == pytest.approx(
        norm.interval(0.8, MEAN[0], STD[0])
    )
    assert [label.get_text() for label in ax.get_xticklabels()] == ["2024-03-01T00"]


def test_bad_fans(ax: Axes) -> None:
    with pytest.raises(ValueError, match="equally many rows, got mean 48, std 48, time 47"):
        plots.fan(ax, DATES[1:], MEAN, STD)
    with pytest.raises(ValueError, match="equally many rows, got y_true 47, time 48"):
        plots.fan(ax, DATES, MEAN, STD, Y[1:])
    with pytest.raises(ValueError, match="std must be positive"):
        plots.fan(ax, DATES, MEAN, -STD)
    with pytest.raises(ValueError, match="time has 1 NaT values out of 48"):
        plots.fan(ax, np.append(DATES[1:], np.datetime64("NaT")), MEAN, STD)
    with pytest.raises(ValueError, match=r"time must have shape \(n,\) or \(n, 1\) with n > 0, got \(24, 2\)"):
        plots.fan(ax, DATES.reshape(24, 2), MEAN, STD)
    with pytest.raises(ValueError, match="time must hold numbers or datetime64, got object; convert"):
        plots.fan(ax, DATES.astype(object), MEAN, STD)
    for levels in ((), (0.5, 1.0), (95,)):
        with pytest.raises(ValueError, match="levels must lie strictly between 0 and 1"):
            plots.fan(ax, DATES, MEAN, STD, levels=levels)
