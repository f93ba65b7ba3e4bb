"""Health, metrics, the schema with the models' columns, and the page that lists what there is."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from density_regression import DensityRegressor
from density_regression.serve.counts import Family, Metrics, Sample
from density_regression.serve.metrics import exchange, of_all, text_of
from density_regression.serve.models import Models
from density_regression.serve.settings import Settings
from serve.helpers import Client, columns_of, raw_table, served

LINE = re.compile(r'(density_regression_[a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\]|\\.)*",?)*)\})? (\S+)')


def samples(text: str) -> dict[tuple[str, str], float]:
    """Values of Prometheus' text format by name and labels."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    parts = [LINE.fullmatch(line) for line in lines]
    assert all(parts), [line for line, part in zip(lines, parts, strict=True) if part is None]
    return {(part[1], part[2] or ""): float(part[3]) for part in parts if part is not None}


def test_lives_and_is_ready(client: Client) -> None:
    assert client("/healthz").json == {"status": "ok"}
    assert client("/readyz").json == {"status": "ready"}


def test_counts(folder: Path, numbers: DensityRegressor) -> None:
    with served(folder / "numbers") as client:
        X = np.concatenate([np.zeros((5, 2)), np.full((3, 2), 1e6)])
        for _ in range(2):
            client("/invocations", {"inputs": X.tolist()})
        client("/invocations", {"inputs": [["a", 1]]})
        client("/nowhere")
        answer = client("/metrics")
        found = samples(answer.body.decode())
        version = client("/v2/models/numbers").json["versions"][0]
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert found["density_regression_requests_total", 'route="invocations",status="200"'] == 2
    assert found["density_regression_requests_total", 'route="invocations",status="400"'] == 1
    assert found["density_regression_requests_total", 'route="other",status="404"'] == 1
    assert found["density_regression_rows_total", 'model="numbers"'] == 16
    strange = int((numbers.familiarity(X) < 0.01).sum())
    assert strange == 3
    assert found["density_regression_unfamiliar_rows_total", 'model="numbers"'] == 2 * strange
    about = f'model="numbers",version="{version}",method="DensityRegressor"'
    assert found["density_regression_model_info", about] == 1
    bins = [value for (name, labels), value in found.items() if name.endswith("_bucket") and "invocations" in labels]
    assert bins == sorted(bins)
    assert bins[-1] == found["density_regression_request_seconds_count", 'route="invocations"'] == 3
    assert found["density_regression_resident_memory_bytes", ""] > 1e7


def test_observers_and_further_families(folder: Path, numbers: DensityRegressor) -> None:
    """What watches the rows is told all of them; what it says of them is scraped; its errors are its own."""
    seen: list[Any] = []

    def broken(*_: Any) -> None:
        raise RuntimeError

    with served(folder / "numbers") as client:
        state = client.app.state
        state.observers += [broken, lambda served, feeds, results: seen.append((served.name, feeds["X"], results))]
        state.metrics.more.append(lambda: [Family("alarm", "gauge", "Rings.", [Sample(1, {"model": 'a"\\\n'})])])
        given = {"inputs": [[1.0, 2.0]], "params": {"outputs": ["mean"]}}
        assert client("/invocations", given).status == 200
        text = client("/metrics").body.decode()
    ((name, X, results),) = seen
    assert name == "numbers"
    assert X.tolist() == [[1.0, 2.0]]
    assert {"mean", "log_density", "familiarity"} <= results.keys()
    assert 'density_regression_alarm{model="a\\"\\\\\\n"} 1\n' in text
    assert samples(text)


def test_counts_of_several_processes(tmp_path: Path) -> None:
    """Each answers for all, labelled by their numbers."""
    import asyncio

    for worker in (0, 1):
        settings = Settings(models=(), worker=worker, exchange=tmp_path)
        counts = Metrics(Models(settings))
        for _ in range(3 + worker):
            counts.count_request("infer", 200, 0.01)

        async def leave(counts: Metrics = counts, settings: Settings = settings) -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(exchange(counts, settings), 0.2)

        asyncio.run(leave())
    (tmp_path / "2.json").write_text("truncated")
    text = text_of(of_all(counts, settings))
    found = samples(text)
    for worker in (0, 1):
        labels = f'route="infer",status="200",worker="{worker}"'
        assert found["density_regression_requests_total", labels] == 3 + worker
    assert text.count("# TYPE density_regression_requests_total counter") == 1


def test_schema_has_the_columns(client: Client, raw: DensityRegressor) -> None:
    schema = client("/openapi.json").json
    row = schema["components"]["schemas"]["raw.Row"]
    kinds = {name: about["type"][0] for name, about in row["properties"].items()}
    assert kinds == {
        **{"size": "number", "rooms": "number", "old": "boolean"},
        **dict.fromkeys(["town", "day", "clock"], "string"),
    }
    assert row["required"] == list(raw.feature_names_in_)
    assert "security" not in schema


def test_examples_of_the_schema_are_answered(client: Client) -> None:
    """So whoever copies a command from the page gets a prediction."""
    schema = client("/openapi.json").json
    schemas = schema["components"]["schemas"]
    posts = {path: about["post"] for path, about in schema["paths"].items() if "post" in about}
    assert len(posts) == 4
    for path, about in posts.items():
        for kind, content in about["requestBody"]["content"].items():
            name = content["schema"].get("$ref", "").rpartition("/")[2]
            body = content["example"].encode() if "example" in content else None
            answer = client(path, body or schemas[name]["example"], {"content-type": kind})
            assert answer.status == 200, (path, kind, answer.body)


def test_typical_row(client: Client, raw: DensityRegressor) -> None:
    """The example is of medians and frequent values: it is familiar."""
    example = client("/openapi.json").json["components"]["schemas"]["raw.Invocations"]["example"]
    (found,) = client("/models/raw/invocations", example).json["predictions"]
    assert found["familiarity"] > 0.05
    assert example["dataframe_records"][0]["town"] in set(raw_table()[0]["town"])
    assert example["dataframe_records"][0]["day"].startswith("202")


class Loads(HTMLParser):
    """What a page loads, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [str(value) for name, value in attrs if name in ("src", "style") or (tag == "link")]
        assert tag != "script"

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_lists_all_and_loads_nothing(client: Client) -> None:
    answer = client("/docs")
    page = Loads()
    page.feed(answer.body.decode())
    assert page.loads == []
    for path in client("/openapi.json").json["paths"]:
        assert any(text.endswith(f" {path}") for text in page.text), path
    assert "style-src 'sha256-" in answer.headers["content-security-policy"]
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    command = next(text for text in page.text if text.startswith("curl") and "/models/numbers/invocations" in text)
    assert f"http://127.0.0.1:{client.port}/models/numbers/invocations" in command


def test_names_of_columns_cannot_break_the_page(tmp_path: Path) -> None:
    from density_regression.serve.prepare import make_bundle
    from serve.helpers import QUICK

    frame = raw_table()[0].rename(columns={"town": "</pre><script>alert(1)</script>"})
    DensityRegressor(**QUICK).fit(frame, raw_table()[1]).save(tmp_path / "odd")
    make_bundle(tmp_path / "odd")
    with served(tmp_path / "odd") as client:
        page = client("/docs").body.decode()
        assert "<script" not in page
        assert "&lt;script&gt;" in page
        assert client("/invocations", {"inputs": columns_of(frame.head(1))}).status == 200
