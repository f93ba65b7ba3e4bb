"""The parts of the training loop one by one; several members in one loop end as each would alone."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from density_regression import TrainingOptions
from density_regression.baselines.base import mean_losses
from density_regression.nn.runtime import find_device, usual_torch
from density_regression.training import kept_weights, loop
from density_regression.training.batches import TensorBatches
from density_regression.training.loop import TrainingReport, optimise, timed
from training.helpers import generator


class Lines(nn.Module):
    """Least squares on (n, 2) inputs: weights (2,) and a loss (), or those of M members, (M, 2) and (M,)."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone())

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        squares = (x @ self.weight[..., None] - y).square().squeeze(-1)
        return (squares * weight).sum(-1) / weight.sum(-1)


def some_rows(n: int = 40, seed: int = 0) -> TensorBatches:
    source = generator(seed)
    x = torch.randn(n, 2, dtype=torch.float64, generator=source)
    y = x @ torch.tensor([[1.0], [-1.0]]).double() + 0.5 * torch.randn(n, 1, dtype=torch.float64, generator=source)
    return TensorBatches(x, y, 0.1 + torch.rand(n, dtype=torch.float64, generator=source), 7)


STARTS = torch.tensor([[1.1, -0.9], [3.0, 3.0], [500.0, -400.0]], dtype=torch.float64)
"""One begins so near to the best that it is stopped early; the gradients of another are clipped."""


@pytest.mark.parametrize("patience", [3, None])
@pytest.mark.parametrize("judged", [True, False])
def test_members_end_as_each_would_alone(patience: int | None, judged: bool) -> None:
    train, held_out = some_rows(), some_rows(30, seed=1) if judged else None
    options = TrainingOptions(epochs=25, learning_rate=0.2, weight_decay=0.01, patience=patience, gradient_clip=5.0)
    together = Lines(STARTS)
    losses = optimise(together, train, held_out, options)
    alone = [Lines(start) for start in STARTS]
    for i, member in enumerate(alone):
        ((history, train_history),) = optimise(member, train, held_out, options)
        assert losses[i].held_out == pytest.approx(history, rel=1e-9)
        assert losses[i].train == pytest.approx(train_history, rel=1e-9)
        torch.testing.assert_close(together.weight[i], member.weight)
        # What is kept is the best of what was seen.
        if held_out is not None:
            with torch.no_grad():
                assert member.eval()(*held_out.rows).item() == pytest.approx(min(history), rel=1e-9)
    lengths = [len(own.held_out) for own in losses]
    assert (min(lengths) < max(lengths)) if patience else (lengths == [25] * 3)
    # And the mean over members, as long as any goes on.
    for kind, mean in zip(("held_out", "train"), mean_losses(losses), strict=True):
        assert len(mean) == max(lengths)
        assert mean[0] == pytest.approx(sum(getattr(own, kind)[0] for own in losses) / 3)
        # One that stopped stays where it was.
        assert mean[-1] == pytest.approx(sum(getattr(own, kind)[-1] for own in losses) / 3)


def test_held_out_loss_is_the_weighted_mean_over_all_rows() -> None:
    """Batches are of unequal size and weight."""
    batches = some_rows(40)
    x, y, weight = batches.rows
    for start in (STARTS[1], STARTS):
        objective = Lines(start)
        with torch.no_grad():
            whole = objective(x, y, weight)
            found = loop._evaluate(objective, batches, torch.device("cpu"))
        torch.testing.assert_close(found, whole)
        assert not objective.training


def test_training_loss_is_the_mean_over_steps() -> None:
    """At a rate of 0 nothing moves: of batches of one size the mean of their losses is that of all rows."""
    train = some_rows(42)
    objective = Lines(STARTS[1])
    with torch.no_grad():
        shares = [loop._share(objective(x, y, w), w, train.mean_weight()).item() for x, y, w in train]
    options = TrainingOptions(epochs=2, learning_rate=0.0)
    ((held_out, trained),) = optimise(objective, train, None, options)
    assert held_out == trained == pytest.approx(2 * [sum(shares) / 6])


# -- parts ------------------------------------------------------------------------------------------------------------


def with_gradients(*gradients: list[list[float]] | None) -> list[nn.Parameter]:
    parameters = [nn.Parameter(torch.zeros(2, 2, dtype=torch.float64)) for _ in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = None if gradient is None else torch.tensor(gradient, dtype=torch.float64)
    return parameters


@pytest.mark.parametrize(("largest", "factor"), [(100.0, 1.0), (13.0, 1.0), (6.5, 0.5)])
def test_a_gradient_is_clipped_as_one(largest: float, factor: float) -> None:
    """3, 4 and 12 have a norm of 13."""
    one, two, none = with_gradients([[3.0, 0.0], [0.0, 4.0]], [[0.0, 0.0], [12.0, 0.0]], None)
    loop._clip([one, two, none], largest, members=False)
    torch.testing.assert_close(one.grad, factor * torch.tensor([[3.0, 0.0], [0.0, 4.0]]).double(), rtol=1e-6, atol=0)
    torch.testing.assert_close(two.grad, factor * torch.tensor([[0.0, 0.0], [12.0, 0.0]]).double(), rtol=1e-6, atol=0)
    assert none.grad is None
    loop._clip([none], largest, members=False)


def test_the_gradient_of_each_member_is_clipped_apart() -> None:
    """Of the first member 3 and 4, a norm of 5; of the second 0.6 and 0.8, a norm of 1."""
    one, two = with_gradients([[3.0, 0.0], [0.6, 0.0]], [[0.0, 4.0], [0.0, 0.8]])
    loop._clip([one, two], 2.5, members=True)
    torch.testing.assert_close(one.grad, torch.tensor([[1.5, 0.0], [0.6, 0.0]]).double(), rtol=1e-6, atol=0)
    torch.testing.assert_close(two.grad, torch.tensor([[0.0, 2.0], [0.0, 0.8]]).double(), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("losses", "patience", "seen"),
    [
        ([3.0, 2.0, 1.0, 4.0, 4.0, 0.0], 2, 5),
        ([3.0, 2.0, 1.0, 4.0, 0.5, 4.0], 2, 6),
        ([3.0, 3.0, 3.0], 1, 2),
        ([math.nan, math.nan, 1.0], 2, 2),
        ([3.0, 4.0, 5.0], None, 3),
    ],
)
def test_losses_of_a_member_end_with_its_patience(losses: list[float], patience: int | None, seen: int) -> None:
    assert kept_weights.stopping_epoch(losses, patience) == seen


def test_the_best_state_of_each_member_is_kept() -> None:
    best, module = kept_weights.Best(2), Lines(torch.zeros(2, 2))
    for step, losses in enumerate(([5.0, 5.0], [4.0, 6.0], [6.0, 4.0], [6.0, 6.0], [0.0, 3.0])):
        assert not best.waited_enough()
        with torch.no_grad():
            module.weight.fill_(step)
        best.see(torch.tensor(losses), module)
    # The first was stopped after two epochs without a better loss, so that its 0 came too late.
    assert best.state()["weight"].tolist() == [[1.0, 1.0], [4.0, 4.0]]
    for _ in range(2):
        best.see(torch.tensor([9.0, 9.0]), module)
    assert best.waited_enough()


def test_without_a_finite_loss_there_is_no_best_state() -> None:
    best, module = kept_weights.Best(None), Lines(torch.zeros(2, 2))
    best.see(torch.tensor([1.0, math.nan]), module)
    with pytest.raises(ValueError, match="diverged"):
        best.state()
    best.see(torch.tensor([2.0, 1.0]), module)
    assert best.state()["weight"].shape == (2, 2)
    assert not best.waited_enough()


def test_seconds_add_up_and_are_shared() -> None:
    report = TrainingReport()
    assert report.seconds == {}
    for _ in range(2):
        with timed(report, "fit_density"):
            sum(range(10_000))
    spent = report.seconds["fit_density"]
    assert 0 < spent < 5
    report.history.append(1.5)
    part = report.shared(4)
    assert part.seconds["fit_density"] == spent / 4
    assert part.history == [1.5]
    part.history.append(2.0)
    assert report.history == [1.5]


def test_torch_is_as_usual_within_and_as_it_was_after() -> None:
    def fail() -> None:
        with usual_torch():
            x = torch.ones(2, requires_grad=True)
            assert x.dtype == torch.float32
            x.sum().backward()
            assert x.grad is not None
            raise RuntimeError("within")

    torch.set_default_dtype(torch.float64)
    try:
        with torch.inference_mode(), pytest.raises(RuntimeError, match="within"):
            fail()
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("gpu", [True, False])
def test_devices_by_name(gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert find_device("cpu") == torch.device("cpu")
    assert find_device("auto") == torch.device("cuda" if gpu else "cpu")
    if gpu:
        assert find_device("cuda:1") == torch.device("cuda", 1)
    else:
        with pytest.raises(ValueError, match="no GPU"):
            find_device("cuda:1")
