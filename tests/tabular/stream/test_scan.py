"""One pass over a table on disk: uniform samples, the same rows held out, and errors that name the row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stream_helpers import write

from density_regression.tabular.files import TableError
from density_regression.tabular.stream import RowGroups, Sampled, scan
from density_regression.tabular.stream.row_hashes import row_shares
from density_regression.tabular.stream.scan import Shares, _Sample

DIVIDED = Shares(0.1, 0.2)


def scanned(folder: Path, shares: Shares = DIVIDED, most: tuple[int, int] = (500, 400), **given: Any) -> Sampled:
    return scan(RowGroups(folder), ["y"], shares, most, **given)


def rows_of(table: Any) -> list[float]:
    return sorted(table["x"].to_pylist())


def test_rows_are_divided_by_their_hashes(tmp_path: Path) -> None:
    folder = write(tmp_path / "rows", (3000,), 500)
    seen = scanned(folder, most=(5000, 5000))
    table = pq.read_table(folder)
    shares = row_shares(table)
    sides = {"held_out": shares < 0.1, "aside": (shares >= 0.1) & (shares < 0.3), "train": shares >= 0.3}
    for side, own in sides.items():
        assert rows_of(getattr(seen, side)) == table.filter(own)["x"].to_pylist()
    assert seen.rows == sides["train"].sum()


def test_the_same_rows_are_held_out_whatever_their_order_and_their_files(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole", (3000,), 1000)
    table = pq.read_table(whole)
    shuffled = table.take(pa.array(np.random.default_rng(1).permutation(3000))).select(["y", "x"])
    parts = tmp_path / "parts"
    parts.mkdir()
    for i in range(3):
        pq.write_table(shuffled.slice(1000 * i, 1000), parts / f"{2 - i}.parquet", row_group_size=77)
    one, other = scanned(whole, most=(9, 5000)), scanned(parts, most=(9, 5000))
    assert rows_of(one.held_out) == rows_of(other.held_out)
    assert rows_of(one.aside) == rows_of(other.aside)


def test_a_sample_is_uniform_and_keeps_its_size() -> None:
    counts = np.zeros(300)
    rng = np.random.default_rng(0)
    for _ in range(400):
        sample = _Sample(30)
        for start in range(0, 300, 50):
            own = np.arange(start, start + 50) != 7
            sample.add(pa.table({"x": np.arange(start, start + 50)}), own, rng.random(50))
        chosen = sample.result()["x"].to_numpy()
        assert len({*chosen}) == 30
        assert sample.rows == 299
        counts[chosen] += 1
    assert counts[7] == 0
    # Each is drawn with p = 30 / 299, and chi-squared with 298 degrees of freedom is above 380 once in a thousand.
    expected = 400 * 30 / 299
    assert ((np.delete(counts, 7) - expected) ** 2 / expected).sum() < 380


def test_rows_without_a_target_are_counted_and_left_out(tmp_path: Path) -> None:
    x = np.arange(1000.0)
    y = [None if i in (17, 600) else np.nan if i == 900 else float(i) for i in range(1000)]
    pq.write_table(pa.table({"x": x, "y": pa.array(y)}), tmp_path / "rows.parquet", row_group_size=300)
    seen = scanned(tmp_path / "rows.parquet", Shares(0.0), (2000, 1))
    assert (seen.without_target, seen.first_without_target, seen.rows) == (3, 18, 997)
    assert rows_of(seen.train) == sorted({*x} - {17, 600, 900})
    assert seen.held_out is None


def test_a_rare_gap_is_in_the_sample_and_others_are_not_held_out(tmp_path: Path) -> None:
    a = np.arange(4000.0)
    b = pa.array([None if i == 3000 else float(i) for i in range(4000)])
    table = pa.table({"x": a, "b": b, "y": a})
    share = float(row_shares(table)[3000])
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=1000)
    training = scanned(tmp_path / "rows.parquet", Shares(share / 2), (50, 5000))
    assert training.train["b"].null_count == 1
    assert len(training.train) == 51
    # Only a held-out row has a gap: nothing could be learnt of gaps.
    held = scanned(tmp_path / "rows.parquet", Shares((1 + share) / 2), (50, 5000))
    assert held.train["b"].null_count == 0
    assert 3000 not in held.held_out["x"].to_pylist()


@pytest.mark.parametrize(
    ("column", "value", "positive", "problem"),
    [
        ("x", np.inf, False, "rows.parquet: row 702 has an infinite value in 'x'"),
        ("y", -np.inf, False, "rows.parquet: row 702 has an infinite value in 'y'"),
        ("y", -2.0, True, r"rows.parquet: row 702 has -2 in 'y', but target=\"log\""),
    ],
)
def test_values_that_cannot_be_are_named(
    tmp_path: Path, column: str, value: float, positive: bool, problem: str
) -> None:
    table = {"x": np.arange(1000.0) + 1, "y": np.arange(1000.0) + 1}
    table[column][701] = value
    pq.write_table(pa.table(table), tmp_path / "rows.parquet", row_group_size=300)
    with pytest.raises(TableError, match=problem):
        scanned(tmp_path / "rows.parquet", positive=positive)


def test_a_target_of_text_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0, 2.0], "y": ["a", "b"]}), tmp_path / "rows.parquet")
    with pytest.raises(TableError, match="'y', the target, is of type string, which is no number"):
        scanned(tmp_path / "rows.parquet")


def test_text_that_is_no_date_is_remembered_with_its_place(tmp_path: Path) -> None:
    day = ["2026-11-19"] * 999 + ["soon"]
    pq.write_table(pa.table({"x": day, "y": np.arange(1000.0)}), tmp_path / "rows.parquet", row_group_size=300)
    seen = scanned(tmp_path / "rows.parquet")
    assert seen.no_dates["x", "date"] == f"{tmp_path / 'rows.parquet'}: row 1000 has 'soon' in 'x'"
    assert "row 1 " in seen.no_dates["x", "time"]
