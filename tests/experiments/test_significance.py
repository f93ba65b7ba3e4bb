"""The tests of significance against slow, published or simulated answers."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scipy import integrate, stats

from density_regression.experiments import significance

FloatArray = NDArray[np.float64]

scores = hnp.arrays(np.float64, st.integers(2, 12), elements=st.floats(-5, 5).map(lambda value: round(value, 3)))
p_lists = st.lists(st.floats(0, 1), max_size=8)


def t_tail(t: float, degrees: int) -> float:
    """Two-sided tail of Student's t, by integrating its density."""
    constant = math.gamma((degrees + 1) / 2) / (math.sqrt(degrees * math.pi) * math.gamma(degrees / 2))
    inner, _ = integrate.quad(lambda u: constant * (1 + u * u / degrees) ** (-(degrees + 1) / 2), 0, t)
    return 1 - 2 * inner


def test_corrected_t_test_by_hand() -> None:
    differences = [0.1, 0.3, -0.1, 0.5, 0.2]
    mean = sum(differences) / 5
    variance = sum((value - mean) ** 2 for value in differences) / 4
    t = mean / math.sqrt((1 / 5 + 1 / 9) * variance)
    assert significance.corrected_t_test(differences, 1 / 9) == pytest.approx(t_tail(t, 4), abs=1e-9)


@given(scores)
def test_plain_t_test_is_scipys(differences: FloatArray) -> None:
    if np.ptp(differences) == 0:
        return
    expected = stats.ttest_1samp(differences, 0.0).pvalue
    assert significance.corrected_t_test(differences, 0.0) == pytest.approx(expected, rel=1e-6, abs=1e-12)


@given(scores, st.floats(0, 3), st.sampled_from([1e-200, 1e-3, 1e300 / 5]))
def test_the_unit_does_not_matter_nor_the_sign(differences: FloatArray, ratio: float, unit: float) -> None:
    if np.ptp(differences) < 1e-6:
        return
    expected = significance.corrected_t_test(differences, ratio)
    assert significance.corrected_t_test(differences * unit, ratio) == pytest.approx(expected, rel=1e-6, abs=1e-12)
    assert significance.corrected_t_test(-differences, ratio) == pytest.approx(expected)


@given(scores, st.floats(0.01, 2))
def test_the_correction_never_makes_a_p_value_smaller(differences: FloatArray, ratio: float) -> None:
    assert significance.corrected_t_test(differences, ratio) >= significance.corrected_t_test(differences, 0.0)


def test_the_corrected_test_keeps_its_level_where_splits_overlap() -> None:
    # Correlation n_test / (n_test + n_train) between splits, as Nadeau and Bengio assume.
    rng = np.random.default_rng(0)
    splits, ratio, trials = 10, 1 / 9, 2000
    correlation = ratio / (1 + ratio)
    shared = rng.normal(size=(trials, 1)) * math.sqrt(correlation)
    draws = shared + rng.normal(size=(trials, splits)) * math.sqrt(1 - correlation)
    corrected = np.mean([significance.corrected_t_test(row, ratio) < 0.05 for row in draws])
    plain = np.mean([significance.corrected_t_test(row, 0.0) < 0.05 for row in draws])
    assert corrected == pytest.approx(0.05, abs=0.015)
    assert plain > 0.1


@pytest.mark.parametrize(
    ("differences", "expected"), [([], 1), ([3.0], 1), ([0.0, 0.0, 0.0], 1), ([0.2, 0.2], 0), ([-1e300, -1e300], 0)]
)
def test_differences_without_a_spread(differences: list[float], expected: float) -> None:
    assert significance.corrected_t_test(differences, 0.1) == expected
    assert significance.corrected_t_test(differences, 0.0) == expected


def test_paired_p_value_subtracts_and_chooses_the_test() -> None:
    ours, theirs = np.array([1.0, 2.0, 4.0, 4.5]), np.array([0.5, 1.8, 3.0, 4.4])
    assert significance.paired_p_value(ours, theirs, 0.5, "plain") == pytest.approx(
        stats.ttest_rel(ours, theirs).pvalue
    )
    corrected = significance.paired_p_value(ours, theirs, 0.5)
    assert corrected == pytest.approx(significance.corrected_t_test(ours - theirs, 0.5))
    assert significance.paired_p_value([1e308, 1.5e308], [-1e308, -1.2e308], 0.1) < 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: significance.corrected_t_test([1.0, np.nan], 0.1), "differences must be finite"),
        (lambda: significance.corrected_t_test([[1.0, 2.0]], 0.1), "differences must be finite"),
        (lambda: significance.corrected_t_test([1.0, 2.0], -0.1), "test_to_train"),
        (lambda: significance.paired_p_value([1.0], [1.0, 2.0], 0.1), "equally many"),
        (lambda: significance.paired_p_value([1.0], [1.0], 0.1, "exact"), "corrected"),  # type: ignore[arg-type]
        (lambda: significance.paired_p_value([np.nan], [1.0], 0.1), "^ours must be finite"),
        (lambda: significance.paired_p_value([1.0], [np.nan], 0.1), "^theirs must be finite"),
        (lambda: significance.holm([0.5, 1.5]), "p_values"),
        (lambda: significance.holm([0.5, np.nan]), "^p_values must be finite"),
        (lambda: significance.tied_with_best({"ours": [1.0], "theirs": [np.inf]}, 0.1), "^theirs must be finite"),
        (lambda: significance.mean_ranks([1.0, 2.0]), "table"),
        (lambda: significance.mean_ranks([[1.0, np.inf]]), "table"),
        (lambda: significance.friedman([[1.0, 2.0]]), "at least 2"),
        (lambda: significance.nemenyi_critical_difference(1, 5), "methods"),
        (lambda: significance.nemenyi_critical_difference(3, 5, 1.0), "level"),
    ],
)
def test_what_is_refused(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        call()


def test_scores_in_single_precision_are_compared_in_double() -> None:
    rng = np.random.default_rng(0)
    single = rng.normal(size=(3, 9)).astype(np.float32)
    double = single.astype(np.float64)
    for call in (
        lambda scores: significance.corrected_t_test(scores[0], 0.1),
        lambda scores: significance.paired_p_value(scores[0], scores[1], 0.1),
        lambda scores: significance.corrected_interval(scores[0], 0.1),
        significance.friedman,
        lambda scores: tuple(significance.holm(abs(scores[0]) / 8)),
    ):
        assert call(single) == call(double)
    assert significance.mean_ranks([["2", "10"], ["3", "1"]]).tolist() == [1.5, 1.5]


@given(p_lists, st.floats(0.001, 0.5))
def test_holm_rejects_what_the_step_down_procedure_rejects(p_values: list[float], level: float) -> None:
    rejected: set[int] = set()
    for step, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        if p_values[index] * (len(p_values) - step) >= level:
            break
        rejected.add(index)
    adjusted = significance.holm(p_values)
    assert {index for index, p in enumerate(adjusted) if p < level} == rejected


def test_holm_on_a_known_example() -> None:
    assert significance.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert significance.holm([]).shape == (0,)
    assert significance.holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])


def test_tied_with_best_tells_clear_from_unclear_differences() -> None:
    rng = np.random.default_rng(1)
    best = rng.normal(size=20)
    table = {
        "far": best + 1 + 0.1 * rng.normal(size=20),
        "best": best,
        "near": best + 0.01 + 0.2 * rng.normal(size=20),
        "same": best.copy(),
    }
    assert significance.tied_with_best(table, 1 / 9) == {"best", "near", "same"}


def test_tied_with_best_corrects_for_the_number_of_comparisons() -> None:
    pattern = np.array([1.0, -1.0] * 5)
    best = np.zeros(10)
    edge = 0.8 + pattern
    alone = significance.corrected_t_test(edge, 0.0)
    assert 0.03 < alone < 0.05
    assert significance.tied_with_best({"best": best, "edge": edge}, 0.0, test="plain") == {"best"}
    crowd = {f"far {i}": best + 0.8 + 1.1 * pattern for i in range(3)}
    tied = significance.tied_with_best({"best": best, "edge": edge, **crowd}, 0.0, test="plain")
    assert "edge" in tied
    assert significance.tied_with_best({"best": best, "edge": edge}, 0.0, level=0.01, test="plain") == {"best", "edge"}


def test_tied_with_best_uses_the_test_and_the_ratio() -> None:
    edge = {"best": np.zeros(10), "edge": 0.8 + np.array([1.0, -1.0] * 5)}
    assert significance.tied_with_best(edge, 1 / 9) == {"best", "edge"}
    assert significance.tied_with_best(edge, 1 / 9, test="plain") == {"best"}
    assert significance.tied_with_best(edge, 0.0) == {"best"}
    just_not = {"best": np.zeros(10), "edge": 0.75 + np.array([1.0, -1.0] * 5)}  # p = 0.051
    assert significance.tied_with_best(just_not, 0.0) == {"best", "edge"}


def test_tied_with_best_of_few_or_huge() -> None:
    assert significance.tied_with_best({}, 0.1) == set()
    assert significance.tied_with_best({"one": [1.0, 2.0]}, 0.1) == {"one"}
    assert significance.tied_with_best({"one": [1.0], "two": [2.0]}, 0.1) == {"one", "two"}
    huge = {"huge": [1.7e308, 1.7e308, 1.6e308], "small": [1.0, 2.0, 3.0]}
    assert significance.tied_with_best(huge, 0.1) == {"small"}
    both = {"huge": [1.7e308, 1.7e308, 1.71e308], "less": [1.3e308, 1.3e308, 1.3e308]}
    assert significance.tied_with_best(both, 0.1) == {"less"}


@given(hnp.arrays(np.int64, st.tuples(st.integers(2, 6), st.integers(3, 6)), elements=st.integers(0, 4)))
def test_ranks_and_friedman_against_counting_and_scipy(table: NDArray[np.int64]) -> None:
    counted = np.array(
        [[1 + sum(row < value) + (sum(row == value) - 1) / 2 for value in row] for row in table.astype(float)]
    )
    assert significance.mean_ranks(table) == pytest.approx(counted.mean(axis=0))
    if all(len(set(row)) == 1 for row in table.tolist()):
        assert significance.friedman(table) == (0, 1)
        return
    expected = stats.friedmanchisquare(*table.T.astype(float))
    found = significance.friedman(table)
    assert found.statistic == pytest.approx(expected.statistic)
    assert found.p_value == pytest.approx(expected.pvalue)


def test_friedman_of_two_methods_over_two_data_sets() -> None:
    """Chi-squared of one degree: 2 where both rank alike, 0 where they disagree."""
    assert significance.friedman([[1.0, 2.0], [3.0, 4.0]]) == pytest.approx((2.0, stats.chi2.sf(2.0, 1)))
    assert significance.friedman([[1.0, 2.0], [4.0, 3.0]]) == pytest.approx((0.0, 1.0))


def test_friedman_p_value_near_that_of_all_permutations() -> None:
    table = np.array([[1.0, 2.0, 3.0], [1.0, 3.0, 2.0], [1.0, 2.0, 3.0], [2.0, 1.0, 3.0], [1.0, 2.0, 3.0]])
    found = significance.friedman(table)
    orders = [np.array(order, dtype=float) for order in itertools.permutations((1.0, 2.0, 3.0))]
    statistics = [significance.friedman(np.array(rows)).statistic for rows in itertools.product(orders, repeat=5)]
    exact = np.mean(np.array(statistics) >= found.statistic - 1e-9)
    assert found.p_value == pytest.approx(exact, abs=0.03)


@pytest.mark.parametrize(("methods", "q"), [(2, 1.960), (3, 2.343), (5, 2.728), (10, 3.164)])
def test_nemenyi_against_the_published_table(methods: int, q: float) -> None:
    expected = q * math.sqrt(methods * (methods + 1) / (6 * 14))
    assert significance.nemenyi_critical_difference(methods, 14) == pytest.approx(expected, rel=1e-3)


def test_nemenyi_over_a_single_data_set() -> None:
    four = significance.nemenyi_critical_difference(3, 4)
    assert significance.nemenyi_critical_difference(3, 1) == pytest.approx(2 * four)


def test_nemenyi_against_the_range_of_normals() -> None:
    methods, datasets, level = 4, 9, 0.1
    q = significance.nemenyi_critical_difference(methods, datasets, level) / math.sqrt(methods * (methods + 1) / 54)

    def density(x: float) -> float:
        return float(methods * stats.norm.pdf(x) * (stats.norm.cdf(x + q * math.sqrt(2)) - stats.norm.cdf(x)) ** 3)

    inside, _ = integrate.quad(density, -8, 8)
    assert inside == pytest.approx(1 - level, abs=1e-5)


def coin_tosses(differences: FloatArray) -> tuple[float, float]:
    """Signed-rank sum, and the share of all sign patterns whose sum is as far from zero."""
    values = differences[differences != 0]
    ranks = stats.rankdata(np.abs(values))
    observed = float((np.sign(values) * ranks).sum())
    sums = np.array([np.dot(signs, ranks) for signs in itertools.product((-1, 1), repeat=len(values))])
    return observed, float(np.mean(np.abs(sums) >= abs(observed) - 1e-9))


@given(hnp.arrays(np.float64, st.integers(0, 8), elements=st.integers(-4, 4).map(float)))
def test_wilcoxon_counts_every_pattern_of_signs(differences: FloatArray) -> None:
    assert significance.wilcoxon(differences) == pytest.approx(coin_tosses(differences))


@pytest.mark.parametrize("n", [5, 17, 40])
def test_wilcoxon_is_scipys_without_ties(n: int) -> None:
    differences = np.random.default_rng(n).normal(0.3, 1, n)
    result = significance.wilcoxon(differences)
    assert result.p_value == pytest.approx(stats.wilcoxon(differences, method="exact").pvalue, rel=1e-9)
    assert significance.wilcoxon(-1e3 * differences) == pytest.approx((-result.statistic, result.p_value))


def test_wilcoxon_of_extremes() -> None:
    assert significance.wilcoxon([-1.0, -2.0, -3.0, -4.0, -5.0]) == (-15, 2 / 2**5)
    assert significance.wilcoxon([0.0, 0.0]) == (0, 1)
    with pytest.raises(ValueError, match="differences must be finite"):
        significance.wilcoxon([np.nan])
