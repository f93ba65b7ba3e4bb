"""A number between 0 and 1 for every row, from what the row contains: by it rows are held out."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from density_regression.io.extras import import_extra
from density_regression.tabular.arrays import Floats

__all__ = ["row_shares"]

Bits = NDArray[np.uint64]

GAP: Final = np.uint64(0x7FF8_0000_0000_0000)
"""Bits of a gap: those of the usual NaN."""


def row_shares(table: Any) -> Floats:
    """Numbers (n,) in [0, 1) from the hashes of the rows of an Arrow table, uniform over different rows.

    Equal rows have equal numbers, whatever file they are in, in whatever order its columns are, and whether whole
    numbers are stored as integers or not. The values of a column are hashed by SplitMix64 (Steele et al., 2014), text
    by way of BLAKE2, and the hashes of a row are added up.
    """
    total = np.zeros(len(table), np.uint64)
    for name, column in zip(table.column_names, table.columns, strict=True):
        bits = _bits(column)
        bits ^= np.uint64(_of_text(name))
        total += _mixed(bits)
    return (_mixed(total) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(bits: Bits) -> Bits:
    """SplitMix64 of each number, in place."""
    bits += np.uint64(0x9E37_79B9_7F4A_7C15)
    for shift, factor in ((30, 0xBF58_476D_1CE4_E5B9), (27, 0x94D0_49BB_1331_11EB)):
        bits ^= bits >> np.uint64(shift)
        bits *= np.uint64(factor)
    bits ^= bits >> np.uint64(31)
    return bits


def _bits(column: Any) -> Bits:
    """64 bits for each value of a column, in an array of its own."""
    arrow = import_extra("pyarrow", needed_by="Training from disk", extra="data")
    types, kind = arrow.types, column.type
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind):
        return _of_numbers(column.cast(arrow.float64(), safe=False).to_numpy())
    if types.is_date(kind) or types.is_timestamp(kind):
        column = column.cast(arrow.timestamp("us"), safe=False)
    if types.is_time(kind):
        column = column.cast(arrow.time64("ns"))
    if types.is_temporal(kind):
        counts = column.cast(arrow.int64())
        return np.where(counts.is_null().to_numpy(), GAP, counts.fill_null(0).to_numpy().view(np.uint64))
    if not (types.is_dictionary(kind) or types.is_string(kind) or types.is_large_string(kind)):
        column = arrow.chunked_array([[None if value is None else repr(value) for value in column.to_pylist()]])
    return _of_categories(column)


def _of_numbers(values: Floats) -> Bits:
    # A sum is a copy, and makes -0 to 0.
    values = values + 0.0
    values[np.isnan(values)] = np.nan
    return values.view(np.uint64)


def _of_categories(column: Any) -> Bits:
    arrow = import_extra("pyarrow", needed_by="Training from disk", extra="data")
    if not arrow.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    column = column.unify_dictionaries().combine_chunks()
    column = column.chunk(0) if hasattr(column, "chunks") else column
    different = [GAP if value is None else _of_text(str(value)) for value in column.dictionary.to_pylist()]
    index = column.indices.fill_null(len(different)).to_numpy(zero_copy_only=False)
    return np.asarray(np.array([*different, GAP], np.uint64)[index])


def _of_text(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
