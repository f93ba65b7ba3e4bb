"""What is no table, or has a value that its column should not have: where it is, and what to do."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from density_regression.tabular.files import TableError, open_table


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty: a table has a line of column names"),
        ("\ufeff\n\r\n", "is empty"),
        ("a,b", "has column names, but no rows"),
        ("a,b\n\n", "has column names, but no rows"),
        ("a,b,a\n1,2,3\n", "several columns of the name 'a': rename them"),
        (",b,\n1,2,3\n", r"has no name for column 1, 3: .*index=False"),
        ("5.1,3.5\n4.9,3.0\n", "has numbers, such as 5.1, for column names"),
        ("a,b\n1,2\n\n3\n", r"row 2 \(line 4\) has 1 field, but the line of names has 2"),
        ('a,b\n"x\ny",2\n3,4,5\n', r"row 2 \(line 4\) has 3 fields, but the line of names has 2"),
        ("<!DOCTYPE html><html></html>", "is HTML, not a table"),
        ('{"a": [1, 2]}', "is JSON, not a table"),
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "is a PNG image, not a table: give CSV"),
        (pickle.dumps([1.0, "two"]), "is a pickle, not a table"),
        (pickle.dumps([1.0, "two"])[2:], "is binary, not a table"),
    ],
)
def test_no_table(content: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(TableError, match=message) as caught:
        open_table(written(tmp_path / "rows.csv", content)).read()
    assert str(tmp_path / "rows.csv") in str(caught.value)


def test_other_files(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"There is no file .*none\.csv"):
        open_table(tmp_path / "none.csv")
    with pytest.raises(TableError, match="holds no files"):
        open_table(tmp_path)
    with zipfile.ZipFile(tmp_path / "book.xlsx", "w") as archive:
        archive.writestr("sheet.xml", "<a/>")
    with pytest.raises(TableError, match="a zip archive or an Excel workbook"):
        open_table(tmp_path / "book.xlsx")


@pytest.mark.parametrize("rows", [0, 1, 3_000_000])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_quotation_mark_that_is_never_closed(rows: int, encoding: str, tmp_path: Path) -> None:
    text = 'a,b\n1,"x"\n1,"' + "x\n" + "1,y\n" * rows
    path = written(tmp_path / "rows.csv", text.encode(encoding))
    with pytest.raises(TableError, match=r"rows\.csv.* quotation mark .*opens a value and is never closed"):
        open_table(path).read()
    closed = written(tmp_path / "closed.csv", (text[:40] + '"\n\n').encode(encoding))
    assert open_table(closed).read().num_rows == 2


def test_a_stream_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TableError, match="pipe is no file, but a stream"):
        open_table(tmp_path / "pipe")


def test_parquet_that_is_cut_off_or_something_else(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": list(range(100_000))}), tmp_path / "rows.parquet", row_group_size=1000)
    content = (tmp_path / "rows.parquet").read_bytes()
    for broken in (content[:-9], content[:50], b"", b"a,b\n1,2\n"):
        path = written(tmp_path / "broken.parquet", broken)
        with pytest.raises(TableError, match=r"broken\.parquet is cut off, damaged or no Parquet file"):
            open_table(path)
    # Its end says where columns are; here they are no longer what it says.
    path = written(tmp_path / "holes.parquet", b"PAR1" + bytes(len(content) // 2) + content[4 + len(content) // 2 :])
    with pytest.raises(TableError, match=r"holes\.parquet is cut off, damaged"):
        list(open_table(path).batches({"a": "number"}))
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "none.parquet")
    with pytest.raises(TableError, match="no rows"):
        open_table(tmp_path / "none.parquet")


def test_parquet_and_text_in_one_folder(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "rows.parquet")
    written(tmp_path / "rows.csv", "a\n1\n")
    with pytest.raises(TableError, match="holds Parquet and text"):
        open_table(tmp_path)


def test_wrong_encoding_beyond_the_beginning(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", ("town\n" + "Ulm\n" * 400_000 + "Köln\n").encode("cp1252"))
    with pytest.raises(TableError, match=r"rows\.csv is not in utf-8: name its encoding"):
        open_table(path, encoding="utf-8").read()
    with pytest.raises(TableError, match=r"rows\.csv is not in ascii: name its encoding"):
        list(open_table(path, encoding="ascii").batches({}))


def test_a_value_that_is_no_number_among_numbers(tmp_path: Path) -> None:
    text = "size,town\n" + '50.5,"a\nb"\n' * 30 + "\n" + "big,c\n" + "60,d\n"
    path = written(tmp_path / "rows.csv", text)
    where = r"rows\.csv: column 'size', row 31 \(line 63\), has 'big'"
    with pytest.raises(TableError, match=rf"{where}, but 31 rows have numbers there: .*--missing 'big'.*--text size"):
        open_table(path).read()
    with pytest.raises(TableError, match=rf"{where}, which is no number; .*--missing 'big'"):
        list(open_table(path).batches({"size": "number"}, 7))
    for table in (open_table(path, missing=["big"]), open_table(path, text=["size"])):
        assert table.read().num_rows == 32
    assert open_table(path, missing=["big"]).read().column("size")[30].as_py() is None
    assert open_table(path, text=["size"]).read().column("size")[30].as_py() == "big"
    with pytest.raises(TableError, match="has no column 'zip' to take as text: size, town"):
        open_table(path, text=["zip"])


def test_text_with_some_numbers_is_text(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", "code\n" + "12\n" * 8 + "A1\nB2\n")
    assert open_table(path).read().column("code").to_pylist() == ["12"] * 8 + ["A1", "B2"]


@pytest.mark.parametrize("values", [["1,250", "17", "2,500"], ["1 250", "900"], ["1'250.5", "17"], ["1,5", "2,25"]])
def test_other_notations_of_numbers_are_not_guessed(values: list[str], tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", "price,town\n" + "".join(f'"{value}",x\n' for value in values))
    with pytest.raises(TableError, match=r"column 'price', row 1 \(line 2\), has .* thousands separators are not read"):
        open_table(path).read()
    assert open_table(path, text=["price"]).read().column("price").to_pylist() == values
    with pytest.raises(TableError, match=r"no number: thousands separators are not read"):
        list(open_table(path).batches({"price": "number"}))


def test_a_point_is_no_thousands_separator_either(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", "price;size\n1.250;2,5\n300;1,75\n")
    with pytest.raises(TableError, match=r"column 'price', row 1 \(line 2\), has '1.250', which may be a number"):
        open_table(path).read()
    with pytest.raises(TableError, match=r"has '1.250', which is no number: thousands"):
        list(open_table(path).batches({"price": "number"}))


@pytest.mark.parametrize("row", [1, 2, 3])
def test_the_part_of_a_folder_is_named(row: int, tmp_path: Path) -> None:
    written(tmp_path / "a.csv", "n\n" + "1\n" * 30)
    written(tmp_path / "b.csv", "n\n" + "".join("x\n" if i == row else "2\n" for i in (1, 2, 3)))
    written(tmp_path / "c.csv", "n\n3\n")
    for read in (lambda table: table.read(), lambda table: list(table.batches({"n": "number"}))):
        with pytest.raises(TableError, match=rf"b\.csv: column 'n', row {row} \(line {row + 1}\), has 'x'"):
            read(open_table(tmp_path))


@pytest.mark.parametrize(("kind", "bad"), [("date", "2024-02-30"), ("date", "24.12.2024"), ("time", "25:00")])
def test_dates_and_times(kind: str, bad: str, tmp_path: Path) -> None:
    good = "2024-02-28" if kind == "date" else "22:20"
    path = written(tmp_path / "rows.csv", f"when,n\n{good},1\nNA,1\n{bad},1\n{bad},1\n")
    with pytest.raises(TableError, match=rf"column 'when', row 3 \(line 4\), has '{bad}', but {kind}s in training"):
        list(open_table(path).batches({"when": kind}))
    (batch,) = open_table(path, missing=[bad]).batches({"when": kind})
    assert batch.table.column("when").to_pylist() == [good, None, None, None]


@pytest.mark.parametrize("row", [1, 2])
def test_infinity(row: int, tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", "n\n" + "1\n" * (row - 1) + "-inf\n2\n")
    with pytest.raises(TableError, match=rf"column 'n', row {row} \(line {row + 1}\), is infinite: leave it empty"):
        list(open_table(path).batches({"n": "number"}))


def test_a_missing_column(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", "n\n1\n")
    with pytest.raises(TableError, match="lacks the columns 'm', 'o'"):
        list(open_table(path).batches({"n": "number", "m": "number", "o": "text"}))
