"""The step over all rows of a table on disk: its loss, its lessons, and how often it reads the table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from density_regression import DensityRegression, TrainingOptions
from density_regression.nn.encoders import MLP
from density_regression.nn.heads import MeanHead
from density_regression.training.batches import Seekable, TensorBatches
from density_regression.training.distillation import RATIO_WEIGHT, Lessons, lesson_losses
from density_regression.training.stream import LESSON_WEIGHT, _Reminded, _StreamLoss, go_on, passes
from density_regression.training.teacher import Lesson, Teacher


class Rows:
    """Batches as `StreamBatches` has them, of numbers in memory: 3 epochs of 10 batches of 32 rows."""

    batch_size, rows = 32, 320

    def __init__(self) -> None:
        self.epoch, self.batch = 0, 0
        self.told = 0
        self.x = torch.randn(320, 3, generator=torch.Generator().manual_seed(1))
        self.y = self.x[:, :1] * 2.0

    def on_rows(self, rows: int) -> None:
        self.told += rows

    def __len__(self) -> int:
        return 10

    def position(self) -> dict[str, Tensor]:
        return {"epoch": torch.tensor(self.epoch), "batch": torch.tensor(self.batch)}

    def seek(self, position: dict[str, Tensor]) -> None:
        self.epoch, self.batch = int(position["epoch"]), int(position["batch"])

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        for start in range(self.batch, 10):
            self.batch = start + 1
            own = slice(32 * start, 32 * start + 32)
            yield self.x[own], self.y[own], torch.ones(32)
            self.on_rows(32)
        self.epoch, self.batch = self.epoch + 1, 0


@pytest.fixture
def model() -> DensityRegression:
    torch.manual_seed(0)
    head = MeanHead(8, disagreement=True)
    model = DensityRegression(MLP(3, (8,)), 8, head=head, density=None)
    head.bound_ratio(torch.full((1,), -3.0), torch.full((1,), 3.0))
    torch.nn.init.normal_(head.linear.weight, std=0.3)
    return model


def lessons(rows: int = 100) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    y = torch.randn(rows, 5, generator=generator)
    y[:, 4] = (torch.arange(rows) < rows // 2).float()
    return torch.randn(rows, 3, generator=generator), y


def test_passes_make_up_twenty_million_rows() -> None:
    options = TrainingOptions(epochs=400)
    assert [passes(rows, options) for rows in (50_000_000, 20_000_000, 1_000_000, 50_000)] == [1, 1, 20, 400]
    assert passes(1_000_000, TrainingOptions(epochs=3)) == 3


def test_every_batch_ends_with_lessons_which_its_number_chooses() -> None:
    x, y = lessons()
    own = _Reminded(Rows(), x, y, seed=0)  # type: ignore[arg-type]
    assert isinstance(own, Seekable)
    assert own.each == 2
    seen = [batch for _ in range(12) for batch in own]
    for number, (inputs, targets, weight) in enumerate(seen):
        assert inputs.shape == (34, 3)
        assert targets.shape == (34, 5)
        assert (weight == 1).all()
        place = 32 * (number % 10)
        assert (inputs[:32] == Rows().x[place : place + 32]).all()
        assert (targets[:32, :1] == Rows().y[place : place + 32]).all()
        assert (targets[:32, 4] == -1).all()
        for one, other in zip(inputs[32:], targets[32:], strict=True):
            # Of the same row.
            assert (y[(x == one).all(1)] == other).all()
    counts = torch.stack([(torch.cat([batch[0][32:] for batch in seen]) == row).all(1).sum() for row in x])
    assert counts.min() >= 1
    again = _Reminded(Rows(), x, y, seed=0)  # type: ignore[arg-type]
    again.seek({"epoch": torch.tensor(3), "batch": torch.tensor(4)})
    for resumed, before in zip([*again], seen[34:40], strict=True):
        assert all((one == other).all() for one, other in zip(resumed, before, strict=True))


def test_the_loss_against_distributions(model: DensityRegression) -> None:
    x, y = lessons(6)
    rows = Rows()
    inputs, targets = (
        torch.cat([rows.x[:32], x]),
        torch.cat([torch.nn.functional.pad(rows.y[:32], (0, 4), value=-1.0), y]),
    )
    loss = _StreamLoss(model).train()(inputs, targets, torch.ones(38))

    mean, log_noise, log_ratio = model.head.taught(model.encode(inputs))
    assert log_ratio is not None
    variance = log_noise.exp() * (1 + log_ratio.exp())
    of_rows = -Normal(mean, variance.sqrt()).log_prob(targets[:, :1])[:32].sum()
    of_lessons = []
    for i in range(6):
        learnt = Lesson(*(part[32 + i : 33 + i] for part in (mean, log_noise, log_ratio)))
        taught = Lesson(*(part[None] for part in y[i, 1:4].split(1)))
        if y[i, 4] > 0:
            # Of training rows the disagreement alone, as variances of Gaussians without a mean.
            assert taught.log_ratio - learnt.log_ratio < 2
            stds = [torch.exp(0.5 * part.log_ratio) for part in (taught, learnt)]
            own = RATIO_WEIGHT * kl_divergence(*(Normal(torch.zeros(1, 1), std) for std in stds))
        else:
            own = lesson_losses(learnt, taught)
        of_lessons.append(own.reshape(()))
    expected = (of_rows + LESSON_WEIGHT * torch.stack(of_lessons).sum()) / 38
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_of_rows_alone_it_is_the_likelihood(model: DensityRegression) -> None:
    rows = Rows()
    expected = _StreamLoss(model).train()(rows.x, rows.y, torch.ones(320))
    moments = model.head.unbounded(model.encode(rows.x))
    by_hand = -Normal(moments.mean, moments.log_std.exp()).log_prob(rows.y).mean()
    assert expected.item() == pytest.approx(by_hand.item(), rel=1e-5)
    assert _StreamLoss(model).eval()(rows.x, rows.y, torch.ones(320)).item() == pytest.approx(expected.item())


def test_an_empty_batch_has_a_finite_loss(model: DensityRegression) -> None:
    x, y = lessons(6)
    loss = _StreamLoss(model).train()(x, y, torch.ones(6))
    assert loss.isfinite()


def test_it_goes_on_with_what_the_network_has_learnt(model: DensityRegression) -> None:
    rows = Rows()
    sample = TensorBatches(rows.x[:64], rows.y[:64], torch.ones(64), 16)
    held_out = TensorBatches(rows.x, rows.y, torch.ones(320), 320)
    teacher = Teacher.of(model, 4, 0).eval()
    model.head.bound_ratio(*Lessons(teacher, sample, 0, torch.device("cpu")).bounds)
    options = TrainingOptions(epochs=20, learning_rate=0.02)
    losses = go_on(model, teacher, sample, held_out, rows, options)  # type: ignore[arg-type]
    assert len(losses.held_out) == 20
    assert losses.held_out[-1] < losses.held_out[0] - 1
    assert not model.training
    # Without a terminal there is no bar to tell.
    assert rows.told == 20 * 320
