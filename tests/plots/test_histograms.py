"""Histograms: where the bars stand, how many rows they hold, the line and the text."""

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from density_regression import metrics, plots

RNG = np.random.default_rng(0)
Y = RNG.normal(size=300)
MEAN = Y + 0.5 * RNG.normal(size=300) + 0.2


def bars(ax: Axes) -> list[Rectangle]:
    return [patch for patch in ax.patches if isinstance(patch, Rectangle)]


def counts(ax: Axes) -> list[float]:
    return [bar.get_height() for bar in bars(ax)]


def texts(ax: Axes) -> str:
    return "\n".join(text.get_text() for text in ax.texts)


def upright(ax: Axes) -> float:
    (line,) = ax.get_lines()
    assert line.get_linestyle() == "--"
    return float(np.asarray(line.get_xdata())[0])


def test_sharpness(ax: Axes) -> None:
    std = np.random.default_rng(1).uniform(0.5, 2.0, size=300)
    plots.sharpness_histogram(ax, std[:, np.newaxis], unit="kWh")
    edges = [*(bar.get_x() for bar in bars(ax)), std.max()]
    assert counts(ax) == np.histogram(std, edges)[0].tolist()
    assert sum(counts(ax)) == 300
    assert edges[0] == pytest.approx(std.min())
    assert bars(ax)[-1].get_x() + bars(ax)[-1].get_width() == pytest.approx(std.max())
    assert upright(ax) == pytest.approx(np.sqrt(np.mean(std**2)))
    assert f"sharpness {np.sqrt(np.mean(std**2)):.3g} kWh" in texts(ax)
    assert ax.get_xlabel() == "predicted standard deviation (kWh)"
    assert ax.get_ylabel() == "rows"
    assert ax.get_xscale() == "linear"


@pytest.mark.parametrize(("ratio", "scale"), [(99.0, "linear"), (101.0, "log")])
def test_a_wide_range_is_logarithmic(ax: Axes, ratio: float, scale: str) -> None:
    plots.sharpness_histogram(ax, 1e-3 * np.geomspace(1, ratio, 64))
    assert ax.get_xscale() == scale
    assert sum(counts(ax)) == 64
    if scale == "log":
        assert np.ptp(counts(ax)) <= 1
    assert ax.get_xlabel() == "predicted standard deviation"


@pytest.mark.parametrize("rows", [1, 500])
@pytest.mark.parametrize("value", [3e-4, 1234.5])
def test_equal_stds_make_one_bar_around_them(ax: Axes, rows: int, value: float) -> None:
    plots.sharpness_histogram(ax, np.full(rows, value), unit="m")
    (bar,) = bars(ax)
    assert bar.get_height() == rows
    assert 0 < bar.get_x() < value < bar.get_x() + bar.get_width() < 1.5 * value
    assert "1,234 m" in texts(ax) or "0.0003 m" in texts(ax)


def test_text_stands_above_the_bars(ax: Axes) -> None:
    plots.sharpness_histogram(ax, np.full(10, 2.0))
    ax.figure.canvas.draw()
    assert ax.texts[0].get_window_extent().y0 > bars(ax)[0].get_window_extent().y1


def test_errors(ax: Axes) -> None:
    plots.error_histogram(ax, Y, MEAN, unit="K")
    assert sum(counts(ax)) == 300
    centres = np.array([bar.get_x() + bar.get_width() / 2 for bar in bars(ax)])
    assert np.average(centres, weights=counts(ax)) == pytest.approx(np.mean(Y - MEAN), abs=0.05)
    assert upright(ax) == 0
    assert texts(ax) == f"RMSE {metrics.rmse(Y, MEAN):.3g} K"
    assert ax.get_xlabel() == "true value − predicted mean (K)"


def test_far_errors_are_counted_not_drawn(ax: Axes) -> None:
    far = Y.copy()
    far[:3] += [5000, -5000, 5000]
    plots.error_histogram(ax, far, MEAN)
    reach = 4 * np.quantile(np.abs(far - MEAN), 0.9)
    assert sum(counts(ax)) == 297
    assert texts(ax) == f"RMSE {metrics.rmse(far, MEAN):.3g}\n3 of 300 beyond ±{reach:.3g}"
    assert np.abs(ax.get_xlim()).max() < 10


@pytest.mark.parametrize(("y", "mean"), [([3.0], [1.0]), ([1.0], [1.0]), ([0.0] * 99 + [7.0], [0.0] * 100)])
def test_few_or_equal_errors(ax: Axes, y: list[float], mean: list[float]) -> None:
    plots.error_histogram(ax, y, mean)
    assert sum(counts(ax)) == len(y)
    assert all(bar.get_width() > 0 for bar in bars(ax))
    first, last = ax.get_xlim()
    assert first < 0 < last


def test_bad_histograms(ax: Axes) -> None:
    with pytest.raises(ValueError, match=r"std must be positive, got 1 values <= 0 \(smallest -1\)"):
        plots.sharpness_histogram(ax, [1.0, -1.0])
    with pytest.raises(ValueError, match="std has 1 NaN or infinite values out of 2"):
        plots.sharpness_histogram(ax, [1.0, np.inf])
    with pytest.raises(ValueError, match=r"std must have shape \(n,\) or \(n, 1\) with n > 0, got \(0,\)"):
        plots.sharpness_histogram(ax, [])
    with pytest.raises(ValueError, match="equally many rows, got y_true 2, mean 1"):
        plots.error_histogram(ax, [1.0, 2.0], [1.0])
