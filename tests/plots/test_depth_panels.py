"""Five panels of a depth map: what each shows, what is blank, which scales are shared."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from density_regression import plots

RNG = np.random.default_rng(0)
TRUTH = RNG.uniform(2, 60, size=(12, 16))
PREDICTION = TRUTH + RNG.normal(size=(12, 16))
UNCERTAINTY = RNG.uniform(0.5, 2, size=(12, 16))
IMAGE = RNG.uniform(size=(24, 32, 3))


@pytest.fixture
def figure() -> Figure:
    figure = Figure(figsize=(12, 3), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def shown(figure: Figure) -> list[AxesImage]:
    panels = [image for ax in figure.axes for image in ax.images]
    figure.canvas.draw()
    return panels


def test_panels(figure: Figure) -> None:
    plots.depth_panels(figure, IMAGE, TRUTH, PREDICTION, UNCERTAINTY, unit="m")
    image, truth, prediction, error, uncertainty = shown(figure)
    np.testing.assert_array_equal(image.get_array(), IMAGE)
    np.testing.assert_array_equal(truth.get_array(), TRUTH)
    np.testing.assert_array_equal(prediction.get_array(), PREDICTION)
    np.testing.assert_array_equal(error.get_array(), np.abs(TRUTH - PREDICTION))
    np.testing.assert_array_equal(uncertainty.get_array(), UNCERTAINTY)
    assert [ax.get_title() for ax in figure.axes[:5]] == [
        "image",
        "truth",
        "prediction",
        "absolute error",
        "uncertainty",
    ]
    assert all(len(ax.get_xticks()) == len(ax.get_yticks()) == 0 for ax in figure.axes[:5])


def test_truth_and_prediction_share_a_scale(figure: Figure) -> None:
    plots.depth_panels(figure, IMAGE, TRUTH, PREDICTION, UNCERTAINTY)
    _, truth, prediction, error, uncertainty = shown(figure)
    assert truth.get_clim() == prediction.get_clim()
    assert truth.get_cmap().name == prediction.get_cmap().name
    pooled = np.sort(np.concatenate([TRUTH, PREDICTION], axis=None))
    assert truth.get_clim() == pytest.approx((pooled[2], pooled[-3]), rel=0.05)
    assert error.get_clim()[0] == 0
    assert uncertainty.get_clim() == pytest.approx((UNCERTAINTY.min(), UNCERTAINTY.max()), rel=0.05)


def test_one_pixel_does_not_set_the_scale(figure: Figure) -> None:
    far = PREDICTION.copy()
    far[0, 0] = 1e5
    plots.depth_panels(figure, IMAGE, TRUTH, far, UNCERTAINTY)
    _, truth, _, error, _ = shown(figure)
    assert truth.get_clim()[1] < 70
    assert error.get_clim()[1] < 1e4
    bars = [ax.child_axes[0]._colorbar for ax in figure.axes[1:5]]  # type: ignore[attr-defined]
    assert bars[1].extend == "both"
    assert bars[2].extend == "max"


def test_colour_bars(figure: Figure) -> None:
    plots.depth_panels(figure, IMAGE, TRUTH, PREDICTION, UNCERTAINTY, unit="m")
    assert [len(ax.child_axes) for ax in figure.axes[:5]] == [0, 1, 1, 1, 1]
    figure.canvas.draw()
    for ax in figure.axes[1:5]:
        (bar,) = ax.child_axes
        assert bar.get_xlabel() == "m"
        assert bar.get_xlim() == pytest.approx(ax.images[0].get_clim())
        assert bar.get_window_extent().y1 < ax.get_window_extent().y0
        assert bar.get_tightbbox().y0 >= 0
    widths = [ax.get_window_extent().width for ax in figure.axes[:5]]
    assert np.ptp(widths) < 1


@pytest.mark.parametrize("missing", [0.0, np.nan])
def test_missing_truth_is_blank_with_its_error(figure: Figure, missing: float) -> None:
    gone = np.zeros(TRUTH.shape, dtype=bool)
    gone[:3] = True
    plots.depth_panels(figure, IMAGE, np.where(gone, missing, TRUTH), PREDICTION, UNCERTAINTY)
    _, truth, prediction, error, uncertainty = shown(figure)
    for panel, blank in ((truth, gone), (error, gone), (prediction, ~gone & gone), (uncertainty, ~gone & gone)):
        np.testing.assert_array_equal(np.ma.getmaskarray(panel.get_array()), blank)
    assert truth.get_clim()[0] > 0
    assert truth.cmap(np.ma.masked)[3] == 0


def test_nothing_known_and_a_constant(figure: Figure) -> None:
    plots.depth_panels(figure, IMAGE, 0 * TRUTH, PREDICTION, np.full_like(TRUTH, 3.0))
    _, truth, prediction, error, uncertainty = shown(figure)
    assert np.ma.getmaskarray(truth.get_array()).all()
    assert np.ma.getmaskarray(error.get_array()).all()
    assert prediction.get_clim() == truth.get_clim()
    assert uncertainty.get_clim()[0] == 3 < uncertainty.get_clim()[1]


def test_axes_of_the_caller_and_whole_numbers(figure: Figure) -> None:
    axes = figure.subplots(2, 5)
    names = ["a", "b", "c", "d", "e"]
    bytes_ = (IMAGE * 255).astype(np.int64)
    plots.depth_panels(axes[1], bytes_, TRUTH, PREDICTION, UNCERTAINTY, names=names)
    assert [ax.get_title() for ax in axes[1]] == names
    assert not any(ax.images for ax in axes[0])
    assert axes[1][0].images[0].get_array().dtype == np.uint8
    np.testing.assert_array_equal(axes[1][0].images[0].get_array(), bytes_)


def test_bad_panels(figure: Figure) -> None:
    axes = figure.subplots(1, 5)
    with pytest.raises(ValueError, match="axes must be a Figure or five Axes, got 4"):
        plots.depth_panels(axes[:4], IMAGE, TRUTH, PREDICTION, UNCERTAINTY)
    with pytest.raises(ValueError, match="names must hold five titles, got 2"):
        plots.depth_panels(axes, IMAGE, TRUTH, PREDICTION, UNCERTAINTY, names=["a", "b"])
    with pytest.raises(ValueError, match=r"one shape \(h, w\), got truth \(12, 16\), prediction \(11, 16\)"):
        plots.depth_panels(axes, IMAGE, TRUTH, PREDICTION[1:], UNCERTAINTY)
    with pytest.raises(ValueError, match=r"one shape \(h, w\), got truth \(1, 12, 16\)"):
        plots.depth_panels(axes, IMAGE, TRUTH[None], PREDICTION[None], UNCERTAINTY[None])
    with pytest.raises(ValueError, match=r"image must have shape \(H, W, 3\), got \(3, 24, 32\); move"):
        plots.depth_panels(axes, np.moveaxis(IMAGE, 2, 0), TRUTH, PREDICTION, UNCERTAINTY)
    for image in (IMAGE - 0.5, IMAGE * 255, (IMAGE * 1000).astype(int), IMAGE * np.nan):
        with pytest.raises(ValueError, match="image must hold integers from 0 to 255 or floats from 0 to 1"):
            plots.depth_panels(axes, image, TRUTH, PREDICTION, UNCERTAINTY)


class TestRows:
    ROW = plots.DepthRow(IMAGE, TRUTH, PREDICTION, UNCERTAINTY, "a")

    def test_columns_and_shared_scales(self, figure: Figure) -> None:
        sparse = np.where(TRUTH > 30, TRUTH, 0)
        other = self.ROW._replace(truth=sparse, std=2 * UNCERTAINTY, label="b")
        plots.plot_depth_panel([self.ROW, other], figure)
        images = shown(figure)
        assert len(figure.axes) == 2 * 5 + 2
        assert [ax.get_title() for ax in figure.axes[:5]] == [
            "image",
            "truth (grey: unknown)",
            "prediction",
            "absolute error",
            "uncertainty",
        ]
        assert [figure.axes[i].get_ylabel() for i in (0, 5)] == ["a", "b"]
        assert all(len(ax.get_xticks()) == len(ax.get_yticks()) == 0 for ax in figure.axes[:10])
        maps = {ax: ax.images[0] for ax in figure.axes[:10]}
        scales = [maps[ax].get_clim() for ax in figure.axes[:10]]
        assert len({scales[i] for i in (1, 2, 6, 7)}) == len({scales[i] for i in (3, 4, 8, 9)}) == 1
        assert scales[3][0] == 0
        assert len(images) == 10
        np.testing.assert_array_equal(maps[figure.axes[6]].get_array().mask, sparse == 0)
        np.testing.assert_array_equal(maps[figure.axes[8]].get_array().mask, sparse == 0)
        assert [ax.get_xlabel() for ax in figure.axes[10:]] == [
            "truth and prediction (m)",
            "absolute error and uncertainty (m)",
        ]

    def test_rows_far_apart_get_a_logarithm(self, figure: Figure) -> None:
        far = self.ROW._replace(std=100 * UNCERTAINTY)
        plots.plot_depth_panel([self.ROW._replace(mean=TRUTH), far], figure)
        images = shown(figure)
        assert type(images[4].norm).__name__ == "LogNorm"
        assert type(images[2].norm).__name__ == "Normalize"
        # An error of zero is drawn like any that is below the scale, and not like a missing one.
        assert not np.ma.getmaskarray(images[3].get_array()).any()
        low, high = images[4].get_clim()
        assert 0 < low < UNCERTAINTY.min()
        assert 150 < high <= 200

    def test_without_truth(self, figure: Figure) -> None:
        plots.plot_depth_panel([self.ROW._replace(truth=None)], figure)
        assert [ax.get_title() for ax in figure.axes[:3]] == ["image", "prediction", "uncertainty"]
        assert [ax.get_xlabel() for ax in figure.axes[3:]] == ["prediction (m)", "uncertainty (m)"]
        assert len(shown(figure)) == 3

    def test_truth_of_some(self, figure: Figure) -> None:
        plots.plot_depth_panel([self.ROW, self.ROW._replace(truth=None)], figure)
        assert len(shown(figure)) == 8

    def test_file(self, tmp_path: Path) -> None:
        path = tmp_path / "new" / "panel.png"
        tall = plots.DepthRow(IMAGE.swapaxes(0, 1), TRUTH.T, PREDICTION.T, UNCERTAINTY.T)
        plots.plot_depth_panel([self.ROW, tall], str(path))
        assert path.read_bytes().startswith(b"\x89PNG")
        assert [file.name for file in path.parent.iterdir()] == ["panel.png"]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"std": UNCERTAINTY.T}, "one shape"),
            ({"mean": PREDICTION[None]}, "one shape"),
            ({"image": IMAGE[..., 0]}, "image must have shape"),
        ],
    )
    def test_bad_rows(self, figure: Figure, change: dict[str, np.ndarray], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            plots.plot_depth_panel([self.ROW._replace(**change)], figure)
        with pytest.raises(ValueError, match="rows is empty"):
            plots.plot_depth_panel([], figure)
