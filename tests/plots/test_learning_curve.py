"""Learning curves: both losses, the best epoch, gaps and spikes."""

from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.axes import Axes

from density_regression import plots


def report(history: list[float], train_history: list[float]) -> SimpleNamespace:
    return SimpleNamespace(history=history, train_history=train_history)


def xy(ax: Axes, label: str) -> np.ndarray:
    (line,) = [line for line in ax.get_lines() if str(line.get_label()).startswith(label)]
    return np.asarray(line.get_xydata())


def test_both_losses_and_the_best_epoch(ax: Axes) -> None:
    plots.learning_curve(ax, report([3.0, 1.5, 1.25, 2.0], [3.5, 2.0, 1.0, 0.5]))
    np.testing.assert_array_equal(xy(ax, "training loss"), [[1, 3.5], [2, 2.0], [3, 1.0], [4, 0.5]])
    np.testing.assert_array_equal(xy(ax, "held-out loss"), [[1, 3.0], [2, 1.5], [3, 1.25], [4, 2.0]])
    np.testing.assert_array_equal(xy(ax, "best epoch"), [[3, 1.25]])
    labels = ax.get_legend_handles_labels()[1]
    assert labels == ["training loss", "held-out loss", "best epoch: 3, loss 1.25"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("epoch", "mean loss")
    assert ax.get_xlim() == (0, 5)
    assert ax.get_ylim() == pytest.approx((0.35, 3.65))


def test_a_report_without_training_losses_shows_the_others(ax: Axes) -> None:
    plots.learning_curve(ax, report([2.0, 1.0], []))
    assert ax.get_legend_handles_labels()[1] == ["held-out loss", "best epoch: 2, loss 1"]


def test_without_held_out_rows_there_is_one_curve(ax: Axes) -> None:
    plots.learning_curve(ax, report([2.0, float("nan"), 1.0], [2.0, float("nan"), 1.0]))
    assert ax.get_legend_handles_labels()[1] == ["training loss", "best epoch: 3, loss 1"]


def test_an_overflow_leaves_a_gap(ax: Axes) -> None:
    plots.learning_curve(ax, report([2.0, float("inf"), 1.0, float("nan")], [2.0, 1.5, 1.0, -float("inf")]))
    np.testing.assert_array_equal(xy(ax, "held-out loss")[:, 1], [2.0, np.nan, 1.0, np.nan])
    assert np.isfinite(ax.get_ylim()).all()


def test_a_spike_does_not_flatten_the_rest(ax: Axes) -> None:
    losses = np.linspace(2.0, 1.0, 50)
    plots.learning_curve(ax, report([1e6, *losses], [1e3, *losses]))
    assert ax.get_ylim()[1] < 10
    assert ax.get_ylim()[0] < 1


@pytest.mark.parametrize("losses", [[1.5], [1.5, 1.5, 1.5]])
def test_one_epoch_and_equal_losses(ax: Axes, losses: list[float]) -> None:
    plots.learning_curve(ax, report(losses, [loss + 1e-300 for loss in losses]))
    assert ax.get_ylim()[0] < 1.5 < ax.get_ylim()[1]


@pytest.mark.parametrize("history", [[], [float("nan")]])
def test_nothing_to_draw(ax: Axes, history: list[float]) -> None:
    with pytest.raises(ValueError, match=r"report has no epochs to draw: .* resumed from a checkpoint"):
        plots.learning_curve(ax, report(history, []))
