"""What strange rows have in common: tallies in any division into batches, and traits in words."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from density_regression import DensityRegressor
from density_regression.experiments.evaluation.column_rows import column_rows
from density_regression.experiments.evaluation.columns import CUTS, KnownColumn, known_columns, read_columns
from density_regression.experiments.evaluation.strange import OTHERS, STRANGE, CategoryTally, NumberTally, StrangeRows
from density_regression.experiments.evaluation.traits import traits
from experiments.evaluation_helpers import parts

ROWS = 400
CUTS_OF_ROWS = st.lists(st.integers(1, ROWS - 1), max_size=6)
KM = KnownColumn("km", "number", 0.0, np.quantile(np.arange(101.0), CUTS))
TOWN = KnownColumn("town", "category", 0.0, values={"Ulm": 0.6, "Bonn": 0.4})


def texts(*values: str | None, repeat: int = 1) -> np.ndarray:
    result = np.empty(len(values) * repeat, dtype=object)
    result[:] = values * repeat
    return result


def tallied(column: KnownColumn, values: np.ndarray, strange: np.ndarray) -> StrangeRows:
    found = StrangeRows([column])
    found.update([values], strange)
    return found


@settings(max_examples=25, deadline=None)
@given(cuts=CUTS_OF_ROWS, seed=st.integers(0, 100))
def test_tallies_do_not_depend_on_the_batches(cuts: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    strange = rng.random(ROWS) < 0.3
    km = np.where(rng.random(ROWS) < 0.1, np.nan, rng.normal(50 + 80 * strange, 20))
    town = rng.choice(np.array(["Ulm", "Bonn", "Rome", None], dtype=object), ROWS)
    found = StrangeRows([KM, TOWN])
    for part in parts(cuts, ROWS):
        found.update([km[part], town[part]], strange[part])
    number, category = found.tallies
    assert isinstance(number, NumberTally)
    assert isinstance(category, CategoryTally)
    for group, rows in ((OTHERS, ~strange), (STRANGE, strange)):
        own = km[rows]
        assert number.rows[group] == found.rows[group] == rows.sum()
        assert number.gaps[group] == np.isnan(own).sum()
        assert number.mean[group] == pytest.approx(np.nanmean(own), rel=1e-9)
        assert number.beyond[group].tolist() == [
            int((own < cut).sum() if level < 0.5 else (own > cut).sum())
            for level, cut in zip(CUTS, KM.cuts, strict=True)
        ]
        # A gap was never seen either, as training had none.
        assert number.never[group] == (~((own >= 0) & (own <= 100))).sum()
        assert category.known[group]["Ulm"] == (town[rows] == "Ulm").sum()
        assert category.new[group]["Rome"] == (town[rows] == "Rome").sum()
        assert category.never[group] == sum(value in ("Rome", None) for value in town[rows])
    expected = (np.nanmean(km[strange]) - np.nanmean(km[~strange])) / np.nanstd(km[~strange])
    assert number.shift == pytest.approx(expected, rel=1e-9)
    either = ~((km >= 0) & (km <= 100)) | ~np.isin(town.astype(str), ["Ulm", "Bonn"])
    assert found.never[STRANGE] == (either & strange).sum()


def test_values_out_of_range_are_named_with_the_end_of_the_range() -> None:
    strange = np.arange(100) < 40
    km = np.where(strange, np.where(np.arange(100) < 30, 250.0, 50.0), 60.0)
    (trait,) = traits(tallied(KM, km, strange))
    assert trait.sentence() == (
        "75 % of the strange rows have `km` above 100 (the largest of training); of the others 0 %."
    )


def test_an_inner_quantile_is_named_where_the_end_says_too_little() -> None:
    strange = np.arange(100) < 40
    (trait,) = traits(tallied(KM, np.where(strange, 0.5, 60.0), strange))
    assert trait.words == "`km` below 1 (the 1 % quantile of training)"
    assert (trait.strange, trait.others) == (1.0, 0.0)


def test_the_end_of_the_range_is_named_where_it_says_nearly_as_much_as_a_quantile() -> None:
    strange = np.arange(100) < 40
    km = np.where(strange, np.where(np.arange(100) < 35, 250.0, 99.5), 60.0)
    (trait,) = traits(tallied(KM, km, strange))
    assert trait.words == "`km` above 100 (the largest of training)"


def test_a_quantile_is_named_where_the_end_of_the_range_says_much_less() -> None:
    strange = np.arange(100) < 40
    km = np.where(strange, np.where(np.arange(100) < 15, 250.0, 99.5), 60.0)
    (trait,) = traits(tallied(KM, km, strange))
    assert trait.words == "`km` above 99 (the 99 % quantile of training)"


def test_a_gap_counts_as_never_seen_where_training_had_none_alone() -> None:
    values, strange = np.array([np.nan, 50.0]), np.array([True, True])
    for gaps, never in ((0.0, 1), (0.2, 0)):
        found = tallied(KnownColumn("km", "number", gaps, KM.cuts), values, strange)
        assert found.tallies[0].never[STRANGE] == found.never[STRANGE] == never
        assert found.tallies[0].gaps[STRANGE] == 1


def test_gaps_and_new_categories_are_named() -> None:
    strange = np.arange(100) < 40
    town = texts(*(["Rome"] * 30 + ["Bern"] * 10 + ["Ulm"] * 59 + ["Oslo"]))
    (trait,) = traits(tallied(TOWN, town, strange))
    assert trait.sentence() == (
        "100 % of the strange rows have a `town` that training never had, such as Rome, Bern; of the others 1.7 %."
    )
    town = texts(*([None] * 30 + ["Ulm"] * 70))
    (trait,) = traits(tallied(TOWN, town, strange))
    assert trait.words == "no `town` (training rows all had one)"
    (trait,) = traits(tallied(TOWN, texts(*(["Bonn"] * 40 + ["Ulm"] * 60)), strange))
    assert trait.words == "`town` = “Bonn”"


def test_dates_and_booleans_are_said_as_such() -> None:
    strange = np.arange(100) < 40
    day = KnownColumn("day", "date", 0.0, np.array([0.0, 1, 2, 3, 9, 10, 11, 17167.0]))
    (trait,) = traits(tallied(day, np.where(strange, 17200.0, 5.0), strange))
    assert trait.words == "`day` after 2017-01-01 (the latest of training)"
    sold = KnownColumn("sold", "boolean", 0.0, np.array([0.0, 0, 0, 0, 1, 1, 1, 1]))
    (trait,) = traits(tallied(sold, strange.astype(float), strange))
    assert trait.words == "`sold` = True"


def test_what_may_be_chance_is_no_trait() -> None:
    rng = np.random.default_rng(0)
    for rows in (30, 3000):
        strange = np.arange(rows) < rows // 3
        found = StrangeRows([KM] * 20)
        found.update([rng.uniform(0, 100, rows) for _ in range(20)], strange)
        assert traits(found) == []


def test_if_nearly_all_rows_are_strange_they_are_compared_with_training() -> None:
    strange = np.ones(50, dtype=bool)
    (trait,) = traits(tallied(KM, np.full(50, 99.5), strange))
    assert trait.sentence() == (
        "100 % of the strange rows have `km` above 99 (the 99 % quantile of training); of the training rows 1 %."
    )
    (trait,) = traits(tallied(TOWN, texts("Bonn", repeat=50), strange))
    assert trait.others == 0.4


def test_without_training_quantiles_a_shifted_mean_is_named() -> None:
    rng = np.random.default_rng(0)
    strange = np.arange(200) < 50
    (trait,) = traits(tallied(KnownColumn("km", "number"), rng.normal(strange * 3.0, 1.0), strange))
    assert trait.sentence().startswith("The mean of `km` is")
    assert "standard deviations higher" in trait.sentence()


def test_the_columns_of_a_model_are_read_as_it_reads_them() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "km": np.where(rng.random(80) < 0.2, np.nan, rng.normal(size=80)),
            "town": rng.choice(["Ulm", "Bonn"], 80),
            "day": pd.date_range("2024-01-01", periods=80).strftime("%Y-%m-%d"),
            "note": [f"text {i}" for i in range(80)],
        }
    )
    regressor = DensityRegressor(hidden=(8,), epochs=2, n_threads=1, random_state=0, verbose=False)
    with pytest.warns(UserWarning, match="Left out"):
        regressor.fit(frame, rng.normal(size=80))
    columns = known_columns(regressor)
    # Text of which every row has its own is not read.
    assert [(one.name, one.kind) for one in columns] == [("km", "number"), ("town", "category"), ("day", "date")]
    assert columns[0].gaps > 0
    assert columns[1].gaps == 0
    assert set(columns[1].values) == {"Ulm", "Bonn"}
    new = frame.iloc[:3].assign(town=["Rome", "Ulm", None], day="2030-01-01")[["day", "town", "km"]]
    km, town, day = read_columns(regressor, new)
    np.testing.assert_array_equal(km, frame["km"][:3])
    assert town.tolist() == ["Rome", "Ulm", None]
    assert (day > columns[2].cuts[-1]).all()
    lines = column_rows(tallied_columns(columns, [km, town, day]))
    assert lines[2].training.startswith("2024-01-")
    assert lines[2].never_strange == 1.0
    assert lines[1].usual_strange in ("Rome (33%)", "Ulm (33%)")


def tallied_columns(columns: list[KnownColumn], values: list[np.ndarray]) -> StrangeRows:
    found = StrangeRows(columns)
    found.update(values, np.ones(len(values[0]), dtype=bool))
    return found


def test_a_plain_table_is_read_by_names_or_positions() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    settings = {"hidden": (8,), "epochs": 2, "n_threads": 1, "random_state": 0, "verbose": False}
    regressor = DensityRegressor(**settings).fit(X, y)
    assert [one.name for one in known_columns(regressor)] == ["0", "1"]
    np.testing.assert_array_equal(read_columns(regressor, X[:4])[1], X[:4, 1])
    frame = pd.DataFrame(X, columns=["a", "b"])
    regressor = DensityRegressor(**settings).fit(frame, y)
    columns = known_columns(regressor)
    assert [one.name for one in columns] == ["a", "b"]
    assert columns[0].cuts[0] >= X[:, 0].min()
    np.testing.assert_array_equal(read_columns(regressor, frame[:4])[0], X[:4, 0])
    # A model of an earlier version knows no quantiles.
    regressor.profile_ = None
    assert known_columns(regressor)[0].cuts is None
