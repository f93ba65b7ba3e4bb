"""MLflow's scoring protocol: data frames as JSON in all their forms, and CSV."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from density_regression import DensityRegressor
from serve.helpers import Answer, Client, columns_of, odd_table, raw_table, served

CSV = {"content-type": "text/csv; charset=utf-8"}


def assert_same(answer: Answer, reg: DensityRegressor, rows: Any) -> None:
    assert answer.status == 200, answer.body
    found, (mean, std) = answer.json["predictions"], reg.predict(rows, return_std=True)
    np.testing.assert_allclose([row["mean"] for row in found], mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose([row["std"] for row in found], std, rtol=1e-5)
    assert list(found[0]) == ["mean", "std", "low", "high", "log_density", "familiarity"]


def test_data_frames(client: Client, raw: DensityRegressor) -> None:
    frame = odd_table()
    columns = columns_of(frame)
    data = [list(row) for row in zip(*columns.values(), strict=True)]
    split = {"columns": list(columns), "index": list(range(len(data))), "data": data}
    records = [dict(zip(columns, row, strict=True)) for row in data]
    for given in (
        {"dataframe_split": split},
        {"dataframe_records": records},
        {"instances": records},
        {"inputs": columns},
    ):
        assert_same(client("/models/raw/invocations", given), raw, frame)


def test_numbers(client: Client, numbers: DensityRegressor) -> None:
    X = np.random.default_rng(0).normal(size=(4, 2))
    for given in (
        {"inputs": X.tolist()},
        {"instances": X.tolist()},
        {"dataframe_split": {"data": X.tolist()}},
        {"dataframe_split": {"columns": ["a", "b"], "data": X.tolist()}},
        {"dataframe_split": {"columns": [0, 1], "data": X.tolist()}},
    ):
        assert_same(client("/models/numbers/invocations", given), numbers, X)
    text = "first,second\n" + "\n".join(f"{a!r},{b!r}" for a, b in X.tolist())
    assert_same(client("/models/numbers/invocations", text.encode(), CSV), numbers, X)


def test_csv(client: Client, raw: DensityRegressor) -> None:
    frame = odd_table()
    text = frame.assign(more="ignored, too").to_csv(index=False)
    assert_same(client("/models/raw/invocations", b"\xef\xbb\xbf" + text.encode(), CSV), raw, frame)
    text = frame.to_csv(index=False, na_rep="NA").replace("True", "1").replace("False", "no")
    assert_same(client("/models/raw/invocations", text.encode(), CSV), raw, frame)


def test_what_a_row_leaves_out_is_a_gap(client: Client, raw: DensityRegressor) -> None:
    frame = raw_table(2, seed=5)[0]
    records = [{k: v[i] for k, v in columns_of(frame).items()} for i in (0, 1)]
    del records[1]["town"]
    frame.loc[1, "town"] = None
    assert_same(client("/models/raw/invocations", {"dataframe_records": records}), raw, frame)


def test_parameters(client: Client, raw: DensityRegressor) -> None:
    frame = raw_table(3)[0]
    params = {"coverage": 0.8, "outputs": ["low", "noise"]}
    given = {"inputs": columns_of(frame), "params": params}
    found = client("/models/raw/invocations", given).json["predictions"]
    assert [list(row) for row in found] == [["low", "noise"]] * 3
    np.testing.assert_allclose([row["low"] for row in found], raw.predict_interval(frame, 0.8)[0], rtol=1e-5)


def test_one_model_needs_no_name(client: Client, numbers: DensityRegressor, folder: Path) -> None:
    answer = client("/invocations", {"inputs": [[1.0, 2.0]]})
    assert answer.status == 400
    assert "several models: ask for /models/NAME/invocations, of numbers, raw" in answer.error
    with served(folder / "numbers") as alone:
        assert_same(alone("/invocations", {"inputs": [[1.0, 2.0]]}), numbers, [[1.0, 2.0]])
    assert [client(path).status for path in ("/ping", "/health", "/version")] == [200, 200, 200]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (b"nonsense", "not JSON"),
        ([1], "must be an object with one of dataframe_split"),
        ({"inputs": [], "instances": []}, "must be an object with one of"),
        ({"inputs": []}, "inputs is not a list of rows"),
        ({"inputs": "abc"}, "inputs is not a list of rows"),
        ({"inputs": [1, 2]}, "not a list of lists"),
        ({"inputs": [[1, 2], [1]]}, "A row has 1 values"),
        ({"inputs": [[1, 2], {"0": 1}]}, "not a list of lists"),
        ({"inputs": {"0": 1, "1": 2}}, "'0' is not a list of values"),
        ({"instances": [{"0": 1, "1": 2}, [1, 2]]}, "Some rows are objects"),
        ({"dataframe_records": [[1, 2]]}, "not a list of objects"),
        ({"dataframe_records": [{"0": 1}]}, "lack column '1'"),
        ({"dataframe_split": {"data": 3}}, "dataframe_split is not"),
        ({"dataframe_split": [1]}, "dataframe_split is not"),
        ({"dataframe_split": {"columns": "ab", "data": [[1, 2]]}}, "not a list of names"),
        ({"dataframe_split": {"columns": ["0", "1"], "data": [[1]]}}, "A row of dataframe_split has 1 values"),
        ({"dataframe_split": {"columns": ["1", "1"], "data": [[1, 2]]}}, "several columns named '1'"),
        ({"inputs": [[1, 2]], "params": 3}, "params is not an object"),
        ({"inputs": [[1, 2]], "params": []}, "params is not an object"),
        ({"inputs": [[1, 2]], "params": {"outputs": "mean"}}, "not a list of names"),
        ({"inputs": [[1, 2]], "params": {"outputs": {}}}, "not a list of names"),
        ({"inputs": [[1, 2]], "params": {"outputs": ["mean"], "coverage": []}}, "coverage must lie"),
        ({"inputs": [[1, 2]], "params": {"coverage": None, "outputs": ["x"]}}, "no output 'x'"),
    ],
)
def test_what_is_refused(given: Any, message: str, client: Client) -> None:
    body = given if isinstance(given, bytes) else json.dumps(given).encode()
    answer = client("/models/numbers/invocations", body, {"content-type": "application/json"})
    assert answer.status == 400
    assert message in answer.error


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "lack columns '0', '1'"),
        (b"0,1\n", "no rows"),
        (b"0,1\n1\n", "Row 0 of the CSV has 1 values, but its first line 2 names"),
        (b"0,1\n1,2\n3,x\n", "column '1' has 'x' (row 1), but numbers in training: give numbers"),
        (b"0,1\n1,\n", "'1' is empty in row 0"),
        (b"0,1\n1,inf\n", "infinity"),
        (b"\xff\xff", "not UTF-8"),
        (b'0,1\n"' + b"a" * 200_000 + b'",1\n', "cannot be read"),
        (b"0,1\n1,1\0\n", "'1' has"),
    ],
)
def test_what_csv_is_refused(text: bytes, message: str, client: Client) -> None:
    answer = client("/models/numbers/invocations", text, CSV)
    assert answer.status == 400
    assert message in answer.error


def test_other_content_is_refused(client: Client) -> None:
    answer = client("/models/numbers/invocations", b"<x/>", {"content-type": "text/xml"})
    assert answer.status == 415
    assert "send application/json or text/csv" in answer.error
    answer = client("/models/numbers/invocations", b"{}", {"content-encoding": "gzip"})
    assert answer.status == 415
