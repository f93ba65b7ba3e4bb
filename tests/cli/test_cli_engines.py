"""Options of commands that can run on a cluster, and what is refused before one is asked."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flats import message, run

from density_regression import load
from density_regression.baselines import GaussianRegressor
from density_regression.cli.predict_ray import _joined
from density_regression.estimators import cluster
from density_regression.estimators.cluster import ScoredPart, write_part
from density_regression.io.cluster import connected
from density_regression.tabular.files import open_table
from density_regression.tabular.files.slices import Slice, divided


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and tables."""
    folder = tmp_path_factory.mktemp("rows")
    x = np.linspace(0, 1, 40)
    reg = GaussianRegressor(hidden=(4,), epochs=1, random_state=0, verbose=False)
    reg.fit(pa.table({"x": x}), x).save(folder / "model")
    pq.write_table(pa.table({"x": x}), folder / "good.parquet")
    (folder / "rows.csv").write_text("x\n1\n")
    return folder


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--out", "out.csv", "--engine", "ray"], "--engine ray writes Parquet: name a file .parquet, or a folder"),
        (["--engine", "ray"], "--engine ray writes Parquet"),
        (["--out", "model", "--engine", "ray"], "model is there already: remove it, or name another folder"),
        (["--out", "out.parquet", "--workers", "2"], "--workers is of the engine ray: add --engine ray"),
        (["--out", "out.parquet", "--address", "auto"], "--address is of the engine ray"),
    ],
)
def test_usage_of_predict(options: list[str], expected: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    result = run("predict", "model", "good.parquet", *options)
    assert result.exit_code == 2
    assert expected in message(result)


def test_usage_of_bench_and_compare(folder: Path) -> None:
    for command in (["bench", "cubic"], ["compare", str(folder / "rows.csv"), "--target", "x"]):
        result = run(*command, "--address", "auto")
        assert result.exit_code == 2
        assert "--address is of the engine ray" in message(result)
    result = run("bench", "depth", "--engine", "ray")
    assert result.exit_code == 2
    assert "depth runs in one process" in message(result)


def test_without_the_extra(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for command in (
        ["predict", folder / "model", folder / "good.parquet", "--out", tmp_path / "out"],
        ["compare", folder / "rows.csv", "--target", "x"],
        ["bench", "cubic"],
    ):
        result = run(*command, "--engine", "ray")
        assert result.exit_code == 1
        assert "needs ray, which is not installed: pip install density-regression[ray]" in result.stderr
        assert "Traceback" not in result.output
    assert not (tmp_path / "out").exists()


def test_text_is_not_divided(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"rows\.csv is text: only Parquet can be read by several processes"):
        divided(open_table(folder / "rows.csv"))


def write(folder: Path, part: Slice, out: Path) -> ScoredPart:
    schema = pa.schema([("x", pa.float64()), *((name, pa.float64()) for name in ("mean", "std", "low", "high"))])
    shared = {"columns": ["x"], "missing": (), "coverage": 0.9, "schema": schema, "folder": out}
    return write_part(0, part, load=lambda: load(folder / "model"), **shared)


def test_a_file_that_a_machine_does_not_see_is_an_error_with_its_name(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.node", lambda: "machine-7")
    (part,) = divided(open_table(folder / "good.parquet"))
    assert write(folder, part, tmp_path).rows == 40
    (tmp_path / "part-000000.parquet").unlink()
    with pytest.raises(RuntimeError, match=r"On machine-7: .*gone\.parquet"):
        write(folder, part._replace(path=tmp_path / "gone.parquet"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_warnings_of_a_task_are_in_its_answer(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(*_: object) -> Iterator[object]:
        warnings.warn("a town that is new", UserWarning, stacklevel=1)
        return iter(())

    monkeypatch.setattr(cluster, "stream_predictions", warn)
    (part,) = divided(open_table(folder / "good.parquet"))
    assert write(folder, part, tmp_path).said[0][:2] == ("a town that is new", __file__)


def test_parts_are_joined_in_their_order_whenever_they_come(tmp_path: Path) -> None:
    parts = []
    for i in range(4):
        pq.write_table(pa.table({"x": [2 * i, 2 * i + 1]}), tmp_path / f"{i}.parquet")
        parts.append(ScoredPart(i, 2, None, tmp_path / f"{i}.parquet", []))
    joined = _joined((parts[i] for i in (2, 0, 3, 1)), tmp_path / "out.parquet")
    assert [part.number for part in joined] == [0, 1, 2, 3]
    assert pq.read_table(tmp_path / "out.parquet").column("x").to_pylist() == list(range(8))
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


class NoRay(ModuleType):
    """In the place of `ray`: not connected, and refuses."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.asked: dict[str, object] = {}

    def is_initialized(self) -> bool:
        return False

    def init(self, **options: object) -> None:
        self.asked = options
        raise ConnectionError("nobody answers\nmore of it")


@pytest.mark.parametrize(
    ("address", "variable", "expected"),
    [(None, "", "local"), ("auto", "10.0.0.2:6379", "auto"), (None, "10.0.0.2:6379", "10.0.0.2:6379")],
)
def test_a_cluster_that_does_not_answer(
    address: str | None, variable: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = NoRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setenv("RAY_ADDRESS", variable)
    with pytest.raises(RuntimeError, match=f"No Ray cluster at '{expected}': nobody answers$"), connected(address, 3):
        pass
    assert fake.asked["address"] == expected
    # Processors are those of a cluster that is started here alone.
    assert fake.asked.get("num_cpus") == (3 if expected == "local" else None)
