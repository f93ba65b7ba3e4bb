"""The runner: same rows for all, no test row in training, nothing lost, nothing run twice."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from density_regression.baselines import GaussianRegressor
from density_regression.datasets import Rows
from density_regression.estimators.base import DeepRegressor
from density_regression.experiments import bench, fitting
from density_regression.experiments.bench import Bench
from density_regression.experiments.fitting import run_fits
from density_regression.experiments.progress import BenchProgress
from density_regression.experiments.protocols import LARGEST_BUDGET, paper_settings, search_space
from density_regression.experiments.records import FitKey, Record, RecordFile, read_records
from density_regression.experiments.suites import SUITES, UCI
from experiments.bench_helpers import QUICK, run

pytestmark = pytest.mark.usefixtures("quick")


def without_times(record: Record) -> Record:
    return {name: value for name, value in record.items() if name not in ("seconds", "together")}


def by_cell(records: list[Record]) -> dict[FitKey, Record]:
    return {FitKey.of(record): without_times(record) for record in records}


def test_one_record_for_each_cell_and_none_twice(folder: str, tmp_path: Path) -> None:
    work = Bench("uci", "paper", ["Gaussian", "Deterministic"], ["yacht", "energy"], 2, data_dir=folder)
    path = tmp_path / "results.jsonl"
    records = run(work, path)
    assert {FitKey.of(record) for record in records} == set(work.fits())
    assert len(records) == 2 * 2 * 2
    assert read_records(path) == json.loads(json.dumps(records))
    assert run(work, path) == []
    more = run(Bench("uci", "paper", ["Gaussian", "Quantile"], ["yacht"], 3, data_dir=folder), path)
    assert sorted((record["method"], record["split"]) for record in more) == [
        ("Gaussian", "2"),
        *(("Quantile", str(split)) for split in range(3)),
    ]


def test_a_record_has_all_that_a_report_needs(folder: str, tmp_path: Path) -> None:
    record, other = run(Bench("uci", "paper", ["Deep Ensembles"], ["yacht"], 2, data_dir=folder), tmp_path / "r.jsonl")
    assert record["settings"] == QUICK
    assert record["rows"] == {"train": 40, "held_out": 10}
    assert record["parameters"] == 5 * (6 * 6 + 6 + 6 * 2 + 2)
    assert set(record["versions"]) == {"python", "density-regression", "torch", "numpy", "scikit-learn"}
    assert set(record["seconds"]) == {"fit", "predict"}
    test = record["tests"]["test"]
    assert test["rows"] == len(test["sample"]["y"]) == 10
    assert len(test["curve"]) == 21
    assert set(test["metrics"]) == {
        *("nll", "nll_own", "nll_rescaled", "rmse", "mae", "r2", "cal", "cal_rescaled", "sharpness", "sharpness_sd"),
        *("crps", "crps_rescaled", "interval_score", "coverage_50", "coverage_90", "coverage_95", "width_95"),
        *("mace", "miscalibration_area", "ence", "ause", "spearman", "std_factor"),
    }
    assert "sample" not in other["tests"]["test"]


def test_a_record_names_the_commit_that_made_it(folder: str, tmp_path: Path) -> None:
    (record,) = run(Bench("uci", "paper", ["Gaussian"], ["yacht"], 1, data_dir=folder), tmp_path / "r.jsonl")
    commit = record["commit"]
    if commit is None:
        pytest.skip("not a git checkout")
    assert len(commit.removesuffix("+changed")) == 12


def test_every_method_gets_the_same_rows(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[tuple[str, int], list[tuple[bytes, ...]]] = {}
    original = DeepRegressor._prepare

    def spy(self: DeepRegressor, X: np.ndarray, y: np.ndarray, weight: None, held_out: Rows, **rest: bool) -> object:
        rows = tuple(part.tobytes() for part in (X, y, *held_out))
        seen.setdefault((type(self).__name__, self.random_state), []).append(rows)
        return original(self, X, y, weight, held_out, **rest)

    monkeypatch.setattr(DeepRegressor, "_prepare", spy)
    names = ["Gaussian", "Deterministic", "EDL"]
    run(Bench("uci", "paper", names, ["yacht"], 3, data_dir=folder), tmp_path / "r.jsonl")
    for seed in range(3):
        rows = [parts for (_, number), parts in seen.items() if number == seed]
        assert len(rows) == 3
        assert rows.count(rows[0]) == 3
    assert seen["GaussianRegressor", 0] != seen["GaussianRegressor", 1]


@pytest.mark.parametrize("method", ["Density-Regression", "Gaussian", "Deterministic", "Deep Ensembles"])
def test_no_method_sees_a_test_row(folder: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[DeepRegressor] = []
    original = fitting._scored

    def spy(regressor: DeepRegressor, *rest: object) -> Record:
        fitted.append(regressor)
        return original(regressor, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(fitting, "_scored", spy)
    cells = [FitKey("uci", "paper", "yacht", str(split), 0, method) for split in range(2)]
    run_fits(cells, QUICK, folder, {})

    def other_test_rows(self: UCI, dataset: str, split: str, data_dir: str) -> object:
        task = load(self, dataset, split, data_dir)
        X, y = task.tests["test"]
        return task._replace(tests={"test": Rows(1e3 * X + 7, -50 * y)})

    load = UCI.load
    monkeypatch.setattr(UCI, "load", other_test_rows)
    run_fits(cells, QUICK, folder, {})
    X = SUITES["uci"].load("yacht", "0", folder).train.X
    for before, after in zip(fitted[:2], fitted[2:], strict=True):
        np.testing.assert_array_equal(before.x_scaling_, after.x_scaling_)
        np.testing.assert_array_equal(before.y_scaling_, after.y_scaling_)
        np.testing.assert_array_equal(before.predict(X, return_std=True), after.predict(X, return_std=True))


def test_scaling_comes_from_training_rows_only(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[tuple[DeepRegressor, fitting.FitInputs]] = []
    original = fitting._scored

    def spy(regressor: DeepRegressor, work: fitting.FitInputs, *rest: float) -> Record:
        fitted.append((regressor, work))
        return original(regressor, work, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(fitting, "_scored", spy)
    run_fits([FitKey("uci", "paper", "yacht", "1", 0, "Gaussian")], QUICK, folder, {})
    ((regressor, work),) = fitted
    np.testing.assert_allclose(regressor.x_scaling_.center, work.train.X.mean(axis=0))
    np.testing.assert_allclose(regressor.x_scaling_.scale, work.train.X.std(axis=0))
    np.testing.assert_allclose(regressor.y_scaling_.center, work.train.y.mean())
    both = np.concatenate([work.train.X, work.held_out.X, work.tests["test"].X])
    assert not np.allclose(regressor.x_scaling_.center, both.mean(axis=0), rtol=1e-3)


def test_the_same_run_twice_gives_the_same_records(folder: str, tmp_path: Path) -> None:
    work = Bench("uci", "paper", ["Density-Regression", "MC Dropout"], ["yacht"], 2, data_dir=folder)
    first, second = (run(work, tmp_path / f"{i}.jsonl", jobs) for i, jobs in enumerate((1, 2)))
    assert by_cell(first) == by_cell(second)


def test_part_of_a_group_is_run_in_the_company_it_had(folder: str, tmp_path: Path) -> None:
    work = Bench("uci", "paper", ["MC Dropout"], ["yacht"], 3, data_dir=folder)
    first = run(work, tmp_path / "r.jsonl")
    lines = (tmp_path / "r.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "r.jsonl").write_text("".join(lines[:2]))
    again = run(work, tmp_path / "r.jsonl")
    assert by_cell(again) == by_cell(first[2:])


def test_other_settings_are_run_again(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Bench("uci", "paper", ["Gaussian"], ["yacht"], 2, data_dir=folder)
    run(work, tmp_path / "r.jsonl")
    monkeypatch.setattr(bench, "paper_settings", lambda suite, dataset, method: QUICK | {"epochs": 3})
    assert [record["settings"]["epochs"] for record in run(work, tmp_path / "r.jsonl")] == [3, 3]
    assert [record["settings"]["epochs"] for record in read_records(tmp_path / "r.jsonl")] == [3, 3]


@pytest.mark.parametrize("suite", ["uci", "uci-shift"])
def test_a_table_that_changed_is_run_again(folder: str, tmp_path: Path, suite: str) -> None:
    folders = [tmp_path / "before", tmp_path / "after"]
    for place, price in zip(folders, ("1", "2"), strict=True):
        (place / "uci").mkdir(parents=True)
        rows = [f"{i},{i % 7}" for i in range(19)]
        (place / "uci" / "sales.csv").write_text("\n".join(["price,sold", *rows, f"{price},3", ""]))
    before, after = (Bench(suite, "paper", ["Gaussian"], ["sales"], 2, data_dir=str(place)) for place in folders)
    path = tmp_path / "r.jsonl"
    old = run(before, path)
    assert len(run(after, path)) == len(old) == 2
    assert run(after, path) == []
    assert {record["data"] for record in read_records(path)}.isdisjoint(record["data"] for record in old)


def test_records_that_do_not_say_which_rows_they_are_of_count(folder: str, tmp_path: Path) -> None:
    work = Bench("uci", "paper", ["Gaussian"], ["yacht"], 2, data_dir=folder)
    records = run(work, tmp_path / "r.jsonl")
    with RecordFile(tmp_path / "old.jsonl") as file:
        for record in records:
            file.append({name: value for name, value in record.items() if name != "data"})
    assert run(work, tmp_path / "old.jsonl") == []


def test_a_record_without_settings_is_run_again(folder: str, tmp_path: Path) -> None:
    work = Bench("uci", "paper", ["Gaussian"], ["yacht"], 1, data_dir=folder)
    (record,) = run(work, tmp_path / "r.jsonl")
    del record["settings"]
    with RecordFile(tmp_path / "other.jsonl") as file:
        file.append(record)
    assert len(run(work, tmp_path / "other.jsonl")) == 1


def test_progress_counts_what_need_not_be_run_again(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Bench("uci", "paper", ["Gaussian"], ["yacht"], 2, data_dir=folder)
    run(work, tmp_path / "r.jsonl")

    def shown() -> str:
        text = io.StringIO()
        with RecordFile(tmp_path / "r.jsonl") as file, BenchProgress(work, file, Console(file=text)):
            return text.getvalue()

    assert shown().startswith("2 of 2 fits")
    monkeypatch.setattr(bench, "paper_settings", lambda suite, dataset, method: QUICK | {"epochs": 3})
    assert shown().startswith("0 of 2 fits")


def test_the_live_table_shows_names_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "uci").mkdir()
    rows = [f"{i},{i % 7}" for i in range(20)]
    (tmp_path / "uci" / "[b]sales.csv").write_text("\n".join(["price,sold", *rows, ""]))
    work = Bench("uci", "paper", ["Gaussian"], ["[b]sales"], 2, data_dir=str(tmp_path))
    console = Console(file=io.StringIO(), force_terminal=True)
    with RecordFile(tmp_path / "r.jsonl") as file:
        progress = BenchProgress(work, file, console)
    progress.update(FitKey("uci", "paper", "[b]sales", "0", 0, "Gaussian")._asdict() | {"error": "it broke"})
    with console.capture() as text:
        console.print(progress._table())
    assert "[b]sales" in text.get()
    assert "1/2 !1" in text.get()


def test_each_fit_has_its_own_epochs(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = QUICK | {"epochs": 60, "patience": 1, "learning_rate": 0.03}
    monkeypatch.setattr(bench, "paper_settings", lambda suite, dataset, method: settings)
    together = run(Bench("uci", "paper", ["Gaussian"], ["yacht"], 3, data_dir=folder), tmp_path / "r.jsonl")
    cells = [FitKey.of(record) for record in together]
    alone = [run_fits([cell], settings, folder, {})[0] for cell in cells]
    epochs = [record["epochs"] for record in together]
    assert epochs == [record["epochs"] for record in alone]
    assert len(set(epochs)) > 1


@pytest.mark.parametrize(
    ("suite", "dataset"), [("weather", "jena_climate_2009_2016"), ("wine", "boston"), ("uci", "wine_white")]
)
def test_a_name_that_the_suite_does_not_have_is_refused(folder: str, suite: str, dataset: str) -> None:
    folder = "/nowhere" if suite == "weather" else folder
    with pytest.raises((ValueError, FileNotFoundError), match=r"not a data set of this suite|no file"):
        Bench(suite, "paper", ["Gaussian"], [dataset], data_dir=folder).fits()


def test_a_metric_that_is_no_number_is_an_error_of_its_cell(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting.score.__globals__["metrics"], "ence", lambda *_: float("nan"))
    (record,) = run(Bench("uci", "paper", ["Gaussian"], ["yacht"], 1, data_dir=folder), tmp_path / "r.jsonl")
    assert record["error"] == "ValueError: ence is not a number."


def test_a_search_in_time_order_is_validated_by_weeks_set_aside() -> None:
    rows = Rows(np.arange(80.0)[:, None], np.arange(80.0))
    kept, validated = fitting._alternate_blocks(rows)
    np.testing.assert_array_equal(kept.y[:20], [*range(10), *range(20, 30)])
    np.testing.assert_array_equal(validated.y[:20], [*range(10, 20), *range(30, 40)])
    assert len(kept.y) == len(validated.y) == 40


def test_a_cell_that_fails_does_not_end_the_others(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = GaussianRegressor._prepare

    def fail(self: GaussianRegressor, *args: object, **rest: object) -> object:
        if self.random_state == 1:
            raise ValueError("no such luck")
        return original(self, *args, **rest)  # type: ignore[arg-type]

    work = Bench("uci", "paper", ["Gaussian"], ["yacht"], 3, data_dir=folder)
    with monkeypatch.context() as patch:
        patch.setattr(GaussianRegressor, "_prepare", fail)
        records = run(work, tmp_path / "r.jsonl")
    assert [record.get("error") for record in records] == [None, "ValueError: no such luck", None]
    again = run(work, tmp_path / "r.jsonl")
    assert [record["split"] for record in again] == ["1"]
    assert "tests" in again[0]


def test_a_search_decides_by_rows_inside_the_first_training_parts(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = [QUICK, QUICK | {"epochs": 3}, QUICK | {"epochs": 30, "learning_rate": 0.05}]
    monkeypatch.setattr(bench, "search_space", lambda method, dataset, budget: space[:budget])
    work = Bench("uci", "tuned", ["Gaussian"], ["yacht"], 2, data_dir=folder, budget=3)
    records = run(work, tmp_path / "r.jsonl")
    searches = [record for record in records if record.get("search")]
    losses = np.array([record["tests"]["validation"]["metrics"]["nll"] for record in searches])
    # Each of three settings on the three splits that there are.
    places = [(record["split"], record["seed"]) for record in searches]
    assert places == [(f"search {i}", validated) for i in range(3) for validated in range(3)]
    # Of 50 training rows 10 validate, and of the other 40 at least 10 are held out.
    assert [record["tests"]["validation"]["rows"] for record in searches] == [10] * 9
    assert searches[0]["rows"] == {"train": 30, "held_out": 10}
    chosen = [record["settings"] for record in records if not record.get("search")]
    assert chosen == [space[int(np.argmin(losses.reshape(3, 3).mean(axis=1)))]] * 2
    assert run(work, tmp_path / "r.jsonl") == []


def test_large_tables_need_one_search_split_and_few_of_their_rows(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "ENOUGH_VALIDATION_ROWS", 15)
    monkeypatch.setattr(fitting, "MAX_SEARCH_ROWS", 25)
    fitting.search_splits.cache_clear()
    assert fitting.search_splits("uci", "yacht", folder) == ["0", "1"]  # of 10 rows each
    work = fitting._fit_inputs(FitKey("uci", "tuned", "yacht", "search 0", 1, "Gaussian"), folder)
    assert len(work.train.y) <= 25
    assert len(work.tests["validation"].y) == 10
    fitting.search_splits.cache_clear()


def test_the_device_is_handed_on_and_recorded(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def fit(regressors: list[Any], *_: object) -> None:
        seen.extend(regressor.device for regressor in regressors)
        raise ValueError("far enough")

    monkeypatch.setattr(fitting, "fit_together", fit)
    work = Bench("uci", "paper", ["Gaussian"], ["yacht"], 1, data_dir=folder, device="auto")
    assert [record["device"] for record in run(work, tmp_path / "r.jsonl")] == ["auto"]
    assert set(seen) == {"auto"}


def test_every_method_may_try_equally_many_settings() -> None:
    spaces = {name: search_space(name, "boston", LARGEST_BUDGET) for name in fitting.estimators_by_method()}
    for name, space in spaces.items():
        assert len(space) == LARGEST_BUDGET == 19
        assert len({repr(sorted(settings.items())) for settings in space}) == 19
        for settings in space:
            fitting.estimators_by_method()[name](**settings)._validate_params()
    assert spaces["Gaussian"][:12] == search_space("Gaussian", "boston", 12)
    assert spaces["Gaussian"] != search_space("Gaussian", "yacht", LARGEST_BUDGET)
    with pytest.raises(ValueError, match="budget must lie between 1 and 19"):
        search_space("Gaussian", "boston", 20)


def test_the_papers_settings() -> None:
    network = {"hidden": (50,), "epochs": 40, "batch_size": 32, "patience": None, "embedding": None}
    assert paper_settings("uci", "boston", "Gaussian") == network
    ours = network | {"members": 0, "weight_decay": 0.1}
    assert paper_settings("uci", "boston", "Density-Regression") == ours
    assert paper_settings("uci-shift", "protein", "Gaussian")["hidden"] == (100,)
    cubic = paper_settings("cubic", "cubic", "Gaussian")
    assert cubic["hidden"] == (100,) * 4
    assert cubic["epochs"] * -(-850 // cubic["batch_size"]) == pytest.approx(5000, rel=0.001)
