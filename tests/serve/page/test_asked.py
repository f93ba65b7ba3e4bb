from __future__ import annotations

from urllib.parse import parse_qsl

import pytest

from density_regression.serve.page.asked import read_query
from density_regression.serve.page.fields import Field

KM = Field("km", "number", 50.0, ends=(0.0, 100.0), takes_gaps=True)
TOWN = Field("a&b", "category", "Ulm", values=("Ulm", "Kiel"), takes_gaps=True)
AGE = Field("self", "number", 5.0)
FIELDS = [KM, TOWN, AGE]


def asked(**query: str):
    return read_query({name.replace("_", "."): value for name, value in query.items()}, "m", FIELDS)


def test_what_is_not_said_is_typical() -> None:
    assert asked().row == {"km": 50.0, "a&b": "Ulm", "self": 5.0}
    assert (asked().coverage, asked().target) == (0.9, 0)


def test_a_gap_is_an_empty_text_or_a_tick() -> None:
    assert asked(x_km="").row["km"] is None
    ticked = asked(x_km="70", gap_km="1")
    assert ticked.row["km"] is None
    assert ticked.kept["km"] == 70.0


def test_where_training_had_no_gaps_there_is_none() -> None:
    refused = asked(x_self="", gap_self="1")
    assert refused.row["self"] == 5.0
    assert "no gaps" in refused.problems["self"]


def test_what_cannot_be_read_is_named_and_typical() -> None:
    refused = asked(x_km="wide")
    assert refused.row["km"] == 50.0
    assert "'wide'" in refused.problems["km"]


@pytest.mark.parametrize(("given", "coverage"), [("0.5", 0.5), ("0.95", 0.95), ("7", 0.9), ("nan", 0.9)])
def test_coverages_are_those_of_the_list(given: str, coverage: float) -> None:
    assert asked(coverage=given).coverage == coverage


def test_where_conformal_rows_are_few_the_largest_known_coverage_is_usual() -> None:
    assert read_query({}, "m", FIELDS, known=(0.5, 0.8)).coverage == 0.8
    assert read_query({"coverage": "0.95"}, "m", FIELDS, known=(0.5, 0.8)).coverage == 0.8


@pytest.mark.parametrize(("given", "target"), [("1", 1), ("2", 1), ("-1", 0), ("²", 0), ("9" * 400, 0)])
def test_targets_are_those_of_the_model(given: str, target: int) -> None:
    assert read_query({"target": given}, "m", FIELDS, targets=2).target == target


def test_an_address_asks_the_same_again() -> None:
    first = read_query({"x.km": "-1e300", "x.a&b": "Köln & <co>", "gap.self": "1", "coverage": "0.8"}, "m", FIELDS)
    again = read_query(dict(parse_qsl(first.address(FIELDS, {})[2:], keep_blank_values=True)), "m", FIELDS)
    assert (again.row, again.coverage) == (first.row, 0.8)


def test_an_address_may_have_other_values_instead() -> None:
    for value in (70.0, None):
        query = dict(parse_qsl(asked().address(FIELDS, {"km": value})[2:], keep_blank_values=True))
        assert read_query(query, "m", FIELDS).row == {"km": value, "a&b": "Ulm", "self": 5.0}
