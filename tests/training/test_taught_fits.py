"""Fits with a teacher: interrupted and resumed, and what cannot be taught."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from density_regression import DensityRegression, TrainingOptions, fit_density_regression
from density_regression.nn.heads import Head, MeanHead
from density_regression.nn.tempering import RobustTempering
from density_regression.training import pretraining
from density_regression.training.checkpoints import Checkpoints, fingerprint_of
from density_regression.training.teacher import Teacher, teach
from training.checkpoint_helpers import TABLE, Stop, assert_same_predictions, files, regressor
from training.helpers import assert_equal, batches, network, state, wave


def taught_network(targets: int = 1) -> DensityRegression:
    return network(targets=targets, head=MeanHead(16, targets, disagreement=True))


# -- an interrupted fit -----------------------------------------------------------------------------------------------


def stop(*_: Any, **__: Any) -> Any:
    raise Stop


def interrupted(folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
    """A fit that ends between the training of the teacher and that of the network."""
    with monkeypatch.context() as patch:
        patch.setattr(pretraining, "distil", stop)
        with pytest.raises(Stop):
            regressor(folder, members=3, **settings).fit(*TABLE)


def test_an_interrupted_fit_goes_on_with_its_teacher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(tmp_path, monkeypatch)
    assert files(tmp_path) == ["step-teacher.safetensors"]
    with monkeypatch.context() as patch:
        patch.setattr(pretraining, "teach", stop)
        resumed = regressor(tmp_path, members=3).fit(*TABLE)
    assert_same_predictions(resumed, regressor(None, members=3).fit(*TABLE))
    # Nothing of step 1 is left to do.
    with monkeypatch.context() as patch:
        patch.setattr(pretraining, "teach", stop)
        patch.setattr(pretraining, "distil", stop)
        assert_same_predictions(regressor(tmp_path, members=3).fit(*TABLE), resumed)


@pytest.mark.parametrize("other", [{"members": 2}, {"epochs": 7}, {"random_state": 1}, {"hidden": (9,)}])
def test_the_teacher_of_another_fit_is_not_taken(
    other: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(tmp_path, monkeypatch)
    monkeypatch.setattr(pretraining, "teach", stop)
    with pytest.raises(Stop):
        regressor(tmp_path, **{"members": 3, **other}).fit(*TABLE)


def test_fits_with_other_members_are_others() -> None:
    model, options = taught_network(), TrainingOptions()
    prints = [fingerprint_of(model, options, pretrained=False, members=members) for members in (0, 2, 3)]
    assert len(set(prints)) == 3
    # As it was before there were any.
    assert prints[0] == fingerprint_of(model, options, pretrained=False)


def test_states_are_kept_by_name(tmp_path: Path) -> None:
    mine, other, none = Checkpoints(tmp_path, "a"), Checkpoints(tmp_path, "b"), Checkpoints(None)
    assert mine.of("teacher") == none.of("teacher") == {}
    for kept in (mine, none):
        kept.save("teacher", {"x": torch.arange(3.0)})
    assert_equal(mine.of("teacher"), {"x": torch.arange(3.0)}, "")
    assert other.of("teacher") == none.of("teacher") == mine.of("pupil") == {}
    # A step of the fit it is not.
    assert mine.latest(3) == (0, {})
    (tmp_path / "step-teacher.safetensors").write_bytes(b"?")
    with pytest.warns(UserWarning, match="Ignoring the unreadable checkpoint"):
        assert mine.of("teacher") == {}


# -- what cannot be taught --------------------------------------------------------------------------------------------


def test_an_encoder_of_ones_own_has_no_members() -> None:
    reg = regressor(None, members=3, encoder=nn.Sequential(nn.Linear(1, 4), nn.Tanh()))
    with pytest.raises(ValueError, match=r"members=3 networks share .* set members to 0 or \"auto\""):
        reg.fit(*TABLE)


@pytest.mark.parametrize("case", ["no members", "no tables", "held out no table"])
def test_a_head_with_disagreement_needs_members_and_tables(case: str) -> None:
    train, held_out = batches(*wave(50)), batches(*wave(20))
    given: dict[str, tuple[Any, Any, int]] = {
        "no members": (train, held_out, 0),
        "no tables": (list(train), held_out, 3),
        "held out no table": (train, list(held_out), 3),
    }
    rows, others, members = given[case]
    model = taught_network()
    before = state(model.encoder)
    with pytest.raises(ValueError, match="needs members of at least 1, and train and held_out TensorBatches"):
        fit_density_regression(model, rows, others, options=TrainingOptions(epochs=2), members=members, verbose=False)
    assert_equal(state(model.encoder), before, "")


def test_members_without_disagreement_to_learn_are_refused() -> None:
    with pytest.raises(ValueError, match="members=3 teach a head with disagreement"):
        fit_density_regression(network(), batches(*wave(50)), batches(*wave(20)), members=3, verbose=False)


@pytest.mark.parametrize(
    ("settings", "taught"),
    [
        ({}, True),
        ({"tempering": "exact"}, False),
        ({"tempering": "rescaled"}, False),
        ({"tempering": RobustTempering()}, False),
        ({"encoder": nn.Sequential(nn.Linear(1, 4), nn.Tanh())}, False),
        ({"density": None}, True),
        ({"members": 1}, True),
        ({"members": 0}, False),
    ],
    ids=["default", "exact", "rescaled", "own tempering", "own encoder", "no density", "one", "none"],
)
def test_by_itself_the_default_alone_learns_from_several(
    settings: dict[str, Any], taught: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def counted(*args: Any, **kwargs: Any) -> Teacher:
        seen.append(args[3])
        return teach(*args, **kwargs)

    monkeypatch.setattr(pretraining, "teach", counted)
    model = regressor(None, **{"epochs": 1, "members": "auto", **settings}).fit(*TABLE).model_
    assert isinstance(model.head, Head)
    assert model.head.disagreement == taught
    assert seen == ([settings.get("members", 8)] if taught else [])
