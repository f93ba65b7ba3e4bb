"""The Gaussian loss whose gradient is written by hand, against torch's own."""

from __future__ import annotations

import torch
from torch.distributions import Normal

from density_regression.nn.heads import Moments, gaussian_losses


def some(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_against_torch() -> None:
    mean, log_std, y = some(7, 3, seed=0).requires_grad_(), some(7, 3, seed=1).requires_grad_(), some(7, 3, seed=2)
    expected = -Normal(mean, log_std.exp()).log_prob(y).mean(-1)
    found = gaussian_losses(Moments(mean, log_std), y)
    torch.testing.assert_close(found, expected)
    weight = some(7, seed=3)
    torch.testing.assert_close(
        torch.autograd.grad(found @ weight, (mean, log_std)), torch.autograd.grad(expected @ weight, (mean, log_std))
    )


def test_gradient_by_differences() -> None:
    inputs, y = (some(4, 2, seed=0).requires_grad_(), some(4, 2, seed=1).requires_grad_()), some(4, 2, seed=2)
    assert torch.autograd.gradcheck(lambda mean, log_std: gaussian_losses(Moments(mean, log_std), y), inputs)


def test_second_derivatives() -> None:
    inputs = [some(4, 2, seed=seed).requires_grad_() for seed in (0, 1)]
    y = some(4, 2, seed=2)
    assert torch.autograd.gradgradcheck(lambda mean, log_std: gaussian_losses(Moments(mean, log_std), y), inputs)


def test_members_at_once() -> None:
    """With leading axes, and under vmap, where there is no such gradient."""
    mean, log_std, y = (some(5, 7, 1, seed=seed) for seed in range(3))
    mean.requires_grad_()
    each = torch.stack([gaussian_losses(Moments(*parts), own) for *parts, own in zip(mean, log_std, y, strict=True)])
    torch.testing.assert_close(gaussian_losses(Moments(mean, log_std), y), each)
    mapped = torch.vmap(lambda mean, log_std, y: gaussian_losses(Moments(mean, log_std), y))(mean, log_std, y)
    torch.testing.assert_close(mapped, each)
    gradients = [torch.autograd.grad(losses.sum(), mean, retain_graph=True)[0] for losses in (each, mapped)]
    torch.testing.assert_close(*gradients)
