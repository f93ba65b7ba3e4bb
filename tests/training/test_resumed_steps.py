"""A step of training that was interrupted goes on within its epochs, to the same weights bit for bit."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from density_regression import DensityRegression, TrainingOptions, fit_density_regression
from density_regression.nn.heads import MeanHead
from density_regression.nn.runtime import fabric_for
from density_regression.training import checkpoints, loop
from density_regression.training.batches import Batches, ScaledTargets, Seekable, TensorBatches
from density_regression.training.callbacks import CSVLogger
from density_regression.training.distillation import Lessons
from density_regression.training.kept_weights import Average, Best
from density_regression.training.loop import TrainingReport
from density_regression.training.state import LoopState
from density_regression.training.teacher import Teacher
from training.checkpoint_helpers import Stop, files, kill_when_there
from training.helpers import assert_equal, batches, generator, network, state, wave

WEIGHT = torch.rand(200, generator=generator(7)) + 0.5
OPTIONS = TrainingOptions(epochs=6, learning_rate=0.02)


def _loader(seed: int) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*wave(seed=seed)), 40, shuffle=True)


class Case:
    """A fit: its network, its batches, its options, and where in it an interruption leaves something behind."""

    def __init__(
        self, options: TrainingOptions, build: Callable[[], DensityRegression] = network, **given: Any
    ) -> None:
        self.options = options
        self.build = build
        self.members = given.get("members", 0)
        self.loader = given.get("loader", False)

    def batches(self) -> tuple[Batches, Batches]:
        if self.loader:
            return _loader(0), _loader(10)
        return batches(*wave(), 40, WEIGHT, seed=3), batches(*wave(seed=10), seed=4)

    def fit(self, folder: Path | None, **settings: Any) -> tuple[DensityRegression, TrainingReport]:
        model = self.build()
        # What was drawn before is not that of the interrupted process.
        torch.manual_seed(next(SEEDS) if folder is not None and files(folder) else 0)
        settings |= {"options": self.options, "members": self.members, "checkpoint_dir": folder}
        return model, fit_density_regression(model, *self.batches(), **settings)


SEEDS = itertools.count(1)


def _with_dropout() -> DensityRegression:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return DensityRegression(nn.Sequential(nn.Linear(1, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3)), 16)


def _with_disagreement() -> DensityRegression:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return network(head=MeanHead(16, disagreement=True))


CASES = {
    "averaged, with patience": Case(TrainingOptions(epochs=12, learning_rate=0.1, average=2.0, patience=2)),
    # The best epoch is one before the interruption.
    "without an average": Case(TrainingOptions(epochs=40, learning_rate=0.5, weight_decay=0.0, patience=8)),
    "teacher and lessons": Case(TrainingOptions(epochs=4, average=1.0), _with_disagreement, members=3),
    "dropout and batch norm": Case(OPTIONS, _with_dropout),
    "smoothness": Case(TrainingOptions(epochs=6, smoothness=0.05)),
    "loader": Case(OPTIONS, _with_dropout, loader=True),
}


def _stopping(monkeypatch: pytest.MonkeyPatch, after: float, every: int = 3) -> list[int]:
    """Stop a fit after so many batches, and keep its state every few of them; returns how many were read."""
    read = [0]
    asked = itertools.count(1)
    usual = loop.reader

    def reader(given: Batches) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            if read[0] >= after:
                raise Stop
            read[0] += 1
            return usual(given)(*args)

        return counted

    monkeypatch.setattr(loop, "reader", reader)
    monkeypatch.setattr(checkpoints.Unfinished, "is_due", lambda self: next(asked) % every == 0)
    return read


@pytest.mark.parametrize("share", [0.1, 0.55, 0.95])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_an_interrupted_step_goes_on_to_equal_weights(
    case: Case, share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        read = _stopping(patch, float("inf"))
        model, report = case.fit(None)
    total = read[0]
    with monkeypatch.context() as patch:
        _stopping(patch, int(share * total))
        with pytest.raises(Stop):
            case.fit(tmp_path)
    left = [name for name in files(tmp_path) if "unfinished" in name]
    # A loader goes on from the beginning of an epoch, and is due at the third.
    assert left or (case.loader and share < 0.5)
    with monkeypatch.context() as patch:
        read = _stopping(patch, float("inf"))
        resumed, again = case.fit(tmp_path)
    assert_equal(state(resumed), state(model), "")
    assert again.history == report.history
    assert again.train_history == report.train_history
    if left:
        assert read[0] <= total - int(share * total) + (30 if case.loader else 6)
    assert not [name for name in files(tmp_path) if "unfinished" in name]


def test_a_fit_that_is_over_before_it_is_due_keeps_nothing_within_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[str] = []
    usual = checkpoints.Checkpoints.save
    monkeypatch.setattr(
        checkpoints.Checkpoints,
        "save",
        lambda self, step, tensors: (kept.append(str(step)), usual(self, step, tensors)),
    )
    CASES["averaged, with patience"].fit(tmp_path)
    assert kept == ["1", "2", "3"]


def test_a_state_of_another_fit_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["averaged, with patience"]
    with monkeypatch.context() as patch:
        _stopping(patch, 20)
        with pytest.raises(Stop):
            case.fit(tmp_path, fingerprint="other rows")
    assert files(tmp_path) == ["step-1-unfinished.safetensors"]
    assert_equal(state(case.fit(tmp_path)[0]), state(case.fit(None)[0]), "")


def test_callbacks_are_told_the_earlier_epochs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, folder = CASES["averaged, with patience"], tmp_path / "checkpoints"
    folder.mkdir()
    for name, stop in (("whole", None), ("resumed", 50)):
        if stop:
            with monkeypatch.context() as patch:
                _stopping(patch, stop)
                with pytest.raises(Stop):
                    case.fit(folder, callbacks=[CSVLogger(tmp_path / "lost.csv")])
        case.fit(folder if stop else None, callbacks=[CSVLogger(tmp_path / f"{name}.csv")])
    assert (tmp_path / "resumed.csv").read_text() == (tmp_path / "whole.csv").read_text()
    assert len((tmp_path / "lost.csv").read_text().splitlines()) < len(
        (tmp_path / "whole.csv").read_text().splitlines()
    )


def _lessons() -> Lessons:
    model = _with_disagreement()
    x, y = wave(90)
    teacher = Teacher.of(model, 3, 0).eval()
    return Lessons(teacher, TensorBatches(x, y, WEIGHT[:90], 20, generator(2)), 1, torch.device("cpu"))


def _members() -> TensorBatches:
    return TensorBatches(*wave(90), WEIGHT[:90], 20, [generator(5), generator(6)])


KINDS: dict[str, Callable[[], Any]] = {
    "shuffled": lambda: batches(*wave(90), 20, seed=3),
    "in order": lambda: batches(*wave(90), 20),
    "members": _members,
    "tables side by side": lambda: TensorBatches.side_by_side([batches(*wave(90), 20, seed=s) for s in (1, 2)], 1),
    "lessons": _lessons,
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_batches_follow_a_position(kind: Callable[[], Any]) -> None:
    """After each batch of two epochs, including the last ones."""
    expected = kind()
    assert isinstance(expected, Seekable)
    epochs, positions = [], []
    for epoch in range(3):
        positions.append((epoch, 0, expected.position()))
        epochs.append([])
        for batch in expected:
            epochs[-1].append(batch)
            positions.append((epoch, len(epochs[-1]), expected.position()))
    for epoch, given, position in positions[: -len(epochs[2])]:
        found = kind()
        found.seek({name: value.clone() for name, value in position.items()})
        _assert_same(list(found), epochs[epoch][given:])
        if epoch < 2:
            _assert_same(list(found), epochs[epoch + 1])


def _assert_same(found: list[tuple[Tensor, ...]], expected: list[tuple[Tensor, ...]]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert all(torch.equal(part, like) for part, like in zip(one, other, strict=True))


def test_scaled_targets_are_continued_as_what_they_scale() -> None:
    class Reader:
        def __init__(self) -> None:
            self.inner = batches(*wave(90), 20, seed=3)
            self.position, self.seek = self.inner.position, self.inner.seek

        def __len__(self) -> int:
            return len(self.inner)

        def __iter__(self) -> Any:
            return iter(self.inner)

    def scaled() -> Batches:
        return ScaledTargets.of(Reader(), torch.ones(1), torch.full((1,), 2.0))

    def loop_state(train: Batches) -> LoopState:
        model = nn.Linear(1, 1)
        adamw = torch.optim.AdamW(model.parameters())
        return LoopState(model, adamw, train, None, Average(model, 0), Best(None), OPTIONS, fabric_for(OPTIONS))

    one, other = scaled(), scaled()
    drawn = iter(one)
    next(drawn)
    loop_state(other).load(loop_state(one).tensors())
    _assert_same(list(other), list(drawn))


KILLED = """
    import sys

    import torch

    from density_regression import TrainingOptions, fit_density_regression
    from density_regression.training import checkpoints
    from training.helpers import batches, network, wave

    torch.set_num_threads(1)
    checkpoints.SECONDS_BETWEEN = 0.2
    options = TrainingOptions(epochs=1_000_000, patience=None)
    fit_density_regression(network(), batches(*wave(), 20, seed=3), options=options, checkpoint_dir=sys.argv[1])
"""


def test_a_killed_step_leaves_a_state_to_go_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state that a kill leaves is whole, and the loop goes on from it."""
    kill_when_there(KILLED, tmp_path, tmp_path / "step-1-unfinished.safetensors")
    loaded: list[int] = []
    usual = LoopState.load

    def load(self: LoopState, tensors: dict[str, Tensor]) -> None:
        usual(self, tensors)
        loaded.append(self.step)
        raise Stop

    monkeypatch.setattr(LoopState, "load", load)
    options = TrainingOptions(epochs=1_000_000, patience=None)
    with pytest.raises(Stop):
        fit_density_regression(network(), batches(*wave(), 20, seed=3), options=options, checkpoint_dir=tmp_path)
    assert loaded[0] > 0
