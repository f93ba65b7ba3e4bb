"""`predict`, `bench` and `compare` on a Ray cluster: what they give is what they give without one."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flats import flats, run

from density_regression import DensityRegressor, load
from density_regression.estimators import cluster
from density_regression.experiments import bench
from density_regression.experiments.engines import engine
from density_regression.nn import parts
from density_regression.tabular.files import open_table
from density_regression.tabular.files.slices import divided

ray = pytest.importorskip("ray", reason="the extra ray is not installed")

ROWS = 600
PLUGIN = """
from density_regression import register
from density_regression.baselines import GaussianRegressor


@register
class HastyRegressor(GaussianRegressor):
    def __init__(self, hidden=(4,), epochs=2, **rest):
        super().__init__(hidden=hidden, epochs=epochs, **rest)
"""


@pytest.fixture(scope="module", autouse=True)
def small_cluster() -> Iterator[None]:
    """Two processors, started once: that takes seconds. Its processes would give way to all others of the machine."""
    os.environ.setdefault("RAY_worker_niceness", "0")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and a table in two files of several row groups, the columns of the second in another order."""
    folder = tmp_path_factory.mktemp("flats")
    frame = flats(ROWS)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    (folder / "rows").mkdir()
    pq.write_table(table[:350], folder / "rows" / "a.parquet", row_group_size=100)
    pq.write_table(table[350:].select(table.column_names[::-1]), folder / "rows" / "b.parquet", row_group_size=70)
    reg = DensityRegressor(hidden=(8,), epochs=2, members=0, random_state=0, verbose=False)
    known = frame.dropna(subset="price").drop(columns="id")
    reg.fit(known.drop(columns="price"), known["price"]).save(folder / "model")
    return folder


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "divided", partial(divided, rows=150))


@pytest.mark.parametrize("name", ["ray.parquet", "parts"])
def test_predict_gives_the_rows_of_one_process_bit_for_bit(name: str, folder: Path, tmp_path: Path) -> None:
    plain, by_ray = tmp_path / "plain.parquet", tmp_path / name
    command = ["predict", folder / "model", folder / "rows", "--json", "--out"]
    first = run(*command, plain)
    second = run(*command, by_ray, "--engine", "ray", "--workers", 2)
    assert second.exit_code == 0, second.output
    assert json.loads(second.stdout) == json.loads(first.stdout) | {"out": str(by_ray)}
    assert pq.read_table(by_ray).equals(pq.read_table(plain))
    assert {path.name for path in tmp_path.iterdir()} == {"plain.parquet", name}
    if name == "parts":
        assert sorted(path.name for path in by_ray.iterdir()) == [f"part-{i:06d}.parquet" for i in range(5)]


def test_an_error_of_predict_names_file_column_and_row(folder: Path, tmp_path: Path) -> None:
    table = pq.read_table(folder / "rows")
    sizes = [*map(str, range(ROWS - 1)), "much"]
    pq.write_table(table.drop_columns(["size"]).append_column("size", [sizes]), tmp_path / "rows.parquet", 100)
    result = run("predict", folder / "model", tmp_path / "rows.parquet", "--engine", "ray", "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "rows.parquet: column 'size', row 600, has 'much', which is no number" in result.stderr
    assert result.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]


def test_a_worker_killed_while_it_writes_changes_nothing(folder: Path, tmp_path: Path) -> None:
    driver, killed = os.getpid(), tmp_path / "killed"

    def load_one_that_dies() -> Any:
        reg = load(folder / "model")
        predict_all, calls = reg._predict_all, []

        def die_at_the_second_slice(*rows: Any) -> Any:
            calls.append(1)
            if os.getpid() != driver and len(calls) == 2 and not killed.exists():
                killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return predict_all(*rows)

        reg._predict_all = die_at_the_second_slice
        return reg

    table, out = open_table(folder / "rows"), tmp_path / "out"
    out.mkdir()
    written = sorted(cluster.scored_parts(ray, load_one_that_dies, table, out, 0.9, workers=2))
    assert killed.exists()
    # What it had begun is left, hidden, and the part was written by another.
    assert len(list(out.glob(".part-*"))) == 1
    assert [part.rows for part in written] == [100, 100, 150, 140, 110]
    assert run("predict", folder / "model", folder / "rows", "--out", tmp_path / "plain.parquet").exit_code == 0
    found = pa.concat_tables([pq.read_table(part.path) for part in written])
    assert found.equals(pq.read_table(tmp_path / "plain.parquet"))


def test_bench_gives_the_records_of_one_process_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"hidden": (6,), "epochs": 1, "batch_size": 128, "patience": None}
    monkeypatch.setattr(bench, "paper_settings", lambda suite, dataset, method: settings)
    command = ["bench", "cubic", "--methods", "Gaussian,MC Dropout", "--splits", "2", "--out"]
    assert run(*command, tmp_path / "local", "--jobs", "1").exit_code == 0
    (tmp_path / "ray").mkdir()
    path = Path("cubic-paper.jsonl")
    # One fit is there already; the other of its batch is repeated with it.
    begun = (tmp_path / "local" / path).read_text().splitlines(keepends=True)[:1]
    (tmp_path / "ray" / path).write_text("".join(begun))
    result = run(*command, tmp_path / "ray", "--jobs", "1", "--engine", "ray")
    assert result.exit_code == 0, result.output
    assert lasting(tmp_path / "ray" / path) == lasting(tmp_path / "local" / path)


def test_compare_gives_the_records_of_one_process_by_a_plugin_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flats(40).to_csv("flats.csv", index=False)
    Path("hasty_parts.py").write_text(PLUGIN)
    command = ["compare", "flats.csv", "--target", "price", "--methods", "HastyRegressor", "--folds", "2"]
    command += ["--plugin", "hasty_parts", "--jobs", "1", "--out"]
    try:
        for out, options in (("local", ()), ("ray", ("--engine", "ray"))):
            result = run(*command, out, *options)
            assert result.exit_code == 0, result.output
    finally:
        parts._REGISTERED.clear()
        sys.modules.pop("hasty_parts")
    assert lasting(Path("ray/flats.jsonl")) == lasting(Path("local/flats.jsonl"))


def lasting(path: Path) -> list[dict[str, Any]]:
    """Records in the order of their fits, without what differs from run to run: times, and when that was."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        assert "error" not in record, record["error"]
        for name in ("seconds", "time", "host"):
            record.pop(name, None)
    return sorted(records, key=lambda record: (record["split"], record["method"]))


def test_a_call_by_which_every_process_dies_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("density_regression.io.cluster.RETRIES", 1)
    with engine("ray", 2) as compute, pytest.raises(RuntimeError, match="lost 2 times with the same call"):
        list(compute(lambda: os.kill(os.getpid(), signal.SIGKILL), [{}], {}))


def test_calls_that_are_not_wanted_any_more_are_cancelled(tmp_path: Path) -> None:
    def mark(name: str, seconds: float, folder: Path) -> str:
        time.sleep(seconds)
        (folder / name).touch()
        return name

    calls = [{"name": f"{i}", "seconds": 5.0 * (i > 0)} for i in range(4)]
    with engine("ray", 2) as compute:
        results = compute(mark, calls, {"folder": tmp_path})
        assert next(results) == "0"
        results.close()
    time.sleep(1)
    assert [path.name for path in tmp_path.iterdir()] == ["0"]
    assert ray.available_resources()["CPU"] == 2


def test_an_error_of_a_call_is_that_error() -> None:
    def whole(text: str) -> int:
        return int(text)

    with engine("ray", 2) as compute, pytest.raises(ValueError, match="invalid literal for int"):
        list(compute(whole, [{"text": "x"}], {}))


def test_interrupted_nothing_is_left(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("density_regression.io.progress.RowProgress.advance", interrupt)
    result = run("predict", folder / "model", folder / "rows", "--engine", "ray", "--out", tmp_path / "out")
    assert result.exit_code == 130
    assert result.stderr == "Interrupted: nothing was written.\n"
    time.sleep(1)
    assert list(tmp_path.iterdir()) == []
    assert ray.available_resources()["CPU"] == 2
