"""Parquet: types as they are, in batches, from one file or several."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from density_regression.tabular.files import TableError, open_table

DAY = datetime.datetime(2024, 2, 28, 12)
TYPED = {
    "whole": pa.array([1, None, 3], pa.int32()),
    "half": pa.array([0.5, -7.0, None]),
    "truth": pa.array([True, None, False]),
    "town": pa.array(["Ulm", "NA", None]),
    "kind": pa.array(["x", None, "x"]).dictionary_encode(),
    "price": pa.array(["1.50", None, "2.25"]).cast(pa.decimal128(5, 2)),
    "day": pa.array([DAY, None, DAY], pa.timestamp("ms")),
    "wait": pa.array([1500, None, -250], pa.duration("ms")),
    "left": pa.array([[1], [2], None]),
}


def test_types_stay(tmp_path: Path) -> None:
    pq.write_table(pa.table(TYPED), tmp_path / "rows.parquet")
    assert open_table(tmp_path / "rows.parquet").read().equals(pa.table(TYPED))


def test_kinds(tmp_path: Path) -> None:
    pq.write_table(pa.table(TYPED), tmp_path / "rows.parquet")
    table = open_table(tmp_path / "rows.parquet", missing=["Ulm", "3"])
    assert table.rows == 3
    kinds = {"whole": "number", "truth": "boolean", "town": "text", "kind": "text", "price": "number", "day": "date"}
    kinds["wait"] = "number"
    (batch,) = table.batches(kinds)
    assert batch.given.equals(pa.table(TYPED))
    read = batch.table.to_pydict()
    assert read["whole"] == [1.0, None, None]
    assert read["truth"] == [1.0, None, 0.0]
    # In a file with types, NA is a text like others; only what the caller names is a gap.
    assert read["town"] == [None, "NA", None]
    assert read["kind"] == ["x", None, "x"]
    assert read["price"] == [1.5, None, 2.25]
    assert read["wait"] == [1.5, None, -0.25]
    assert read["day"] == [DAY, None, DAY]
    assert str(batch.table.schema.field("price").type) == "double"
    assert read["left"] == [[1], [2], None]


def test_text_in_number_columns(tmp_path: Path) -> None:
    texts = pa.array(["1.5", "", "x"])
    pq.write_table(pa.table({"n": texts, "m": texts.dictionary_encode()}), tmp_path / "rows.parquet")
    for name in ("n", "m"):
        with pytest.raises(TableError, match=rf"rows\.parquet: column '{name}', row 3, has 'x', which is no number"):
            list(open_table(tmp_path / "rows.parquet").batches({name: "number"}))
        (batch,) = open_table(tmp_path / "rows.parquet", missing=["x"]).batches({name: "number"})
        assert batch.table.column(name).to_pylist() == [1.5, None, None]
    pq.write_table(pa.table({"n": [DAY]}), tmp_path / "days.parquet")
    with pytest.raises(TableError, match=r"column 'n', row 1, is of type timestamp.*, but numbers in training"):
        list(open_table(tmp_path / "days.parquet").batches({"n": "number"}))


def test_batches_go_over_row_groups_and_parts(tmp_path: Path) -> None:
    table = pa.table({"n": range(2500), "t": [str(i) for i in range(2500)]})
    pq.write_table(table.slice(0, 1000), tmp_path / "a.parquet", row_group_size=300)
    # As other programs write it: another type of the same numbers, and another order of columns.
    other = table.slice(1000).select(["t", "n"]).cast(pa.schema([("t", pa.large_string()), ("n", pa.float64())]))
    pq.write_table(other, tmp_path / "b.parquet")
    opened = open_table(tmp_path)
    assert opened.rows == 2500
    batches = list(opened.batches({"n": "number"}, 450))
    assert [batch.first_row for batch in batches] == [0, 450, 900, 1000, 1450, 1900, 2350]
    assert [n for batch in batches for n in batch.table.column("n").to_pylist()] == list(range(2500))
    assert opened.read().to_pydict() == table.to_pydict()


@pytest.mark.parametrize("group", [20_000, 1_200_000])
def test_memory_does_not_grow_with_the_table(group: int, tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=1_200_000)
    table = pa.table({"a": values, "b": -values})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=group, use_dictionary=False, data_page_size=65_536)
    before = pa.total_allocated_bytes()
    for batch in open_table(tmp_path / "rows.parquet").batches({"a": "number"}, 20_000):
        # Of 19 MB, a buffer for each column and a few batches.
        assert pa.total_allocated_bytes() - before < 4 << 20, batch.first_row


def test_the_index_of_pandas_is_no_column(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1, 3]}, index=["x", "z"]).to_parquet(tmp_path / "rows.parquet")
    table = open_table(tmp_path / "rows.parquet")
    assert table.columns == ("a",)
    assert table.read().to_pydict() == {"a": [1, 3]}
    (batch,) = table.batches({"a": "number"})
    assert batch.given.column("__index_level_0__").to_pylist() == ["x", "z"]


def test_text_by_the_callers_wish(tmp_path: Path) -> None:
    pq.write_table(pa.table({"zip": [89073, None]}), tmp_path / "rows.parquet")
    assert open_table(tmp_path / "rows.parquet", text=["zip"]).read().to_pydict() == {"zip": ["89073", None]}
