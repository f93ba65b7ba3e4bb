"""Density-Regression and its rivals on a U-Net, with the same training but for the smoothness of ours."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

import torch

from density_regression.baselines.base import BaselineModule, fit_baseline
from density_regression.baselines.dropout import DropoutNetwork
from density_regression.baselines.ensemble import EnsembleNetwork
from density_regression.baselines.evidential import EvidentialNetwork
from density_regression.baselines.gaussian import GaussianNetwork
from density_regression.baselines.natural_posterior import NaturalPosteriorNetwork
from density_regression.datasets.depth import DepthFolder
from density_regression.experiments.report.names import OURS
from density_regression.nn.encoders import UNet
from density_regression.nn.network import Predictor
from density_regression.nn.runtime import find_device
from density_regression.vision.depth import DepthRegressor, placed

__all__ = ["KNOWN", "METHODS", "Trained", "train", "untrained"]

DROPOUT: Final = 0.1

RIVALS: Final[dict[str, Callable[[Callable[..., UNet], int], BaselineModule]]] = {
    "Gaussian": lambda unet, width: GaussianNetwork(unet(), width),
    "MC Dropout": lambda unet, width: DropoutNetwork(unet(dropout=DROPOUT), width, dropout=DROPOUT, n_samples=20),
    "EDL": lambda unet, width: EvidentialNetwork(unet(), width),
    "NatPN": lambda unet, width: NaturalPosteriorNetwork(unet(), width),
    "Deep Ensembles": lambda unet, width: EnsembleNetwork([GaussianNetwork(unet(), width) for _ in range(5)]),
}

METHODS: Final = (OURS, *RIVALS)

SMOOTH: Final = {f"{name} (smooth)": name for name in ("Gaussian", "Deep Ensembles")}
"""Rivals trained with the smoothness of ours, to separate its effect; run only if named."""

KNOWN: Final = (*METHODS, *SMOOTH)


class Trained(NamedTuple):
    """A fitted module, mean and standard deviation of its training depths in metres, and the seconds of the fit."""

    model: Predictor
    center: float
    scale: float
    seconds: float


def untrained(method: str, regressor: DepthRegressor) -> BaselineModule:
    """Network of a rival, with the size and device of `regressor`."""
    torch.manual_seed(regressor.random_state)
    model = RIVALS[SMOOTH.get(method, method)](
        lambda **other: UNet(width=regressor.width, levels=regressor.levels, **other), regressor.width
    )
    return placed(model, regressor.device)


def train(method: str, regressor: DepthRegressor, pairs: DepthFolder) -> Trained:
    """Fit a method to `pairs` with the network size, split, scaling and training options of `regressor`.

    `regressor` itself is fitted if the method is ours. Rivals are trained without its smoothness, except `SMOOTH`.
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
