"""Every public name is on one page of the reference, and its docstring says shapes, units, equation and an example."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

import density_regression

PAGES = Path(__file__).parents[2] / "docs" / "reference"
ROOMS = ("baselines", "datasets", "metrics", "metrics.accumulate", "plots", "serve.alarm", "tabular.files")
FOLDERS = {"baselines", "datasets", "metrics", "plots"}
LISTED = [
    name for page in sorted(PAGES.glob("*.md")) for name in re.findall(r"^::: (\S+)$", page.read_text("utf-8"), re.M)
]

# Data that are not made up, and a fitted model: the example shows the call, and is not run.
NOT_RUN = {"load_natural_shift", "load_stations", "load_uci", "load_weather", "load_wine_shift", "natural_shifts"}
NOT_RUN |= {"standard_splits", "to_onnx"}
# What functions return, or raise: the examples are theirs. And the skeleton that nobody calls.
NO_EXAMPLE = {"AlarmReport", "Batch", "ColumnMove", "DensityRatio", "Rows", "ShiftData", "ShiftSplit", "ShiftTable"}
NO_EXAMPLE |= {"TrainingReport", "UCIDataset", "DeepRegressor", "Conformal"}
# A class of one's own with this one's method, and what a function opens.
OTHER_NAME = {"Callback", "TableFile"}
EQUATIONS = {
    *("auroc", "calibration_curve", "calibration_error", "coverage", "crps", "crps_log_normal", "ence", "nll", "r2"),
    *("interval_score", "interval_width", "mace", "mae", "miscalibration_area", "rmse", "sharpness", "make_cubic"),
    *("DensityRegression", "Head", "MeanHead", "NaturalHead", "Density", "SceneDensity", "KernelDensity"),
    *("MixtureDensity", "GaussianDensity", "RadialFlowDensity", "PiecewiseEmbedding"),
    *("ExactTempering", "RescaledTempering", "RobustTempering", "standardised", "DensityRatio"),
    *("DeterministicNetwork", "GaussianNetwork", "QuantileNetwork", "DropoutNetwork", "BayesianNetwork"),
    *("EvidentialNetwork", "NaturalPosteriorNetwork", "SNGPNetwork", "DUENetwork", "EnsembleNetwork"),
}
# As it is written, and as NumPy spells out ArrayLike.
ARRAYS = re.compile(r"ArrayLike|Tensor|NDArray|ndarray|_array_like|SupportsArray")
SHAPE = re.compile(r"\((n|m|h|H|d|rows|batch|levels|M|\.\.\.)\b|of shape|shape \(|[Ss]hape")
UNIT = re.compile(r"unit|metres|nats|standard dev|[Ff]raction|[Pp]robabilit|between 0 and 1|order|rank|indices|pixels")


def found(path: str) -> Any:
    """The object that a path such as density_regression.nn.heads.Head names."""
    parts = path.split(".")
    for end in range(len(parts) - 1, 0, -1):
        try:
            return attrgetter(".".join(parts[end:]))(import_module(".".join(parts[:end])))
        except (ModuleNotFoundError, AttributeError):
            continue
    raise AssertionError(f"{path} is not there.")


def public() -> dict[str, Any]:
    """All public names, and what they name."""
    names = {f"density_regression.{name}" for name in density_regression.__all__ if name not in FOLDERS}
    for room in ROOMS:
        names |= {f"density_regression.{room}.{name}" for name in import_module(f"density_regression.{room}").__all__}
    return {name: found(name) for name in sorted({*names, *LISTED})}


PUBLIC = public()
DOCUMENTED = {name: value for name, value in PUBLIC.items() if callable(value)}


def test_each_is_on_one_page() -> None:
    listed = [id(found(name)) for name in LISTED]
    assert {name: listed.count(id(value)) for name, value in PUBLIC.items()} == dict.fromkeys(PUBLIC, 1)
    assert len(listed) == len(set(listed))


def test_pages_are_in_the_navigation() -> None:
    navigation = (PAGES.parents[1] / "mkdocs.yml").read_text("utf-8")
    index = (PAGES / "index.md").read_text("utf-8")
    for page in PAGES.glob("*.md"):
        assert f"reference/{page.name}\n" in navigation
        assert page.name == "index.md" or f"]({page.name})" in index


@pytest.mark.parametrize("name", DOCUMENTED)
def test_docstring(name: str) -> None:
    value, short = DOCUMENTED[name], name.rpartition(".")[2]
    text = inspect.cleandoc(value.__doc__ or "")
    assert len(text) > 25
    if not (isinstance(value, type) and issubclass(value, Exception)) and short not in NO_EXAMPLE:
        assert "\nExamples\n--------\n" in text
        examples = [line for line in text.splitlines() if line.startswith(">>> ")]
        assert examples
        assert short in OTHER_NAME or short in "\n".join(examples)
        assert short in NOT_RUN or not any("+SKIP" in line for line in examples)
    if short in EQUATIONS and ".plots." not in name:
        assert re.search(
            r":math:|\.\. math::|\S = \S", text.partition("\nParameters\n")[0].partition("\nExamples\n")[0]
        )


def takes_arrays(value: Any) -> bool:
    if isinstance(value, type) and issubclass(value, Exception):
        return False
    parameters = inspect.signature(value).parameters.values()
    return any(ARRAYS.search(str(parameter.annotation)) for parameter in parameters)


@pytest.mark.parametrize("name", [name for name, value in DOCUMENTED.items() if takes_arrays(value)])
def test_arrays_have_shapes_and_units(name: str) -> None:
    text = inspect.cleandoc(DOCUMENTED[name].__doc__ or "").partition("\nExamples\n")[0]
    assert SHAPE.search(text)
    assert UNIT.search(text)


def test_names_that_rules_mention_are_public() -> None:
    names = {name.rpartition(".")[2] for name in PUBLIC}
    assert names >= NOT_RUN | NO_EXAMPLE | OTHER_NAME | EQUATIONS
