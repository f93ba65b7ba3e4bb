"""Fast gradient sign method: perturbs images so that a model's loss rises."""

import torch
from torch import Tensor

from density_regression.baselines.gaussian import gaussian_nll
from density_regression.nn.heads import Moments, weighted_mean
from density_regression.nn.network import Predictor, position_weights
from density_regression.training.loop import along_signs

__all__ = ["fgsm"]


def fgsm(model: Predictor, x: Tensor, y: Tensor, weight: Tensor, epsilons: tuple[float, ...]) -> list[Tensor]:
    """Images x + epsilon sign(gradient of the Gaussian NLL), clipped to [0, 1] (Goodfellow et al., 2015).

    Parameters
    ----------
    model : Predictor
    x, y, weight : Tensor
        Images (n, 3, h, w) from 0 to 1, scaled depths (n, 1, h, w), and weights (n, h, w): 0 where depth is unknown.
    epsilons : tuple of float
        Change of every pixel, one for each returned tensor.
    """
    with torch.enable_grad():
        x = x.detach().requires_grad_(True)
        moments = model.moments(x)
        mean, log_std, truth = (part.movedim(1, -1).flatten(0, -2) for part in (*moments, y))
        loss = weighted_mean(gaussian_nll(Moments(mean, log_std), truth), position_weights(weight, y))
        (gradient,) = torch.autograd.grad(loss, x)
    return [along_signs(x, gradient, epsilon).clamp(0.0, 1.0) for epsilon in epsilons]
