from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from density_regression import DensityRegressor
from density_regression.serve.page.asked import read_query
from density_regression.serve.page.explain import note, reasons, verdict
from density_regression.serve.page.fields import Field, fields_of, profile_of
from density_regression.serve.page.outlook import known_coverages, look, values_along
from density_regression.serve.scorer import Scorer
from serve.page.helpers import view_of

FAR = {"x.km": "370000", "x.town": "Paris", "gap.power": "1"}


def table_of(scorer: Scorer, row: dict[str, object]) -> pd.DataFrame:
    """The row of a view as a data frame, as `predict` takes it."""
    day = np.datetime64("1970-01-01") + int(row["first registration"])
    given = row | {"first registration": day, "accident-free": bool(row["accident-free"])}
    return pd.DataFrame({name: [value] for name, value in given.items()}).astype({"power": float})


def test_the_answer_is_what_predict_says(cars: Scorer, cars_regressor: DensityRegressor) -> None:
    view = view_of(cars, FAR)
    table = table_of(cars, view.asked.row)
    mean, std = cars_regressor.predict(table, return_std=True)
    assert view.outlook.point.mean == pytest.approx(mean[0], rel=1e-5)
    assert view.outlook.std == pytest.approx(std[0], rel=1e-5)
    for coverage, interval in view.outlook.intervals.items():
        assert interval == pytest.approx(np.ravel(cars_regressor.predict_interval(table, coverage)), abs=1e-5 * std[0])
    assert view.outlook.log_density == pytest.approx(cars_regressor.score_samples(table)[0], rel=1e-4)
    assert view.outlook.familiarity == cars_regressor.familiarity(table)[0]
    parts = cars_regressor.decompose(table)
    known = [parts.aleatoric[0], parts.disagreement[0], parts.distance[0]]
    assert list(view.outlook.parts.values()) == pytest.approx(known, rel=1e-4, abs=1e-3 * std[0])


def test_a_rise_is_what_the_typical_value_brings(cars: Scorer, cars_regressor: DensityRegressor) -> None:
    view = view_of(cars, FAR)
    assert list(view.outlook.rises) == ["km", "power", "town"]
    before = cars_regressor.score_samples(table_of(cars, view.asked.row))[0]
    for name, rise in view.outlook.rises.items():
        typical = next(part.typical for part in view.fields if part.name == name)
        after = cars_regressor.score_samples(table_of(cars, view.asked.row | {name: typical}))[0]
        assert rise == pytest.approx(after - before, rel=1e-3)


def test_a_sweep_is_the_row_with_each_value_in_turn(cars: Scorer) -> None:
    view = view_of(cars, FAR)
    for sweep in view.outlook.sweeps:
        for place in (0, len(sweep.values) // 2, -1):
            row = view.asked.row | {sweep.field.name: sweep.values[place]}
            asked = replace(view.asked, row=row)
            assert look(cars, view.fields, asked).point == pytest.approx(sweep.points[place], rel=1e-6)


def test_numbers_are_swept_over_the_span_and_categories_over_what_there_is(cars: Scorer) -> None:
    sweeps = {sweep.field.name: sweep for sweep in view_of(cars, FAR).outlook.sweeps}
    assert len(sweeps["km"].values) == 41
    assert (sweeps["km"].values[0], sweeps["km"].values[-1]) == sweeps["km"].field.span
    assert sweeps["town"].values == ("Ulm", "Mainz", "Kiel <b>", "Paris", None)
    assert sweeps["fuel"].values == ("petrol", "diesel", "electric", "other", None)
    assert sweeps["accident-free"].values == (1.0, 0.0, None)


def test_the_band_opens_beyond_the_training_range(cars: Scorer) -> None:
    sweep = next(sweep for sweep in view_of(cars).outlook.sweeps if sweep.field.name == "km")
    widths = [point.high - point.low for point in sweep.points]
    assert widths[-1] > 1.2 * widths[len(widths) // 2]


def test_a_word_that_is_taken_is_not_the_new_one() -> None:
    field = Field("a", "category", "x", values=("other", "x"))
    assert values_along(field, "x") == ("other", "x", "other?")


def fake(outputs: tuple[str, ...], known: float = 1.0) -> SimpleNamespace:
    """A scorer of two targets, the second one ten times the first."""

    class Fake(SimpleNamespace):
        def __call__(self, rows, *, coverage, outputs):
            x = np.array(rows["a"], dtype=float)
            targets = np.column_stack([x, 10 * x])
            values = {"mean": targets, "std": np.abs(targets), "low": targets - coverage, "high": targets + coverage}
            return {name: values.get(name, -np.abs(x)) for name in outputs}

        def half_width(self, coverage):
            if coverage > known:
                raise ValueError("too few rows")

    return Fake(outputs=outputs)


def test_of_several_targets_one_is_shown() -> None:
    field = Field("a", "number", 1.0, ends=(0.0, 4.0))
    scorer = fake(("mean", "std", "low", "high", "log_density"))
    outlook = look(scorer, [field], read_query({"x.a": "3", "target": "1"}, "m", [field], 2))
    assert outlook.point == pytest.approx((30.0, 29.1, 30.9))
    assert outlook.intervals[0.5] == pytest.approx((29.5, 30.5))
    assert outlook.rises == {"a": 2.0}
    assert outlook.sweeps[0].points[-1].mean == 60.0


def test_few_conformal_rows_leave_the_narrow_intervals() -> None:
    scorer = fake(("mean", "std", "low", "high"), known=0.85)
    assert known_coverages(scorer) == (0.5, 0.8)


def test_without_intervals_and_density_there_is_the_mean() -> None:
    field = Field("a", "number", 1.0, ends=(0.0, 4.0))
    outlook = look(fake(("mean", "std")), [field], read_query({}, "m", [field], known=()))
    assert (outlook.intervals, outlook.familiarity, outlook.rises, outlook.parts) == ({}, None, {}, {})
    assert np.isnan(outlook.point.low)


@pytest.mark.parametrize(
    ("familiarity", "level"),
    [
        (0.0, "unfamiliar"),
        (0.0099, "unfamiliar"),
        (0.01, "unusual"),
        (0.0499, "unusual"),
        (0.05, "familiar"),
        (1.0, "familiar"),
    ],
)
def test_verdicts(familiarity: float, level: str) -> None:
    assert verdict(familiarity).level == level


def test_a_hundred_of_a_hundred_rows_cannot_be_less_familiar() -> None:
    assert "99 of 100" in verdict(1.0).sentence
    assert "99 of 100" in verdict(0.0).sentence


def test_reasons_name_the_columns_and_say_why(cars: Scorer) -> None:
    view = view_of(cars, FAR)
    first, *others = reasons(view.fields, view.asked, view.outlook)
    assert (first.field.name, first.words) == ("town", "= “Paris”: no training row had this value")
    km = next(reason for reason in others if reason.field.name == "km")
    low, high = km.field.ends or (0.0, 0.0)
    assert km.words == f"= 370,000 is beyond the training range {low:,.0f} to {high:,.0f}"
    assert len(others) <= 2


def test_a_typical_row_has_no_reason_to_be_strange(cars: Scorer) -> None:
    view = view_of(cars)
    assert view.outlook.rises == {}
    assert reasons(view.fields, view.asked, view.outlook) == []


def test_a_usual_value_may_be_strange_together_with_others(cars: Scorer) -> None:
    view = view_of(cars)
    asked = replace(view.asked, row=view.asked.row | {"km": 60_000.0})
    outlook = replace(view.outlook, rises={"km": 5.0, "power": 0.5})
    [reason] = reasons(view.fields, asked, outlook)
    assert reason.words == "= 60,000 is usual by itself, but not together with the other values"


KM = Field("km", "number", 5.0, ends=(0.0, 100.0), rare_ends=(2.0, 90.0), gaps=0.0, takes_gaps=True)
TOWN = Field("town", "category", "Ulm", values=("Ulm", "Bonn"), shares=(("Ulm", 0.9), ("Bonn", 0.02)), gaps=0.08)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        (KM, 5.0, None),
        (KM, 1.0, "among the lowest 1 % of the training rows"),
        (KM, 95.0, "among the highest 1 % of the training rows"),
        (KM, 101.0, "beyond the training range"),
        (KM, None, "no training row lacked it"),
        (TOWN, "Ulm", None),
        (TOWN, "Bonn", "rare: 2 of 100 training rows"),
        (TOWN, "Rome", "no training row had this value"),
        (TOWN, None, None),
        (replace(TOWN, gaps=0.03), None, "missing in 3 of 100 training rows"),
        (Field("old", "number", 1.0, takes_gaps=True), None, None),
        (Field("old", "number", 1.0), 1e9, None),
    ],
)
def test_notes_beside_an_input(field: Field, value: float | str | None, words: str | None) -> None:
    assert note(field, value) == words


def test_a_model_without_a_profile_is_explained_too(cars: Scorer) -> None:
    bundle = replace(cars.bundle, profile=None)
    fields = fields_of(bundle, profile_of(bundle))
    asked = read_query({"x.km": "370000"}, "m", fields)
    [reason] = reasons(fields, asked, look(cars, fields, asked))
    assert reason.words == "= 370,000, which is far from what training rows had"
