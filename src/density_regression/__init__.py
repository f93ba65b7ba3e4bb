"""Density-Regression: deep regression with an honest predictive distribution in one forward pass."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from density_regression import baselines as baselines
    from density_regression import datasets as datasets
    from density_regression import metrics as metrics
    from density_regression import plots as plots
    from density_regression.estimators.density import DensityRegressor as DensityRegressor
    from density_regression.estimators.fit_together import fit_together as fit_together
    from density_regression.inference.onnx import to_onnx as to_onnx
    from density_regression.io.store import InvalidModelError as InvalidModelError
    from density_regression.nn.density import FlowDensity as FlowDensity
    from density_regression.nn.density import GaussianDensity as GaussianDensity
    from density_regression.nn.density import KernelDensity as KernelDensity
    from density_regression.nn.density import MixtureDensity as MixtureDensity
    from density_regression.nn.density import RadialFlowDensity as RadialFlowDensity
    from density_regression.nn.encoders import MLP as MLP
    from density_regression.nn.encoders import ResidualMLP as ResidualMLP
    from density_regression.nn.heads import MeanHead as MeanHead
    from density_regression.nn.heads import NaturalHead as NaturalHead
    from density_regression.nn.model import DensityRegression as DensityRegression
    from density_regression.nn.runtime import TrainingOptions as TrainingOptions
    from density_regression.registry import load as load
    from density_regression.registry import methods as methods
    from density_regression.registry import register as register
    from density_regression.training.algorithm import fit_density_regression as fit_density_regression
    from density_regression.training.callbacks import Callback as Callback
    from density_regression.training.callbacks import CSVLogger as CSVLogger

__version__ = version("density-regression")

_FOLDERS = ("baselines", "datasets", "metrics", "plots")
_MODULES = {
    "MLP": "nn.encoders",
    "CSVLogger": "training.callbacks",
    "Callback": "training.callbacks",
    "DensityRegression": "nn.model",
    "DensityRegressor": "estimators.density",
    "FlowDensity": "nn.density",
    "GaussianDensity": "nn.density",
    "InvalidModelError": "io.store",
    "KernelDensity": "nn.density",
    "MeanHead": "nn.heads",
    "MixtureDensity": "nn.density",
    "NaturalHead": "nn.heads",
    "RadialFlowDensity": "nn.density",
    "ResidualMLP": "nn.encoders",
    "TrainingOptions": "nn.runtime",
    "fit_density_regression": "training.algorithm",
    "fit_together": "estimators.fit_together",
    "load": "registry",
    "methods": "registry",
    "register": "registry",
    "to_onnx": "inference.onnx",
}

__all__ = [*_FOLDERS, *_MODULES]  # noqa: PLE0604 - all are strings


def __getattr__(name: str) -> Any:
    # On first use: torch and scikit-learn take seconds to import, and `--help` needs neither.
    if name in _FOLDERS:
        return import_module(f"{__name__}.{name}")
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
