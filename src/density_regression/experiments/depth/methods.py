"""The six methods on a U-Net, all trained alike but for the smoothness of ours, and two rivals with that as well."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

import torch

from density_regression.baselines.base import Rival, fit_baseline
from density_regression.baselines.dropout import DropoutNetwork
from density_regression.baselines.ensemble import EnsembleNetwork
from density_regression.baselines.evidential import EvidentialNetwork
from density_regression.baselines.gaussian import GaussianNetwork
from density_regression.baselines.natural_posterior import NaturalPosteriorNetwork
from density_regression.datasets.depth import DepthFolder
from density_regression.depth import DepthRegressor, placed
from density_regression.encoders import UNet
from density_regression.loop import find_device
from density_regression.network import Predictor

__all__ = ["KNOWN", "METHODS", "OURS", "Trained", "train", "untrained"]

OURS: Final = "Density-Regression"

MEMBERS: Final = 5
SAMPLES: Final = 20
"""Networks of an ensemble, and thinned networks of MC Dropout that are averaged."""

DROPOUT: Final = 0.1

RIVALS: Final[dict[str, Callable[[Callable[..., UNet], int], Rival]]] = {
    "Gaussian": lambda unet, width: GaussianNetwork(unet(), width),
    "MC Dropout": lambda unet, width: DropoutNetwork(unet(dropout=DROPOUT), width, dropout=DROPOUT, n_samples=SAMPLES),
    "EDL": lambda unet, width: EvidentialNetwork(unet(), width),
    "NatPN": lambda unet, width: NaturalPosteriorNetwork(unet(), width),
    "Deep Ensembles": lambda unet, width: EnsembleNetwork([GaussianNetwork(unet(), width) for _ in range(MEMBERS)]),
}

METHODS: Final = (OURS, *RIVALS)

SMOOTH: Final = {f"{name} (smooth)": name for name in ("Gaussian", "Deep Ensembles")}
"""Rivals trained with the smoothness of ours, to see what it does alone; run where they are asked for."""

KNOWN: Final = (*METHODS, *SMOOTH)


class Trained(NamedTuple):
    """A fitted module, mean and standard deviation of its training depths in metres, and the seconds of the fit."""

    model: Predictor
    center: float
    scale: float
    seconds: float


def untrained(method: str, regressor: DepthRegressor) -> Rival:
    """A rival's network, of the size, and on the device, of `regressor`."""
    torch.manual_seed(regressor.random_state)
    model = RIVALS[SMOOTH.get(method, method)](
        lambda **other: UNet(width=regressor.width, levels=regressor.levels, **other), regressor.width
    )
    return placed(model, regressor.device)


def train(method: str, regressor: DepthRegressor, pairs: DepthFolder) -> Trained:
    """Fit a method to `pairs` with the network, split, scaling and training of `regressor`, which is fitted if ours.

    Rivals are trained without its smoothness, unless their name asks for it.
    """
    start = time.perf_counter()
    if method == OURS:
        model: Predictor = regressor.fit(pairs).model_
        scaling = regressor.center_, regressor.scale_
    else:
        batches = regressor.prepare(pairs)
        scaling = batches[0].center, batches[0].scale
        model = untrained(method, regressor)
        options = regressor.options() if method in SMOOTH else replace(regressor.options(), smoothness=0.0)
        fit_baseline(model, *batches, options=options, scale_targets=False, verbose=regressor.verbose)
    model.eval()
    if find_device(regressor.device).type == "cuda":
        torch.cuda.synchronize()
    return Trained(model, *scaling, time.perf_counter() - start)
