from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from density_regression.serve.bundle import Input
from density_regression.serve.page.fields import Field, fields_of, profile_of
from density_regression.serve.page.values import form_text, in_words, inputs, parse
from density_regression.serve.scorer import Scorer
from serve.page.helpers import make_cars


def by_name(scorer: Scorer) -> dict[str, Field]:
    return {part.name: part for part in fields_of(scorer.bundle, profile_of(scorer.bundle))}


def test_typical_values_are_medians_and_frequent_values(cars: Scorer) -> None:
    fields = by_name(cars)
    table = make_cars()[0]
    assert table["km"].quantile(0.4) < fields["km"].typical < table["km"].quantile(0.6)
    assert (fields["fuel"].typical, fields["town"].typical) == ("petrol", "Ulm")
    assert fields["accident-free"].typical == 1.0
    day = np.datetime64("1970-01-01") + int(fields["first registration"].typical)
    assert table["first registration"].quantile(0.4) < day < table["first registration"].quantile(0.6)


def test_one_can_slide_half_a_training_range_beyond_it_on_both_sides() -> None:
    assert Field("a", "number", 1.0, ends=(10.0, 30.0)).span == (0.0, 40.0)
    assert Field("a", "number", 1.0, ends=(1.0, 4.0), whole=True).span == (-1, 6)
    assert Field("a", "number", 1.0, ends=(5.0, 5.0)).span == (0.0, 10.0)
    assert Field("a", "number", 1.0).span is None
    early, late = Field("a", "date", 0.0, ends=(-719_000.0, 2_932_000.0)).span or (0, 0)
    assert form_text(Field("a", "date", 0.0, whole=True), early) == "0001-01-01"
    assert form_text(Field("a", "date", 0.0, whole=True), late) == "9999-12-31"


def test_what_is_beyond_training_is_known(cars: Scorer) -> None:
    fields = by_name(cars)
    low, high = fields["km"].ends or (0.0, 0.0)
    assert not fields["km"].is_beyond(high)
    assert fields["km"].is_beyond(np.nextafter(high, np.inf).item())
    assert fields["km"].is_beyond(low - 1.0)
    assert not fields["km"].is_beyond(None)
    assert fields["town"].is_new("Paris")
    assert not fields["town"].is_new("Kiel <b>")
    assert not fields["town"].is_new(None)


def test_shares_are_those_of_the_training_rows(cars: Scorer) -> None:
    fields = by_name(cars)
    assert fields["fuel"].share("petrol") == pytest.approx(0.6, abs=0.1)
    assert fields["accident-free"].share(1.0) == pytest.approx(0.85, abs=0.06)
    assert fields["power"].share(None) == pytest.approx(0.1, abs=0.05)
    assert fields["km"].share(None) == 0.0
    assert fields["km"].share(5.0) is None


def test_a_model_without_a_profile_has_medians_and_first_values(cars: Scorer) -> None:
    known, old = by_name(cars), {part.name: part for part in fields_of(replace(cars.bundle, profile=None), None)}
    assert old["km"].typical == pytest.approx(known["km"].typical, rel=0.02)
    assert old["km"].ends is None
    assert old["fuel"].typical == "petrol"
    assert old["accident-free"].typical == 1.0
    assert all(part.takes_gaps for part in old.values())


def test_a_model_of_plain_numbers_takes_no_gaps(cars: Scorer) -> None:
    inputs = (Input("0", "number", "X"),)
    bundle = replace(cars.bundle, profile=None, columns=None, named=False, inputs=inputs)
    [field] = fields_of(bundle, None)
    assert (field.typical, field.takes_gaps, field.label) == (0.0, False, "column 0")


def test_a_damaged_profile_is_as_none(cars: Scorer) -> None:
    assert profile_of(replace(cars.bundle, profile={"rows": "many"})) is None


FIELDS = [
    (Field("a", "number", 0.0), "12.5", 12.5),
    (Field("a", "number", 0.0), " -1e3 ", -1000.0),
    (Field("a", "boolean", 0.0), "true", 1.0),
    (Field("a", "boolean", 0.0), "false", 0.0),
    (Field("a", "date", 0.0, whole=True), "1970-01-02", 1.0),
    (Field("a", "date", 0.0), "1970-01-02T12:00", 1.5),
    (Field("a", "time", 0.0), "06:00", 0.25),
    (Field("a", "category", "x"), " x ", " x "),
]


@pytest.mark.parametrize(("field", "text", "value"), FIELDS)
def test_texts_become_values_and_back(field: Field, text: str, value: float | str) -> None:
    assert parse(field, text) == value
    assert parse(field, form_text(field, value)) == value
    assert parse(field, "") is None
    assert form_text(field, None) == ""


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("number", "abc"),
        ("number", "nan"),
        ("number", "1e400"),
        ("boolean", "yes"),
        ("date", "2020-02-30"),
        ("date", "yesterday"),
        ("time", "25:00"),
    ],
)
def test_what_is_no_value_is_refused_by_name(kind: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parse(Field("a", kind, 0.0), text)


def test_values_in_words() -> None:
    assert in_words(Field("km", "number", 0.0, ends=(0.0, 250_000.0)), 5000.0) == "5,000"
    assert in_words(Field("year", "number", 0.0, ends=(1990.0, 2026.0)), 2015.0) == "2015"
    assert in_words(Field("a", "date", 0.0), 1.5) == "1970-01-02 12:00"
    assert in_words(Field("a", "category", "x"), "Ulm") == "“Ulm”"
    assert in_words(Field("a", "boolean", 1.0), 0.0) == "no"
    assert in_words(Field("a", "number", 1.0), None) == "missing"


def test_the_scorer_reads_what_the_page_gives(cars: Scorer) -> None:
    table = make_cars(20, seed=1)[0]
    days = (table["first registration"] - np.datetime64("1970-01-01")).dt.days.astype(float)
    own = {"first registration": days, "accident-free": table["accident-free"].astype(float)}
    given = {}
    for name, part in by_name(cars).items():
        column = own.get(name, table[name])
        given[name] = inputs(part, [None if pd.isna(value) else value for value in column.tolist()])
    expected = cars({name: table[name].astype(object).where(table[name].notna(), None).tolist() for name in table})
    np.testing.assert_array_equal(cars(given)["mean"], expected["mean"])
