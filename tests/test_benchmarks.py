"""The benchmarks can be imported, and name files that exist; how fast anything is, they measure themselves."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from density_regression import DensityRegressor, metrics

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "benchmarks").rglob("*.py"))


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch):
    """What a script defines, without running it."""
    before = set(sys.modules)

    def names_of(path: Path) -> dict[str, object]:
        monkeypatch.syspath_prepend(path.parent)
        return runpy.run_path(str(path), run_name=path.stem)

    yield names_of
    # Helpers beside the scripts have names that others may want, such as `methods`.
    for name in {path.stem for path in SCRIPTS} & (set(sys.modules) - before):
        del sys.modules[name]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT / "benchmarks")))
def test_imports(names, path: Path) -> None:
    if path.stem in ("export", "latency"):
        pytest.importorskip("onnxruntime")
    if path.stem in ("mutation", "_mutants"):
        pytest.skip("its tools are not installed; the last test imports it without them")
    assert names(path)


def test_settings_of_the_ablation(names) -> None:
    for settings in names(ROOT / "benchmarks" / "ablation.py")["VARIANTS"].values():
        DensityRegressor(**settings, verbose=False)._validate_params()
        if "encoder" in settings:
            assert settings["encoder"](3)(torch.zeros(2, 3)).shape == (2, 100)


def test_settings_of_the_hidden_shifts(names) -> None:
    found = names(ROOT / "benchmarks" / "hidden.py")
    before = found["teacher"].BLOCK_ROWS, found["distillation"].JITTER
    for settings, constants in found["VARIANTS"].values():
        DensityRegressor(**settings, verbose=False)._validate_params()
        with found["changed"](constants):
            pass
    with found["changed"]({"teacher.BLOCK_ROWS": 3, "distillation.JITTER": 0.1}):
        assert (found["teacher"].BLOCK_ROWS, found["distillation"].JITTER) == (3, 0.1)
    assert before == (found["teacher"].BLOCK_ROWS, found["distillation"].JITTER)


def test_weather_in_the_units_of_the_paper(names) -> None:
    rng = np.random.default_rng(0)
    y, mean, std, sd = rng.normal(9, 4, 50), rng.normal(9, 4, 50), rng.uniform(0.5, 2, 50), 7.5
    loss = np.mean(2 * np.log(std / sd) + ((y - mean) / std) ** 2)
    found = names(ROOT / "benchmarks" / "paper_tables.py")["in_their_units"](metrics.nll(y, mean, std), sd)
    assert found == pytest.approx(loss)


def test_files_that_mutation_names(names, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its tools are not installed here, and not needed to see what it names.
    for name in ("libcst", "libcst.metadata", "mutmut", "mutmut.mutation", "mutmut.mutation.mutators"):
        monkeypatch.setitem(sys.modules, name, _AnyNames(name))
    found = names(ROOT / "benchmarks" / "mutation.py")
    for module, files in found["MODULES"].items():
        assert all((found["SOURCE"] / name).exists() for name in files)
        assert all((ROOT / name).exists() for name in found["tests_of"](module))
    assert found["tests_of"]("density") == ["tests/nn/density", "tests/vision/test_scene_density.py"]
    assert found["ELSEWHERE"].keys() <= found["MODULES"].keys()


class _AnyNames(ModuleType):
    """A module in which every name is a class."""

    def __getattr__(self, name: str) -> type:
        return type(name, (), {})
