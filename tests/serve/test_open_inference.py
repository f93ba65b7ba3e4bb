"""The Open Inference Protocol: JSON and binary tensors, of models of numbers and of raw columns."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest

from density_regression import DensityRegressor
from serve.helpers import Answer, Client, columns_of, odd_table, raw_table

LENGTH = "Inference-Header-Content-Length"
TYPES = {"size": "FP64", "rooms": "FP64", "old": "BOOL", "town": "BYTES", "day": "BYTES", "clock": "BYTES"}


def tensors(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [
        {"name": name, "shape": [len(values)], "datatype": TYPES[name], "data": values}
        for name, values in columns.items()
    ]


def as_bytes(inputs: list[dict[str, Any]], **more: Any) -> tuple[bytes, dict[str, str]]:
    """A request whose tensors are bytes, after the JSON; and its header."""
    parts, described = [], []
    for entry in inputs:
        data = entry["data"]
        if entry["datatype"] == "BYTES":
            texts = [("" if text is None else text).encode() for text in data]
            content = b"".join(struct.pack("<I", len(text)) + text for text in texts)
        elif entry["datatype"] == "BOOL":
            content = bytes(data)
        else:
            content = np.array(data, dtype={"FP64": "<f8", "FP32": "<f4", "INT64": "<i8"}[entry["datatype"]]).tobytes()
        parts.append(content)
        own = {key: value for key, value in entry.items() if key != "data"}
        described.append(own | {"parameters": {"binary_data_size": len(content)}})
    head = json.dumps({"inputs": described, **more}).encode()
    return head + b"".join(parts), {LENGTH: str(len(head))}


def outputs_of(answer: Answer) -> dict[str, np.ndarray]:
    """Results of an answer, in JSON or in bytes."""
    assert answer.status == 200, answer.body
    length = int(answer.headers.get(LENGTH.lower(), len(answer.body)))
    head, rest = json.loads(answer.body[:length]), answer.body[length:]
    found = {}
    for output in head["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size", 0)
        values = np.frombuffer(rest[:size], "<f8") if size else np.array(output["data"])
        found[output["name"]], rest = values.reshape(output["shape"]), rest[size:]
    assert not rest
    return found


def test_server_and_models(client: Client) -> None:
    assert client("/v2").json["extensions"] == ["binary_tensor_data"]
    assert client("/v2/health/live").json == {"live": True}
    assert client("/v2/health/ready").json == {"ready": True}
    about = client("/v2/models/numbers").json
    assert about["inputs"] == [{"name": "X", "datatype": "FP64", "shape": [-1, 2]}]
    assert {"name": "mean", "datatype": "FP64", "shape": [-1]} in about["outputs"]
    (version,) = about["versions"]
    raw = client("/v2/models/raw").json
    assert {part["name"]: part["datatype"] for part in raw["inputs"]} == TYPES
    for path in ("/v2/models/numbers/ready", f"/v2/models/numbers/versions/{version}/ready"):
        assert client(path).json == {"name": "numbers", "ready": True}
    assert client(f"/v2/models/numbers/versions/{version}").json == about


def test_no_such_model_or_version(client: Client) -> None:
    for path, message in (
        ("/v2/models/other", "There is no model 'other': there is numbers, raw."),
        ("/v2/models/numbers/versions/1", "Model 'numbers' has no version '1': it has "),
        ("/v2/models/..%2f..%2fetc/ready", "There is no such page"),
    ):
        answer = client(path)
        assert answer.status == 404
        assert message in answer.error


@pytest.mark.parametrize("datatype", ["FP64", "FP32", "INT64"])
@pytest.mark.parametrize("binary", [False, True])
def test_numbers(datatype: str, binary: bool, client: Client, numbers: DensityRegressor) -> None:
    X = np.round(3 * np.random.default_rng(0).normal(size=(7, 2)))
    inputs = [{"name": "X", "shape": [7, 2], "datatype": datatype, "data": X.ravel().tolist()}]
    more = {"id": "a", "parameters": {"binary_data_output": binary}}
    body, headers = as_bytes(inputs, **more) if binary else (json.dumps({"inputs": inputs, **more}).encode(), {})
    answer = client("/v2/models/numbers/infer", body, headers)
    found, (mean, std) = outputs_of(answer), numbers.predict(X, return_std=True)
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found["std"], std, rtol=1e-5)
    assert list(found) == list(client.app.state.models.get("numbers").scorer.outputs)
    assert (answer.headers["content-type"] == "application/octet-stream") == binary


def test_rows_as_lists_and_one_input_for_each_column(client: Client) -> None:
    X = [[1.0, 2.0], [3.0, -1.0]]
    rows = {"name": "X", "shape": [2, 2], "datatype": "FP64", "data": X}
    columns = [{"name": name, "shape": [2, 1], "datatype": "FP64", "data": [r[int(name)] for r in X]} for name in "10"]
    found = [outputs_of(client("/v2/models/numbers/infer", {"inputs": inputs})) for inputs in ([rows], columns)]
    assert {name: values.tolist() for name, values in found[0].items()} == {
        name: values.tolist() for name, values in found[1].items()
    }


@pytest.mark.parametrize("binary", [False, True])
def test_raw_columns(binary: bool, client: Client, raw: DensityRegressor) -> None:
    frame = raw_table(20, seed=4)[0] if binary else odd_table()
    inputs = tensors(columns_of(frame))
    if binary:
        # Bytes have no null: a gap is NaN there, or "".
        inputs[1]["data"] = frame["rooms"].tolist()
    body, headers = as_bytes(inputs) if binary else (json.dumps({"inputs": inputs}).encode(), {})
    found = outputs_of(client("/v2/models/raw/infer", body, headers))
    mean, std = raw.predict(frame, return_std=True)
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(found["std"], std, rtol=1e-5)


def test_gaps_as_null_and_as_bare_nan(client: Client) -> None:
    columns = columns_of(raw_table(1)[0])
    answers = []
    for value in ("null", "NaN"):
        body = json.dumps({"inputs": tensors(columns | {"rooms": ["GAP"]})}).replace('"GAP"', value).encode()
        answers.append(client("/v2/models/raw/infer", body).json)
    assert answers[0] == answers[1]


def test_asked_outputs_and_coverage(client: Client, raw: DensityRegressor) -> None:
    frame = raw_table(5)[0]
    outputs = [{"name": "high", "parameters": {"binary_data": True}}, {"name": "low"}]
    given = {"inputs": tensors(columns_of(frame)), "outputs": outputs, "parameters": {"coverage": 0.8}}
    answer = client("/v2/models/raw/infer", given)
    found = outputs_of(answer)
    assert list(found) == ["high", "low"]
    assert int(answer.headers[LENGTH.lower()]) == len(answer.body) - 5 * 8
    for name, expected in zip(("low", "high"), raw.predict_interval(frame, 0.8), strict=True):
        np.testing.assert_allclose(found[name], expected, rtol=1e-5)


GOOD = {"name": "X", "shape": [1, 2], "datatype": "FP64", "data": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"inputs": [{"name": "X", "shape": [1, 2], "datatype": "FP64", "data": [1, 1e400]}]}', "infinity"),
        (b'{"inputs": [' + b"1" * 10_000 + b"]}", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        ([], "has no inputs"),
        ({"inputs": []}, "has no inputs"),
        ({"inputs": [1]}, "lacks its name"),
        ({"inputs": [GOOD | {"name": 1}]}, "lacks its name"),
        ({"inputs": [GOOD], "id": 1}, "id is not a text"),
        ({"inputs": [GOOD], "parameters": [1]}, "parameters are not an object"),
        ({"inputs": [GOOD], "parameters": {"coverage": 2}}, "coverage must lie strictly between 0 and 1, got 2"),
        ({"inputs": [GOOD], "parameters": {"coverage": {}}, "outputs": [{"name": "mean"}]}, "coverage must lie"),
        ({"inputs": [GOOD], "parameters": []}, "parameters are not an object"),
        ({"inputs": [GOOD], "outputs": {}}, "not a list of objects"),
        ({"inputs": [GOOD | {"parameters": []}]}, "parameters of input 'X' are not an object"),
        ({"inputs": [GOOD], "outputs": [{"name": "median"}]}, "no output 'median'"),
        ({"inputs": [GOOD], "outputs": ["mean"]}, "not a list of objects"),
        ({"inputs": [GOOD], "outputs": [{}]}, "has no name"),
        ({"inputs": [GOOD | {"shape": [1, 3]}]}, "has 2 values, but its shape has room for 3"),
        ({"inputs": [GOOD | {"shape": [2, 1]}]}, "reads 2 columns"),
        ({"inputs": [GOOD | {"shape": [-1, 2]}]}, "has the shape"),
        ({"inputs": [GOOD | {"shape": []}]}, "has the shape"),
        ({"inputs": [GOOD | {"shape": [1, 1, 2]}]}, "3 axes"),
        ({"inputs": [GOOD | {"shape": [0, 2], "data": []}]}, "no rows"),
        ({"inputs": [GOOD | {"datatype": "FP128"}]}, "datatype 'FP128'"),
        ({"inputs": [GOOD | {"datatype": "BYTES"}]}, "holds a float, but its datatype is BYTES"),
        ({"inputs": [GOOD | {"data": ["a", "b"]}]}, "holds a str, but its datatype is FP64"),
        ({"inputs": [GOOD | {"data": [1, None]}]}, "'1' is empty in row 0"),
        ({"inputs": [GOOD | {"data": [1, [2]]}]}, "holds a list"),
        ({"inputs": [GOOD | {"data": [[1], 2]}]}, "mixes values and lists"),
        ({"inputs": [GOOD | {"data": None}]}, "has no data"),
        ({"inputs": [GOOD | {"data": [10**400, 1]}]}, "no float64 holds"),
        ({"inputs": [GOOD | {"name": "Z"}]}, "no input 'Z': the model reads 0, 1"),
        ({"inputs": [GOOD | {"name": "0", "shape": [2]}]}, "lack column '1'"),
        ({"inputs": [GOOD | {"name": "0"}, GOOD | {"name": "1"}]}, "comes twice, or is not of shape"),
        ({"inputs": [GOOD | {"parameters": {"binary_data_size": 8}}]}, "but 0 bytes are left"),
    ],
)
def test_what_is_refused(given: Any, message: str, client: Client) -> None:
    answer = client("/v2/models/numbers/infer", given)
    assert answer.status == 400
    assert message in answer.error
    assert "\n" not in answer.error


@pytest.mark.parametrize(
    ("tensor", "content", "message"),
    [
        ({}, b"\0" * 15, "has 15 bytes, but its shape and FP64 make 16"),
        ({"binary_data_size": 17}, b"\0" * 16, "but 16 bytes are left"),
        ({"binary_data_size": -1}, b"\0" * 16, "binary_data_size=-1"),
        ({"binary_data_size": 8}, b"\0" * 16, "has 8 bytes"),
        ({"binary_data_size": 16}, b"\0" * 17, "1 bytes are left after the last input"),
        ({"datatype": "BYTES"}, struct.pack("<I", 2**31) + b"a" * 12, "does not hold 2 strings"),
        ({"datatype": "BYTES"}, struct.pack("<I", 1) + b"\xff" + struct.pack("<I", 0), "not UTF-8"),
        ({"datatype": "BYTES"}, b"\0\0", "does not hold 2 strings"),
        ({"datatype": "BYTES"}, b"\0\0\0\0", "does not hold 2 strings"),
        ({"datatype": "BYTES"}, b"\0" * 12, "does not hold 2 strings"),
        ({"datatype": "FP64"}, struct.pack("<dd", 1.0, float("inf")), "infinity"),
    ],
)
def test_wrong_lengths_of_binary_tensors(tensor: dict[str, Any], content: bytes, message: str, client: Client) -> None:
    entry = {"name": "X", "shape": [1, 2], "datatype": tensor.get("datatype", "FP64")}
    size = tensor.get("binary_data_size", len(content))
    head = json.dumps({"inputs": [entry | {"parameters": {"binary_data_size": size}}]}).encode()
    answer = client("/v2/models/numbers/infer", head + content, {LENGTH: str(len(head))})
    assert answer.status == 400
    assert message in answer.error
    for length in ("-1", "x", "1" * 30, str(len(head) + len(content) + 1)):
        answer = client("/v2/models/numbers/infer", head + content, {LENGTH: length})
        assert answer.status == 400
