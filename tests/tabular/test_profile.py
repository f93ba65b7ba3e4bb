"""Profiles of rows, against numpy and against what can be counted by hand; and as JSON, real and forged."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from density_regression.io.store import InvalidModelError
from density_regression.tabular.columns import Columns, read_frame
from density_regression.tabular.columns.profiles import number_profiles, table_profiles
from density_regression.tabular.profile import LEVELS, HeldOut, Profile, TargetProfile, quantiles

FRAME = pd.DataFrame(
    {
        "age": [1.0, np.nan, 3.0, 8.0],
        "town": ["Ulm", "Bonn", None, "Ulm"],
        "day": ["1970-01-02", "1970-01-03", "1970-01-01", None],
        "moment": pd.to_datetime(["2024-05-01 10:00:00", "2024-05-01 10:00:30", None, None]),
        "clock": ["22:20", "06:30", "23:59", "00:00"],
        "open": [True, None, True, False],
        "nothing": [None, None, None, None],
    }
)


def profiled(frame: pd.DataFrame) -> Profile:
    table = read_frame(frame)
    columns = table_profiles(table, Columns.fit(table, list(frame.columns)).coders)
    target = TargetProfile.of("price", np.arange(4.0))
    return Profile(len(frame), columns, (target,)).with_quality([HeldOut(3, 1.5, 2.0, 0.5, 2 / 3)])


@pytest.mark.parametrize("rows", [1, 2, 19, 20, 100, 1001])
def test_quantiles_are_values_that_occur(rows: int) -> None:
    values = np.random.default_rng(rows).normal(size=rows)
    np.testing.assert_array_equal(quantiles(values), np.quantile(values, LEVELS, method="inverted_cdf"))
    assert quantiles(np.array([-1.7e308, 1.7e308]))[0] == -1.7e308


def test_columns_by_hand() -> None:
    age, town, day, moment, clock, is_open, nothing = profiled(FRAME).columns
    assert (age.kind, age.gaps, age.quantiles) == ("number", 0.25, (1, 1, 1, 1, 3, 8, 8, 8, 8))
    assert (town.kind, town.gaps, town.values, town.shares) == ("category", 0.25, ("Ulm",), (0.5,))
    assert (day.kind, day.gaps, day.quantiles[::4]) == ("date", 0.25, ("1970-01-01", "1970-01-02", "1970-01-03"))
    assert moment.quantiles[::8] == ("2024-05-01T10:00:00", "2024-05-01T10:00:30")
    assert (clock.kind, clock.quantiles[::4]) == ("time", ("00:00:00", "06:30:00", "23:59:00"))
    assert (is_open.kind, is_open.values, is_open.shares) == ("boolean", ("True", "False"), (0.5, 0.25))
    assert is_open.quantiles[::8] == (0.0, 1.0)
    assert (nothing.gaps, nothing.quantiles, nothing.values) == (1.0, (), ())


def test_text_that_is_left_out() -> None:
    frame = pd.DataFrame({"id": [f"row {i}" if i else None for i in range(40)], "x": range(40)})
    with pytest.warns(UserWarning, match="Left out"):
        column, _ = profiled(frame).columns
    assert (column.kind, column.gaps, column.quantiles, column.values) == ("left out", 1 / 40, (), ())


def test_numbers_of_some_rows() -> None:
    x = np.array([[1.0, 5.0], [0.0, 6.0], [1.0, 7.0], [9.0, 9.0]])
    flag, number = number_profiles(x, np.array([2, 0, 1]), ["flag", "number"], ["boolean", "boolean"])
    assert (flag.kind, flag.shares) == ("boolean", (2 / 3, pytest.approx(1 / 3)))
    assert (number.kind, number.quantiles[0], number.quantiles[-1]) == ("number", 5.0, 7.0), "no truth values"


@pytest.mark.parametrize("scale", [1.0, 1e300, 1e-300])
def test_the_histogram_counts_every_row(scale: float) -> None:
    values = scale * np.random.default_rng(0).standard_cauchy(1000)
    target = TargetProfile.of("y", values)
    assert (target.edges[0], target.edges[-1]) == (values.min(), values.max())
    assert (target.edges[1], target.edges[-2]) == (target.quantiles[1], target.quantiles[-2])
    np.testing.assert_array_equal(target.counts, np.histogram(values, target.edges)[0])
    assert sum(target.counts) == 1000
    # Twenty bins of equal width, and the tails.
    np.testing.assert_allclose(np.diff(target.edges[1:-1]), (target.edges[-2] - target.edges[1]) / 20, rtol=1e-9)


def test_a_constant_target_has_one_bin() -> None:
    target = TargetProfile.of("y", np.full(5, 3.0))
    assert (target.edges, target.counts) == ((3.0, 3.0), (5,))


def test_json_and_back() -> None:
    profile = profiled(FRAME)
    assert Profile.from_json(json.loads(json.dumps(profile.to_json(), allow_nan=False))) == profile
    assert profile.held_out == HeldOut(3, 1.5, 2.0, 0.5, 2 / 3)
    without = profile.to_json()
    without["targets"][0]["held_out"] = None
    assert Profile.from_json(json.loads(json.dumps(without))).held_out is None


def column(number: int, **changes: Any) -> Callable[[Any], Any]:
    return lambda saved: saved["columns"][number].update(changes)


def target(**changes: Any) -> Callable[[Any], Any]:
    return lambda saved: saved["targets"][0].update(changes)


def quality(**changes: Any) -> Callable[[Any], Any]:
    return lambda saved: saved["targets"][0]["held_out"].update(changes)


FORGED: dict[str, Callable[[Any], Any]] = {
    "no rows": lambda saved: saved.pop("rows"),
    "rows text": lambda saved: saved.update(rows="4"),
    "rows none": lambda saved: saved.update(rows=0),
    "rows true": lambda saved: saved.update(rows=True),
    "columns none": lambda saved: saved.update(columns=[]),
    "columns number": lambda saved: saved.update(columns=3),
    "targets none": lambda saved: saved.update(targets=[]),
    "other part": lambda saved: saved.update(command="true"),
    "column text": lambda saved: saved["columns"].__setitem__(0, "age"),
    "column name": column(0, name=3),
    "column kind": column(0, kind="image"),
    "column kind list": column(0, kind=["number"]),
    "column unknown": column(0, shell="true"),
    "column gaps": column(0, gaps=1.5),
    "column gaps text": column(0, gaps="none"),
    "quantiles few": column(0, quantiles=[1.0, 2.0]),
    "quantiles text": column(0, quantiles=["a"] * 9),
    "quantiles null": column(0, quantiles=[None] * 9),
    "quantiles falling": column(0, quantiles=[9.0 - i for i in range(9)]),
    "quantiles of text": column(1, quantiles=[1.0] * 9),
    "dates numbers": column(2, quantiles=[1.0] * 9),
    "dates words": column(2, quantiles=["today"] * 9),
    "times dates": column(4, quantiles=["2024-01-01"] * 9),
    "values of numbers": column(0, values=["1"], shares=[1.0]),
    "values numbers": column(1, values=[1], shares=[0.5]),
    "shares few": column(1, shares=[]),
    "shares many": column(1, values=["a", "b"], shares=[0.7, 0.7]),
    "shares negative": column(1, shares=[-0.5]),
    "target name": target(name=None),
    "target quantiles": target(quantiles=[1.0]),
    "target quantiles number": target(quantiles=1.0),
    "edges falling": target(edges=[3.0, 2.0], counts=[4]),
    "edges few": target(edges=[3.0], counts=[4]),
    "no counts": target(edges=[3.0], counts=[]),
    "counts fractions": target(edges=[3.0, 4.0], counts=[0.5]),
    "counts negative": target(edges=[3.0, 4.0], counts=[-1]),
    "no held_out": lambda saved: saved["targets"][0].pop("held_out"),
    "held_out list": target(held_out=[1]),
    "held_out rows": quality(rows=0),
    "held_out rows fraction": quality(rows=1.5),
    "nll text": quality(nll="low"),
    "rmse negative": quality(rmse=-1.0),
    "crps null": quality(crps=None),
    "coverage": quality(coverage=90),
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED.keys())
def test_a_forged_profile_is_refused(change: Callable[[Any], Any]) -> None:
    saved = json.loads(json.dumps(profiled(FRAME).to_json()))
    change(saved)
    with pytest.raises(InvalidModelError, match="The saved profile is not as this version writes it"):
        Profile.from_json(saved)


@pytest.mark.parametrize("saved", [None, 3, "profile", [], {}])
def test_what_is_no_profile_is_refused(saved: Any) -> None:
    with pytest.raises(InvalidModelError, match="saved profile"):
        Profile.from_json(saved)


def test_reading_a_profile_needs_no_torch() -> None:
    check = f"from density_regression.tabular.profile import Profile; Profile.from_json({profiled(FRAME).to_json()!r})"
    check = f"import sys; {check}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "False"
