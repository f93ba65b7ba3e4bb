"""New models in place of old ones: taken up as a whole, or refused."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from density_regression import DensityRegressor
from density_regression.serve.models import Models
from density_regression.serve.settings import Settings
from serve.helpers import QUICK, columns_of, look, raw_table, served

ROW = {"inputs": [[1.0, 2.0]]}


def test_a_new_model_is_taken_up(
    model: Path, numbers: DensityRegressor, other: DensityRegressor, caplog: pytest.LogCaptureFixture
) -> None:
    with served(model) as client:
        before = client("/invocations", ROW).json
        look(client)
        assert client("/invocations", ROW).json == before
        other.save(model)
        with caplog.at_level("INFO"):
            look(client)
        after = client("/invocations", ROW).json
        metrics = client("/metrics").body.decode()
    assert before["predictions"][0]["mean"] == pytest.approx(numbers.predict([[1.0, 2.0]])[0], rel=1e-5)
    assert after["predictions"][0]["mean"] == pytest.approx(other.predict([[1.0, 2.0]])[0], rel=1e-5)
    assert before["model_version"] != after["model_version"]
    assert 'models_taken_up_total{model="model"} 1' in metrics
    assert f'model_info{{model="model",version="{after["model_version"]}"' in metrics
    assert [record.message for record in caplog.records if record.name.endswith("models")] == ["model taken up"]


def test_a_broken_model_is_refused_and_the_old_one_kept(
    model: Path, other: DensityRegressor, caplog: pytest.LogCaptureFixture
) -> None:
    with served(model) as client:
        before = client("/invocations", ROW).json
        other.save(model)
        weights = next(model.glob("weights-*"))
        content = weights.read_bytes()
        weights.write_bytes(content[:-1])
        look(client)
        assert client("/invocations", ROW).json == before
        assert 'models_refused_total{model="model"} 1' in client("/metrics").body.decode()
        (record,) = [record for record in caplog.records if record.message == "model refused"]
        assert "checksum differs" in record.reason
        # The same is not tried again and again.
        look(client)
        assert 'models_refused_total{model="model"} 1' in client("/metrics").body.decode()
        weights.write_bytes(content)
        os.utime(model / "model.json")
        look(client)
        assert client("/invocations", ROW).json["model_version"] != before["model_version"]


def test_models_that_differ_in_their_scaling_alone(model: Path, numbers: DensityRegressor) -> None:
    """The same weights, of targets a thousand higher: another version, which is taken up."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    regs = [DensityRegressor(**QUICK).fit(X, X[:, 0] + offset) for offset in (0.0, 1024.0)]
    weights = []
    with served(model) as client:
        for reg in regs:
            reg.save(model)
            weights.append(next(model.glob("weights-*")).name)
            look(client)
            found = client("/invocations", ROW).json
            assert found["predictions"][0]["mean"] == pytest.approx(reg.predict([[1.0, 2.0]])[0], rel=1e-5)
    assert weights[0] == weights[1]


def test_a_folder_that_is_gone_changes_nothing(model: Path) -> None:
    with served(model) as client:
        (model / "model.json").unlink()
        look(client)
        assert client("/invocations", ROW).status == 200


def test_another_table_changes_the_schema(model: Path, raw: DensityRegressor) -> None:
    with served(model) as client:
        raw.save(model)
        look(client)
        assert "town" in client("/openapi.json").json["components"]["schemas"]["model.Row"]["properties"]
        assert client("/invocations", {"inputs": columns_of(raw_table(2)[0])}).status == 200
        assert client("/invocations", ROW).status == 400


def test_a_request_under_way_keeps_its_model(
    model: Path, other: DensityRegressor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between reading the rows and the answer the model is replaced: the answer is all the old one's."""
    with served(model) as client:
        before = client("/invocations", ROW).json
        scorer = client.app.state.models.get("model").scorer
        read, go_on = threading.Event(), threading.Event()
        usual: Callable[..., object] = scorer.score

        def slowly(*args: object, **kwargs: object) -> object:
            read.set()
            assert go_on.wait(10)
            return usual(*args, **kwargs)

        monkeypatch.setattr(scorer, "score", slowly)
        answers: list[object] = []
        # Large enough to be scored in a thread.
        row = {"inputs": [[1.0, 2.0]], "params": {}, "more": "x" * 20_000}
        request = threading.Thread(target=lambda: answers.append(client("/invocations", row).json))
        request.start()
        assert read.wait(10)
        other.save(model)
        look(client)
        after = client("/invocations", ROW).json
        go_on.set()
        request.join(10)
    assert answers == [before]
    assert after["model_version"] != before["model_version"]


def test_looks_again_and_again(model: Path, other: DensityRegressor) -> None:
    models = Models(Settings(models=(model,), reload_every=0.01))
    models.load()
    before = models.get("model")
    other.save(model)

    async def watch() -> None:
        watching = asyncio.create_task(models.watch())
        while models.get("model") is before:
            await asyncio.sleep(0.01)
        watching.cancel()

    asyncio.run(asyncio.wait_for(watch(), 20))
    assert models.taken_up["model"] == 1


def test_two_models_of_one_name(model: Path, tmp_path: Path, numbers: DensityRegressor) -> None:
    numbers.save(tmp_path / "more" / "model")
    with pytest.raises(ValueError, match=r"Two models are named 'model', .*: rename a folder"):
        Models(Settings(models=(model, tmp_path / "more" / "model"))).load()
