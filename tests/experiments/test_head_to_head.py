"""Density-Regression against one method: intervals, verdicts, counts, and which records make which rows."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scipy import optimize

from density_regression.experiments.report.comparison import ComparisonOptions
from density_regression.experiments.report.document import EMPTY, ResultTable, Section
from density_regression.experiments.report.grouping import groups_of
from density_regression.experiments.report.head_to_head import head_to_head_tables, verdict
from density_regression.experiments.report.latex import latex
from density_regression.experiments.report.markdown import markdown
from density_regression.experiments.report.sections import build_report
from density_regression.experiments.significance import corrected_interval, corrected_t_test

Record = dict[str, Any]
OURS, ENSEMBLE, GAUSSIAN = "Density-Regression", "Deep Ensembles", "Gaussian"
METRICS = ("nll", "cal", "crps")

scores = hnp.arrays(np.float64, st.integers(2, 12), elements=st.floats(-5, 5).map(lambda value: round(value, 3)))


def make(method: str, dataset: str, split: int, **rescaled: float) -> Record:
    """A record of 90 rows to train on and 10 to test; as they are, its metrics would say the opposite."""
    metrics = {f"{name}_rescaled": value for name, value in rescaled.items()}
    metrics |= {name: -value for name, value in rescaled.items()}
    return {
        "suite": "uci",
        "protocol": "paper",
        "dataset": dataset,
        "split": str(split),
        "seed": 0,
        "method": method,
        "tests": {"test": {"rows": 10, "metrics": metrics, "curve": np.linspace(0, 1, 21).tolist()}},
        "rows": {"train": 80, "held_out": 10},
        "seconds": {"fit": 1.5, "predict": 0.01},
        "parameters": 1000,
        "commit": "aaa",
    }


def nll(dataset: str, ours: list[float], theirs: list[float], rival: str = ENSEMBLE) -> list[Record]:
    return [
        make(method, dataset, split, nll=value)
        for method, values in ((OURS, ours), (rival, theirs))
        for split, value in enumerate(values)
    ]


def only(records: list[Record]) -> ResultTable:
    (group,) = groups_of(records)
    (table,) = head_to_head_tables(group)
    return table


def texts(table: ResultTable) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


@given(scores, st.floats(0, 1), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_test_just_rejects_the_ends_of_the_interval(
    differences: NDArray[np.float64], ratio: float, level: float
) -> None:
    if np.ptp(differences) == 0:
        return
    low, high = corrected_interval(differences, ratio, level)
    assert low < differences.mean() < high
    for end in (low, high):
        assert corrected_t_test(differences - end, ratio) == pytest.approx(1 - level, rel=1e-6)


def test_the_interval_by_search_for_the_p_value() -> None:
    differences = np.array([0.1, 0.3, -0.1, 0.5, 0.2])
    ends = [
        optimize.brentq(lambda end: corrected_t_test(differences - end, 1 / 9) - 0.05, 0.2, far) for far in (-9.0, 9.0)
    ]
    assert corrected_interval(differences, 1 / 9) == pytest.approx(ends)
    # Mean 0.2, s^2 = 0.05, t of 4 degrees 2.7764451.
    half = 2.7764451 * math.sqrt(0.05 * (1 / 5 + 1 / 9))
    assert corrected_interval(differences, 1 / 9) == pytest.approx((0.2 - half, 0.2 + half))
    assert corrected_interval(differences * 1e300, 1 / 9) == pytest.approx((1e300 * ends[0], 1e300 * ends[1]))


def test_intervals_without_a_spread_and_beyond_floats() -> None:
    assert corrected_interval([], 0.1) == corrected_interval([3.0], 0.1) == (-math.inf, math.inf)
    assert corrected_interval([0.0, 0.0], 0.1) == (0, 0)
    assert corrected_interval([-0.3] * 3, 0.1) == (-0.3, -0.3)
    with np.errstate(all="raise", under="ignore"):
        assert corrected_interval([1.7e308, -1.7e308], 0.1) == (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("differences", "ratio", "level", "message"),
    [
        ([1.0, np.nan], 0.1, 0.95, "differences must be finite"),
        ([1.0, 2.0], -0.1, 0.95, "test_to_train"),
        ([1.0, 2.0], 0.1, 95, "level must lie"),
        ([1.0, 2.0], 0.1, 1.0, "level must lie"),
        ([1.0, 2.0], 0.1, 0.0, "level must lie"),
    ],
)
def test_what_an_interval_refuses(differences: list[float], ratio: float, level: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        corrected_interval(differences, ratio, level)


@pytest.mark.parametrize(
    ("difference", "interval", "word"),
    [
        (-0.2, (-0.3, -0.1), "better"),
        (-0.2, (-0.4, 0.0), "no worse"),
        (0.0, (-0.05, 0.05), "no worse"),
        (0.03, (0.02, 0.04), "no worse"),
        (0.06, (0.051, 0.07), "worse"),
        (0.06, (0.05, 0.07), "higher"),
        (0.01, (-0.04, 0.06), "higher"),
        (-0.01, (-0.08, 0.06), "lower"),
        (0.0, (-0.1, 0.1), "equal"),
        (-3.0, (-math.inf, math.inf), "lower"),
    ],
)
def test_verdicts(difference: float, interval: tuple[float, float], word: str) -> None:
    assert verdict(difference, interval) == word


def test_a_row_by_hand() -> None:
    ours, theirs = [1.0, 1.1, 1.2, 1.3], [1.4, 1.3, 1.8, 1.5]
    records = [
        make(method, "boston", split, nll=value, cal=cal, crps=2 * cal)
        for method, values, cal in ((OURS, ours, 0.25), (ENSEMBLE, theirs, 0.5))
        for split, value in enumerate(values)
    ]
    table = only(records)
    assert table.title.startswith("Density-Regression against Deep Ensembles")
    # Differences -0.4, -0.2, -0.6, -0.2: mean -0.35, s^2 = 0.11 / 3, t of 3 degrees 3.1824463, test to train 1 / 9.
    half = 3.1824463 * math.sqrt(0.11 / 3 * (1 / 4 + 1 / 9))
    interval = f"-0.350 ({-0.35 - half:.3f}, {-0.35 + half:.3f})"
    assert texts(table) == [
        ["boston", "1.150", "1.500", interval, "no worse", "0.250", "0.500", "0.500", "1.00"],
    ]
    assert interval == "-0.350 (-0.716, 0.016)"
    assert len(table.header) == len(table.rows[0])
    assert table.notes == ("Over 4 splits.",)
    assert table.rows[0][3].value == pytest.approx(-0.35)


def test_only_splits_that_both_have_count() -> None:
    records = nll("boston", [1.0, 1.1, 9.0], [2.0, 2.1])
    # A third method's gaps do not matter.
    table = only([*records, make("EDL", "boston", 0, nll=0.0)])
    assert texts(table)[0][1:5] == ["1.050", "2.050", "-1.000 (-1.000, -1.000)", "better"]
    assert table.rows[0][5:] == (EMPTY,) * 4
    assert "boston 2 of 3 (missing: Deep Ensembles)" in table.notes[0]


def test_one_split_has_no_interval() -> None:
    table = only([*nll("a", [1.0], [1.5]), *nll("b", [1.5], [1.25])])
    assert [row[3:5] for row in texts(table)] == [["-0.500", "lower"], ["0.250", "higher"]]
    assert any("nothing is tested" in note for note in table.notes)


def test_no_difference_has_no_sign() -> None:
    assert texts(only(nll("boston", [1.0, 1.0], [1.0001, 1.0002])))[0][3].startswith("0.000 (")


def test_counts() -> None:
    records = [
        *nll("a", [0.0, 0.0], [1.0, 1.0]),
        *nll("b", [0.0, 0.0], [0.5, -0.3]),
        *nll("c", [0.0, 0.0], [0.04, 0.0]),
        *nll("d", [0.25, 0.25], [0.0, 0.0]),
        *nll("e", [0.5, -0.25], [0.0, 0.0]),
    ]
    table = only(records)
    assert [row[4] for row in texts(table)] == ["better", "lower", "lower", "worse", "higher"]
    assert table.notes[0] == (
        "Of 5 data sets, our mean NLL is lower in 3, by more than 0.05 nats in 2, better in 1, "
        "and higher by 0.250 at most."
    )
    assert "higher in none" in only(records[:8]).notes[0]


def test_huge_scores() -> None:
    records = [*nll("a", [1.0, 2.0, 1.5], [1e300, 1e300, -1e300]), *nll("b", [1e300] * 3, [-1e300] * 3)]
    with np.errstate(all="raise", under="ignore"):
        table = only(records)
    a, b = texts(table)
    assert a[1:3] == ["1.500", "3.3e+299"]
    assert a[4] == "lower"
    assert b[3:5] == ["2.0e+300 (2.0e+300, 2.0e+300)", "worse"]
    assert table.notes[0].endswith("higher by 2.0e+300 at most.")


def test_no_table_without_a_pair() -> None:
    apart = [
        make(OURS, "boston", 0, nll=1.0),
        make(ENSEMBLE, "boston", 1, nll=1.0),
        make(GAUSSIAN, "yacht", 0, nll=1.0),
    ]
    unscaled = [make(method, "boston", 0) for method in (OURS, ENSEMBLE)]
    for records in (apart, unscaled, nll("boston", [1.0], [2.0], "EDL")):
        (group,) = groups_of(records)
        assert head_to_head_tables(group) == []


def test_the_report_has_a_table_for_each_rival() -> None:
    records = [
        make(method, dataset, split, **dict.fromkeys(METRICS, level + 0.1 * split))
        for method, level in ((OURS, 1.0), (ENSEMBLE, 2.0), (GAUSSIAN, 3.0))
        for dataset in ("boston", "yacht")
        for split in range(3)
    ]
    text = markdown(build_report(records, ComparisonOptions()))
    for rival, difference in (("Deep Ensembles", "-1.000"), ("the Gaussian network", "-2.000")):
        start = text.index(f"**Density-Regression against {rival}, each rescaled")
        assert f"| {difference} ({difference}, {difference}) | better |" in text[start:].split("**")[2]
    assert "no worse: it ends at 0.05 or before" in text


def test_an_interval_is_mathematics_in_latex() -> None:
    table = only(nll("boston", [1.0, 1.25], [1e300, 1.0]))
    assert r"$-5.0\mathrm{e}{+}299\ (-" in latex(Section("t", tables=(table,)))
