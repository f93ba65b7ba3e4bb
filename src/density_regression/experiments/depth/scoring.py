"""Metrics over the pixels of test images, in metres."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from density_regression import metrics
from density_regression.experiments.depth.methods import Trained
from density_regression.experiments.scoring import CURVE_LEVELS, FloatArray, common_metrics
from density_regression.nn.heads import Moments
from density_regression.vision.depth import in_metres
from density_regression.vision.model import SceneRegression

__all__ = ["Pixels", "predict", "score"]

LEVELS: Final = 100
"""Levels of the paper's calibration error."""

SPARSIFICATION_POINTS: Final = 20
"""Points of the sparsification curve in a record."""

MAX_PIXELS: Final = 200_000
"""Most pixels that are scored, drawn from all with known depth, the same for every method."""


class Pixels(NamedTuple):
    """Truth, mean and std of scored pixels (p,); mean std, and mean log-density if known, of each image (n,)."""

    truth: FloatArray
    mean: FloatArray
    std: FloatArray
    image_std: FloatArray
    image_score: FloatArray | None


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
    *pixels, image_std = (_concatenate(part) for part in zip(*parts, strict=True))
    chosen = np.random.default_rng(0).permutation(len(pixels[0]))[:MAX_PIXELS]
    truth, mean_of, std_of = (values[chosen] for values in pixels)
    return Pixels(truth, mean_of, std_of, image_std, _concatenate(scores) if scores else None)


def score(pixels: Pixels, scale: float, target_sd: float) -> dict[str, Any]:
    """Metrics and curves over pixels, and the values of each image; `scale` and `target_sd` as for tables."""
    predictions = pixels[:3]
    sparsification = metrics.sparsification_curve(*predictions, points=SPARSIFICATION_POINTS)
    values = common_metrics(*predictions, LEVELS, scale, target_sd)
    return {
        "pixels": len(pixels.truth),
        "metrics": {name: float(value) for name, value in values.items()},
        "curve": _rounded(metrics.calibration_curve(*predictions, CURVE_LEVELS)[1]),
        "sparsification": dict(zip(("share", "by_std", "by_error"), map(_rounded, sparsification), strict=True)),
        "image_std": _rounded(pixels.image_std),
        "image_score": None if pixels.image_score is None else _rounded(pixels.image_score),
    }


def _concatenate(parts: Sequence[Tensor]) -> FloatArray:
    values: FloatArray = torch.cat(list(parts)).double().cpu().numpy()
    return values


def _rounded(values: FloatArray) -> list[float]:
    return [float(f"{value:.6g}") for value in values]
