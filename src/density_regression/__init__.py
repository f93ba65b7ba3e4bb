"""Density-Regression: deep regression with an honest predictive distribution in one forward pass."""

from importlib.metadata import version

from density_regression import baselines, datasets, metrics
from density_regression.density import (
    FlowDensity,
    GaussianDensity,
    KernelDensity,
    MixtureDensity,
    RadialFlowDensity,
)
from density_regression.encoders import MLP, ResidualMLP
from density_regression.estimator import DensityRegressor
from density_regression.head import MeanHead, NaturalHead
from density_regression.model import DensityRegression
from density_regression.persistence import InvalidModelError
from density_regression.registry import load, methods
from density_regression.training import TrainingOptions, fit_density_regression

__all__ = [
    "MLP",
    "DensityRegression",
    "DensityRegressor",
    "FlowDensity",
    "GaussianDensity",
    "InvalidModelError",
    "KernelDensity",
    "MeanHead",
    "MixtureDensity",
    "NaturalHead",
    "RadialFlowDensity",
    "ResidualMLP",
    "TrainingOptions",
    "baselines",
    "datasets",
    "fit_density_regression",
    "load",
    "methods",
    "metrics",
]

__version__ = version("density-regression")
