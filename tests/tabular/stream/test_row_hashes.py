"""Hashes of rows: equal for equal rows, however they are stored, and uniform over different ones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from density_regression.tabular.stream.row_hashes import row_shares

RNG = np.random.default_rng(0)
TABLE = pa.table(
    {
        "a": RNG.normal(size=20_000),
        "whole": RNG.integers(0, 5, 20_000),
        "town": pa.array(["Ulm", "Bonn", None]).take(pa.array(RNG.integers(0, 3, 20_000))),
        "day": pa.array(RNG.integers(0, 900, 20_000), pa.int32()).cast(pa.date32()),
        "yes": RNG.random(20_000) < 0.5,
    }
)


def split_mix(number: int) -> int:
    """SplitMix64 by the book, in Python's own numbers."""
    most = 2**64 - 1
    number = (number + 0x9E3779B97F4A7C15) & most
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & most
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & most
    return number ^ (number >> 31)


def test_a_row_of_one_number_against_the_definition() -> None:
    import hashlib
    import struct

    name = int.from_bytes(hashlib.blake2b(b"a", digest_size=8).digest(), "little")
    bits = struct.unpack("<Q", struct.pack("<d", 2.5))[0]
    expected = split_mix(split_mix(bits ^ name)) / 2**64
    assert row_shares(pa.table({"a": [2.5]}))[0] == pytest.approx(expected, abs=1e-15)


def test_shares_of_different_rows_are_uniform() -> None:
    shares = row_shares(TABLE)
    assert shares.min() >= 0
    assert shares.max() < 1
    counts = np.histogram(shares, 20, (0, 1))[0]
    # Chi-squared with 19 degrees of freedom: above 43.8 once in a thousand.
    assert ((counts - 1000) ** 2 / 1000).sum() < 43.8


@pytest.mark.parametrize("column", TABLE.column_names)
def test_every_column_counts(column: str) -> None:
    values = TABLE.column(column).take(pa.array(np.roll(np.arange(20_000), 1)))
    changed = TABLE.set_column(TABLE.column_names.index(column), column, values)
    differs = np.array([one != other for one, other in zip(values.to_pylist(), TABLE[column].to_pylist(), strict=True)])
    assert ((row_shares(changed) != row_shares(TABLE)) == differs).all()


def test_how_a_row_is_stored_does_not_matter() -> None:
    shares = row_shares(TABLE)
    other = pa.table(
        {
            "yes": TABLE["yes"].cast(pa.float64()),
            "town": TABLE["town"].dictionary_encode(),
            "day": TABLE["day"].cast(pa.timestamp("ms")),
            "whole": TABLE["whole"].cast(pa.float32()),
            "a": TABLE["a"],
        }
    )
    assert (row_shares(other) == shares).all()
    assert (np.concatenate([row_shares(TABLE.slice(i, 7000)) for i in (0, 7000, 14_000)]) == shares).all()


def test_gaps_are_alike_and_zero_has_no_sign() -> None:
    shares = row_shares(pa.table({"a": pa.array([None, np.nan, 0.0, -0.0, 1.0])}))
    assert shares[0] == shares[1]
    assert shares[2] == shares[3]
    assert len({*shares}) == 3


def test_values_that_change_places_are_another_row() -> None:
    rows = pa.table({"a": [1.0, 2.0], "b": [2.0, 1.0]})
    assert len({*row_shares(rows)}) == 2


def test_lists_and_times_have_hashes_too() -> None:
    rows = pa.table({"list": [[1], [2], None], "at": pa.array([1, 1, None], pa.time32("s"))})
    assert len({*row_shares(rows)}) == 3
