"""The drawing of the package in CONTRIBUTING is made from the imports as they are."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "density_regression"


@pytest.fixture(scope="module")
def house() -> ModuleType:
    spec = importlib.util.spec_from_file_location("house", ROOT / "docs" / "house.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_drawing_is_current(house: ModuleType) -> None:
    drawn = (ROOT / "docs" / "house.svg").read_text(encoding="utf-8")
    assert drawn == house.draw(), "Run: .venv/bin/python docs/house.py > docs/house.svg"


def test_every_import_goes_down(house: ModuleType) -> None:
    order = house.rooms()
    assert all(order.index(one) < order.index(other) for one, other in house.imports() if one in order)


def test_the_contract_has_at_most_thirteen_layers_and_ignores_nothing() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = project["tool"]["importlinter"]["contracts"]
    assert len(contract["layers"]) <= 13
    assert "ignore_imports" not in contract


def test_the_root_holds_folders_and_three_modules() -> None:
    assert {path.name for path in SOURCE.glob("*.py")} == {"__init__.py", "__main__.py", "registry.py"}


@pytest.mark.parametrize("folder", ["src", "tests"])
def test_no_file_is_longer_than_400_lines(folder: str) -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / folder).rglob("*.py")}
    assert [str(path.relative_to(ROOT)) for path, count in lines.items() if count > 400] == []
