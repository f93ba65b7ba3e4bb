"""Other people's clients, unchanged: tritonclient, and schemathesis over the whole schema. Skipped where missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from density_regression import DensityRegressor
from serve.helpers import Client, raw_table, served


def tensors(triton: Any, columns: dict[str, np.ndarray], binary: bool) -> list[Any]:
    inputs = []
    for name, values in columns.items():
        tensor = triton.InferInput(name, list(values.shape), TYPES[values.dtype.kind])
        tensor.set_data_from_numpy(values, binary_data=binary)
        inputs.append(tensor)
    return inputs


TYPES = {"f": "FP64", "b": "BOOL", "O": "BYTES"}


@pytest.mark.parametrize("binary_output", [False, True])
@pytest.mark.parametrize("binary", [False, True])
def test_tritonclient(
    binary: bool, binary_output: bool, client: Client, numbers: DensityRegressor, raw: DensityRegressor
) -> None:
    triton = pytest.importorskip("tritonclient.http")
    remote = triton.InferenceServerClient(f"127.0.0.1:{client.port}")
    assert remote.is_server_live()
    assert remote.is_server_ready()
    assert remote.is_model_ready("raw")
    assert remote.get_server_metadata()["name"] == "density-regression"
    assert [part["name"] for part in remote.get_model_metadata("raw")["inputs"]] == list(raw.feature_names_in_)
    X = 2.0 * np.random.default_rng(0).normal(size=(9, 2))
    frame = raw_table(9, seed=7)[0]
    # NaN in bytes, and a bare NaN in this client's JSON.
    frame.loc[2, "rooms"] = np.nan
    kinds = {name: None if values.dtype.kind in "fb" else object for name, values in frame.items()}
    columns = {name: values.to_numpy(kinds[name]) for name, values in frame.items()}
    outputs = [triton.InferRequestedOutput(name, binary_data=binary_output) for name in ("mean", "std")]
    for name, given, reg, rows in (("numbers", {"X": X}, numbers, X), ("raw", columns, raw, frame)):
        for wanted in (None, outputs):
            found = remote.infer(name, tensors(triton, given, binary), outputs=wanted)
            mean, std = reg.predict(rows, return_std=True)
            np.testing.assert_allclose(found.as_numpy("mean"), mean, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(found.as_numpy("std"), std, rtol=1e-5)
    with pytest.raises(triton.InferenceServerException, match="reads 2 columns"):
        remote.infer("numbers", tensors(triton, {"X": X[:, :1].copy()}, binary))
    remote.close()


@pytest.fixture(scope="module")
def small(folder: Path, numbers: DensityRegressor, raw: DensityRegressor) -> Iterator[Client]:
    with served(folder / "numbers", folder / "raw", max_body=100_000, max_rows=1000) as client:
        yield client


def test_schemathesis(small: Client) -> None:
    """What the schema says is kept: statuses, content types and bodies, and never an error of the server."""
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, Phase, given, settings

    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{small.port}/openapi.json")
    operations = [operation.ok() for operation in schema.get_all_operations()]
    # But the schema itself.
    assert len(operations) == len(small("/openapi.json").json["paths"]) - 1
    for operation in operations:

        @settings(
            max_examples=25,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def check(case: Any) -> None:
            # A schema cannot say that a tensor has as many values as its shape says, nor what a date is.
            excluded = [schemathesis.checks.CHECKS.get_one("positive_data_acceptance")]
            case.call_and_validate(base_url=f"http://127.0.0.1:{small.port}", excluded_checks=excluded)

        given(case=operation.as_strategy())(check)()
