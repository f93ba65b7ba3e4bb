"""The teacher against plain loops over its members, and what training it leaves alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import kstest
from torch import Tensor
from torch.distributions import Normal, StudentT

from density_regression import MLP, DensityRegression, TrainingOptions
from density_regression.nn.encoders import Embedded, PiecewiseEmbedding, ResidualMLP, WithInputs
from density_regression.nn.heads import ADDED_RATIO, MeanHead
from density_regression.tabular.table import Floats
from density_regression.training import teacher as teacher_module
from density_regression.training.batches import TensorBatches
from density_regression.training.teacher import (
    EPOCH_SHARE,
    FREEDOM,
    Lesson,
    Teacher,
    _TeacherLoss,
    block_weights,
    part_of,
    teach,
)
from training.helpers import assert_equal, batches, generator, network, state, wave


def drawn(members: int = 4, targets: int = 2, *, columns: int = 3, hidden: tuple[int, ...] = (7, 5)) -> Teacher:
    """A teacher in float64 none of whose factors are ones any more."""
    made = Teacher([columns, *hidden], members, targets, generator=generator()).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator(1)))
    return made.eval()


def by_member(teacher: Teacher, x: Floats, depth: int = 2) -> tuple[Floats, Floats]:
    """Means and variances (M, n, k) of rows (n, c), or (M, n, c), member by member and layer by layer."""
    weights = {name: value.double().numpy() for name, value in teacher.state_dict().items()}
    outputs = []
    for member in range(teacher.members):
        z = x if x.ndim == 2 else x[member]
        for layer in range(depth):
            shared, r, s, b = (
                weights[f"layers.{layer}.{name}"] for name in ("weight", "of_inputs", "of_outputs", "bias")
            )
            z = np.maximum(((z * r[member, :, 0]) @ shared) * s[member, 0] + b[member, 0], 0.0)
        outputs.append(z @ weights["weight"][member] + weights["bias"][member, 0])
    mean, log_var = np.split(np.stack(outputs), 2, axis=2)
    return mean, np.exp(np.clip(log_var, -20.0, 20.0))


def rows(n: int = 30, columns: int = 3) -> Tensor:
    return torch.randn(n, columns, generator=generator(5), dtype=torch.float64)


def taught(seed: int = 3, epochs: int = 20) -> Teacher:
    options = TrainingOptions(epochs, seed=seed)
    return teach(network(), batches(*wave(120)), batches(*wave(60, 8)), 3, options)


# -- what it computes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [1, 4])
@pytest.mark.parametrize("targets", [1, 2])
def test_forward_is_a_loop_over_members(members: int, targets: int) -> None:
    teacher, x = drawn(members, targets), rows()
    with torch.no_grad():
        mean, log_std = teacher(x)
    assert mean.shape == log_std.shape == (members, 30, targets)
    expected = by_member(teacher, x.numpy())
    np.testing.assert_allclose(mean.numpy(), expected[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.exp(2 * log_std.numpy()), expected[1], rtol=1e-9)


def test_each_member_may_have_rows_of_its_own() -> None:
    teacher = drawn()
    x = torch.randn(4, 10, 3, generator=generator(), dtype=torch.float64)
    with torch.no_grad():
        mean, log_std = teacher(x)
    expected = by_member(teacher, x.numpy())
    np.testing.assert_allclose(mean.numpy(), expected[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.exp(2 * log_std.numpy()), expected[1], rtol=1e-9)


def test_no_member_promises_a_variance_beyond_e_to_the_twenty() -> None:
    teacher, x = drawn(), 1e3 * rows()
    with torch.no_grad():
        log_var = 2 * teacher(x).log_std
    np.testing.assert_allclose(log_var.exp().numpy(), by_member(teacher, x.numpy())[1], rtol=1e-9)
    assert log_var.abs().max() == 20.0


@pytest.mark.parametrize("at_once", [7, 8192])
def test_the_lesson_is_what_members_say_together(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teacher_module, "ROWS_AT_ONCE", at_once)
    teacher, x = drawn(5), rows()
    lesson = teacher.lesson(x)
    mean, variance = by_member(teacher, x.numpy())
    noise = variance.mean(0)
    np.testing.assert_allclose(lesson.mean.numpy(), mean.mean(0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(lesson.log_noise.exp().numpy(), noise, rtol=1e-9)
    np.testing.assert_allclose(lesson.log_ratio.exp().numpy(), mean.var(0, ddof=1) / noise + ADDED_RATIO, rtol=1e-9)


def test_one_member_never_disagrees() -> None:
    lesson = drawn(1).lesson(rows())
    torch.testing.assert_close(lesson.log_ratio, torch.full_like(lesson.mean, math.log(ADDED_RATIO)))


def test_held_out_rows_are_judged_by_student_s_t_with_the_moments_that_are_taught() -> None:
    teacher, x = drawn(), rows()
    y, weight = torch.randn(30, 2, generator=generator(6), dtype=torch.float64), torch.rand(30, generator=generator(7))
    mean, log_noise, log_ratio = teacher.lesson(x)
    std = (log_noise.exp() * (1 + log_ratio.exp())).sqrt()
    law = StudentT(FREEDOM, mean, std * ((FREEDOM - 2) / FREEDOM) ** 0.5)
    torch.testing.assert_close(law.stddev, std)
    loss = _TeacherLoss(teacher).eval()
    expected = -(weight.double() @ law.log_prob(y).mean(1)) / weight.double().sum()
    with torch.no_grad():
        assert loss(x, y, weight.double()).item() == pytest.approx(expected.item())


def test_in_training_each_member_has_its_own_likelihood_and_weights() -> None:
    """By the weight of all their rows: members with heavy ones count for more."""
    teacher = drawn()
    x = torch.randn(4, 10, 3, generator=generator(), dtype=torch.float64)
    y, weight = (
        torch.randn(4, 10, 2, generator=generator(6)).double(),
        torch.rand(4, 10, generator=generator(7)).double(),
    )
    mean, variance = (torch.from_numpy(values) for values in by_member(teacher, x.numpy()))
    losses = -Normal(mean, variance.sqrt()).log_prob(y).mean(2)
    # Each row comes with what every member gives to it, and a member takes its own.
    drawn_weights = torch.rand(4, 10, 4, generator=generator(8), dtype=torch.float64)
    own = torch.stack([drawn_weights[member, :, member] for member in range(4)])
    expected = (losses * weight * own).sum() / weight.sum()
    with torch.no_grad():
        found = _TeacherLoss(teacher).train()(x, torch.cat([y, drawn_weights], 2), weight)
    assert found.item() == pytest.approx(expected.item())


# -- where it begins --------------------------------------------------------------------------------------------------


def test_members_begin_with_signs_of_their_own_and_are_the_same_otherwise() -> None:
    teacher = Teacher([12, 9, 6], members=5, targets=2, generator=generator())
    weights = state(teacher)
    signs = weights["layers.0.of_inputs"][..., 0]
    assert signs.shape == (5, 12)
    assert set(signs.flatten().tolist()) == {-1.0, 1.0}
    assert len(signs.unique(dim=0)) == 5
    for name in ("layers.0.of_outputs", "layers.1.of_inputs", "layers.1.of_outputs"):
        assert (weights[name] == 1).all()
    # Biases and means are each member's own, and no member knows of any noise yet.
    for own in (weights["layers.0.bias"], weights["layers.1.bias"], weights["weight"][..., :2]):
        assert len(own.flatten(1).unique(dim=0)) == 5
    assert (weights["weight"][..., 2:] == 0).all()
    assert (weights["bias"] == 0).all()


@pytest.mark.parametrize("inputs", [False, True])
def test_a_teacher_has_the_layers_of_the_models_network(inputs: bool) -> None:
    """Of the plain network alone: inputs beside its features are no layer."""
    plain = MLP(4, (8, 6))
    encoder, features = (WithInputs(plain), 12) if inputs else (plain, 6)
    model = DensityRegression(encoder, features, 2, head=MeanHead(features, 2, disagreement=True))
    teacher = Teacher.of(model, 3, seed=0)
    shapes = {name: tuple(value.shape) for name, value in teacher.state_dict().items()}
    assert (shapes["layers.0.weight"], shapes["layers.1.weight"]) == ((4, 8), (8, 6))
    assert (shapes["weight"], shapes["bias"]) == ((3, 6, 4), (3, 1, 4))
    assert_equal(state(Teacher.of(model, 3, seed=0)), state(teacher), "")
    assert not torch.equal(Teacher.of(model, 3, seed=1).weight, teacher.weight)


def test_a_teacher_reads_the_embedded_columns() -> None:
    x = torch.randn(50, 3, generator=generator())
    embedding = PiecewiseEmbedding.fit(x)
    model = DensityRegression(WithInputs(Embedded(embedding, MLP(embedding.width, (8,)))), 12)
    teacher = Teacher.of(model, 3, seed=0)
    with torch.no_grad():
        mean, log_std = teacher(x)
        several = teacher(x.expand(3, 50, 3))
    expected = by_member(teacher, embedding(x).double().numpy(), depth=1)
    np.testing.assert_allclose(mean.numpy(), expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.exp(2 * log_std.numpy()), expected[1], rtol=1e-4)
    torch.testing.assert_close(several.mean, mean)
    # A copy, which goes where the teacher goes.
    teacher.double()
    assert embedding.low.dtype == torch.float32


def test_only_a_plain_network_has_a_teacher() -> None:
    with pytest.raises(ValueError, match="ResidualMLP is not a plain network"):
        Teacher.of(DensityRegression(ResidualMLP(1, (4, 4)), 4), 3, seed=0)


# -- the weights of the rows ------------------------------------------------------------------------------------------


def test_rows_of_a_block_have_one_weight_and_blocks_weights_of_the_exponential_distribution() -> None:
    x = torch.randn(16_000, 2, generator=generator())
    weight = block_weights(x, generator(3))
    blocks = weight.unique()
    assert len(blocks) == 1000
    assert kstest(blocks.numpy(), "expon").pvalue > 0.01
    assert torch.equal(weight, block_weights(x, generator(3)))
    assert not torch.equal(weight, block_weights(x, generator(2)))


def test_a_row_belongs_to_the_nearest_centre(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found for some rows at a time, and by a loop over all pairs."""
    monkeypatch.setattr(teacher_module, "ROWS_AT_ONCE", 70)
    x = torch.randn(1000, 3, generator=generator())
    weight = block_weights(x, generator(1))
    centres = x[torch.randperm(1000, generator=generator(1))[:63]]
    nearest = np.array([np.argmin([np.sum((row - centre) ** 2) for centre in centres.numpy()]) for row in x.numpy()])
    of_block = [set(weight[torch.from_numpy(nearest == block)].tolist()) for block in range(63)]
    assert all(len(found) == 1 for found in of_block)
    assert len(set.union(*of_block)) == 63


def test_near_copies_are_drawn_together() -> None:
    """So that members differ where a row and its copies are all that is known."""
    x = torch.randn(200, 3, generator=generator()).repeat_interleave(5, 0)
    weight = block_weights(x + 1e-4 * torch.randn(1000, 3, generator=generator(3)), generator(1))
    spread = weight.view(200, 5).std(1)
    # But for the few rows whose copies are centres of two blocks.
    assert (spread == 0).float().mean() > 0.8


@pytest.mark.parametrize("rows", [1, 3, 50, 200])
def test_few_rows_have_blocks_of_few(rows: int) -> None:
    weight = block_weights(torch.randn(rows, 2, generator=generator()), generator(1))
    assert len(weight.unique()) == min(rows, 50)
    assert (weight > 0).all()


def test_equal_rows_are_one_block() -> None:
    weight = block_weights(torch.ones(100, 2), generator(1))
    assert len(weight.unique()) == 1
    assert weight.isfinite().all()


# -- how it is trained ------------------------------------------------------------------------------------------------


def test_teaching_depends_on_the_seed_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one = taught()
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(6)
    assert_equal(state(taught()), state(one), "")
    assert not torch.equal(taught(seed=4).weight, one.weight)


def test_teaching_leaves_the_model_and_the_order_of_its_rows_alone() -> None:
    model, (x, y) = network(), wave(100)
    train, before = batches(x, y, seed=1), state(model)
    assert not teach(model, train, None, 2, TrainingOptions(epochs=8)).training
    assert_equal(state(model), before, "")
    for batch, expected in zip(train, batches(x, y, seed=1), strict=True):
        assert torch.equal(batch[0], expected[0])


def test_a_taught_teacher_fits_its_rows_and_disagrees_beyond_them() -> None:
    teacher, (x, y) = taught(epochs=400), wave(120)
    assert not teacher.training
    near, far = teacher.lesson(x), teacher.lesson(5 * x.sign())

    def rmse(lesson: Lesson) -> float:
        return (lesson.mean - y).square().mean().sqrt().item()

    untaught = Teacher.of(network(), 3, seed=3).lesson(x)
    assert rmse(near) < 0.3
    assert rmse(untaught) > 0.5
    far_variance, near_variance = (part.log_noise + part.log_ratio for part in (far, near))
    assert far_variance.mean() > near_variance.mean() + 1


@pytest.mark.parametrize("most", [50, 1000])
def test_members_are_trained_on_the_same_rows_in_orders_of_their_own(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(teacher_module, "MOST_ROWS", most)
    monkeypatch.setattr(teacher_module, "optimise", lambda *args, **_: given.extend(args))
    x, y = torch.arange(100.0)[:, None], torch.zeros(100, 1)
    teach(network(), batches(x, y, 20), batches(x, y), 3, TrainingOptions(epochs=101, smoothness=0.1))
    _, train, held_out, options, _ = given
    assert isinstance(train, TensorBatches)
    order, y, _ = (torch.cat(parts, dim=1) for parts in zip(*train, strict=True))
    order = order[..., 0]
    assert order.shape == (3, min(most, 100))
    assert len(order.unique(dim=0)) == 3
    assert len(order.sort(dim=1).values.unique(dim=0)) == 1
    assert len(order[0].unique()) == min(most, 100)
    # What the members give to a row goes with the row.
    assert y.shape == (3, min(most, 100), 1 + 3)
    sorted_weights = [rows[by.argsort(), 1:] for rows, by in zip(y, order, strict=True)]
    assert all(torch.equal(other, sorted_weights[0]) for other in sorted_weights)
    assert (sorted_weights[0].std(0) > 0.1).all()
    assert len(sorted_weights[0].T.unique(dim=0)) == 3
    assert held_out.rows[0] is x
    assert (options.epochs, options.smoothness) == (26, 0.0)


@pytest.mark.parametrize(
    ("epochs", "teacher", "network"), [(0, 0, 0), (7, 7, 7), (12, 12, 12), (40, 12, 30), (100, 25, 75), (101, 26, 76)]
)
def test_the_teacher_has_a_quarter_of_the_epochs_and_the_network_the_others(
    epochs: int, teacher: int, network: int
) -> None:
    options = TrainingOptions(epochs=epochs)
    assert [part_of(options, share).epochs for share in (EPOCH_SHARE, 1.0 - EPOCH_SHARE)] == [teacher, network]
