"""`fit` that is killed: the same command goes on, its model is that of an undisturbed run, and no half is a whole."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from flats import flats, run

from density_regression import load
from density_regression.io import store
from density_regression.training import checkpoints

FLATS = flats().drop(columns="id")
ROWS = FLATS.drop(columns="price")
OPTIONS = ("--epochs", "2", "--members", "0", "--threads", "1", "--conformal", "0.2")


def _run_killed(command: list[str], module: ModuleType, name: str) -> None:
    original = module.write_whole

    def killed(path: Path, content: bytes) -> None:
        if name in path.name:
            os.kill(os.getpid(), signal.SIGKILL)
        original(path, content)

    module.write_whole = killed  # type: ignore[attr-defined]
    run(*command)


def run_killed(command: list[str], module: ModuleType, name: str) -> None:
    """Run a command in a process that ends itself, as `kill -9` does, when it is about to write a file of such a name.

    The process is a copy of this one: to import all anew would take longer than the test.
    """
    process = multiprocessing.get_context("fork").Process(target=_run_killed, args=(command, module, name))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    FLATS.to_csv(tmp_path / "flats.csv", index=False)
    table, out, steps = (str(tmp_path / name) for name in ("flats.csv", "model", "steps"))
    return ["fit", table, "--target", "price", *OPTIONS, "--out", out, "--checkpoint-dir", steps]


def test_killed_between_steps_and_while_saving(command: list[str], tmp_path: Path) -> None:
    # When the second step is to be kept.
    run_killed(command, checkpoints, "step-2")
    steps, model = tmp_path / "steps", tmp_path / "model"
    assert [path.name for path in steps.iterdir()] == ["step-1.safetensors"]
    assert list(model.iterdir()) == []
    # When all is trained, and the weights are written.
    run_killed(command, store, "model.json")
    assert [path.suffix for path in model.iterdir()] == [".safetensors"]
    with pytest.raises(FileNotFoundError, match="No model in"):
        load(model)
    again = run(*command)
    assert again.exit_code == 0, again.output
    # The steps that were finished took no time.
    assert load(model).report_.seconds["pretrain"] == 0

    undisturbed = [*command[:-3], str(tmp_path / "other")]
    assert run(*undisturbed).exit_code == 0
    one, other = load(model), load(tmp_path / "other")
    np.testing.assert_array_equal(one.predict(ROWS, return_std=True), other.predict(ROWS, return_std=True))
    np.testing.assert_array_equal(one.predict_interval(ROWS, 0.8), other.predict_interval(ROWS, 0.8))
    assert one.profile_ == other.profile_


def test_a_model_that_is_there_stays_until_the_next_is_whole(command: list[str], tmp_path: Path) -> None:
    assert run(*command).exit_code == 0
    before = load(tmp_path / "model").predict(ROWS)
    for name in ("weights", "model.json"):
        run_killed([*command, "--seed", "9"], store, name)
        np.testing.assert_array_equal(load(tmp_path / "model").predict(ROWS), before)
    assert run(*command, "--seed", "9").exit_code == 0
    assert not np.array_equal(load(tmp_path / "model").predict(ROWS), before)
    assert len(list((tmp_path / "model").glob("*.safetensors"))) == 1
