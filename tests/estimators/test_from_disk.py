"""Fits to tables on disk: the quality of a fit in memory, what is held out, what is refused, and resumed fits."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pd
import pyarrow.parquet as pq
import pytest

from density_regression import DensityRegressor, load
from density_regression.baselines import GaussianRegressor
from density_regression.estimators import from_disk
from density_regression.tabular.stream import StreamBatches
from density_regression.tabular.stream.row_hashes import row_shares
from density_regression.training import checkpoints, stream

SETTINGS: dict[str, Any] = {"hidden": (16,), "epochs": 2, "members": 2, "random_state": 0, "verbose": False}


def rows(n: int, seed: int) -> Any:
    """Numbers, text, dates and gaps, and a target with noise of standard deviation 0.3."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    town = rng.integers(0, 4, n)
    y = x[:, 0] + np.abs(x[:, 1]) + 0.5 * (town == 1) + 0.3 * rng.normal(size=n)
    return pa.table(
        {
            "a": x[:, 0],
            "b": x[:, 1],
            "town": pa.array(["Ulm", "Bonn", "Trier", None]).take(pa.array(town)),
            "day": pa.array(rng.integers(0, 900, n), pa.int32()).cast(pa.date32()),
            "y": y,
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    for i in range(3):
        pq.write_table(rows(1000, i), folder / f"{i}.parquet", row_group_size=300)
    return folder


@pytest.fixture(scope="module")
def numbers(folder: Path) -> Any:
    """The numbers alone, as a data set."""
    names = ["a", "b", "y"]
    data = pd.dataset(folder)
    return data.replace_schema(pa.schema([data.schema.field(name) for name in names]))


def test_a_fit_from_disk_is_like_one_in_memory_and_is_saved(folder: Path, tmp_path: Path) -> None:
    reg = DensityRegressor(**SETTINGS | {"epochs": 8}).fit(folder, "y", conformal=0.1)
    table = pq.read_table(folder)
    inside = DensityRegressor(**SETTINGS | {"epochs": 8}).fit(table.drop_columns(["y"]), table.select(["y"]))
    new = rows(2000, 9)
    X, y = new.drop_columns(["y"]), new["y"].to_numpy()
    assert reg.score(X, y) > inside.score(X, y) - 0.02
    low, high = reg.predict_interval(X, 0.9)
    assert 0.85 < ((low <= y) & (y <= high)).mean() < 0.95
    assert [column.kind for column in reg.profile_.columns] == ["number", "number", "category", "date"]
    assert reg.profile_.target.name == "y"
    held = (row_shares(table) < 0.15).sum()
    aside = ((row_shares(table) >= 0.15) & (row_shares(table) < 0.25)).sum()
    assert reg.profile_.held_out is not None
    assert reg.profile_.held_out.rows == held
    assert reg.profile_.rows == reg.rows_on_disk_.train == 3000 - held - aside
    reg.save(tmp_path / "model")
    again = load(tmp_path / "model")
    for one, other in zip(again.predict_interval(X), reg.predict_interval(X), strict=True):
        assert (one == other).all()
    # What it knew of rows between and around those of the sample is not forgotten.
    far = pa.table({**{name: X[name] for name in ("town", "day")}, **dict.fromkeys("ab", pa.array(np.full(2000, 9.0)))})
    assert reg.decompose(far).epistemic.mean() > 2 * reg.decompose(X).epistemic.mean()


def test_all_rows_train_and_not_the_sample_alone(numbers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    test = rows(2000, 9)
    X, y = test.select(["a", "b"]), test["y"].to_numpy()
    monkeypatch.setattr(from_disk, "SAMPLE", 60)
    settings = SETTINGS | {"epochs": 12}
    from_all = DensityRegressor(**settings).fit(numbers, "y").score(X, y)
    monkeypatch.setattr(stream, "passes", lambda *_: 0)
    assert from_all > DensityRegressor(**settings).fit(numbers, "y").score(X, y) + 0.1


def test_neither_order_nor_files_change_what_is_held_out(folder: Path, numbers: Any, tmp_path: Path) -> None:
    table = pq.read_table(folder).select(["a", "b", "y"])
    shuffled = table.take(pa.array(np.random.default_rng(0).permutation(3000)))
    pq.write_table(shuffled, tmp_path / "one.parquet")
    quick = SETTINGS | {"epochs": 1, "members": 0}
    one = DensityRegressor(**quick).fit(numbers, "y")
    other = DensityRegressor(**quick).fit(tmp_path / "one.parquet", ["y"])
    assert one.profile_.held_out is not None
    assert other.profile_.held_out is not None
    assert one.profile_.held_out.rows == other.profile_.held_out.rows
    assert one.rows_on_disk_ == other.rows_on_disk_


def test_the_logarithm_and_several_targets(tmp_path: Path) -> None:
    table = rows(600, 0)
    positive = np.exp(table["y"].to_numpy())
    table = table.append_column("z", pa.array(2 * positive)).set_column(4, "y", pa.array(positive))
    pq.write_table(table, tmp_path / "rows.parquet")
    reg = DensityRegressor(target="log", **SETTINGS | {"epochs": 6}).fit(tmp_path / "rows.parquet", ["y", "z"])
    mean = reg.predict(table.drop_columns(["y", "z"]))
    assert mean.shape == (600, 2)
    assert (mean > 0).all()
    assert np.corrcoef(np.log(mean[:, 1]), np.log(positive))[0, 1] > 0.8


def test_gaps_in_rows_and_targets(tmp_path: Path) -> None:
    table = rows(1000, 0).select(["a", "y"])
    a = pa.array([None if i >= 985 else value for i, value in enumerate(table["a"].to_pylist())])
    y = pa.array([None if i in (3, 7) else value for i, value in enumerate(table["y"].to_pylist())])
    pq.write_table(pa.table({"a": a, "y": y}), tmp_path / "rows.parquet", row_group_size=100)
    with pytest.warns(UserWarning, match="2 of 1,000 rows have no target and are not used; the first is row 4"):
        reg = DensityRegressor(**SETTINGS).fit(str(tmp_path / "rows.parquet"), "y")
    assert reg.profile_.columns[0].gaps > 0
    assert np.isfinite(reg.predict(pa.table({"a": pa.array([None, 1.0])}))).all()


@pytest.mark.parametrize(
    ("settings", "given", "problem"),
    [
        ({}, {"y": "price"}, "y names 'price', but .* has the columns a, b, town, day, y"),
        ({}, {"y": np.zeros(3)}, "y must be the name of a column"),
        ({}, {"y": ["y", "y"]}, "y must be the name of a column"),
        ({}, {"sample_weight": np.ones(3)}, "sample_weight is for a table in memory"),
        ({}, {"groups": np.ones(3)}, "groups is for a table in memory"),
        ({}, {"held_out": (np.ones((2, 2)), np.ones(2))}, "held_out is for a table in memory"),
        ({}, {"conformal": 1.5}, "conformal must be a share of the rows"),
        ({"target": "auto"}, {}, 'target="auto" tries two fits'),
        ({"target": "log"}, {}, "takes logarithms"),
        ({"encoder": lambda _: None}, {}, "Only the plain network is trained from disk"),
    ],
)
def test_what_is_refused(folder: Path, settings: dict[str, Any], given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        DensityRegressor(**SETTINGS | settings).fit(folder, **{"y": "y", **given})


def test_other_methods_say_which_one_trains_from_disk(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"GaussianRegressor fits what is in memory.*DensityRegressor"):
        GaussianRegressor().fit(folder, "y")


def test_too_few_rows_and_text_that_turns_out_to_be_no_date(tmp_path: Path) -> None:
    pq.write_table(rows(4, 0), tmp_path / "four.parquet")
    with pytest.raises(ValueError, match=r"too few rows \(4\) to train from disk"):
        DensityRegressor(**SETTINGS).fit(tmp_path / "four.parquet", "y")
    table = rows(1000, 0).select(["a", "y"])
    shares = row_shares(table.append_column("on", pa.array(["2026-11-19"] * 1000)))
    days = ["2026-11-19" if i != 700 else "soon" for i in range(1000)]
    assert len(shares) == len(days)
    pq.write_table(table.append_column("on", pa.array(days)), tmp_path / "days.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(from_disk, "SAMPLE", 20)
        with pytest.raises(ValueError, match="row 701 has 'soon' in 'on', where the sample has dates alone"):
            DensityRegressor(**SETTINGS).fit(tmp_path / "days.parquet", "y")


def _fit_killed(numbers: Any, steps: Path, batches: int) -> None:
    original = StreamBatches.__iter__

    def killed(own: StreamBatches) -> Iterator[Any]:
        for batch in original(own):
            read.append(len(batch[0]))
            if len(read) == batches:
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    read: list[int] = []
    StreamBatches.__iter__ = killed  # type: ignore[method-assign]
    DensityRegressor(**SETTINGS, batch_size=64, checkpoint_dir=steps).fit(numbers, "y")


def test_killed_within_an_epoch_it_goes_on_there(numbers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed = DensityRegressor(**SETTINGS, batch_size=64).fit(numbers, "y")
    monkeypatch.setattr(checkpoints, "SECONDS_BETWEEN", 0.0)
    # A copy of this process: to import all anew would take longer than the test.
    process = multiprocessing.get_context("fork").Process(target=_fit_killed, args=(numbers, tmp_path, 60))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    assert (tmp_path / "step-1-unfinished.safetensors").exists()

    read: list[int] = []
    original = StreamBatches.__iter__
    monkeypatch.setattr(
        StreamBatches, "__iter__", lambda own: (batch for batch in original(own) if not read.append(len(batch[0])))
    )
    resumed = DensityRegressor(**SETTINGS, batch_size=64, checkpoint_dir=tmp_path).fit(numbers, "y")
    # Of two epochs of 47 batches, 59 were used.
    assert len(read) == 2 * 47 - 59
    X = rows(50, 9).select(["a", "b"])
    for one, other in zip(resumed.predict(X, return_std=True), undisturbed.predict(X, return_std=True), strict=True):
        assert (one == other).all()
