"""The head of an encoder that was trained elsewhere: ridge regression on its features."""

import torch

from density_regression.nn.heads import Head
from density_regression.nn.network import Features

__all__ = ["start_head"]


@torch.no_grad()
def start_head(head: Head, rows: Features) -> None:
    """Set a head to the ridge regression of targets on features, with one variance for all rows."""
    head.reset()
    z, y, weight = rows.z[:, : head.features].double(), rows.y.double(), rows.weight.double()
    # About their mean: features with a large offset would be shrunk for it.
    center = weight @ z / weight.sum()
    design = torch.cat([z - center, torch.ones_like(z[:, :1])], 1)
    weighted = design * weight[:, None]
    gram = weighted.T @ design
    ridge = 1e-4 * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    ridge[-1, -1] = 0.0
    coefficients = torch.linalg.lstsq(gram + ridge, weighted.T @ y).solution
    variance = weight @ (y - design @ coefficients).square() / weight.sum()
    s = -(2 * variance.clamp_min(1e-8)).log()
    coefficients[-1] -= center @ coefficients[:-1]
    location = head.location_of(coefficients, s).to(head.linear.weight)
    head.linear.weight.zero_()
    head.linear.weight[: head.targets] = location[:-1].T
    head.linear.bias.copy_(torch.cat([location[-1], s.to(location)]))
