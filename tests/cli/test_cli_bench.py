"""`bench` and `report` as people type them."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from joblib.externals.loky.backend import utils as loky
from typer.testing import CliRunner

from density_regression.cli import app
from density_regression.experiments import bench as runner
from density_regression.experiments import fitting
from density_regression.experiments.records import Record, RecordFile

CUBIC = ["bench", "cubic", "--methods", "Gaussian, Deterministic", "--splits", "2", "--jobs", "1"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DENSITY_REGRESSION_DATA", raising=False)
    settings = {"hidden": (6,), "epochs": 2, "batch_size": 128, "patience": None}
    monkeypatch.setattr(runner, "paper_settings", lambda suite, dataset, method: settings)


def test_bench_then_report(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [*CUBIC, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert result.output.count("4 of 4 fits") == 1
    path = tmp_path / "cubic-paper.jsonl"
    assert f"Results: {path}" in result.output.replace("\n", "")
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert {(record["method"], record["split"]) for record in records} == {
        (method, split) for method in ("Gaussian", "Deterministic") for split in ("0", "1")
    }
    report = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert report.exit_code == 0, report.output
    for name in ("report.md", "report.tex", "report.html"):
        assert (tmp_path / name).stat().st_size > 500


def test_an_interrupted_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = runner.Bench.run

    def interrupted(self: runner.Bench, file: RecordFile, *engine: Any) -> Iterator[Record]:
        for number, record in enumerate(original(self, file, *engine)):
            if number == 3:
                raise KeyboardInterrupt
            yield record

    with monkeypatch.context() as patch:
        patch.setattr(runner.Bench, "run", interrupted)
        result = CliRunner().invoke(app, [*CUBIC, "--out", str(tmp_path)])
    assert result.exit_code == 130
    assert "the same command goes on" in result.output.replace("\n", " ")
    path = tmp_path / "cubic-paper.jsonl"
    before = path.read_text().splitlines()
    # Killed while it wrote the last line.
    path.write_text("\n".join(before)[:-40])
    again = CliRunner().invoke(app, [*CUBIC, "--out", str(tmp_path)])
    assert again.exit_code == 0, again.output
    assert "1 half-written line(s) removed" in again.output.replace("\n", "")
    assert f"{len(before) - 1} of 4 fits" in again.output
    after = path.read_text().splitlines()
    assert after[: len(before) - 1] == before[:-1]
    assert len(after) == 4


def test_a_full_disk_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: RecordFile, record: Record) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(self.path))

    monkeypatch.setattr(RecordFile, "append", full)
    result = CliRunner().invoke(app, [*CUBIC, "--out", str(tmp_path)])
    path = tmp_path / "cubic-paper.jsonl"
    told = f"[Errno 28] No space left on device: '{path}'. What was done is in {path}; the same command goes on."
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, told)
    assert isinstance(result.exception, SystemExit)


def test_joblib_can_end_its_processes() -> None:
    """Without psutil it asks `pgrep`, which a second Ctrl-C ends too: the run then hangs, and its processes go on."""
    assert loky.psutil is not None


def test_a_terminated_run_ends_like_an_interrupted_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def terminated(self: runner.Bench, file: RecordFile, *engine: Any) -> Iterator[Record]:
        signal.raise_signal(signal.SIGTERM)
        yield from ()

    monkeypatch.setattr(runner.Bench, "run", terminated)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        out = tmp_path / "results[old]"
        result = CliRunner().invoke(app, [*CUBIC, "--out", str(out)])
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
    assert result.exit_code == 130
    assert f"What was done is in {out / 'cubic-paper.jsonl'}; the same command goes on." in result.output


def test_failed_fits_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("training [red]diverged")

    monkeypatch.setattr(fitting, "_fit_and_score", fail)
    result = CliRunner().invoke(app, [*CUBIC, "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "cubic, split 0, Gaussian: ValueError: training [red]diverged" in result.output
    assert "4 fits failed" in result.output


@pytest.mark.parametrize("suite", ["uci", "uci-shift", "shift", "wine", "weather", "stations"])
def test_missing_data_is_told_before_anything_is_imported(tmp_path: Path, suite: str) -> None:
    check = (
        "import sys\nfrom density_regression.cli import app\n"
        f"try: app(['bench', '{suite}', '--data-dir', {str(tmp_path)!r}, '--out', {str(tmp_path / 'out')!r}])\n"
        "finally: print('torch' in sys.modules, 'sklearn' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert result.stdout.split() == ["False", "False"]
    assert "DENSITY_REGRESSION_DATA" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "cubic"),
        (["cubic", "--methods", "Magic"], "'Magic' is not one of Density-Regression"),
        (["cubic", "--jobs", "0"], "0 processes"),
        (["cubic", "--protocol", "other"], "tuned"),
        (["cubic", "--splits", "0"], "greater than or equal to 1"),
        (["depth", "--protocol", "tuned"], "depth has no --protocol"),
        (["depth", "--datasets", "kitti"], "depth has no --protocol, --datasets"),
        (["depth", "--splits", "2"], "depth has no --protocol, --datasets or --splits"),
    ],
)
def test_bad_arguments(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["bench", *arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())
    assert not (tmp_path / "out").exists()


def test_a_missing_extra_is_told_before_anything_is_fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gpytorch", None)
    command = ["bench", "cubic", "--methods", "DUE", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "density-regression[gp]" in result.output.replace("\n", "")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("suite", "text", "message"),
    [
        ("uci-shift", "a,a,b,y\n" + "1,2,3,4\n" * 9, "names of columns must differ: a."),
        ("uci-shift", "a,b,y\n" + "1,2,3\n" * 9, "sales has no feature that varies, so no part of one to hide."),
        ("uci-shift", "a,b,y\n" + "1,2,3\n" * 3, "sales must have 7 rows at least"),
        ("uci", "a,b,y\n" + "1,2,3\n" * 3, "sales must have 7 rows at least"),
        ("uci", "a,b,y\n", "it has no rows."),
    ],
)
def test_a_table_that_cannot_be_run_is_refused_in_one_line(tmp_path: Path, suite: str, text: str, message: str) -> None:
    (tmp_path / "uci").mkdir()
    (tmp_path / "uci" / "sales.csv").write_text(text)
    command = ["bench", suite, "--datasets", "sales", "--data-dir", str(tmp_path), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_no_results_to_report(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        result = CliRunner().invoke(app, ["report", str(path)])
        assert result.exit_code == 1
        assert "`density-regression bench` writes" in result.output.replace("\n", " ")
