"""The ten methods that Density-Regression is compared with, each with the contract of `DensityRegressor`."""

from density_regression.baselines.base import Baseline, fit_baseline
from density_regression.baselines.deterministic import DeterministicNetwork, DeterministicRegressor
from density_regression.baselines.gaussian import GaussianNetwork, GaussianRegressor

__all__ = [
    "Baseline",
    "DeterministicNetwork",
    "DeterministicRegressor",
    "GaussianNetwork",
    "GaussianRegressor",
    "fit_baseline",
]
