"""`fit` in several processes: one that is killed ends the others, and the same command goes on to the same model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from flats import flats, message, run

from density_regression import load
from density_regression.cli import processes

FLATS = flats(120).drop(columns="id")

KILLED = """
    import os

    if os.environ.get("RANK") and not os.environ.get("QUIET"):
        import signal

        from density_regression.training import checkpoints, state

        checkpoints.SECONDS_BETWEEN = 0.0
        usual, steps = state.LoopState.end_step, [0]

        def end_step(self, *args):
            usual(self, *args)
            steps[0] += 1
            # In the network that learns from the teacher, which has 14 steps itself.
            if steps[0] == 20 and os.environ["RANK"] == "1":
                os.kill(os.getpid(), signal.SIGKILL)

        state.LoopState.end_step = end_step
"""


@pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
    reason="torch.distributed with gloo is not available",
)
def test_one_of_two_processes_is_killed(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(KILLED))
    FLATS.to_csv(tmp_path / "flats.csv", index=False)
    command = ["fit", "flats.csv", "--target", "price", "--epochs", "2", "--members", "2", "--threads", "1"]
    several = [*command, "--devices", "2", "--checkpoint-dir", "steps", "--out", "together"]
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])

    def start(**environment: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": path, **environment}
        arguments = [sys.executable, "-m", "density_regression", *several]
        return subprocess.run(
            arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False
        )

    killed = start()
    assert killed.returncode == 1
    # What torch.distributed says when it is torn down is not ours.
    assert [line for line in killed.stderr.splitlines() if not line.startswith("terminate called")] == [
        "Process 2 of 2 on this machine was ended by SIGKILL, and the others were stopped: "
        "the same command goes on from what is in steps."
    ]
    kept = sorted(file.name for file in (tmp_path / "steps").iterdir())
    assert kept == ["step-1-unfinished.safetensors", "step-teacher.safetensors"]
    resumed = start(QUIET="1")
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.count("Model: together") == 1
    assert "Traceback" not in resumed.stderr
    run(*command[:1], tmp_path / "flats.csv", *command[2:], "--out", tmp_path / "alone")
    together, alone = (load(tmp_path / name) for name in ("together", "alone"))
    rows = FLATS.drop(columns="price")
    got, expected = (np.array(model.predict(rows, return_std=True)) for model in (together, alone))
    np.testing.assert_allclose(got, expected, rtol=1e-4)


def test_usage(tmp_path: Path) -> None:
    FLATS.to_csv(tmp_path / "flats.csv", index=False)
    wrong = run("fit", tmp_path / "flats.csv", "--target", "price", "--devices", "2", "--method", "Gaussian")
    assert wrong.exit_code == 2
    assert "GaussianRegressor is trained by one process; DensityRegressor by several." in message(wrong)


def test_machines_must_know_of_each_other(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(typer.Exit):
        processes._environments(2, 2, None)
    assert "set MASTER_ADDR and MASTER_PORT" in capsys.readouterr().err
    for name, value in (("MASTER_ADDR", "10.0.0.1"), ("MASTER_PORT", "29500"), ("NODE_RANK", "1")):
        monkeypatch.setenv(name, value)
    found = processes._environments(2, 2, None)
    assert [part["RANK"] for part in found] == ["2", "3"]
    assert [part["LOCAL_RANK"] for part in found] == ["0", "1"]
    expected = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    assert all(expected.items() <= part.items() for part in found)
    assert found[0]["OMP_NUM_THREADS"] == str(max((os.cpu_count() or 1) // 2, 1))
    monkeypatch.setenv("NODE_RANK", "2")
    with pytest.raises(typer.Exit):
        processes._environments(2, 2, None)
    assert "NODE_RANK is 2, but must be from 0 to 1" in capsys.readouterr().err


def test_the_process_that_failed_is_named(tmp_path: Path) -> None:
    said = tmp_path / "stderr"
    said.write_bytes(b"a warning\nthe disk is full\n")
    killed, lost = -signal.SIGKILL, processes.LOST_EXIT
    with said.open("rb") as file:
        assert processes._what_happened([lost, killed], [None, file]) == (
            "Process 2 of 2 on this machine was ended by SIGKILL"
        )
        assert processes._what_happened([lost, 1], [None, file]) == (
            "Process 2 of 2 on this machine has failed (the disk is full)"
        )
        assert processes._what_happened([killed, None], [None, file]) == (
            "Process 1 of 2 on this machine was ended by SIGKILL"
        )
        assert processes._what_happened([lost, lost], [None, file]) == "A process on another machine has ended"


def test_processes_that_do_not_end_are_ended() -> None:
    """One that hangs is stopped some time after the other has failed."""
    hanging = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    failing = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    longest, processes.LONGEST_END = processes.LONGEST_END, 0.2
    try:
        assert processes._wait([hanging, failing]) == [None, 3]
        processes._end([hanging, failing])
        assert hanging.wait(10) == -signal.SIGTERM
    finally:
        processes.LONGEST_END = longest
        hanging.kill()
