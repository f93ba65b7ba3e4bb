"""The predictive band: artists, their data, their labels."""

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D

from density_regression import plots

X = np.linspace(-6, 6, 41)
MEAN = X**3 + 5
STD = 1 + 0.5 * np.abs(X)
X_TRAIN = np.array([-3.0, 0.5, 4.0, 1.0])
Y_TRAIN = np.array([-25.0, 1.0, 60.0, 2.0])


def line(ax: Axes, label: str) -> Line2D:
    (found,) = [artist for artist in ax.get_lines() if artist.get_label() == label]
    return found


def bands(ax: Axes) -> dict[str, PolyCollection]:
    return {str(artist.get_label()): artist for artist in ax.collections if isinstance(artist, PolyCollection)}


def half_width(band: PolyCollection, at: float) -> float:
    corners = band.get_paths()[0].vertices
    heights = np.asarray(corners)[np.isclose(np.asarray(corners)[:, 0], at), 1]
    return float(np.ptp(heights)) / 2


def lightness(color: object) -> float:
    return float(np.dot(to_rgb(color), (0.299, 0.587, 0.114)))  # type: ignore[arg-type]


def test_band_with_everything(ax: Axes) -> None:
    plots.predictive_band(ax, X, MEAN, STD, x_train=X_TRAIN, y_train=Y_TRAIN, y_true=X**3)
    ax.legend()
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "predicted mean",
        "true function",
        "training range",
        "observations",
        "± 1 std",
        "± 2 std",
        "± 3 std",
    ]


def test_what_lies_on_top(ax: Axes) -> None:
    plots.predictive_band(ax, X, MEAN, STD, x_train=X_TRAIN, y_train=Y_TRAIN, y_true=X**3)
    drawn = bands(ax)
    (dots,) = [artist for artist in ax.collections if isinstance(artist, PathCollection)]
    upwards = [
        *(drawn[f"± {width} std"] for width in (3, 2, 1)),
        dots,
        line(ax, "predicted mean"),
        line(ax, "true function"),
    ]
    assert np.all(np.diff([artist.get_zorder() for artist in upwards]) > 0)


def test_mean_and_truth(ax: Axes) -> None:
    plots.predictive_band(ax, X, MEAN, STD, x_true=[-1.0, 0.0, 1.0], y_true=[[-1.0], [0.0], [1.0]])
    np.testing.assert_array_equal(line(ax, "predicted mean").get_xydata(), np.column_stack([X, MEAN]))
    truth = line(ax, "true function")
    np.testing.assert_array_equal(truth.get_xydata(), [[-1, -1], [0, 0], [1, 1]])
    assert truth.get_linestyle() == "--"
    assert line(ax, "predicted mean").get_linestyle() == "-"
    red, _, blue = to_rgb(truth.get_color())
    assert red > blue
    red, _, blue = to_rgb(line(ax, "predicted mean").get_color())
    assert blue > red


def test_training_rows_and_their_range(ax: Axes) -> None:
    plots.predictive_band(ax, X, MEAN, STD, x_train=X_TRAIN[:, np.newaxis], y_train=Y_TRAIN)
    (dots,) = [artist for artist in ax.collections if isinstance(artist, PathCollection)]
    np.testing.assert_array_equal(dots.get_offsets(), np.column_stack([X_TRAIN, Y_TRAIN]))
    upright = [artist for artist in ax.get_lines() if np.ptp(np.asarray(artist.get_xdata(), dtype=float)) == 0]
    assert sorted(float(np.asarray(artist.get_xdata())[0]) for artist in upright) == [-3.0, 4.0]
    assert all(artist.get_linestyle() == "--" for artist in upright)
    assert np.ptp(to_rgb(upright[0].get_color())) == 0


def test_range_without_dots(ax: Axes) -> None:
    plots.predictive_band(ax, X, MEAN, STD, x_train=X_TRAIN)
    assert not any(isinstance(artist, PathCollection) for artist in ax.collections)
    assert line(ax, "training range").get_linestyle() == "--"


def test_prediction_alone(ax: Axes) -> None:
    plots.predictive_band(ax, X, MEAN, STD)
    assert [artist.get_label() for artist in ax.get_lines()] == ["predicted mean"]
    assert set(bands(ax)) == {"± 1 std", "± 2 std", "± 3 std"}


@pytest.mark.parametrize(
    ("k", "widths"),
    [(3.0, [1, 2, 3]), (2.0, [1, 2]), (1.0, [1]), (0.5, [0.5]), (2.5, [1, 2, 2.5]), (5, [1, 2, 5])],
)
def test_band_widths(ax: Axes, k: float, widths: list[float]) -> None:
    plots.predictive_band(ax, X, MEAN, STD, k=k)
    drawn = bands(ax)
    assert set(drawn) == {f"± {width:g} std" for width in widths}
    for width in widths:
        band = drawn[f"± {width:g} std"]
        assert half_width(band, at=X[10]) == pytest.approx(width * STD[10])


def test_bands_darken_inwards_also_in_grey(ax: Axes) -> None:
    plots.predictive_band(ax, X, MEAN, STD)
    drawn = bands(ax)
    shades = [
        lightness(line(ax, "predicted mean").get_color()),
        *(lightness(drawn[f"± {width} std"].get_facecolor()[0]) for width in (1, 2, 3)),
        1.0,
    ]
    assert np.all(np.diff(shades) > 0.05)


def test_order_of_rows_does_not_matter(ax: Axes) -> None:
    shuffled = np.random.default_rng(0).permutation(len(X))
    plots.predictive_band(ax, X[shuffled], MEAN[shuffled], STD[shuffled], y_true=(X**3)[shuffled])
    np.testing.assert_array_equal(line(ax, "predicted mean").get_xydata(), np.column_stack([X, MEAN]))
    np.testing.assert_array_equal(line(ax, "true function").get_xydata(), np.column_stack([X, X**3]))
    assert half_width(bands(ax)["± 3 std"], at=X[10]) == pytest.approx(3 * STD[10])


def test_bad_band_arguments(ax: Axes) -> None:
    with pytest.raises(ValueError, match="equally many rows, got x 41, mean 41, std 40"):
        plots.predictive_band(ax, X, MEAN, STD[1:])
    with pytest.raises(ValueError, match=r"x must have shape \(n,\) or \(n, 1\)"):
        plots.predictive_band(ax, np.ones((41, 2)), MEAN, STD)
    with pytest.raises(ValueError, match="y_train was given without x_train"):
        plots.predictive_band(ax, X, MEAN, STD, y_train=Y_TRAIN)
    with pytest.raises(ValueError, match="x_true was given without y_true"):
        plots.predictive_band(ax, X, MEAN, STD, x_true=X)
    for k in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="k, the half-width"):
            plots.predictive_band(ax, X, MEAN, STD, k=k)
