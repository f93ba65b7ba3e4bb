"""Tables of text, in every way that people write them."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from density_regression.tabular.files import TableError, open_table

ROWS = {"size": [50.5, 61.0, None], "town": ["Ulm", "Köln; 5 €", None], "sunny": [True, None, False]}


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(("separator", "decimal"), [(",", "."), (";", ","), (";", "."), ("\t", ","), ("|", ".")])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_separator_decimal_sign_and_encoding_are_recognised(
    separator: str, decimal: str, encoding: str, line_end: str, tmp_path: Path
) -> None:
    path = tmp_path / "table.txt"
    pd.DataFrame(ROWS).to_csv(
        path, sep=separator, decimal=decimal, encoding=encoding, lineterminator=line_end, index=False
    )
    table = open_table(path)
    assert table.columns == ("size", "town", "sunny")
    assert table.read().to_pydict() == ROWS
    assert [str(field.type) for field in table.read().schema] == ["double", "string", "bool"]
    (batch,) = table.batches({"size": "number", "town": "text", "sunny": "boolean"})
    expected = ROWS | {"sunny": [1.0, None, 0.0]}
    assert batch.table.to_pydict() == expected


@pytest.mark.parametrize("packed", [gzip.compress, bz2.compress, lzma.compress, lambda b: pa.compress(b, "zstd", True)])
def test_compressed_by_content_whatever_the_name(packed: object, tmp_path: Path) -> None:
    content = b"a,b\n" + b"".join(b"%d,x%d\n" % (i, i) for i in range(5000))
    path = written(tmp_path / "rows.csv", packed(content))  # type: ignore[operator]
    assert open_table(path).read().column("a").to_pylist() == list(range(5000))
    cut = written(tmp_path / "cut.csv", path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(TableError, match=r"cut\.csv is cut off or damaged"):
        open_table(cut).read()


def test_several_members_in_one_compressed_file(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv.gz", gzip.compress(b"a\n1\n") + gzip.compress(b"2\n"))
    assert open_table(path).read().column("a").to_pylist() == [1.0, 2.0]


def test_quotes_line_ends_in_fields_and_blank_lines(tmp_path: Path) -> None:
    text = '\r\n a ,"b\r\nc",d\r\n1,"x, ""y""\r\n\r\nz",\r\n\r\n2,,"q"'
    table = open_table(written(tmp_path / "rows.csv", text))
    assert table.columns == ("a", "b\r\nc", "d")
    assert table.read().to_pydict() == {"a": [1.0, 2.0], "b\r\nc": ['x, "y"\r\n\r\nz', None], "d": [None, "q"]}


def test_a_few_commas_are_no_decimal_sign(tmp_path: Path) -> None:
    table = open_table(written(tmp_path / "rows.csv", "a;b;c\n1.5;2.5;1,2\n3.5;4.5;x\n5.5;6.5;y\n"))
    assert table.read().to_pydict() == {"a": [1.5, 3.5, 5.5], "b": [2.5, 4.5, 6.5], "c": ["1,2", "x", "y"]}


def test_a_field_as_long_as_a_book(tmp_path: Path) -> None:
    book = "word " * 100_000
    path = written(tmp_path / "rows.csv", f'a,b\n1,"{book}"\n2,x\n')
    assert open_table(path).read().column("b").to_pylist() == [book, "x"]
    with pytest.raises(TableError, match=r"column 'b', row 2 \(line 3\), has 'x', which is no number"):
        list(open_table(path, missing=[book]).batches({"b": "number"}))


def test_an_encoding_that_only_a_late_row_tells(tmp_path: Path) -> None:
    rows = "town\n" + "Ulm\n" * 400_000
    late = written(tmp_path / "late.csv", (rows + "Köln\n").encode("cp1252"))
    assert open_table(late).read().column("town")[-1].as_py() == "Köln"
    # Of cp1252, 81 is no character.
    odd = written(tmp_path / "odd.csv", (rows + "K\x81\n").encode("latin-1"))
    assert open_table(odd).read().column("town")[-1].as_py() == "K\x81"


def test_set_by_the_caller(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", "a:b\n1,5:é\n".encode("cp850"))
    table = open_table(path, separator=":", decimal=",", encoding="cp850")
    assert table.read().to_pydict() == {"a": [1.5], "b": ["é"]}
    # A decimal comma is no separator.
    assert open_table(written(tmp_path / "one.csv", "a\n1,5\n"), decimal=",").read().to_pydict() == {"a": [1.5]}
    quoted = written(tmp_path / "quoted.csv", 'a,b\n"1,5",x\n"2,25",y\n')
    assert open_table(quoted, decimal=",").read().to_pydict() == {"a": [1.5, 2.25], "b": ["x", "y"]}
    marked = written(tmp_path / "marked.csv", "a,b\n1,é\n".encode("utf-16"))
    assert open_table(marked, encoding="utf-16-le").read().to_pydict() == {"a": [1.0], "b": ["é"]}
    for options, message in (
        ({"separator": ",,"}, "separator must be one character"),
        ({"decimal": "'"}, "decimal must be"),
        ({"encoding": "klingon"}, "encoding 'klingon' is unknown"),
        ({"encoding": "ascii"}, r"rows\.csv is not in ascii .*name another"),
    ):
        with pytest.raises(TableError, match=message):
            open_table(path, **options)


def test_batches_have_all_rows_whatever_their_size(tmp_path: Path) -> None:
    texts = [f"{'long ' * (i % 700)}{i}" for i in range(9000)]
    frame = pd.DataFrame({"n": range(9000), "text": texts})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    table = open_table(tmp_path / "rows.csv")
    for size in (1000, 4096, 100_000):
        batches = list(table.batches({"n": "number"}, size))
        assert [batch.first_row for batch in batches] == list(range(0, 9000, size))
        assert all(len(batch.table) == size for batch in batches[:-1])
        together = pa.concat_tables([batch.table for batch in batches]).to_pydict()
        assert together == {"n": frame["n"].to_list(), "text": texts}


def test_types_do_not_depend_on_the_first_rows(tmp_path: Path) -> None:
    lines = [*["1,,7"] * 300_000, "2.5,x,7", "3,,seven"]
    path = written(tmp_path / "rows.csv", "a,b,c\n" + "\n".join(lines))
    table = open_table(path, text=("c",))
    kinds = {"a": "number", "b": "text", "c": "text"}
    assert {str(batch.table.schema.field(name).type) for batch in table.batches(kinds) for name in "bc"} == {"string"}
    read = table.read()
    assert [str(field.type) for field in read.schema] == ["double", "string", "string"]
    assert read.slice(299_999).to_pylist() == [
        {"a": 1.0, "b": None, "c": "7"},
        {"a": 2.5, "b": "x", "c": "7"},
        {"a": 3.0, "b": None, "c": "seven"},
    ]


def test_columns_that_nobody_asks_for_stay_as_they_are(tmp_path: Path) -> None:
    text = "id,a\n007,1.50\nNA,\n"
    (batch,) = open_table(written(tmp_path / "rows.csv", text)).batches({"a": "number"})
    assert batch.table.to_pydict() == {"id": ["007", "NA"], "a": [1.5, None]}
    assert batch.given.to_pydict() == {"id": ["007", "NA"], "a": ["1.50", ""]}


def test_as_pandas_reads_it(tmp_path: Path) -> None:
    numbers = ["1", "-2.5e-3", ".5", "5.", "+7", "1E5", "", "NaN", "9007199254740993", "  3 ", "0.1"]
    text = "n\n" + "\n".join(f'"{number}"' for number in numbers)
    ours = open_table(written(tmp_path / "rows.csv", text)).read().column("n").to_pandas()
    pd.testing.assert_series_equal(ours, pd.read_csv(io.StringIO(text))["n"].astype(float))


def test_parts_in_a_folder(tmp_path: Path) -> None:
    written(tmp_path / "part-0.csv", "a;b\n1;x\n2;y\n")
    written(tmp_path / "part-1.csv.gz", gzip.compress(b"b;a\nz;3,5\n"))
    for name in ("_SUCCESS", ".part-0.csv.crc"):
        written(tmp_path / name, b"\0")
    table = open_table(tmp_path)
    assert table.read().to_pydict() == {"a": [1.0, 2.0, 3.5], "b": ["x", "y", "z"]}
    batches = list(table.batches({"a": "number"}))
    assert [batch.first_row for batch in batches] == [0, 2]
    assert [batch.table.column_names for batch in batches] == [["a", "b"]] * 2
    written(tmp_path / "part-2.csv", "a;c\n1;2\n")
    with pytest.raises(TableError, match=r"part-2\.csv and .*part-0\.csv have different columns \('b', 'c' in one"):
        open_table(tmp_path)
