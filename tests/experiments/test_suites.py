"""Suites: the rows of each split, and tables of the user's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from density_regression.experiments import bench
from density_regression.experiments.bench import Bench
from density_regression.experiments.protocols import Protocol
from density_regression.experiments.suites import MIN_ROWS, SUITES
from experiments.bench_helpers import QUICK, run

pytestmark = pytest.mark.usefixtures("quick")


def test_the_toy_is_drawn_anew_for_each_seed() -> None:
    toy = SUITES["cubic"]
    tasks = [toy.load("cubic", split, None) for split in ("0", "1", "0")]
    np.testing.assert_array_equal(tasks[0].train.y, tasks[2].train.y)
    assert not np.array_equal(tasks[0].train.y, tasks[1].train.y)
    assert np.abs(tasks[0].tests["inside"].X).max() <= 4 < np.abs(tasks[0].tests["outside"].X).min()


def test_gaps_and_tails_of_every_feature(folder: str) -> None:
    suite = SUITES["uci-shift"]
    names = suite.splits("yacht", folder)
    assert names[:4] == ["gap:f0", "tail:f0", "gap:f1", "tail:f1"]
    assert len(names) == 12
    gap = suite.load("yacht", "gap:f2", folder)
    values = gap.tests["test"].X[:, 2]
    train = gap.train.X[:, 2]
    assert len(values) == 20
    assert not ((train > values.min()) & (train < values.max())).any()
    assert gap.facts == {"genuine": True}


@pytest.mark.parametrize(("suite", "splits"), [("uci", 20), ("uci-shift", 4)])
def test_a_table_of_the_user_is_run_where_it_is_asked_for(folder: str, tmp_path: Path, suite: str, splits: int) -> None:
    X = np.random.default_rng(1).normal(size=(40, 2))
    table = np.column_stack([X, X[:, 0]])
    np.savetxt(Path(folder) / "uci" / "sales.csv", table, delimiter=",", header="a,b,sold", comments="")
    assert "sales" not in SUITES[suite].default_datasets(folder)
    assert len(SUITES[suite].splits("sales", folder)) == splits
    work = Bench(suite, "paper", ["Gaussian"], ["sales"], 2, 1, folder)
    records = run(work, tmp_path / "results.jsonl")
    assert [record["dataset"] for record in records] == ["sales"] * 2
    assert all("error" not in record for record in records)
    train, tests = SUITES[suite].load("sales", SUITES[suite].splits("sales", folder)[0], folder)[:2]
    assert len(train.y) + len(tests["test"].y) == 40


@pytest.mark.parametrize("suite", ["uci", "uci-shift"])
@pytest.mark.parametrize("protocol", ["paper", "tuned"])
def test_a_table_of_too_few_rows_is_refused(
    folder: str, tmp_path: Path, suite: str, protocol: Protocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "search_space", lambda method, dataset, budget: [QUICK])
    table = np.random.default_rng(1).normal(size=(MIN_ROWS, 3))
    for name, rows in (("few", table[1:]), ("enough", table)):
        np.savetxt(Path(folder) / "uci" / f"{name}.csv", rows, delimiter=",", header="a,b,y", comments="")
    with pytest.raises(ValueError, match="few must have 7 rows at least, to train, hold out and test, got 6"):
        Bench(suite, protocol, ["Gaussian"], ["few"], data_dir=folder).fits()
    records = run(Bench(suite, protocol, ["Gaussian"], ["enough"], data_dir=folder, budget=1), tmp_path / "r.jsonl")
    assert records
    assert not [record["error"] for record in records if "error" in record]


def test_the_songs_are_run_if_they_are_there(folder: str) -> None:
    assert "year" not in SUITES["uci"].default_datasets(folder)
    (Path(folder) / "uci" / "year.csv.gz").touch()
    (Path(folder) / "uci" / "mine.csv").write_text("a,y\n1,2\n")
    assert SUITES["uci"].default_datasets(folder)[-1] == "year"
