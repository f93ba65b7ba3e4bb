"""Densities p(z; alpha) on an encoder's features."""

from collections.abc import Callable
from importlib import import_module

from density_regression.nn.density.base import Density, Whitening
from density_regression.nn.density.flow import FlowDensity
from density_regression.nn.density.folded import Folded
from density_regression.nn.density.gaussian import GaussianDensity
from density_regression.nn.density.kernel import KernelDensity
from density_regression.nn.density.mixture import MixtureDensity
from density_regression.nn.density.radial import RadialFlowDensity
from density_regression.nn.density.scene import SceneDensity

__all__ = [
    "DENSITIES",
    "Density",
    "FlowDensity",
    "Folded",
    "GaussianDensity",
    "KernelDensity",
    "MixtureDensity",
    "RadialFlowDensity",
    "SceneDensity",
    "Whitening",
]

DENSITIES: dict[str, Callable[..., Density]] = {
    name: getattr(import_module(f"{__name__}.{module}"), builder)
    for name, (module, builder) in {
        "mixture": ("mixture", "MixtureDensity"),
        "gaussian": ("gaussian", "GaussianDensity"),
        "kernel": ("kernel", "KernelDensity"),
        "flow": ("flow", "FlowDensity"),
        "maf": ("flow", "maf"),
        "nsf": ("flow", "nsf"),
        "radial": ("radial", "RadialFlowDensity"),
    }.items()
}
"""Densities by the name that `density=` takes: to add one, name the module in this folder and the class here."""
