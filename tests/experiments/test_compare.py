"""Comparison of methods on one's own table: records, summary and verdict."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from density_regression import baselines, metrics
from density_regression.experiments.compare import fits
from density_regression.experiments.compare.page import write_comparison
from density_regression.experiments.compare.plan import Comparison
from density_regression.experiments.compare.summary import Summary, summarise
from density_regression.experiments.compare.table import OwnTable
from density_regression.experiments.compare.verdict import verdict
from density_regression.experiments.records import FitKey, Record, RecordFile
from density_regression.experiments.report import write_report
from density_regression.experiments.significance import corrected_t_test, holm

METHODS = ("Gaussian", "Deterministic")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits that take a moment."""
    classes = {"Gaussian": baselines.GaussianRegressor, "Deterministic": baselines.DeterministicRegressor}
    short = {name: partial(kind, hidden=(8,), epochs=2) for name, kind in classes.items()}
    monkeypatch.setattr(fits, "estimators_by_method", lambda: short)


def make_table(rows: int = 60) -> OwnTable:
    rng = np.random.default_rng(0)
    X = pa.table(
        {
            "km": rng.normal(size=rows),
            "town": rng.choice(["Ulm", "Bonn", None], rows).tolist(),
            "note": [f"n{i}" for i in range(rows)],
        }
    )
    return OwnTable("flats", X, np.exp(X["km"].to_numpy() + 0.1 * rng.normal(size=rows)))


def run(plan: Comparison, path: Path) -> list[Record]:
    with RecordFile(path) as file:
        return list(plan.run(file, jobs=1))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("law", ["identity", "log"])
def test_records_hold_the_metrics_of_the_tested_rows(tmp_path: Path, law: str) -> None:
    table = make_table()
    plan = Comparison(table, METHODS, n_folds=2, target=law)
    records = run(plan, tmp_path / "r.jsonl")
    assert [FitKey.of(record) for record in records] == plan.fits()
    (record,) = [one for one in records if one["method"] == "Gaussian" and one["split"] == "1"]
    train, held_out, test = (table.take(rows) for rows in table.folds(2)[1])
    with pytest.warns(UserWarning, match="Left out"):
        regressor = baselines.GaussianRegressor(
            hidden=(8,), epochs=2, target=law, random_state=1, n_threads=1, verbose=False
        ).fit(train.X, train.y, held_out=(held_out.X, held_out.y))
    mean, std = regressor.predict(test.X, return_std=True)
    found = record["tests"]["test"]
    assert found["rows"] == 30
    assert found["metrics"]["rmse"] == pytest.approx(metrics.rmse(test.y, mean), rel=1e-5)
    assert found["metrics"]["nll_own"] == pytest.approx(
        metrics.nll_own(test.y, regressor.predict_dist(test.X)), rel=1e-5
    )
    low, high = regressor.predict_interval(test.X, 0.9)
    assert found["metrics"]["coverage_90"] == pytest.approx(np.mean((low <= test.y) & (test.y <= high)))
    assert found["metrics"]["sharpness_sd"] == pytest.approx(metrics.sharpness(std, unit=train.y.std()), rel=1e-5)
    assert record["rows"] == {"train": len(train.y), "held_out": len(held_out.y)}
    assert record["left_out"] == ["note"]
    assert len(found["curve"]) == 21


@pytest.mark.usefixtures("quick")
def test_what_is_done_is_not_done_again_unless_rows_or_settings_differ(tmp_path: Path) -> None:
    path, table = tmp_path / "r.jsonl", make_table()
    plan = Comparison(table, METHODS, n_folds=2)
    first = run(plan, path)
    content = path.read_bytes()
    # As if killed in the last line: it is removed, and only that fit is run again.
    path.write_bytes(content[:-40])
    again = run(plan, path)
    assert [FitKey.of(record) for record in again] == [FitKey.of(first[-1])]
    assert again[0]["tests"] == first[-1]["tests"]
    assert run(plan, path) == []
    other = Comparison(OwnTable("flats", table.X, table.y + 1), METHODS, n_folds=2)
    assert len(run(other, path)) == 4
    assert len(run(Comparison(other.table, METHODS, n_folds=2, target="log"), path)) == 4
    with RecordFile(path) as file:
        assert len(other.records(file.records)) == 4
        assert [record["tests"] for record in plan.records(file.records)] == [
            *(record["tests"] for record in [*first[:-1], again[0]])
        ]


@pytest.mark.usefixtures("quick")
def test_a_fit_that_fails_is_recorded_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Comparison(make_table(), METHODS, n_folds=2)

    def broken(**_: object) -> None:
        raise RuntimeError("no memory")

    whole = fits.estimators_by_method()
    monkeypatch.setattr(fits, "estimators_by_method", lambda: {**whole, "Deterministic": broken})
    records = run(plan, tmp_path / "r.jsonl")
    assert [record.get("error") for record in records] == [None, "RuntimeError: no memory"] * 2
    assert summarise(plan.records(records)).others == ()
    monkeypatch.setattr(fits, "estimators_by_method", lambda: whole)
    assert {record["method"] for record in run(plan, tmp_path / "r.jsonl")} == {"Deterministic"}
    with pytest.raises(ValueError, match="nothing to compare"):
        summarise([record for record in records if "error" in record])


@pytest.mark.usefixtures("quick")
def test_a_page_and_the_report_of_a_benchmark_are_made_of_the_records(tmp_path: Path) -> None:
    plan = Comparison(make_table(), METHODS, n_folds=2)
    records = run(plan, tmp_path / "r.jsonl")
    html, markdown = (path.read_text() for path in write_comparison(plan, summarise(records), records, tmp_path))
    assert "Methods compared on flats" in html
    assert "Left out, as nearly every row has a text of its own: note." in html
    assert "- Gaussian has the lowest NLL" in markdown or "- Deterministic has the lowest NLL" in markdown
    assert html.count("data:image/png") == 2
    assert len(list((tmp_path / "figures").iterdir())) == 2
    write_report(records, tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Cross-validation of your own table" in page
    assert "NLL, own law" in page


# Summary and verdict, of made-up scores


def records_of(nll: dict[str, list[float]], coverage: float = 0.9, **seconds: float) -> list[Record]:
    return [
        {
            **FitKey("compare", "default", "flats", str(fold), 0, method)._asdict(),
            "tests": {
                "test": {
                    "rows": 20,
                    "metrics": {
                        **{"nll_own": value, "crps": 1.0, "rmse": 2.0, "cal": 0.1},
                        **{"coverage_90": coverage, "std_factor": 1.0},
                    },
                }
            },
            "rows": {"train": 68, "held_out": 12},
            "seconds": {"fit": seconds.get(method.split()[0], 1.0), "predict": 5e-5},
        }
        for method, values in nll.items()
        for fold, value in enumerate(values)
    ]


NEAR = [1.01, 1.22, 0.93, 1.13, 1.05]
FOLDS = {
    "Deep Ensembles": [1.0, 1.2, 0.9, 1.1, 1.1],
    "Gaussian": NEAR,
    "Deterministic": [value + 0.5 + 0.01 * i for i, value in enumerate(NEAR)],
}


def said(of: Summary) -> str:
    return " ".join(verdict(of))


def test_differences_are_tested_with_the_correction_for_shared_training_rows() -> None:
    found = summarise(records_of(FOLDS))
    # By the mean: Deep Ensembles 1.06, Gaussian 1.068.
    assert found.best == "Deep Ensembles"
    assert [one.method for one in found.others] == ["Gaussian", "Deterministic"]
    assert found.means["nll_own"]["Gaussian"] == pytest.approx(1.068)
    differences = [np.subtract(FOLDS[one.method], FOLDS["Deep Ensembles"]) for one in found.others]
    expected = holm([corrected_t_test(one, 20 / 80) for one in differences])
    np.testing.assert_allclose([one.p_value for one in found.others], expected)
    assert [one.is_worse for one in found.others] == [False, True]


def test_the_verdict_names_equals_worse_ones_and_a_choice() -> None:
    noisy = {"Quantile": [1.0, 6.0, 0.9, 1.2, 1.1]}
    text = said(summarise(records_of(FOLDS | noisy, Deep=10.0)))
    assert "Deep Ensembles has the lowest NLL, 1.06 nats a row. About the same: Gaussian (+0.01)." in text
    assert "Higher, but 5 folds do not tell it from chance: Quantile (+0.98)." in text
    assert "Worse: Deterministic by 0.528 (p " in text
    assert (
        "Take Deep Ensembles (10 s to fit, 0.05 ms for 1,000 rows), or Gaussian, which is quicker to fit (1 s" in text
    )
    assert "too narrow" not in text
    alone = said(summarise(records_of({name: FOLDS[name] for name in ("Gaussian", "Deterministic")})))
    assert "About the same" not in alone
    assert alone.endswith("Take Gaussian (1 s to fit, 0.05 ms for 1,000 rows).")


def test_a_quicker_method_is_not_named_if_it_is_behind_or_slow_in_another_way() -> None:
    behind = {"Gaussian": [1.0, 1.2, 0.9, 1.1], "EDL": [1.1, 1.5, 0.9, 1.3]}
    text = said(summarise(records_of(behind, Gaussian=10.0)))
    assert "Higher, but 4 folds do not tell it from chance" in text
    assert text.endswith("Take Gaussian (10 s to fit, 0.05 ms for 1,000 rows).")
    records = records_of({name: FOLDS[name] for name in ("Deep Ensembles", "Gaussian")}, Deep=10.0)
    for record in records:
        record["seconds"]["predict"] *= 10.0 if record["method"] == "Gaussian" else 1.0
    assert said(summarise(records)).endswith("Take Deep Ensembles (10 s to fit, 0.05 ms for 1,000 rows).")


def test_the_verdict_warns_of_intervals_that_promise_too_much() -> None:
    assert "90 % intervals are too narrow: Deep Ensembles 80 %, Gaussian 80 %." in said(
        summarise(records_of(FOLDS, coverage=0.8))
    )
    assert "too wide: Deep Ensembles 97 %" in said(summarise(records_of(FOLDS, coverage=0.97)))
    many = {f"method {i}": NEAR for i in range(6)}
    assert "too narrow: 6 of 6 methods, 80 % to 80 %." in said(summarise(records_of(many, coverage=0.8)))


def test_one_fold_or_one_method_is_not_tested() -> None:
    text = said(summarise(records_of({name: values[:1] for name, values in FOLDS.items()})))
    assert "one fold says little" in text
    assert "p =" not in text
    assert said(summarise(records_of({"Gaussian": NEAR}))).startswith("Gaussian is the only method: NLL 1.07.")


def test_the_table_marks_the_best_and_its_equals() -> None:
    table = summarise(records_of(FOLDS)).table
    assert [row[0].text for row in table.rows] == ["Deep Ensembles", "Gaussian", "Deterministic"]
    nll, coverage = table.header.index("NLL"), table.header.index("In 90 % intervals")
    assert [row[nll].bold for row in table.rows] == [True, True, False]
    assert table.rows[0][coverage].text == "90.0 ± 0.0 %"
    assert table.rows[0][nll].text == "1.06 ± 0.11"
