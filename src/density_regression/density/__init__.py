"""Densities p(z; alpha) on an encoder's features, and the ways they enter the precision."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from density_regression.density.base import Density
from density_regression.density.flow import FlowDensity
from density_regression.density.folded import Folded
from density_regression.density.gaussian import GaussianDensity
from density_regression.density.kernel import KernelDensity
from density_regression.density.mixture import MixtureDensity
from density_regression.density.radial import RadialFlowDensity
from density_regression.density.scene import SceneDensity
from density_regression.density.tempering import (
    TYPICAL_REACH,
    ExactTempering,
    RescaledTempering,
    RobustTempering,
    Tempering,
)
from density_regression.density.whitening import Whitening

__all__ = [
    "DENSITIES",
    "TEMPERINGS",
    "TYPICAL_REACH",
    "Density",
    "ExactTempering",
    "FlowDensity",
    "Folded",
    "GaussianDensity",
    "KernelDensity",
    "MixtureDensity",
    "RadialFlowDensity",
    "RescaledTempering",
    "RobustTempering",
    "SceneDensity",
    "Tempering",
    "Whitening",
]

DENSITIES: dict[str, Callable[..., Density]] = {
    "mixture": MixtureDensity,
    "gaussian": GaussianDensity,
    "kernel": KernelDensity,
    "flow": FlowDensity,
    "maf": partial(FlowDensity, "maf"),
    "nsf": partial(FlowDensity, "nsf"),
    "radial": RadialFlowDensity,
}
"""Densities by the name that `density=` takes."""

TEMPERINGS: dict[str, Callable[..., Tempering]] = {
    "robust": RobustTempering,
    "exact": ExactTempering,
    "rescaled": RescaledTempering,
}
"""Temperings by the name that `tempering=` takes."""
