from __future__ import annotations

import csv
import io
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from density_regression import DensityRegressor
from density_regression.serve.bundle import Input
from density_regression.serve.page.upload import (
    count_unfamiliar,
    file_of_form,
    read_csv,
    scored_name,
    with_results,
)
from serve.helpers import Client, raw_table

BUNDLE = SimpleNamespace(inputs=(Input("a", "number", "a"), Input("b", "category", "b")), named=True)
RESULTS = {"mean": np.array([1.5, -2.0]), "familiarity": np.array([0.5, 0.001])}


def lines(content: bytes, separator: str = ",", encoding: str = "utf-8") -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode(encoding)), delimiter=separator))


def test_a_file_comes_back_with_columns_added() -> None:
    file, rows = read_csv(b'note,b,a\r\n"x, ""y""",Ulm,3\r\n,,\r\n', BUNDLE)
    assert rows == {"a": [3.0, None], "b": ["Ulm", None]}
    back = lines(with_results(file, RESULTS))
    assert back == [
        ["note", "b", "a", "mean", "familiarity", "unfamiliar"],
        ['x, "y"', "Ulm", "3", "1.5", "0.5", "false"],
        ["", "", "", "-2.0", "0.001", "true"],
    ]
    assert count_unfamiliar(RESULTS) == 1


def test_semicolons_and_decimal_commas_are_kept() -> None:
    file, rows = read_csv("\ufeffa;b\n1.234,5;Köln, West\n2;x\n".encode(), BUNDLE)
    assert rows == {"a": [1234.5, 2.0], "b": ["Köln, West", "x"]}
    content = with_results(file, RESULTS)
    assert content.startswith(b"\xef\xbb\xbf")
    assert lines(content, ";", "utf-8-sig")[1] == ["1.234,5", "Köln, West", "1,5", "0,5", "false"]


def test_semicolons_with_decimal_points_are_read_as_points() -> None:
    file, rows = read_csv(b"a;b\n1.25;x\n", BUNDLE)
    assert (rows["a"], file.decimal) == ([1.25], ".")


def test_old_encodings_come_back_as_they_were() -> None:
    file, rows = read_csv("a\tb\n1\tKöln\n2\tUlm\n".encode("cp1252"), BUNDLE)
    assert rows["b"] == ["Köln", "Ulm"]
    assert lines(with_results(file, RESULTS), "\t", "cp1252")[1][1] == "Köln"


def test_columns_of_results_have_names_that_are_free() -> None:
    file, _ = read_csv(b"a,b,mean\n1,x,7\n2,y,8\n", BUNDLE)
    assert lines(with_results(file, RESULTS))[0][2:] == ["mean", "mean_predicted", "familiarity", "unfamiliar"]


def test_several_targets_have_a_column_each() -> None:
    file, _ = read_csv(b"a,b\n1,x\n", BUNDLE)
    assert lines(with_results(file, {"mean": np.array([[1.0, 2.0]])})) == [
        ["a", "b", "mean_0", "mean_1"],
        ["1", "x", "1.0", "2.0"],
    ]


def test_a_method_without_density_says_nothing_of_familiarity() -> None:
    assert count_unfamiliar({"mean": np.zeros(2)}) is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b" \n \n", "empty"),
        (b"a,b\n", "no rows"),
        (b"PK\x03\x04\0\0", "not text"),
        (b"a,b\n1,x,9\n", "Line 2 has 3 values"),
        (b"a,b\nmany,x\n", "'many'"),
        (b'a,b\n1,"x\n', "line 2"),
        (b"a,b\n1," + b"x" * 200_000 + b"\n", "CSV"),
    ],
)
def test_files_that_cannot_be_read_are_refused_in_words(content: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_csv(content, BUNDLE)


def test_the_file_of_a_form_is_found_among_its_parts() -> None:
    body = (
        b'--xx\r\nContent-Disposition: form-data; name="other"\r\n\r\nno\r\n'
        b'--xx\r\nContent-Disposition: form-data; name="file"; filename="K\xc3\xb6ln.csv"\r\n'
        b"Content-Type: text/csv\r\n\r\n"
        b"a,b\r\n\r\n1,x\r\n\r\n--xx--\r\n"
    )
    name, content = file_of_form(body, "multipart/form-data; boundary=xx")
    assert content == b"a,b\r\n\r\n1,x\r\n"
    assert name.endswith("ln.csv")


@pytest.mark.parametrize(
    "kind", ["multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=yy"]
)
def test_a_form_without_a_file_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="choose"):
        file_of_form(b'--xx\r\nContent-Disposition: form-data; name="file"\r\n\r\na\r\n--xx--', kind)


@pytest.mark.parametrize(
    ("name", "scored"),
    [
        ("cars.csv", "cars_scored.csv"),
        ("C:\\temp\\a b.txt", "a b_scored.csv"),
        ("../../etc/passwd", "passwd_scored.csv"),
        ('a"\r\n.csv', "a____scored.csv"),
        ("", "table_scored.csv"),
        ("...", "table_scored.csv"),
    ],
)
def test_names_of_files_are_harmless(name: str, scored: str) -> None:
    assert scored_name(name) == scored


def as_csv() -> bytes:
    return raw_table(30)[0].to_csv(index=False).encode()


def test_the_server_answers_a_csv_as_predict_does(client: Client, raw: DensityRegressor) -> None:
    answer = client("/page/score?model=raw&coverage=0.8&name=flats.csv", as_csv(), {"content-type": "text/csv"})
    assert answer.status == 200
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''flats_scored.csv"
    assert answer.headers["x-rows"] == "30"
    header, *rows = lines(answer.body)
    assert header[-6:] == ["mean", "std", "low", "high", "familiarity", "unfamiliar"]
    table = raw_table(30)[0]
    expected = [*raw.predict(table, return_std=True), *raw.predict_interval(table, 0.8)]
    found = np.array([row[-6:-2] for row in rows], dtype=float)
    np.testing.assert_allclose(found, np.column_stack(expected), rtol=1e-5)
    assert [row[-1] for row in rows] == [str(share < 0.01).lower() for share in raw.familiarity(table)]
    assert answer.headers["x-unfamiliar"] == str(sum(row[-1] == "true" for row in rows))


def test_a_form_is_answered_as_a_body_is(client: Client, raw: DensityRegressor) -> None:
    body = (
        b'--xx\r\nContent-Disposition: form-data; name="file"; filename="f.csv"\r\n\r\n' + as_csv() + b"\r\n--xx--\r\n"
    )
    form = client("/page/score?model=raw", body, {"content-type": "multipart/form-data; boundary=xx"})
    plain = client("/page/score?model=raw", as_csv(), {"content-type": "text/csv"})
    assert form.status == 200
    assert form.body == plain.body


def test_rows_of_a_file_are_counted_and_seen_by_those_who_watch(client: Client, raw: DensityRegressor) -> None:
    seen: list[int] = []
    client.app.state.observers.append(lambda served, feeds, results: seen.append(len(results["log_density"])))
    try:
        client("/page/score?model=raw", as_csv(), {"content-type": "text/csv"})
        # What somebody tries in the form is not what the model is used for.
        client("/?model=raw&x.size=5")
    finally:
        client.app.state.observers.clear()
    assert seen == [30]


def test_problems_of_a_file_are_a_page_that_leads_back(client: Client) -> None:
    answer = client("/page/score?model=raw", b"size\n1\n", {"content-type": "text/csv"})
    assert (answer.status, answer.headers["content-type"]) == (400, "text/html; charset=utf-8")
    assert b'id="message"' in answer.body
    assert b"The rows lack columns" in answer.body
    wrong = client("/page/score?model=raw", as_csv().replace(b",True", b",<i>"), {"content-type": "text/csv"})
    assert b"&lt;i&gt;" in wrong.body
    assert b"counted from 0" in wrong.body
    assert b'href="/?model=raw"' in answer.body
    assert client("/page/score?model=none", as_csv(), {"content-type": "text/csv"}).status == 404


def test_limits_of_the_server_hold_for_files(client: Client) -> None:
    state, settings = client.app.state, client.app.state.settings
    try:
        state.settings = replace(settings, max_rows=29)
        answer = client("/page/score?model=raw", as_csv(), {"content-type": "text/csv"})
        assert answer.status == 422
        assert b"more than 29" in answer.body
        state.settings = replace(settings, max_body=100)
        assert client("/page/score?model=raw", as_csv(), {"content-type": "text/csv"}).status == 413
    finally:
        state.settings = settings


def test_pages_of_other_sites_cannot_send_files(client: Client) -> None:
    headers = {"content-type": "text/csv", "sec-fetch-site": "cross-site"}
    assert client("/page/score?model=raw", as_csv(), headers).status == 403
