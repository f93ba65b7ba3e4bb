from __future__ import annotations

import pytest

from density_regression.serve.page.markup import Markup, join, tag
from density_regression.serve.page.words import exact, number, of_hundred, plain, resolution, short


@pytest.mark.parametrize(
    ("value", "step", "words"),
    [
        (17403.6, 10.0, "17,400"),
        (17406.0, 10.0, "17,410"),
        (0.123456, 0.001, "0.123"),
        (-0.0001, 0.01, "0.00"),
        (-5.0, None, "-5"),
        (123.456, None, "123.5"),
        (0.0, None, "0"),
        (1e15, None, "1e+15"),
        (1e-9, None, "1e-09"),
        (float("nan"), None, "not a finite number"),
        (float("-inf"), 1.0, "not a finite number"),
    ],
)
def test_numbers_are_rounded_to_a_step_and_grouped(value: float, step: float | None, words: str) -> None:
    assert number(value, step) == words


def test_a_tiny_step_shows_no_more_digits_than_a_number_has() -> None:
    assert number(1e5, 1e-300) == "100,000.0000000"


@pytest.mark.parametrize(
    ("std", "step"), [(3039.0, 10.0), (1.7, 0.01), (0.05, 1e-4), (0.0, None), (float("inf"), None)]
)
def test_a_standard_deviation_leaves_three_digits(std: float, step: float | None) -> None:
    assert resolution(std) == (None if step is None else pytest.approx(step))


@pytest.mark.parametrize(
    ("value", "grouped", "words"),
    [
        (900000.0, True, "900,000"),
        (2015.0, False, "2015"),
        (123456789.0, True, "123,456,789"),
        (0.4813069660698819, True, "0.4813"),
        (0.25, True, "0.25"),
        (-0.0, True, "0"),
        (12345.67, True, "12,345.67"),
    ],
)
def test_given_numbers_keep_few_digits(value: float, grouped: bool, words: str) -> None:
    assert exact(value, grouped) == words


@pytest.mark.parametrize("value", [0.1, 5e-324, 1e300, -2.5, 3.0, 1e15, 123456789012.0])
def test_a_form_has_all_digits(value: float) -> None:
    assert float(plain(value)) == value
    assert plain(3.0) == "3"


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.34, "34 of 100"),
        (0.004, "4 of 1,000"),
        (0.0002, "2 of 10,000"),
        (1e-7, "fewer than 1 of 10,000"),
        (0, "none"),
    ],
)
def test_shares_are_told_as_so_many_of_a_hundred(share: float, words: str) -> None:
    assert of_hundred(share) == words


def test_long_texts_are_cut() -> None:
    assert short("abcdef", 6) == "abcdef"
    assert short("abcdefg", 6) == "abcde…"


def test_all_text_is_escaped_once() -> None:
    inner = tag("b", "<&>")
    assert inner == "<b>&lt;&amp;&gt;</b>"
    assert tag("p", inner, None, '"') == "<p><b>&lt;&amp;&gt;</b>&quot;</p>"
    assert join(["<", Markup("<i>")]) == "&lt;<i>"
    # What a plain string operation makes of markup is text again, which is escaped.
    assert not isinstance(inner + "", Markup)


def test_attributes_are_escaped_and_named_as_in_html() -> None:
    made = tag("input", class_="a", aria_label='"<', data_low=0.5, checked=True, hidden=False, value=None, x=2.0)
    assert made == '<input class="a" aria-label="&quot;&lt;" data-low="0.5" checked x="2">'
    assert tag("line", x1=1.234) == '<line x1="1.23"/>'
