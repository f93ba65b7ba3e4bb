"""Density-Regression: deep regression with an honest predictive distribution in one forward pass."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from density_regression import baselines, datasets, metrics, plots
    from density_regression.callbacks import Callback, CSVLogger
    from density_regression.density import (
        FlowDensity,
        GaussianDensity,
        KernelDensity,
        MixtureDensity,
        RadialFlowDensity,
    )
    from density_regression.encoders import MLP, ResidualMLP
    from density_regression.estimator import DensityRegressor
    from density_regression.export import to_onnx
    from density_regression.head import MeanHead, NaturalHead
    from density_regression.model import DensityRegression
    from density_regression.persistence import InvalidModelError
    from density_regression.registry import load, methods, register
    from density_regression.together import fit_together
    from density_regression.training import TrainingOptions, fit_density_regression

__all__ = [
    "MLP",
    "CSVLogger",
    "Callback",
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
    "fit_together",
    "load",
    "methods",
    "metrics",
    "plots",
    "register",
    "to_onnx",
]

__version__ = version("density-regression")

_MODULES = ("baselines", "datasets", "metrics", "plots")
_ROOMS = (
    "callbacks",
    "density",
    "encoders",
    "estimator",
    "export",
    "head",
    "model",
    "persistence",
    "registry",
    "together",
    "training",
)


def __getattr__(name: str) -> Any:
    # Late, on first use: torch and scikit-learn take seconds to import, and `--help` or a missing file needs neither.
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    for room in _ROOMS if name in __all__ else ():
        module = import_module(f"{__name__}.{room}")
        if name in module.__all__:
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
