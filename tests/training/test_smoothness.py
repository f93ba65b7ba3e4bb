"""Training on inputs moved to where their loss rises."""

import pytest
import torch
from torch import Tensor, nn

from density_regression.nn.runtime import TrainingOptions
from density_regression.training import loop
from density_regression.training.batches import TensorBatches
from density_regression.training.loop import _perturbed, optimise


class SquaredError(nn.Module):
    """Squared errors of a small network, and the inputs it was shown."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.network = nn.Sequential(nn.Linear(20, 50), nn.Tanh(), nn.Linear(50, 1))
        self.shown: list[Tensor] = []

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        if self.training:
            self.shown.append(x.detach().clone())
        return (weight[:, None] * (self.network(x) - y).square()).mean()


def rows(n: int = 60) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 20, generator=generator)
    return x, x[:, :1] + 0.5 * torch.randn(n, 1, generator=generator), torch.ones(n)


def trained(smoothness: float, epochs: int = 100) -> SquaredError:
    objective = SquaredError()
    options = TrainingOptions(epochs=epochs, weight_decay=0.0, patience=None, smoothness=smoothness)
    optimise(objective, TensorBatches(*rows(), 20), None, options)
    return objective


def rise(objective: SquaredError, size: float) -> float:
    """By how much the training loss rises when inputs move by `size` where it rises fastest."""
    x, y, weight = rows()
    objective.eval()
    x.requires_grad_()
    before = objective(x, y, weight)
    before.backward()
    assert x.grad is not None
    return (objective(x + size * x.grad.sign(), y, weight) - before).item()


def test_every_other_batch_is_moved_by_no_more_than_asked() -> None:
    shown = trained(0.3, epochs=2).shown
    assert len(shown) == 2 * 2 * 3
    for plain, moved in zip(shown[::2], shown[1::2], strict=True):
        distance = (moved - plain).abs()
        # All inputs of a row by the same, rows by different shares.
        torch.testing.assert_close(distance, distance[:, :1].expand_as(distance), rtol=0, atol=1e-6)
        assert distance.max() <= 0.3
        assert len(distance[:, 0].unique()) > 10


def test_a_moved_row_counts_half(monkeypatch: pytest.MonkeyPatch) -> None:
    objective, by_hand = SquaredError(), SquaredError()
    steps: list[list[Tensor]] = []
    monkeypatch.setattr(loop, "_clip", lambda weights, *_, **__: steps.append([w.grad.clone() for w in weights]))
    optimise(objective, TensorBatches(*rows(), 60), None, TrainingOptions(epochs=1, smoothness=0.3))
    plain, moved = objective.shown
    _, y, weight = rows()
    (by_hand(plain, y, weight) + 0.5 * by_hand(moved, y, weight)).backward()
    torch.testing.assert_close(steps[0], [parameter.grad for parameter in by_hand.parameters()])


def test_without_it_batches_come_once() -> None:
    assert len(trained(0.0, epochs=2).shown) == 2 * 3


def test_the_loss_rises_where_rows_are_moved() -> None:
    x = torch.tensor([[1.0, -2.0], [0.0, 3.0]], requires_grad=True)
    x.square().sum().backward()
    moved = _perturbed(x, 0.1)
    assert (moved.square().sum(1) > x.square().sum(1)).all()
    assert moved[1, 0] == 0.0
    assert not moved.requires_grad


def test_a_gradient_that_is_no_number_moves_nothing() -> None:
    x = torch.zeros(1, 2, requires_grad=True)
    x.grad = torch.tensor([[torch.nan, 1.0]])
    assert _perturbed(x, 0.1)[0, 0] == 0.0


def test_the_network_becomes_smoother() -> None:
    assert rise(trained(0.2), 0.1) < 0.6 * rise(trained(0.0), 0.1)


def test_inputs_of_the_caller_are_left_alone() -> None:
    batches = TensorBatches(*rows(), 20)
    optimise(SquaredError(), batches, None, TrainingOptions(epochs=1, smoothness=0.1))
    assert not batches.rows[0].requires_grad
    assert torch.equal(batches.rows[0], rows()[0])
