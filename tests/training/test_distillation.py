"""What the one network learns from its teacher: lessons, made-up rows and, at last, mean and disagreement."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from density_regression import DensityRegression, DensityRegressor, TrainingOptions
from density_regression.nn.heads import MeanHead
from density_regression.training import distillation, pretraining
from density_regression.training.batches import TensorBatches
from density_regression.training.distillation import (
    COPIES,
    Lessons,
    _LessonLoss,
    distil,
    epoch_share,
    lesson_losses,
    made_up_rows,
)
from density_regression.training.teacher import Lesson, Teacher, teach
from training.checkpoint_helpers import TABLE, regressor
from training.helpers import assert_equal, batches, generator, network, state, wave

CPU = torch.device("cpu")


def lesson(seed: int, n: int = 20, targets: int = 2) -> Lesson:
    return Lesson(*torch.randn(3, n, targets, generator=generator(seed), dtype=torch.float64))


def taught_network(targets: int = 1) -> DensityRegression:
    return network(targets=targets, head=MeanHead(16, targets, disagreement=True))


def untaught(targets: int = 1, members: int = 3) -> Teacher:
    return Teacher.of(taught_network(targets), members, seed=0).eval()


def table(n: int = 100, targets: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    source = generator(4)
    return (
        torch.randn(n, 1, generator=source),
        torch.randn(n, targets, generator=source),
        0.5 + torch.rand(n, generator=source),
    )


def lessons(rows: tuple[Tensor, Tensor, Tensor], teacher: Teacher, size: int = 25, seed: int = 0) -> Lessons:
    return Lessons(teacher, TensorBatches(*rows, size, generator()), seed, CPU)


# -- the loss ---------------------------------------------------------------------------------------------------------


def test_equal_lessons_cost_nothing_and_others_something() -> None:
    one = lesson(0)
    assert torch.equal(lesson_losses(one, one), torch.zeros(20).double())
    for number in range(3):
        other = Lesson(*(values + 0.1 * (i == number) for i, values in enumerate(one)))
        assert (lesson_losses(other, one) > 0).all()


def test_the_loss_is_the_divergence_of_the_totals_and_shares_of_those_of_the_parts() -> None:
    learnt, taught = lesson(0), lesson(1)

    def total(part: Lesson) -> Normal:
        return Normal(part.mean, (part.log_noise.exp() * (1 + part.log_ratio.exp())).sqrt())

    def noise(part: Lesson) -> Normal:
        return Normal(torch.zeros_like(part.mean), part.log_noise.exp().sqrt())

    def disagreement(log_ratio: Tensor) -> Normal:
        return Normal(torch.zeros_like(log_ratio), (0.5 * log_ratio).exp())

    gap = taught.log_ratio - learnt.log_ratio
    assert (gap > 2).any()
    assert (gap < -2).any()
    # Up to a gap of two; beyond it, straight on at the slope that it has there, (e^2 - 1) / 2.
    of_ratio = kl_divergence(disagreement(gap.clamp_max(2.0)), disagreement(torch.zeros_like(gap)))
    of_ratio = of_ratio + (math.exp(2) - 1) / 2 * (gap - 2).clamp_min(0)
    of_noise = kl_divergence(noise(taught), noise(learnt))
    expected = kl_divergence(total(taught), total(learnt)) + 0.5 * of_noise + 0.3 * of_ratio
    torch.testing.assert_close(lesson_losses(learnt, taught), expected.mean(1))


def test_a_teacher_who_disagrees_beyond_all_measure_does_not_blow_the_loss_up() -> None:
    zero = torch.zeros(1, 1, dtype=torch.float64)
    learnt = Lesson(zero, zero, (zero - 40).requires_grad_())
    loss = lesson_losses(learnt, Lesson(zero, zero, zero)).sum()
    (gradient,) = torch.autograd.grad(loss, learnt.log_ratio)
    assert 0 < -gradient.item() < 1.5


@pytest.mark.parametrize("targets", [1, 2])
def test_targets_count_a_little_and_made_up_rows_beside_the_others(targets: int) -> None:
    model, teacher = taught_network(targets), untaught(targets)
    x, y, weight = next(iter(lessons(table(targets=targets), teacher)))
    target, *parts, of_targets = y.split([targets] * 4 + [1], dim=1)
    with torch.no_grad():
        mean, log_noise, log_ratio = model.head.taught(model.encode(x))
        assert log_ratio is not None
        std = (log_noise.exp() * (1 + log_ratio.exp())).sqrt()
        known = -Normal(mean, std).log_prob(target).mean(1)
        each = lesson_losses(Lesson(mean, log_noise, log_ratio), Lesson(*parts))
        found = _LessonLoss(model).train()(x, y, weight)
    # By the number of training rows: heavy ones make the batch count for more.
    expected = (weight @ each + 0.3 * (of_targets[:, 0] @ known)) / 25
    torch.testing.assert_close(found, expected)


def test_held_out_rows_are_judged_by_their_likelihood() -> None:
    model, (x, y, weight) = taught_network(), table()
    with torch.no_grad():
        moments = model.head.unbounded(model.encode(x))
        losses = -Normal(moments.mean, moments.log_std.exp()).log_prob(y)[:, 0]
        found = _LessonLoss(model).eval()(x, y, weight)
    torch.testing.assert_close(found, weight @ losses / weight.sum())


# -- made-up rows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_made_up_rows_depend_on_the_seed_alone(dtype: torch.dtype) -> None:
    x = torch.randn(50, 3, generator=generator(), dtype=dtype)
    before = torch.get_rng_state()
    one, same, other = (made_up_rows(x, 400, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert (one.shape, one.dtype) == ((400, 3), dtype)
    assert one.isfinite().all()
    assert len(one.unique(dim=0)) == 400


def test_without_noise_they_lie_on_lines_through_two_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """And reach beyond either of them by half of their distance."""
    monkeypatch.setattr(distillation, "JITTER", 0.0)
    x = torch.tensor([[0.0, 1.0], [4.0, 3.0]])
    rows = made_up_rows(x, 2000, generator())
    torch.testing.assert_close(rows[:, 1], 1 + rows[:, 0] / 2)
    assert -2.0 <= rows.min() < -1.9
    assert 5.9 < rows[:, 0].max() <= 6.0
    # A row may be drawn as its own partner: it stays where it is.
    among = (rows[:, 0] > 0) & (rows[:, 0] < 4)
    assert among.float().mean().item() == pytest.approx(1 / 4, abs=0.04)


def test_noise_is_added_to_few_or_many_columns_and_is_small_or_large() -> None:
    moved = made_up_rows(torch.full((5, 300), 2.0), 1500, generator()) - 2.0
    share = (moved != 0).float().mean(1)
    # The square of a uniform number, so that most rows change in few columns.
    torch.testing.assert_close(
        share.quantile(torch.tensor([0.25, 0.5, 0.75])), torch.tensor([1, 4, 9]) / 16, atol=0.06, rtol=0
    )
    size = (moved.square().sum(1) / (moved != 0).sum(1))[share > 0.1].sqrt()
    assert size.median().item() == pytest.approx(0.5, abs=0.06)
    assert size.log().std().item() == pytest.approx(1.0, abs=0.1)


def test_a_constant_column_is_mostly_left_as_it_is() -> None:
    x = torch.cat([torch.randn(60, 1, generator=generator()), torch.full((60, 1), 3.0)], 1)
    rows = made_up_rows(x, 3000, generator())
    assert (rows[:, 1] == 3.0).float().mean().item() == pytest.approx(2 / 3, abs=0.03)


def test_they_stay_around_the_table() -> None:
    x = torch.randn(500, 4, generator=generator())
    rows = made_up_rows(x, 2000, generator())
    beyond = (rows - x.amax(0)).clamp_min(0) + (x.amin(0) - rows).clamp_min(0)
    assert 0 < beyond.mean() < 0.2
    # Between rows, but also where no row is near.
    nearest = torch.cdist(rows, x).amin(1)
    assert nearest.median() < 1 < nearest.max()


# -- batches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("targets", [1, 2])
def test_a_batch_has_training_rows_with_targets_and_made_up_ones_without(targets: int) -> None:
    rows, teacher = table(targets=targets), untaught(targets)
    own = lessons(rows, teacher)
    assert len(own) == 4
    found = list(own)
    assert [[tuple(part.shape) for part in batch] for batch in found] == [[(50, 1), (50, 4 * targets + 1), (50,)]] * 4
    for x, y, weight in found:
        expected = torch.cat(teacher.lesson(x), 1)
        torch.testing.assert_close(y[:, targets : 4 * targets], expected)
        assert torch.equal(y[:25, -1], weight[:25])
        assert (y[25:, -1] == 0).all()
        assert (y[25:, :targets] == 0).all()
        assert (weight[25:] == 1).all()
    torch.testing.assert_close(torch.cat([weight[:25] for *_, weight in found]).mean(), torch.tensor(1.0))


@pytest.mark.parametrize(("n", "size"), [(100, 25), (10, 4), (3, 8)])
def test_every_training_row_comes_once_an_epoch_and_made_up_ones_in_turn(n: int, size: int) -> None:
    rows = table(n)
    x, y, weight = rows
    own, known = lessons(rows, untaught(), size), torch.cat([x, y, (weight / weight.mean())[:, None]], 1)
    made_up, orders = [], []
    for _ in range(COPIES):
        whole = torch.cat([torch.cat([x, y[:, :1], weight[:, None]], 1) for x, y, weight in own])
        # Targets are zero for made-up rows alone.
        drawn = whole[whole[:, 1] != 0]
        assert torch.equal(drawn[drawn[:, 0].argsort()], known[known[:, 0].argsort()])
        orders.append(drawn[:, 0])
        made_up.append(whole[whole[:, 1] == 0][:, 0])
    assert len(torch.stack(orders).unique(dim=0)) > 1
    if n % size == 0:
        assert len(torch.cat(made_up)) == len(torch.cat(made_up).unique()) == COPIES * n


def test_the_unit_of_the_weights_does_not_matter() -> None:
    x, y, weight = table()
    for one, other in zip(lessons((x, y, weight), untaught()), lessons((x, y, 7 * weight), untaught()), strict=True):
        torch.testing.assert_close(one, other)


def test_lessons_depend_on_the_seed_alone() -> None:
    first, same, other = (list(lessons(table(), untaught(), seed=seed)) for seed in (1, 1, 2))
    for one, again in zip(first, same, strict=True):
        assert all(torch.equal(*parts) for parts in zip(one, again, strict=True))
    assert not torch.equal(first[0][0], other[0][0])


def test_rows_without_weight_are_as_good_as_none() -> None:
    x, y, weight = table()
    none = torch.zeros(20)
    more = (
        torch.cat([1e3 * torch.randn(20, 1, generator=generator()), x]),
        torch.cat([torch.full((20, 1), math.nan), y]),
        torch.cat([none, weight]),
    )
    one, other = lessons(more, untaught()), lessons((x, y, weight), untaught())
    assert all(torch.equal(*pair) for pair in zip(one.bounds, other.bounds, strict=True))
    for batch, expected in zip(one, other, strict=True):
        assert all(torch.equal(*parts) for parts in zip(batch, expected, strict=True))


def test_bounds_are_quantiles_of_what_is_taught() -> None:
    """The lower one on training rows, the upper one on made-up ones, too."""
    rows, teacher = table(targets=2), untaught(2)
    x = rows[0]
    known = teacher.lesson(x).log_ratio.numpy()
    # The first draws of the lessons are those of the rows that they make up.
    every = np.concatenate([known, teacher.lesson(made_up_rows(x, 400, generator())).log_ratio.numpy()])
    low, high = lessons(rows, teacher).bounds
    np.testing.assert_allclose(low.numpy(), np.quantile(known, 0.02, axis=0), rtol=1e-5)
    np.testing.assert_allclose(high.numpy(), np.quantile(every, 0.999, axis=0), rtol=1e-4)


def test_of_a_large_table_some_rows_are_varied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distillation, "MOST_AT_ONCE", 40)
    found = list(lessons(table(), untaught()))
    assert [len(x) for x, *_ in found] == [35] * 4
    assert all(((y[:, -1] > 0) == (torch.arange(35) < 25)).all() for _, y, _ in found)


def test_no_more_rows_are_made_up_than_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distillation, "MOST_MADE_UP", 150)
    own = lessons(table(), untaught())
    made_up = torch.cat([x[25:] for _ in range(3) for x, *_ in own])
    assert len(made_up.unique()) == 150


# -- what is learnt ---------------------------------------------------------------------------------------------------


def test_the_network_says_what_its_teacher_says() -> None:
    (x, y), held_out = wave(200), batches(*wave(100, 8))
    options = TrainingOptions(epochs=400, weight_decay=0.01, average=5.0)
    model, train = taught_network(), batches(x, y)
    teacher = teach(model, train, held_out, 4, options)
    # What an earlier fit has learnt is forgotten.
    model.head.offset.fill_(3.0)
    distil(model, teacher, train, held_out, options)
    assert not model.training
    assert model.head.offset == 0
    expected = teacher.lesson(x)
    with torch.no_grad():
        mean, log_noise, log_ratio = model.head.taught(model.encode(x))
        outside = model.head.taught(model.encode(3 * x.sign()))[2]
    assert log_ratio is not None
    assert outside is not None
    assert torch.corrcoef(torch.cat([mean, expected.mean], 1).T)[0, 1] > 0.97
    of_noise, total = expected.log_noise, expected.log_noise + (1 + expected.log_ratio.exp()).log()
    assert (0.5 * (log_noise - of_noise)).abs().mean() < 0.15
    assert (0.5 * (log_noise + (1 + log_ratio.exp()).log() - total)).abs().mean() < 0.15
    assert outside.mean() > log_ratio.mean() + 0.5
    low, high = model.head.ratio_low, model.head.ratio_low + model.head.ratio_range
    assert low - 1e-5 <= log_ratio.min() <= log_ratio.max() <= high + 1e-5


def test_held_out_rows_choose_no_weights() -> None:
    """Those of the last epoch are kept, though the likelihood of held-out rows was better before."""
    (x, y), options = wave(40, noise=0.5), TrainingOptions(epochs=200, patience=3)
    model = taught_network()
    other = copy.deepcopy(model)
    losses = distil(model, untaught(), batches(x, y), batches(x, -y), options)
    assert len(losses.held_out) == 150
    assert min(losses.held_out) < losses.held_out[-1]
    distil(other, untaught(), batches(x, y), batches(*wave(40, 8)), options)
    assert_equal(state(other), state(model), "")


@pytest.mark.parametrize(
    ("rows", "share"), [(1, 0.75), (50_000, 0.75), (100_000, 0.375), (150_000, 0.25), (10**7, 0.25)]
)
def test_of_many_rows_the_network_has_fewer_epochs(rows: int, share: float) -> None:
    assert epoch_share(rows) == pytest.approx(share)


def test_without_held_out_rows_it_learns_all_the_same() -> None:
    model, before = taught_network(), state(taught_network())
    losses = distil(model, untaught(), batches(*wave(50)), None, TrainingOptions(epochs=100))
    assert not model.training
    assert len(losses.held_out) == 75
    assert losses.train[-1] < losses.train[0]
    assert not torch.equal(model.head.linear.weight, before["head.linear.weight"])


def test_rows_that_are_added_to_a_region_shrink_the_disagreement_there() -> None:
    points = np.linspace(1, 2, 50)[:, None]

    def disagreement(n: int, seed: int) -> float:
        rng = np.random.default_rng(seed)
        x = np.concatenate([rng.uniform(-2, 1, 300), rng.uniform(1, 2, n)])
        y = np.sin(3 * x) + 0.3 * rng.normal(size=len(x))
        settings: dict[str, Any] = {"hidden": (16,), "epochs": 48, "batch_size": 64, "n_threads": 1}
        reg = DensityRegressor(**settings, members=4, random_state=seed).fit(x[:, None], y)
        part = reg.decompose(points).disagreement
        assert part is not None
        return float(part.mean())

    few, many = (np.mean([disagreement(n, seed) for seed in range(3)]) for n in (20, 400))
    assert many < 0.75 * few


def test_a_fit_goes_through_teacher_and_network(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def spy(name: str, step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        seen.append(name)
        return step(*args, **kwargs)

    for name in ("teach", "distil", "pretrain"):
        monkeypatch.setattr(pretraining, name, partial(spy, name, getattr(pretraining, name)))
    reg = regressor(None, members=2, epochs=100, patience=None).fit(*TABLE)
    assert seen == ["teach", "distil"]
    assert len(reg.report_.history) == len(reg.report_.train_history) == 75
    regressor(None, members=0).fit(*TABLE)
    assert seen[2:] == ["pretrain"]
