"""Charts and numbers in words."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from density_regression.experiments.evaluation.chart import Chart, Scale, legend, limits
from density_regression.experiments.evaluation.words import count, number, percent


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.0, 6, "0"),
        (2016.0, 6, "2016"),
        (250_000.0, 6, "250,000"),
        (12_345.678, 6, "12,345.7"),
        (3742.09, 3, "3740"),
        (-0.123456, 3, "-0.123"),
        (1e-9, 3, "1e-09"),
        (123_456_789.0, 6, "123,457,000"),
        (math.inf, 3, "infinite"),
        (math.nan, 3, "not a number"),
    ],
)
def test_numbers(value: float, digits: int, text: str) -> None:
    assert number(value, digits) == text


def test_shares_and_counts() -> None:
    shares = [0.0, 1e-5, 0.0123, 0.05, 1 - 0.95, 0.456, 0.912, 1.0, math.nan]
    assert [percent(share) for share in shares] == [
        *("0 %", "under 0.1 %", "1.2 %", "5 %", "5 %", "46 %", "91.2 %", "100 %", "–"),
    ]
    assert [count(1), count(1200, "strange row")] == ["1 row", "1,200 strange rows"]


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3e-7, 2e-7), (12.0, 98_765.0), (1e30, 3e30)])
def test_ticks_are_few_and_between_the_ends(low: float, high: float) -> None:
    ticks = Scale(low, high).ticks()
    assert 3 <= len(ticks) <= 8
    assert low - 1e-9 * high <= ticks[0]
    assert ticks[-1] <= high * (1 + 1e-9)
    np.testing.assert_allclose(np.diff(ticks), ticks[1] - ticks[0])


@pytest.mark.parametrize(("low", "high"), [(1.0, 50.0), (1e-8, 1e9), (3e-3, 0.4), (1.0, 3.0), (1e-300, 1e100)])
def test_ticks_of_a_logarithmic_axis_are_few_and_between_the_ends(low: float, high: float) -> None:
    ticks = Scale(low, high, logarithmic=True).ticks()
    assert 2 <= len(ticks) <= 8
    assert low <= ticks[0] < ticks[-1] <= high


def test_places_on_axes() -> None:
    np.testing.assert_allclose(Scale(2.0, 4.0).place([2, 3, 4]), [0, 0.5, 1])
    np.testing.assert_allclose(Scale(1.0, 100.0, True).place([1, 10, 100]), [0, 0.5, 1])
    # Nothing is drawn too far away for a browser.
    assert Scale(0.0, 1.0).place([1e300, -1e300]).tolist() == [3.0, -2.0]


def test_limits_hold_all_values_and_are_apart() -> None:
    low, high = limits([1.0, 2.0], [5.0])
    assert low < 1.0
    assert high > 5.0
    for value in (0.0, 7.0, -1e20):
        low, high = limits([value])
        assert low < value < high


def test_a_chart_draws_where_the_axes_say() -> None:
    chart = Chart(Scale(0, 10), Scale(0, 1), "x < y", "share", percent=(False, True))
    chart.bars([0, 5, 10], [0.5, 1.0])
    chart.dots([5], [0.5], "miss")
    chart.line([0, 10], [0, 1])
    svg = chart.svg('say "this"')
    heights = [float(text) for text in re.findall(r'class="bar".*? height="([0-9.]+)"', svg)]
    assert heights[1] == pytest.approx(2 * heights[0])
    assert "x &lt; y" in svg
    assert 'aria-label="say &quot;this&quot;"' in svg
    assert ">50 %<" in svg or ">40 %<" in svg
    assert 'class="cross"' in svg
    (points,) = re.findall(r'class="line main" points="([^"]+)"', svg)
    start, stop = (tuple(map(float, pair.split(","))) for pair in points.split())
    assert start[0] == 0
    assert stop[1] == 0
    assert stop[0] > 0
    assert start[1] == pytest.approx(heights[1])


def test_a_legend_escapes_its_texts() -> None:
    assert "a &lt; b" in legend(("dot main", "a < b"), ("cross", "c"))
