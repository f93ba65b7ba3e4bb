"""Dates and times from ISO text, against the standard library."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from density_regression.tabular.columns.dates import DATE, days_of, is_date, is_time, iso_texts, looks_like_date, parsed

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
ZONES = st.sampled_from([None, dt.UTC, *(dt.timezone(dt.timedelta(minutes=m)) for m in (-690, -60, 90, 720))])


@given(st.datetimes(timezones=ZONES), st.sampled_from(["T", " "]), st.sampled_from(["minutes", "seconds", "auto"]))
def test_moments(moment: dt.datetime, separator: str, precision: str) -> None:
    text = moment.isoformat(separator, precision)
    assert is_date(text)
    moment = dt.datetime.fromisoformat(text)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    expected = (moment - EPOCH) / dt.timedelta(days=1)
    np.testing.assert_allclose(parsed([text]), [expected], rtol=0, atol=1e-9)


@given(st.dates())
def test_dates(date: dt.date) -> None:
    assert is_date(date.isoformat())
    assert parsed([date.isoformat()])[0] == (date - EPOCH.date()).days


@given(st.times(), st.sampled_from(["minutes", "seconds", "auto"]))
def test_times(time: dt.time, precision: str) -> None:
    text = time.isoformat(precision)
    assert is_time(text)
    time = dt.time.fromisoformat(text)
    seconds = time.hour * 3600 + time.minute * 60 + time.second + time.microsecond / 1e6
    np.testing.assert_allclose(parsed([text]), [seconds / 86400], atol=1e-12)


def test_zulu_and_nanoseconds() -> None:
    np.testing.assert_array_equal(parsed(["1970-01-02T06:00Z", None]), [1.25, np.nan])
    np.testing.assert_allclose(parsed(["1970-01-01T00:00:00.123456789"]), [0.123456 / 86400], rtol=1e-12)


NO_DATES = """2021-02-29 2021-13-01 2021-1-1 2021 20210101 01.02.2021 2021-01-01T 2021-01-01T24:00 soon 2021-01-01T10
2021-01-01T10:00+1 2021-01-01T10:00+01 10:60 1:30 10 24:00"""


@pytest.mark.parametrize("text", [*NO_DATES.split(), " 2021-01-01", ""])
def test_other_text_is_no_date(text: str) -> None:
    assert not is_date(text)
    assert not is_time(text)
    assert np.isnan(parsed([text])).all()


def test_of_one_kind() -> None:
    texts = ["1970-01-02", "22:30", None, "x", "1970-01-03T12:00", "1970-01-02"]
    np.testing.assert_array_equal(parsed(texts, "date"), [1.0, np.nan, np.nan, np.nan, 2.5, 1.0])
    np.testing.assert_array_equal(parsed(texts, "time"), [np.nan, 0.9375, np.nan, np.nan, np.nan, np.nan])


@given(st.lists(st.from_regex(DATE, fullmatch=True, alphabet=st.characters(codec="ascii"))))
def test_many_at_once_are_what_each_is_alone(texts: list[str]) -> None:
    # A day that there is not, or nanoseconds, among them.
    each = [parsed([text])[0] for text in texts]
    np.testing.assert_array_equal(parsed(texts), each)


@pytest.mark.parametrize("text", ["24/03/2019", "5.11.26", "2019/3/24", "3-24-2019 10:15", "2021-02-30", "2021-1-1"])
def test_what_looks_like_a_date(text: str) -> None:
    assert looks_like_date(text)


@pytest.mark.parametrize(
    "text", ["2021-02-28", "2021-02-28T10:00", "Ulm", "1.5", "1.2.3.4", "192.168.0.1", "10/20", ""]
)
def test_what_does_not(text: str) -> None:
    assert not looks_like_date(text)


@given(st.lists(st.one_of(st.none(), st.datetimes(dt.datetime(1, 1, 1)))))
def test_text_of_days_and_back(moments: list[dt.datetime | None]) -> None:
    days = parsed(None if moment is None else moment.isoformat() for moment in moments)
    # Days as float64 resolve a microsecond until 2059, and 40 of them in the year 9999.
    np.testing.assert_allclose(parsed(iso_texts(days, "date")), days, rtol=0, atol=1e-9)
    shares = np.mod(days, 1.0)
    np.testing.assert_allclose(
        parsed(iso_texts(np.where(shares < 0.9999, shares, 0.0), "time"))[shares < 0.9999],
        shares[shares < 0.9999],
        atol=1e-10,
    )


def test_moments_of_numpy() -> None:
    moments = np.array(["1970-01-02T12:00", "NaT", "1969-12-31"], dtype="datetime64[ns]")
    np.testing.assert_array_equal(days_of(moments), [1.5, np.nan, -1.0])
