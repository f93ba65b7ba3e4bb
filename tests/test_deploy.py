"""Files for containers, as far as they can be checked without one: they parse, and name what there is."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")
pytest.importorskip("fastapi")
pytest.importorskip("onnxruntime")

from density_regression.serve.alarm import Alarm  # noqa: E402
from density_regression.serve.alarms import Alarms  # noqa: E402
from density_regression.serve.counts import Metrics  # noqa: E402
from density_regression.serve.models import Models  # noqa: E402
from density_regression.serve.settings import Settings  # noqa: E402

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"


def stages() -> list[list[tuple[str, str]]]:
    """Instructions of each stage of the Dockerfile."""
    text = re.sub(r"\\\n", " ", (DEPLOY / "Dockerfile").read_text())
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    found: list[list[tuple[str, str]]] = []
    for name, rest in lines:
        if name == "FROM":
            found.append([])
        found[-1].append((name, rest))
    return found


def values(stage: list[tuple[str, str]], name: str) -> list[str]:
    return [rest for own, rest in stage if own == name]


def test_the_last_stage_builds_nothing_and_is_not_root() -> None:
    build, last = stages()
    assert values(build, "FROM")[0].endswith("AS build")
    assert not any(re.search(r"\b(pip install|apt|gcc|make)\b", line) for line in values(last, "RUN"))
    assert int(values(last, "USER")[0]) > 0
    assert [line.split()[0] for line in values(last, "COPY")] == ["--from=build"]
    (check,) = values(last, "HEALTHCHECK")
    command = json.loads(check.partition("CMD ")[2])
    assert command[0] == "python"
    compile(command[2], "healthcheck", "exec")
    (entry,) = values(last, "ENTRYPOINT")
    assert json.loads(entry)[:2] == ["density-regression", "serve"]


def test_what_is_copied_is_there_and_not_ignored() -> None:
    (build, _), allowed = stages(), set((DEPLOY / "Dockerfile.dockerignore").read_text().splitlines())
    copied = [name for line in values(build, "COPY") for name in line.split()[:-1]]
    assert len(copied) == 5
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}" in allowed


def test_the_image_has_what_serving_needs() -> None:
    build, _ = stages()
    installed = " ".join(values(build, "RUN"))
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["serve"]
    for need in extra:
        assert re.split("[<>=]", need)[0] in installed


def test_compose_mounts_files_that_are_there() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    server = services["server"]
    assert (DEPLOY / server["build"]["context"] / server["build"]["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
    assert server["read_only"]
    assert all(port.startswith("127.0.0.1:") for service in services.values() for port in service["ports"])
    mounted = [volume.split(":")[0] for volume in services["prometheus"]["volumes"] if volume.startswith("./")]
    assert [(DEPLOY / name).is_file() for name in mounted] == [True]


def test_prometheus_asks_the_server() -> None:
    (job,) = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"]
    (entry,) = values(stages()[1], "ENTRYPOINT")
    command = json.loads(entry)
    assert job["static_configs"][0]["targets"] == [f"server:{command[command.index('--port') + 1]}"]


def expressions(part: Any) -> list[str]:
    if isinstance(part, dict):
        own = [value for name, value in part.items() if name == "expr"]
        return own + [text for value in part.values() for text in expressions(value)]
    return [text for value in part for text in expressions(value)] if isinstance(part, list) else []


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    settings = Settings(models=())
    models = Models(settings)
    alarms = Alarms(settings, models)
    alarms._alarms["model"], alarms._unsaved["model"] = Alarm([0.0] * 200), False
    families = [*Metrics(models).families, *alarms.families()]
    known = {f"density_regression_{family.name}" for family in families}
    known |= {f"{name}_bucket" for name in known}
    dashboard = json.loads((DEPLOY / "grafana.json").read_text())
    asked = {name for text in expressions(dashboard) for name in re.findall(r"density_regression_\w+", text)}
    assert len(asked) > 8
    assert asked <= known
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
