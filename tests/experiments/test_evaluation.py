"""Evaluation of a regressor: its numbers, its words, and its page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from density_regression import DensityRegressor, baselines, metrics
from density_regression.experiments.evaluation.bins import ErrorBin
from density_regression.experiments.evaluation.evaluation import Evaluation, Evaluator
from density_regression.experiments.evaluation.page import write_evaluation
from density_regression.experiments.evaluation.totals import IntervalQuality
from density_regression.experiments.evaluation.verdict import verdict

QUICK = {"hidden": (16,), "n_threads": 1, "random_state": 0, "verbose": False}


def make_frame(rows: int, seed: int, town: str = "Ulm") -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"km": rng.uniform(0, 100, rows), "town": rng.choice([town, "Bonn"], rows)})
    return frame.assign(price=5.0 + 0.1 * frame["km"] + rng.normal(size=rows) * (0.2 + 0.01 * frame["km"]))


@pytest.fixture(scope="module")
def regressor() -> DensityRegressor:
    frame = make_frame(500, 0)
    return DensityRegressor(epochs=25, members=0, **QUICK).fit(frame.drop(columns="price"), frame["price"])


def evaluated(regressor: DensityRegressor, frame: pd.DataFrame, batch: int = 1000) -> Evaluation:
    evaluator = Evaluator(regressor, "price")
    for start in range(0, len(frame), batch):
        part = frame.iloc[start : start + batch]
        evaluator.update(part.drop(columns="price"), part["price"].to_numpy())
    return evaluator.result()


@pytest.fixture(scope="module")
def at_home(regressor: DensityRegressor) -> Evaluation:
    return evaluated(regressor, make_frame(400, 1))


@pytest.fixture(scope="module")
def shifted(regressor: DensityRegressor) -> Evaluation:
    frame = make_frame(300, 2, town="Rome")
    return evaluated(regressor, frame.assign(km=frame["km"] + 60.0))


def words(of: Evaluation) -> dict[str, str]:
    return {point.topic: f"{point.mark}: {point.text}" for point in verdict(of)}


def test_batches_make_no_difference(regressor: DensityRegressor, at_home: Evaluation) -> None:
    divided = evaluated(regressor, make_frame(400, 1), batch=37)
    # Rows are predicted in float32, whose rounding depends on the rows beside them.
    assert divided.metrics == pytest.approx(at_home.metrics, rel=1e-5)
    assert divided.familiarity.unfamiliar == at_home.familiarity.unfamiliar
    np.testing.assert_allclose(divided.sample["mean"], at_home.sample["mean"], rtol=1e-5)


def test_numbers_are_those_of_the_metrics(regressor: DensityRegressor, at_home: Evaluation) -> None:
    frame = make_frame(400, 1)
    y = frame["price"].to_numpy()
    mean, std = regressor.predict(frame.drop(columns="price"), return_std=True)
    assert at_home.rows == 400
    assert at_home.metrics["nll"] == pytest.approx(metrics.nll(y, mean, std), rel=1e-6)
    assert at_home.metrics["spearman"] == pytest.approx(metrics.spearman(y, mean, std), abs=1e-6)
    assert at_home.intervals[2].coverage == metrics.coverage(y, mean, std, level=0.9)
    assert at_home.model.training_rows == 425
    assert at_home.model.held_out["rows"] == 75


def test_strange_rows_are_found_and_described(shifted: Evaluation) -> None:
    assert shifted.familiarity.unfamiliar > 100
    said = " ".join(trait.sentence() for trait in shifted.familiarity.traits)
    assert "a `town` that training never had, such as Rome" in said
    assert "Strange rows" in words(shifted)
    assert words(shifted)["Strange rows"].startswith("poor")
    assert words(shifted)["What they have in common"].startswith("note")


def test_a_good_model_is_called_so(at_home: Evaluation) -> None:
    good = replace(at_home, intervals=(IntervalQuality(0.9, 0.905, 1.0),))
    assert words(good)["Calibration"] == "good: Calibrated: 90 % intervals hold 90.5 % of the targets."
    assert words(good)["Accuracy"].startswith("good")
    assert words(good)["Error and std"].startswith("good: Errors are larger where the standard deviation is")


def test_narrow_intervals_are_called_so_with_the_remedy(at_home: Evaluation) -> None:
    narrow = (IntervalQuality(0.9, 0.81, 1.0),)
    text = words(replace(at_home, intervals=narrow))["Calibration"]
    assert text.startswith(
        "poor: 90 % intervals hold 81 % of the targets: too narrow. `conformalize` on rows like these"
    )
    wide = replace(at_home, intervals=(IntervalQuality(0.9, 0.97, 1.0),))
    assert "hold 97 % of the targets: too wide" in words(wide)["Calibration"]
    conformal = words(replace(at_home, conformal=narrow))["Calibration"]
    assert conformal.startswith("poor: Conformal 90 % intervals hold 81 %")
    assert "these differ" in conformal


def test_it_is_said_where_the_intervals_are_too_narrow(at_home: Evaluation) -> None:
    narrow = (IntervalQuality(0.9, 0.5, 1.0),)
    familiar = ErrorBin(0.01, 1.0, 350, 1.0, 1.0, 0.91)
    found = replace(at_home.familiarity, familiar=familiar, unfamiliar=50)
    text = words(replace(at_home, intervals=narrow, familiarity=found))["Calibration"]
    assert "On the 350 familiar rows they hold 91 %: what they miss is among the 50 strange ones" in text
    model = replace(at_home.model, held_out={"rows": 500, "coverage": 0.9, "rmse": 1.0})
    found = replace(found, familiar=familiar._replace(inside=0.5))
    text = words(replace(at_home, intervals=narrow, familiarity=found, model=model))["Calibration"]
    assert "what targets depend on has changed" in text
    found = replace(found, familiar=None)
    assert "All rows are strange" in words(replace(at_home, intervals=narrow, familiarity=found))["Calibration"]


def test_accuracy_is_compared_with_the_held_out_rows(at_home: Evaluation) -> None:
    before = replace(at_home.model, held_out={"rows": 75, "rmse": at_home.metrics["rmse"] / 3, "coverage": 0.9})
    text = words(replace(at_home, model=before))["Accuracy"]
    assert text.startswith("poor")
    assert "3 times as large as on the rows held out" in text
    biased = replace(at_home, metrics=at_home.metrics | {"bias": -5.0, "rmse": 6.0})
    assert "too high by 5 on average" in words(biased)["Accuracy"]
    useless = replace(at_home, metrics=at_home.metrics | {"r2": -0.4})
    assert "would predict as well or better (R² -0.40)" in words(useless)["Accuracy"]


def test_a_std_that_says_nothing_is_called_so(at_home: Evaluation) -> None:
    flat = tuple(one._replace(rmse=1.0) for one in at_home.by_std)
    assert words(replace(at_home, by_std=flat))["Error and std"].startswith("poor: The standard deviation hardly says")
    assert "about the same for all rows" in words(replace(at_home, by_std=flat[:1]))["Error and std"]


def test_a_method_without_familiarity_is_evaluated_too() -> None:
    frame = make_frame(80, 0)
    rival = baselines.GaussianRegressor(epochs=2, **QUICK).fit(frame.drop(columns="price"), frame["price"])
    result = evaluated(rival, frame)
    assert result.familiarity is None
    assert words(result)["Strange rows"] == "note: This method has no notion of familiarity."


def test_rows_without_targets_are_counted(regressor: DensityRegressor) -> None:
    evaluator = Evaluator(regressor, "price")
    evaluator.skip(3)
    with pytest.raises(ValueError, match=r"no row with a target to evaluate on\. 3 rows have none"):
        evaluator.result()


def test_the_page_stands_alone_and_says_everything_in_tables(shifted: Evaluation, tmp_path: Path) -> None:
    files = write_evaluation(shifted, tmp_path, "models/flats", "new <flats>.csv")
    assert [file.name for file in files] == ["evaluation.json", "evaluation.html"]
    page = files[1].read_text()
    assert "default-src 'none'" in page
    assert not re.search(r"""(src|href)=["'](?!#|data:)""", page)
    assert "new &lt;flats&gt;.csv" in page
    assert "<flats>" not in page
    charts = re.findall(r'<svg class="chart".*?</svg></svg>|<svg class="chart".*?</figure>', page, re.DOTALL)
    assert len(charts) == 6
    assert page.count("as a table</summary>") == 6
    assert all('role="img" aria-label="' in chart for chart in charts)
    assert "nan" not in " ".join(re.findall(r'(?:points|d|cx|cy|x|y|width|height)="([^"]*)"', page)).lower()
    # Each button and each scrollable box can be reached by keys.
    assert page.count('class="wide"') == page.count('class="wide" tabindex="0"')
    again = write_evaluation(shifted, tmp_path / "again", "models/flats", "new <flats>.csv")
    assert [file.read_bytes() for file in files] == [file.read_bytes() for file in again]


def test_the_json_has_all_numbers_and_no_nan(shifted: Evaluation, tmp_path: Path) -> None:
    write_evaluation(replace(shifted, metrics=shifted.metrics | {"nll": np.inf}), tmp_path, "model", "data.csv")
    found = json.loads((tmp_path / "evaluation.json").read_text(), parse_constant=pytest.fail)
    assert found["data"] == "data.csv"
    assert found["metrics"]["nll"] is None
    assert found["metrics"]["rmse"] == shifted.metrics["rmse"]
    assert found["familiarity"]["unfamiliar"] == shifted.familiarity.unfamiliar
    assert found["intervals"][2]["level"] == 0.9
    assert "sample" not in found


def test_one_row_and_rows_that_are_all_strange_make_a_page(regressor: DensityRegressor, tmp_path: Path) -> None:
    one = evaluated(regressor, make_frame(1, 3))
    assert one.rows == 1
    assert one.metrics["r2"] == 0.0
    far = make_frame(40, 3, town="Rome").assign(km=1e6)
    all_strange = evaluated(regressor, far)
    assert all_strange.familiarity.familiar is None
    assert "of the training rows 0 %" in all_strange.familiarity.traits[0].sentence()
    for found in (one, all_strange):
        assert write_evaluation(found, tmp_path, "m", "d")[1].exists()


def test_names_of_columns_are_text_on_the_page(tmp_path: Path) -> None:
    name = "<script>`a` & b"
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.normal(size=60), "c": rng.choice(["<i>", "y"], 60)})
    model = DensityRegressor(epochs=2, members=0, **QUICK).fit(frame, frame[name])
    evaluator = Evaluator(model, name)
    evaluator.update(frame.assign(**{name: 50.0}), frame[name].to_numpy())
    page = write_evaluation(evaluator.result(), tmp_path, name, name)[1].read_text()
    assert page.count("<script>") == 1
    assert "<i>" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize("scale", [1e-30, 1e30, 1e200])
def test_numbers_of_any_size_can_be_drawn(scale: float, tmp_path: Path) -> None:
    frame = make_frame(60, 0)
    frame["price"] *= scale
    tiny = DensityRegressor(epochs=2, **QUICK).fit(frame.drop(columns="price"), frame["price"])
    page = write_evaluation(evaluated(tiny, frame.iloc[:20]), tmp_path, "m", "d")[1].read_text()
    assert "nan" not in " ".join(re.findall(r'(?:points|d|cx|cy|x|y|width|height)="([^"]*)"', page)).lower()
