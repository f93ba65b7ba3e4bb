"""`fit` of tables, as people type it: what is said, what is saved, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from flats import QUICK, flats, message, run

from density_regression import DensityRegressor, load
from density_regression.cli import fit_table
from density_regression.cli.methods import METHODS, check_method
from density_regression.cli.training_rows import TrainingTable
from density_regression.estimators.base import DeepRegressor
from density_regression.registry import ESTIMATORS

FLATS = flats()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A CSV file of flats."""
    FLATS.to_csv(tmp_path / "flats.csv", index=False)
    return tmp_path / "flats.csv"


def changed(path: Path, column: str, row: int, value: object) -> None:
    """Change a value of the file; the first row is 1."""
    frame = pd.read_csv(path, dtype=object)
    frame.loc[row - 1, column] = value
    frame.to_csv(path, index=False)


def fitted_by(path: Path, *options: str | Path) -> DeepRegressor:
    """The model that a command saves."""
    out = path.parent / "model"
    result = run("fit", path, "--target", "price", *QUICK, "--out", out, *options)
    assert result.exit_code == 0, result.output
    return load(out)


def test_what_is_said_and_saved(path: Path) -> None:
    out = path.parent / "a model"
    result = run("fit", path, "--target", "price", "--epochs", "2", "--members", "0", "--positive", "--out", out)
    assert result.exit_code == 0, result.output
    reg = load(out)
    held = reg.profile_.held_out
    lines = result.stdout.splitlines()
    seconds = sum(reg.report_.seconds.values())
    assert lines == [
        f"{path}: 60 rows.",
        "Not used: 2 rows have no price, the first is row 5.",
        "Columns: 2 numbers, 1 category, 1 boolean, 1 date; left out: id.",
        f"Fitted DensityRegressor, log-normal law to 48 rows in {seconds:.1f} s.",
        f"On 10 held-out rows: RMSE {held.rmse:,.0f}; 90 % intervals hold {100 * held.coverage:.0f} %.",
        f"Model: {out}",
        "",
        "Next, with rows in NEW.csv that the model has not seen:",
        f"  density-regression info '{out}'",
        f"  density-regression evaluate '{out}' NEW.csv",
        f"  density-regression predict '{out}' NEW.csv --out predictions.csv",
    ]
    assert result.stderr.startswith("Note: Left out: 'id' (48 different texts in 48 rows, such as 'A0")
    assert isinstance(reg, DensityRegressor)
    assert (reg.target_, reg.random_state, reg.members, reg.epochs) == ("log", 0, 0, 2)
    # The same as in Python.
    frame = pd.read_csv(path).dropna(subset=["price"])
    with pytest.warns(UserWarning, match="Left out"):
        own = DensityRegressor(target="log", random_state=0, members=0, epochs=2).fit(
            frame.drop(columns="price"), frame["price"]
        )
    np.testing.assert_array_equal(reg.predict(FLATS), own.predict(FLATS))


def test_json_and_nothing_else(path: Path) -> None:
    out = path.parent / "model"
    result = run("fit", path, "--target", "price", *QUICK, "--out", out, "--json", "--conformal", "0.3")
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    reg = load(out)
    assert (record["rows_read"], record["rows_without_target"]) == (60, {"count": 2, "first_row": 5})
    assert (record["model"], record["estimator"], record["rows"]) == (str(out), "GaussianRegressor", reg.profile_.rows)
    assert [column["kind"] for column in record["columns"]] == [
        "left out", "number", "number", "category", "boolean", "date"
    ]  # fmt: skip
    assert record["columns"][0]["why"].startswith(f"{reg.profile_.rows} different texts in {reg.profile_.rows} rows")
    assert record["targets"][0]["held_out"]["rmse"] == reg.profile_.held_out.rmse
    assert record["conformal"]["rows"] == reg.conformal_.rows == 17
    assert record["notes"][0].startswith("Left out: 'id'")
    # In words, the intervals' promise.
    said = run("fit", path, "--target", "price", *QUICK, "--out", out, "--conformal", "0.3").stdout
    assert "Intervals hold what they promise by 17 rows kept aside: for coverages up to 0.944." in said


def test_several_targets(path: Path) -> None:
    reg = fitted_by(path, "--target", "size", "--drop", "id", "--drop", "sold")
    assert reg.feature_names_in_.tolist() == ["year", "town", "balcony"]
    assert [target.name for target in reg.profile_.targets] == ["price", "size"]
    said = run("fit", path, "--target", "price", "--target", "size", *QUICK, "--out", path.parent / "model").stdout
    assert "On 10 held-out rows (size): RMSE" in said


def test_the_last_rows_are_held_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[object]] = {}
    fit, conformalize = DeepRegressor.fit, DeepRegressor.conformalize

    def spy(self: DeepRegressor, X: object, y: object, weight: np.ndarray, held_out: tuple) -> DeepRegressor:
        seen.update(train=X["sold"].to_pylist(), held_out=held_out[0]["sold"].to_pylist(), weight=weight.tolist())
        return fit(self, X, y, weight, held_out=held_out)

    def kept(self: DeepRegressor, X: object, y: object) -> DeepRegressor:
        seen["aside"] = X["sold"].to_pylist()
        return conformalize(self, X, y)

    with monkeypatch.context() as patch:
        patch.setattr(DeepRegressor, "fit", spy)
        patch.setattr(DeepRegressor, "conformalize", kept)
        reg = fitted_by(path, "--time", "sold", "--conformal", "0.2", "--weight", "size")
    days = sorted(FLATS["sold"][FLATS["price"].notna()])
    assert sorted(seen["train"]) == days[:36]
    assert seen["weight"] == FLATS.set_index("sold")["size"][seen["train"]].tolist()
    assert sorted(seen["held_out"]) == days[36:46]
    assert sorted(seen["aside"]) == days[46:]
    assert "sold" in reg.feature_names_in_
    assert "size" not in reg.feature_names_in_
    out = path.parent / "model"
    said = run("fit", path, "--target", "price", *QUICK, "--time", "sold", "--drop", "sold", "--out", out).stdout
    assert "On the last 10 rows by sold, held out: RMSE" in said
    assert "sold" not in load(out).feature_names_in_


@pytest.mark.parametrize(
    ("time", "share", "last"),
    [
        ([5, 1, 4, 2, 3, 9, 8, 7, 6, 10], 0.2, [9, 10]),
        ([2020] * 6 + [2021] * 4, 0.1, [2021] * 4),
        ([1, 1, 2, 2, 2, 2, 2, 2, 2, 3], 0.2, [3]),
        ([1, 2, 3, 4], 0.99, [3, 4]),
    ],
)
def test_rows_of_one_time_stay_together(time: list[float], share: float, last: list[float]) -> None:
    import pyarrow as pa

    from density_regression.cli.time_split import split_by_time

    x = pa.table({"t": time})
    rows = TrainingTable(x, x, None, None, np.array(time, dtype=float), len(time), 0, None)
    earlier, later = split_by_time(rows, share)
    assert later.x["t"].to_pylist() == last
    assert sorted(earlier.x["t"].to_pylist() + last) == sorted(time)


def test_one_time_cannot_be_divided(path: Path) -> None:
    pd.read_csv(path).assign(sold="2022-01-01").to_csv(path, index=False)
    result = run("fit", path, "--target", "price", *QUICK, "--time", "sold", "--out", path.parent / "model")
    assert result.exit_code == 1
    assert "no two times among them" in result.stderr


def test_whole_groups_are_held_out(path: Path) -> None:
    out = path.parent / "model"
    result = run("fit", path, "--target", "price", *QUICK, "--group", "town", "--out", out)
    assert result.exit_code == 0, result.output
    sizes = FLATS["town"][FLATS["price"].notna()].value_counts()
    assert f"On {sizes.min()} held-out rows, whole groups of town: RMSE" in result.stdout
    assert "town" not in load(out).feature_names_in_


def test_weights(path: Path) -> None:
    pd.read_csv(path).assign(w=[0.0] * 20 + [1.0] * 40).to_csv(path, index=False)
    reg = fitted_by(path, "--weight", "w")
    assert reg.profile_.rows + reg.profile_.held_out.rows == 40
    assert "w" not in reg.feature_names_in_


def test_reading_options(path: Path) -> None:
    frame = FLATS.assign(price=FLATS["price"].fillna(-999))
    frame.to_csv(path, index=False, sep=";", decimal=",", encoding="cp1252")
    reg = fitted_by(path, "--separator", ";", "--decimal", ",", "--encoding", "cp1252", "--missing", "-999,0")
    assert reg.profile_.rows + reg.profile_.held_out.rows == 58
    assert "size" in reg.feature_names_in_
    assert fitted_by(path, "--missing", "-999,0", "--text", "year").profile_.columns[2].kind != "number"


def test_methods_and_their_settings(path: Path) -> None:
    assert set(METHODS) == ESTIMATORS.keys()
    assert check_method("deepensemble") == check_method("DeepEnsembleRegressor") == "DeepEnsembleRegressor"
    out = path.parent / "model"
    options = ["--method", "DeepEnsemble", "--members", "2", "--epochs", "1", "--seed", "7", "--threads", "1"]
    assert run("fit", path, "--target", "price", *options, "--law", "auto", "--out", out).exit_code == 0
    reg = load(out)
    assert (type(reg).__name__, reg.n_members, reg.random_state, reg.n_threads) == ("DeepEnsembleRegressor", 2, 7, 1)
    assert reg.target == "auto"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--target", "prize"], "flats.csv has no column 'prize' (--target): did you mean 'price'?"),
        (["--target", "Price"], "did you mean 'price'?"),
        (["--target", "qqq"], "it has id, size, year, town, balcony, sold, price."),
        (["--target", "price", "--drop", "balkony"], "no column 'balkony' (--drop): did you mean 'balcony'?"),
        (["--target", "price", "--weight", "w8"], "no column 'w8' (--weight)"),
        (["--target", "town"], "row 1 (line 2) has 'Ulm' in 'town', the target, which is no number: name a column"),
        (["--target", "balcony"], "which is no number: write 1 and 0"),
        (["--target", "price", "--time", "town"], "in 'town', by which rows are held out (--time): give dates"),
        (["--target", "price", "--group", "year"], "has no value in 'year', by which rows are grouped: fill it"),
        (["--target", "price", "--weight", "year"], "has no weight (column 'year')"),
        (["--target", "price", "--drop", "price"], "Column 'price' is named twice"),
        (["--target", "id"], "has 'A000' in 'id', the target, which is no number"),
    ],
)
def test_what_does_not_fit_the_table_is_told_in_a_line(path: Path, options: list[str], said: str) -> None:
    result = run("fit", path, *options, *QUICK, "--out", path.parent / "model", "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1
    assert said in result.stderr
    assert not (path.parent / "model").exists()


@pytest.mark.parametrize(
    ("column", "value", "options", "said"),
    [
        ("price", "-100", ["--positive"], "row 3 (line 4) has -100 in 'price', but --positive (--law log)"),
        ("price", "?", [], "row 3 (line 4), has '?', but 57 rows have numbers there: if it means a gap, say so"),
        ("price", "inf", [], "row 3 (line 4) has an infinite value in 'price', the target"),
        ("size", "-inf", [], "row 3 (line 4) has an infinite value in 'size': leave it empty"),
        ("sold", "yesterday", ["--time", "sold"], "row 3 (line 4) has 'yesterday' in 'sold'"),
        ("sold", None, ["--time", "sold"], "row 3 (line 4) has no value in 'sold'"),
        ("town", None, ["--group", "town"], "row 3 (line 4) has no value in 'town'"),
        ("size", "-1", ["--weight", "size"], "row 3 (line 4) has the weight -1 (column 'size')"),
    ],
)
def test_a_value_is_named_by_row_and_column(
    path: Path, column: str, value: str | None, options: list[str], said: str
) -> None:
    changed(path, column, 3, value)
    result = run("fit", path, "--target", "price", *options, *QUICK, "--out", path.parent / "model")
    assert result.exit_code == 1
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_rows_without_a_target_are_not_looked_at(path: Path) -> None:
    for column in ("sold", "town", "size"):
        changed(path, column, 5, None)
    assert fitted_by(path, "--time", "sold", "--weight", "size", "--positive").profile_.rows == 48


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("size,price\n", "no rows"),
        ("size,price\n3,4\n", "one row with a value of 'price'"),
        ("size,price\n3,4\n5,\n", "one row with a value of 'price'"),
        ("size,price\n3,\n4,\n", "no row has a value of 'price'"),
        ("price\n3\n4\n", "has no column to predict 'price' from"),
        ("price,a\n3,\n4,\n5,\n", "no column to learn from"),
        ("price,town,x\n3,a,1\n4,a,2\n5,a,3\n", "'town' has one value only, 'a'"),
        ("price,size,size\n3,4,5\n", "several columns of the name 'size'"),
    ],
)
def test_tables_that_say_too_little(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    group = ["--group", "town"] if "town" in text else []
    result = run("fit", tmp_path / "t.csv", "--target", "price", *group, *QUICK, "--out", tmp_path / "model")
    assert result.exit_code == 1
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_no_such_file(tmp_path: Path) -> None:
    result = run("fit", tmp_path / "none.csv", "--target", "price", "--out", tmp_path / "model")
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert "none.csv" in result.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "Name the column to predict, --target COLUMN; or, for a folder of images, give --task depth."),
        (["--target", "price", "--method", "magic"], "'magic' is not one of DensityRegressor, "),
        (["--target", "price", "--conformal", "1"], "give a share of the rows, such as 0.1"),
        (["--target", "price", "--time", "sold", "--group", "town"], "both say which rows to hold out"),
        (["--target", "price", "--members", "3", "--method", "Gaussian"], "GaussianRegressor has no members"),
        (["--target", "price", "--positive", "--law", "identity"], "--positive means --law log"),
        (["--target", "price", "--width", "3"], "--width is an option of images: add --task depth"),
        (["--task", "depth", "--target", "price", "--json"], "--target, --json are options of a table, not of images"),
        (["--target", "price", "--epochs", "0"], "--epochs"),
    ],
)
def test_wrong_usage(path: Path, options: list[str], said: str) -> None:
    result = run("fit", path, *options, "--out", path.parent / "model")
    assert result.exit_code == 2
    assert said in message(result)
    assert not (path.parent / "model").exists()


def test_a_folder_of_images_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "rgb").mkdir()
    assert "DATA looks like a folder of images" in message(run("fit", tmp_path))


def test_nothing_but_a_model_is_written_over(path: Path) -> None:
    out = path.parent / "model"
    out.mkdir()
    (out / "thesis.tex").write_text("mine")
    command = ["fit", path, "--target", "price", *QUICK, "--out", out]
    result = run(*command)
    assert result.exit_code == 2
    assert "holds no model, but thesis.tex: name another folder" in message(result)
    (out / "thesis.tex").unlink()
    (out / "model.json").write_text("{}")
    assert "holds no model, but model.json" in message(run(*command))
    (out / "model.json").unlink()
    assert run(*command).exit_code == 0
    before = load(out).predict(FLATS)
    assert run(*command, "--seed", "5").exit_code == 0
    assert not np.array_equal(load(out).predict(FLATS), before)
    assert len(list(out.iterdir())) == 2
    twice = run(*command, "--checkpoint-dir", out)
    assert twice.exit_code == 2
    assert "is to hold the model" in message(twice)


def test_out_that_is_a_file(path: Path) -> None:
    result = run("fit", path, "--target", "price", *QUICK, "--out", path)
    assert result.exit_code == 2
    assert "cannot be made a folder" in message(result)


def test_interrupted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fit_table, "_fitted", interrupt)
    result = run("fit", path, "--target", "price", "--out", path.parent / "model")
    assert result.exit_code == 130
    assert "give --checkpoint-dir" in result.stderr


def test_warnings_speak_of_files(path: Path) -> None:
    frame = pd.read_csv(path).assign(
        when=[f"{1 + i % 28:02d}/{1 + i % 12:02d}/2023" for i in range(60)],
        count=[str(i) if i % 3 else "?" for i in range(60)],
    )
    frame.to_csv(path, index=False)
    result = run("fit", path, "--target", "price", *QUICK, "--out", path.parent / "model")
    assert "these look like dates: convert them, to the form 2026-11-19" in result.stderr
    assert "most are numbers as text: say what means a gap (--missing)" in result.stderr
    assert "pandas" not in result.output
    assert " of X" not in result.output
