"""Metrics over the pixels of test images, in metres."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from density_regression import metrics
from density_regression.depth import in_metres
from density_regression.experiments.depth.methods import Trained
from density_regression.head import Moments
from density_regression.scene import SceneRegression

__all__ = ["Pixels", "held_out_scale", "predict", "score"]

LEVELS: Final = 100
"""Levels of the paper's calibration error."""

CURVE: Final = 21
SHARES: Final = 20
"""Points of the calibration curve and of the sparsification curve that a record keeps."""

MOST_PIXELS: Final = 200_000
"""Pixels that are scored, the same ones for every method, drawn from all that have depth."""

Floats = NDArray[np.float64]


class Pixels(NamedTuple):
    """Truth, mean and deviation, in metres, of the pixels that are scored; mean deviation and score of each image."""

    truth: Floats
    mean: Floats
    std: Floats
    image_std: Floats
    image_score: Floats | None


@torch.inference_mode()
def predict(trained: Trained, batches: Iterator[tuple[Tensor, Tensor]]) -> Pixels:
    """Predict batches of images (n, 3, h, w) with depths (n, h, w) in metres, zero where unknown."""
    parts: list[tuple[Tensor, ...]] = []
    scores: list[Tensor] = []
    for x, depth in batches:
        if isinstance(trained.model, SceneRegression):
            *moments, log_density = trained.model.pixels(x)
            scores.append(log_density.mean((1, 2)))
        else:
            moments = list(trained.model.moments(x))
        mean, std = in_metres(Moments(*moments), trained.center, trained.scale)
        known = depth > 0
        parts.append((depth[known], mean[known], std[known], std.mean((1, 2))))
    *pixels, image_std = (_numbers(part) for part in zip(*parts, strict=True))
    chosen = np.random.default_rng(0).permutation(len(pixels[0]))[:MOST_PIXELS]
    truth, mean_of, std_of = (values[chosen] for values in pixels)
    return Pixels(truth, mean_of, std_of, image_std, _numbers(scores) if scores else None)


def held_out_scale(pixels: Pixels) -> float:
    """Factor on the standard deviation that maximises the likelihood of held-out pixels."""
    return float(np.sqrt(np.mean(np.square((pixels.truth - pixels.mean) / pixels.std))))


def score(pixels: Pixels, scale: float, target_sd: float) -> dict[str, Any]:
    """Every metric, curves for figures, and what each image got."""
    truth, mean, std = pixels[:3]
    figures = {
        "nll": metrics.nll(truth, mean, std),
        "rmse": metrics.rmse(truth, mean),
        "mae": metrics.mae(truth, mean),
        "cal": metrics.calibration_error(truth, mean, std, LEVELS),
        "sharpness": metrics.sharpness(std),
        "sharpness_sd": metrics.sharpness(std, target_sd),
        "crps": metrics.crps(truth, mean, std),
        "coverage_95": metrics.coverage(truth, mean, std),
        "ause": metrics.ause(truth, mean, std),
        "nll_rescaled": metrics.nll(truth, mean, scale * std),
        "cal_rescaled": metrics.calibration_error(truth, mean, scale * std, LEVELS),
        "crps_rescaled": metrics.crps(truth, mean, scale * std),
    }
    curve = metrics.calibration_curve(truth, mean, std, CURVE)
    shares, by_std, by_error = metrics.sparsification_curve(truth, mean, std, points=SHARES)
    return {
        "pixels": len(truth),
        "metrics": {name: float(value) for name, value in figures.items()},
        "curve": _rounded(curve[1]),
        "sparsification": {"share": _rounded(shares), "by_std": _rounded(by_std), "by_error": _rounded(by_error)},
        "image_std": _rounded(pixels.image_std),
        "image_score": None if pixels.image_score is None else _rounded(pixels.image_score),
    }


def _numbers(parts: Sequence[Tensor]) -> Floats:
    values: Floats = torch.cat(list(parts)).double().cpu().numpy()
    return values


def _rounded(values: Floats) -> list[float]:
    return [float(f"{value:.6g}") for value in values]
