"""Tables written as they come, whole or not at all."""

from __future__ import annotations

import csv
import datetime
import errno
import gzip
import io
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from density_regression.tabular.files import TableError, TableWriter, open_table
from density_regression.tabular.files.lines import header, lines

TABLE = pa.table(
    {"a,b": ["x", 'q"u', None, "line\r\nend"], "n": [0.1, None, float("nan"), -1e300], "i": [1, 2, 3, None]}
)
WRITTEN = b'"a,b",n,i\nx,0.1,1\n"q""u",,2\n,,3\n"line\r\nend",-1e+300,\n'


@pytest.mark.parametrize("name", ["rows.csv", "rows.CSV.GZ", "rows.tsv", "rows.tsv.gz", "rows.parquet"])
def test_every_format_is_read_back(name: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / name
    with TableWriter(path) as writer:
        writer.write(TABLE)
        writer.write(TABLE)
    read = open_table(path, text=["a,b"]).read()
    assert read.column_names == TABLE.column_names
    assert read.column("a,b").to_pylist() == TABLE.column("a,b").to_pylist() * 2
    known = read.column("n").to_pandas().fillna(7.0).to_list()
    assert known == [0.1, 7.0, 7.0, -1e300] * 2
    assert [file.name for file in path.parent.iterdir()] == [name]
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_the_lines(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with TableWriter(tmp_path / "rows.csv") as writer:
        writer.write(TABLE)
    assert (tmp_path / "rows.csv").read_bytes() == WRITTEN
    with TableWriter("-") as writer:
        writer.write(TABLE)
    assert capfdbinary.readouterr().out == WRITTEN


def test_equal_tables_are_equal_files(tmp_path: Path) -> None:
    for name in ("a.csv.gz", "b.csv.gz"):
        with TableWriter(tmp_path / name) as writer:
            writer.write(TABLE)
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()
    # When it was written is not in it.
    assert (tmp_path / "a.csv.gz").read_bytes()[4:8] == bytes(4)
    assert gzip.decompress((tmp_path / "a.csv.gz").read_bytes()) == WRITTEN


def test_decimal_comma(tmp_path: Path) -> None:
    with TableWriter(tmp_path / "rows.csv", separator=";", decimal=",") as writer:
        writer.write(pa.table({"n": [1.5, 2e-9], "t": ["1.5", "a;b"]}))
    assert (tmp_path / "rows.csv").read_text() == 'n;t\n1,5;1.5\n2e-9;"a;b"\n'


texts = st.one_of(st.none(), st.text(st.sampled_from('a",;\n\r \t|é€'), max_size=5))


@given(st.lists(st.tuples(texts, texts), min_size=1), st.sampled_from(",;\t|"))
def test_pythons_reader_gets_all_texts_back(rows: list[tuple[str | None, str | None]], separator: str) -> None:
    columns = [pa.array([row[i] for row in rows], pa.string()) for i in range(2)]
    # A slice, as batches are.
    table = pa.table(dict(zip("xy", columns, strict=True)))
    padded = pa.concat_tables([table.slice(0, 1), table]).combine_chunks().slice(1)
    content = header(["x", "y"], separator) + b"".join(lines(padded, separator, "."))
    read = list(csv.reader(io.StringIO(content.decode(), newline=""), delimiter=separator))
    assert read == [["x", "y"], *([value or "" for value in row] for row in rows)]


def test_one_column_has_no_blank_lines(tmp_path: Path) -> None:
    with TableWriter(tmp_path / "rows.csv") as writer:
        writer.write(pa.table({"t": ["a", None, "b"]}))
    assert open_table(tmp_path / "rows.csv").read().to_pydict() == {"t": ["a", None, "b"]}


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.parquet"])
def test_nothing_is_left_of_a_failure(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"old")

    def write_and_fail(error: BaseException) -> None:
        with TableWriter(path) as writer:
            writer.write(TABLE)
            raise error

    for error in (ValueError("bad"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            write_and_fail(error)
        assert path.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk here")
@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.parquet"])
def test_a_full_disk_is_one_error_with_the_path(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> tuple[int, str]:
        (tmp_path / ".temporary").touch()
        return os.open("/dev/full", os.O_WRONLY), str(tmp_path / ".temporary")

    monkeypatch.setattr("tempfile.mkstemp", full)

    def write(times: int) -> None:
        with TableWriter(tmp_path / name) as writer:
            for _ in range(times):
                writer.write(noise)

    noise = pa.table({"n": np.random.default_rng(0).normal(size=10_000)})
    # So little that it stays in a buffer until the end, and more.
    for times in (1, 15):
        with pytest.raises(OSError, match=name) as caught:
            write(times)
        assert caught.value.errno == errno.ENOSPC
        assert caught.value.filename == str(tmp_path / name)
        assert list(tmp_path.iterdir()) == []


def test_an_unknown_format_and_a_folder_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"rows\.xlsx does not say in what format to write: name it \.csv"):
        TableWriter(tmp_path / "rows.xlsx")
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"), TableWriter(tmp_path / "file" / "rows.csv"):
        pass


def test_what_text_cannot_hold(tmp_path: Path) -> None:
    def write() -> None:
        with TableWriter(tmp_path / "rows.csv") as writer:
            writer.write(pa.table({"day": [datetime.datetime(2024, 2, 28, 12)], "all": [[1, 2]]}))

    with pytest.raises(TableError, match=r"column 'all' is of type list<.*, which text cannot hold: write Parquet"):
        write()
    assert list(tmp_path.iterdir()) == []


def test_parts_of_other_types_become_those_of_the_first(tmp_path: Path) -> None:
    with TableWriter(tmp_path / "rows.parquet") as writer:
        writer.write(pa.table({"n": [1.5], "t": ["a"]}))
        writer.write(pa.table({"n": pa.array([2]), "t": pa.array(["b"], pa.large_string())}))
    assert pq.read_table(tmp_path / "rows.parquet").to_pydict() == {"n": [1.5, 2.0], "t": ["a", "b"]}

    def write_others() -> None:
        with TableWriter(tmp_path / "b.parquet") as writer:
            writer.write(pa.table({"n": [1]}))
            writer.write(pa.table({"n": ["x"]}))

    with pytest.raises(TableError, match="has other types than rows before"):
        write_others()
