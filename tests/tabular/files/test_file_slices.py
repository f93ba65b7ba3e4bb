"""Slices of a Parquet table: whole row groups, in order, each a table of its own."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from density_regression.tabular.files import TableError, TableWriter, open_table
from density_regression.tabular.files.slices import divided


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files, of 25 rows in groups of 10 and of 8 in one, and one without rows."""
    x = pa.array(range(33))
    table = pa.table({"x": x, "name": x.cast(pa.string())})
    pq.write_table(table[:25], tmp_path / "a.parquet", row_group_size=10)
    pq.write_table(table[:0], tmp_path / "b.parquet")
    pq.write_table(table[25:].select(["name", "x"]), tmp_path / "c.parquet")
    return tmp_path


@pytest.mark.parametrize(
    ("rows", "expected"), [(1, [10, 10, 5, 8]), (10, [10, 10, 5, 8]), (15, [10, 15, 8]), (99, [25, 8])]
)
def test_slices_are_whole_row_groups_in_order(rows: int, expected: list[int], folder: Path) -> None:
    table = open_table(folder)
    slices = divided(table, rows)
    assert [part.rows for part in slices] == expected
    kinds = {"x": "number", "name": "text"}
    found = [batch.table for part in slices for batch in part.table(table.columns).batches(kinds, 4)]
    assert {tuple(part.column_names) for part in found} == {("x", "name")}
    assert pa.concat_tables(found).column("x").to_pylist() == list(range(33))


def test_errors_count_the_rows_of_the_file(folder: Path) -> None:
    pq.write_table(pa.table({"x": ["1", "2", "3", "x"]}), folder / "a.parquet", row_group_size=2)
    last = divided(open_table(folder / "a.parquet"), 2)[1]
    with pytest.raises(TableError, match=r"a\.parquet: column 'x', row 4, has 'x'"):
        list(last.table(["x"]).batches({"x": "number"}))


def test_parts_written_with_the_types_of_another(tmp_path: Path) -> None:
    schema = pa.schema([("x", pa.float64())])
    with TableWriter(tmp_path / "out.parquet", schema=schema) as writer:
        writer.write(pa.table({"x": [1, 2]}))
    assert pq.read_schema(tmp_path / "out.parquet").equals(schema)
