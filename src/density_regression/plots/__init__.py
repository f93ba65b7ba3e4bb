"""Figures of predictive distributions, drawn on Axes of the caller."""

__all__ = [
    "DepthRow",
    "calibration_curve",
    "calibration_from_curve",
    "critical_difference",
    "depth_panels",
    "error_against_std",
    "error_histogram",
    "fan",
    "learning_curve",
    "ordered_intervals",
    "parity",
    "plot_depth_panel",
    "predictive_band",
    "sharpness_histogram",
]

from density_regression.plots.bands import predictive_band
from density_regression.plots.calibration import calibration_curve, calibration_from_curve
from density_regression.plots.depth import DepthRow, depth_panels, plot_depth_panel
from density_regression.plots.errors import error_against_std, ordered_intervals, parity
from density_regression.plots.histograms import error_histogram, sharpness_histogram
from density_regression.plots.learning import learning_curve
from density_regression.plots.ranks import critical_difference
from density_regression.plots.time_series import fan
