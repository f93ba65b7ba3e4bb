"""The fast gradient sign method: images moved so that a model's loss rises."""

from __future__ import annotations

import torch
from torch import Tensor

from density_regression._numeric import along_signs
from density_regression.baselines.gaussian import gaussian_nll
from density_regression.head import Moments
from density_regression.network import Predictor, position_weights, weighted_mean

__all__ = ["fgsm"]


def fgsm(model: Predictor, x: Tensor, y: Tensor, weight: Tensor, epsilons: tuple[float, ...]) -> list[Tensor]:
    """Images x + epsilon sign(gradient of the NLL), kept within [0, 1] (Goodfellow et al., 2015).

    Parameters
    ----------
    model : Predictor
        Whose negative log-likelihood, that of its mean and variance, is to rise.
    x, y, weight : Tensor
        Images (n, 3, h, w) from 0 to 1, scaled depths (n, 1, h, w), and 1 where depth is known, else 0, (n, h, w).
    epsilons : tuple of float
        How far to move every pixel.
    """
    with torch.enable_grad():
        x = x.detach().requires_grad_(True)
        moments = model.moments(x)
        mean, log_std, truth = (part.movedim(1, -1).flatten(0, -2) for part in (*moments, y))
        loss = weighted_mean(gaussian_nll(Moments(mean, log_std), truth), position_weights(weight, y))
        (gradient,) = torch.autograd.grad(loss, x)
    return [along_signs(x, gradient, epsilon).clamp(0.0, 1.0) for epsilon in epsilons]
