"""Callbacks: what they are told after each epoch, what they leave alone, and the file that one writes."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.model_selection import cross_val_score
from torch import Tensor, nn

from density_regression import CSVLogger, DensityRegressor, TrainingOptions, fit_density_regression, fit_together, load
from density_regression.baselines import DeepEnsembleRegressor, GaussianNetwork, GaussianRegressor, fit_baseline
from density_regression.estimators.base import DeepRegressor
from density_regression.registry import estimators
from training.helpers import batches, network, wave

SETTINGS = {"hidden": (8,), "epochs": 2, "n_threads": 1, "random_state": 0, "verbose": False}
ALONE = SETTINGS | {"members": 0}
"""Of a network that learns from no other."""
X, y = make_friedman1(80, n_features=5, noise=1.0, random_state=0)

Call = tuple[str, int, float, float | None]


class Recorder:
    """Keeps what it was told, and draws numbers, which must not change a fit."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def on_epoch(self, step: str, epoch: int, train_loss: float, held_out_loss: float | None) -> None:
        torch.rand(3)
        self.calls.append((step, epoch, train_loss, held_out_loss))

    def of(self, step: str) -> list[Call]:
        return [call for call in self.calls if call[0] == step]


class Failing:
    """Raises in the second epoch."""

    def on_epoch(self, step: str, epoch: int, train_loss: float, held_out_loss: float | None) -> None:
        if epoch == 2:
            raise RuntimeError("no more")


def moments(reg: DeepRegressor) -> np.ndarray:
    return np.stack(reg.predict(X, return_std=True))


# -- what is told -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", estimators())
def test_all_regressors_tell_their_losses_and_fit_as_without(name: str) -> None:
    recorder = Recorder()
    settings = ALONE if name == "DensityRegressor" else SETTINGS
    plain = estimators()[name](**settings).fit(X, y)
    told = estimators()[name](**settings, callbacks=[recorder]).fit(X, y)
    np.testing.assert_array_equal(moments(told), moments(plain))
    step = "pretrain" if name == "DensityRegressor" else "train"
    steps, epochs, train, held_out = zip(*recorder.of(step), strict=True)
    assert (steps, epochs) == ((step, step), (1, 2))
    # Means over members are taken in another precision.
    assert train == pytest.approx(told.report_.train_history, rel=1e-6)
    assert held_out == pytest.approx(told.report_.history, rel=1e-6)
    assert told.report_.train_history == plain.report_.train_history
    assert told.report_.history == plain.report_.history


def test_epochs_of_the_teacher_and_of_its_pupil_are_told() -> None:
    recorder = Recorder()
    settings = SETTINGS | {"members": 3}
    told = DensityRegressor(**settings, callbacks=[recorder]).fit(X, y)
    # Few epochs are not divided.
    assert [call[:2] for call in recorder.calls] == [("teach", 1), ("teach", 2), ("pretrain", 1), ("pretrain", 2)]
    assert [call[2] for call in recorder.of("pretrain")] == pytest.approx(told.report_.train_history, rel=1e-6)
    assert [call[3] for call in recorder.of("pretrain")] == pytest.approx(told.report_.history, rel=1e-6)
    np.testing.assert_array_equal(moments(told), moments(DensityRegressor(**settings).fit(X, y)))


def test_rounds_of_step_3_are_told() -> None:
    recorder = Recorder()
    reg = DensityRegressor(**ALONE, callbacks=[recorder]).fit(X, y)
    rounds = recorder.of("refit_head")
    assert [call[1] for call in rounds] == list(range(1, len(rounds) + 1))
    assert recorder.calls == recorder.of("pretrain") + rounds
    assert all(np.isfinite(call[2:]).all() for call in rounds)
    # Of an encoder that is trained already, nothing else is.
    alone = Recorder()
    DensityRegressor.from_trained(nn.Identity(), X, y, random_state=0, callbacks=[alone])
    assert alone.calls == alone.of("refit_head") != []
    assert reg.report_.train_history != []


def test_the_loss_of_a_round_is_that_of_the_head_on_the_training_rows() -> None:
    recorder = Recorder()
    x, target = wave(60)
    model = network()
    options = TrainingOptions(epochs=1)
    fit_density_regression(
        model, batches(x, target), options=options, callbacks=[recorder], scale_targets=False, verbose=False
    )
    rounds = recorder.of("refit_head")
    # No rows are held out: the best round is the one with the lowest training loss, and its head was kept.
    assert {call[3] for call in rounds} == {None}
    with torch.no_grad():
        loss = -model(x).log_prob(target).mean().item()
    assert min(call[2] for call in rounds) == pytest.approx(loss, abs=1e-4)


def test_the_training_loss_is_the_mean_over_batches_before_their_steps() -> None:
    recorder = Recorder()
    x, target = wave(40)
    torch.manual_seed(0)
    model = GaussianNetwork(nn.Linear(1, 3), 3)
    losses: list[float] = []
    own_loss = model.loss

    def noted(*rows: Tensor) -> Tensor:
        loss = own_loss(*rows)
        if model.training:
            losses.append(loss.item())
        return loss

    model.loss = noted  # type: ignore[method-assign]
    options = TrainingOptions(epochs=2)
    report = fit_baseline(model, batches(x, target, 20), options=options, callbacks=[recorder], verbose=False)
    expected = [np.mean(losses[:2]), np.mean(losses[2:])]
    assert report.train_history == pytest.approx(expected, rel=1e-6)
    # Without held-out rows the training loss is what decides.
    assert report.history == report.train_history
    assert recorder.calls == [("train", i + 1, loss, None) for i, loss in enumerate(report.train_history)]


def test_members_that_cannot_be_trained_at_once_are_told_one_by_one() -> None:
    recorder = Recorder()

    def encoder(inputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(inputs, 4), nn.BatchNorm1d(4))

    reg = DeepEnsembleRegressor(**SETTINGS, n_members=2, encoder=encoder, callbacks=[recorder]).fit(X, y)
    assert [call[:2] for call in recorder.calls] == [("member 1", 1), ("member 1", 2), ("member 2", 1), ("member 2", 2)]
    train = np.array([call[2] for call in recorder.calls]).reshape(2, 2).mean(0)
    assert reg.report_.train_history == pytest.approx(train.tolist())


def test_members_that_stopped_early_stay_where_they_were() -> None:
    recorder = Recorder()
    settings = SETTINGS | {"epochs": 30, "patience": 1, "learning_rate": 0.05, "embedding": None}
    reg = DeepEnsembleRegressor(**settings, n_members=3, callbacks=[recorder]).fit(X, y)
    assert [call[3] for call in recorder.calls] == pytest.approx(reg.report_.history, rel=1e-6)
    assert [call[2] for call in recorder.calls] == pytest.approx(reg.report_.train_history, rel=1e-6)
    # The first member is the network that is fitted alone, and stopped before the others.
    alone = GaussianRegressor(**settings).fit(X, y).report_
    assert len(alone.history) < len(reg.report_.history) < 30


def test_no_epochs_give_no_losses() -> None:
    x, target = wave(40)
    options = TrainingOptions(epochs=0)
    report = fit_density_regression(network(), batches(x, target), options=options, verbose=False)
    assert report.history == report.train_history == []
    report = fit_baseline(GaussianNetwork(nn.Linear(1, 3), 3), batches(x, target), options=options, verbose=False)
    assert report.history == report.train_history == []


@pytest.mark.parametrize("name", ["DensityRegressor", "GaussianRegressor", "DeepEnsembleRegressor"])
def test_reports_of_fits_together_are_those_of_fits_alone(name: str) -> None:
    tables = [make_friedman1(80, n_features=5, noise=1.0, random_state=seed) for seed in range(3)]
    settings = ALONE if name == "DensityRegressor" else SETTINGS
    settings = settings | {"epochs": 12, "patience": 1, "learning_rate": 0.03}
    together = [estimators()[name](**(settings | {"random_state": seed})) for seed in range(3)]
    alone = [clone(reg).fit(*table).report_ for reg, table in zip(together, tables, strict=True)]
    fit_together(together, tables)
    assert len({len(report.history) for report in alone}) > 1
    for reg, report in zip(together, alone, strict=True):
        assert reg.report_.train_history == pytest.approx(report.train_history, abs=1e-4)


def test_regressors_fitted_together_tell_their_own_callbacks() -> None:
    recorders = [Recorder(), Recorder()]
    together = [GaussianRegressor(**(SETTINGS | {"random_state": i}), callbacks=[recorders[i]]) for i in range(2)]
    fit_together(together, [(X, y)] * 2)
    for reg, recorder in zip(together, recorders, strict=True):
        assert [call[2] for call in recorder.calls] == reg.report_.train_history


# -- what is left alone -----------------------------------------------------------------------------------------


def test_a_callback_that_raises_leaves_the_regressor_as_it_was() -> None:
    reg = GaussianRegressor(**SETTINGS).fit(X, y)
    before = moments(reg)
    reg.set_params(callbacks=[Failing()], random_state=1)
    with pytest.raises(RuntimeError, match="no more"):
        reg.fit(X, y)
    np.testing.assert_array_equal(moments(reg), before)


def test_callbacks_are_not_saved(tmp_path: Path) -> None:
    reg = GaussianRegressor(**SETTINGS, callbacks=[Recorder()]).fit(X, y)
    reg.save(tmp_path)
    config = json.loads((tmp_path / "model.json").read_text())
    # Versions that know no callbacks must be able to read it.
    assert "callbacks" not in config["params"]
    loaded = load(tmp_path)
    assert loaded.callbacks is None
    assert loaded.report_ == reg.report_
    assert loaded.report_.train_history != []


def test_callbacks_are_none_of_the_business_of_checkpoints(tmp_path: Path) -> None:
    first = GaussianRegressor(**SETTINGS, checkpoint_dir=tmp_path).fit(X, y)
    again = GaussianRegressor(**SETTINGS, checkpoint_dir=tmp_path, callbacks=[Recorder()]).fit(X, y)
    assert again.report_.history == again.report_.train_history == []
    np.testing.assert_array_equal(moments(again), moments(first))


def test_clones_have_copies() -> None:
    recorder = Recorder()
    reg = GaussianRegressor(**SETTINGS, callbacks=[recorder])
    assert reg.get_params()["callbacks"] == [recorder]
    assert np.isfinite(cross_val_score(reg, X, y, cv=2)).all()
    assert recorder.calls == []


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        (CSVLogger, "'callbacks' parameter"),
        (CSVLogger("losses.csv"), "'callbacks' parameter"),
        ([CSVLogger], "which is no callback: give a list of objects that have on_epoch"),
        ([print], "which is no callback"),
    ],
)
def test_what_is_no_callback_is_refused(callbacks: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GaussianRegressor(**SETTINGS, callbacks=callbacks).fit(X, y)


@pytest.mark.parametrize("callbacks", [CSVLogger("losses.csv"), "losses.csv", [None]])
def test_the_torch_functions_refuse_it_too(callbacks: object) -> None:
    with pytest.raises(ValueError, match=r"callbacks .* give a list"):
        fit_density_regression(network(), batches(*wave(40)), callbacks=callbacks)  # type: ignore[arg-type]


# -- the file ---------------------------------------------------------------------------------------------------


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_csv_of_a_fit_and_of_the_next(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "losses.csv"
    reg = DensityRegressor(**ALONE, callbacks=[CSVLogger(path)]).fit(X, y)
    rows = rows_of(path)
    assert path.read_text().splitlines()[0] == "step,epoch,train_loss,held_out_loss"
    network = [row for row in rows if row["step"] == "pretrain"]
    assert [int(row["epoch"]) for row in network] == [1, 2]
    assert [float(row["train_loss"]) for row in network] == reg.report_.train_history
    assert [float(row["held_out_loss"]) for row in network] == reg.report_.history
    assert rows[2]["step"] == "refit_head"
    reg.set_params(epochs=1).fit(X, y)
    assert [row["epoch"] for row in rows_of(path) if row["step"] == "pretrain"] == ["1"]


def test_the_example_of_the_documentation(tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "guides" / "training.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n([^`]*class Printer.*?)```", page, flags=re.DOTALL)
    names = {"X": X, "y": y, "DensityRegressor": DensityRegressor}
    exec(compile(block, "training.md", "exec"), names)
    assert capsys.readouterr().out.startswith("teach 1: ")
    assert names["ax"].get_legend_handles_labels()[1][:2] == ["training loss", "held-out loss"]
    assert [row["epoch"] for row in rows_of(tmp_path / "losses.csv")][:2] == ["1", "2"]
    plt.close(names["figure"])


def test_csv_is_written_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "losses.csv"
    path.write_text("what was there before")
    logger = CSVLogger(str(path))
    logger.on_epoch("member 1", 1, 0.1, None)
    assert path.read_text() == "step,epoch,train_loss,held_out_loss\nmember 1,1,0.1,\n"
    logger.on_epoch("member 1", 2, float("inf"), 0.25)
    logger.on_epoch("member 2", 1, 3.0, 4.0)
    assert path.read_text().splitlines()[2:] == ["member 1,2,inf,0.25", "member 2,1,3.0,4.0"]
    logger.on_epoch("member 1", 1, 5.0, 6.0)
    assert [row["train_loss"] for row in rows_of(path)] == ["5.0"]
    assert repr(logger) == f"CSVLogger({str(path)!r})"


@pytest.mark.parametrize("path", ["", None, 3])
def test_csv_needs_a_path(path: object) -> None:
    with pytest.raises(ValueError, match=r"path must name a file, such as \"losses.csv\", got"):
        CSVLogger(path)  # type: ignore[arg-type]
