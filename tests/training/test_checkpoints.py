"""Files of checkpoints: which are written, kept and ignored."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from density_regression import DensityRegression, TrainingOptions, fit_density_regression
from density_regression.training.checkpoints import Checkpoints
from training.checkpoint_helpers import X, assert_same_predictions, files, regressor, steps_run, y
from training.helpers import assert_equal, batches, network, state, wave


@pytest.mark.parametrize("keep", [0, 5, 100, 0.5, -1])
def test_a_truncated_checkpoint_is_ignored(keep: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = regressor(tmp_path).fit(X, y)
    path = tmp_path / "step-3.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    second = regressor(tmp_path)
    with pytest.warns(UserWarning, match=r"Ignoring the unreadable checkpoint .*step-3\.safetensors"):
        assert steps_run(monkeypatch, lambda: second.fit(X, y)) == ["refit_head"]
    assert_same_predictions(second, first)
    assert path.read_bytes() == content


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    regressor(None).fit(X, y)
    fit_density_regression(network(), batches(*wave()), options=TrainingOptions(epochs=1))
    assert files(tmp_path) == []


def test_a_fit_that_fails_leaves_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="diverged"):
        fit_density_regression(
            network(), batches(*wave()), options=TrainingOptions(3, learning_rate=1e30), checkpoint_dir=tmp_path
        )
    assert files(tmp_path) == []


def test_checkpoints_for_torch_people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(model: DensityRegression, fingerprint: str = "") -> Callable[[], Any]:
        options = TrainingOptions(epochs=2)
        return lambda: fit_density_regression(
            model, batches(*wave()), options=options, checkpoint_dir=str(tmp_path), fingerprint=fingerprint
        )

    first, second = network(), network(seed=1)
    steps_run(monkeypatch, fit(first), "refit_head")
    assert steps_run(monkeypatch, fit(second)) == ["refit_head"]
    assert_equal(state(second), state(first), "encoder.")
    # The same object, which knows its density by now.
    assert steps_run(monkeypatch, fit(second)) == []
    assert len(steps_run(monkeypatch, fit(network(), "other data"))) == 3
    assert len(steps_run(monkeypatch, fit(network(width=9), "other data"))) == 3
    assert len(steps_run(monkeypatch, fit(network(width=9, density="gaussian"), "other data"))) == 3


def test_checkpoints_keep_the_furthest_step(tmp_path: Path) -> None:
    mine, other, none = Checkpoints(tmp_path, "a"), Checkpoints(tmp_path, "b"), Checkpoints(None, "a")
    assert mine.latest(3) == none.latest(3) == (0, {})
    for step in (1, 2):
        mine.save(step, {"x": torch.tensor([float(step)])})
    none.save(3, {"x": torch.zeros(1)})
    assert mine.latest(3) == (2, {"x": torch.tensor([2.0])})
    assert mine.latest(1) == (1, {"x": torch.tensor([1.0])})
    assert other.latest(3) == (0, {})
    other.save(2, {"x": torch.tensor([7.0])})
    assert mine.latest(3) == (1, {"x": torch.tensor([1.0])})
    assert files(tmp_path) == ["step-1.safetensors", "step-2.safetensors"]


def test_a_folder_is_tried_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").write_text("mine")

    def fit() -> None:
        with pytest.raises(OSError, match=r"taken cannot be made a folder"):
            regressor(tmp_path / "taken").fit(X, y)

    assert steps_run(monkeypatch, fit) == []


def test_checkpoints_of_tied_weights(tmp_path: Path) -> None:
    shared = torch.arange(4.0)
    Checkpoints(tmp_path).save(1, {"a": shared, "b": shared, "c": shared.reshape(2, 2).T})
    step, tensors = Checkpoints(tmp_path).latest(3)
    assert step == 1
    assert torch.equal(tensors["a"], tensors["b"])
    assert torch.equal(tensors["c"], shared.reshape(2, 2).T)


def test_a_state_that_cannot_be_kept_is_told_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted(nn.Linear):
        def get_extra_state(self) -> dict[str, int]:
            return {"seen": 1}

    def fit() -> None:
        with pytest.raises(ValueError, match=r"checkpoint_dir keeps tensors, but encoder\._extra_state .* is a dict"):
            fit_density_regression(DensityRegression(Counted(1, 8), 8), [wave()], checkpoint_dir=tmp_path)

    assert steps_run(monkeypatch, fit) == []
