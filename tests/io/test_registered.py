"""Methods, densities, temperings and encoders of one's own, registered: in files, and in the bench."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from saved_models import X, assert_same, fitted, forge, y
from torch import Tensor, nn
from typer.testing import CliRunner

from density_regression import (
    MLP,
    DensityRegression,
    DensityRegressor,
    GaussianDensity,
    InvalidModelError,
    TrainingOptions,
    baselines,
    fit_density_regression,
    load,
    methods,
    register,
    registry,
)
from density_regression.cli import app
from density_regression.estimators.settings import About
from density_regression.experiments import bench as runner
from density_regression.nn import parts
from density_regression.nn.tempering import Tempering

DOCS = Path(__file__).parents[2] / "docs"


class OwnDensity(GaussianDensity):
    """A Gaussian of one direction."""

    def __init__(self, max_dims: int = 1) -> None:
        super().__init__(max_dims=max_dims)


class OwnTempering(Tempering):
    """A power of the density."""

    def __init__(self, power: float = 0.5) -> None:
        super().__init__()
        self.power = power

    def forward(self, log_prob: Tensor) -> Tensor:
        return self.power * (log_prob - self.reference)


class OwnEncoder(nn.Module):
    """A network that keeps its arguments."""

    def __init__(self, columns: int, widths: tuple[int, ...] = (6,)) -> None:
        super().__init__()
        self.columns = columns
        self.widths = widths
        self.layers = MLP(columns, widths)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


def own_encoder(columns: int) -> nn.Module:
    return MLP(columns, (5,))


class OwnRegressor(baselines.GaussianRegressor):
    """A Gaussian network by another name, with an own setting."""

    def __init__(self, *, factor: float = 1.0, **settings: Any) -> None:
        super().__init__(**settings)
        self.factor = factor

    _parameter_constraints = {**baselines.GaussianRegressor._parameter_constraints, "factor": [float]}  # noqa: RUF012


@pytest.fixture(autouse=True)
def nothing_stays_registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(parts, "_REGISTERED", {})
    before = dict(vars(OwnRegressor))
    yield
    if "about" not in before and "about" in vars(OwnRegressor):
        del OwnRegressor.about


def forget() -> None:
    parts._REGISTERED.clear()


def test_own_density_and_tempering_come_back(tmp_path: Path) -> None:
    reg = fitted(density=OwnDensity(max_dims=2), tempering=OwnTempering(power=0.3))
    with pytest.raises(ValueError, match=r"density is of a class of your own.*register it first"):
        reg.save(tmp_path)
    register(OwnDensity)
    register(OwnTempering)
    reg.save(tmp_path)
    loaded = load(tmp_path)
    assert isinstance(loaded, DensityRegressor)
    assert_same(loaded, reg)
    assert isinstance(loaded.model_.density, OwnDensity)
    assert loaded.density.max_dims == 2
    assert loaded.tempering.power == 0.3
    forget()
    with pytest.raises(InvalidModelError, match=r"'OwnDensity'.*register it first"):
        load(tmp_path)


@pytest.mark.parametrize("kind", ["module", "class", "function"])
def test_own_encoder_comes_back(kind: str, tmp_path: Path) -> None:
    encoder = {"module": OwnEncoder(2, (7, 4)), "class": OwnEncoder, "function": own_encoder}[kind]
    register(own_encoder if kind == "function" else OwnEncoder)
    reg = fitted(encoder=encoder)
    reg.save(tmp_path / "first")
    loaded = load(tmp_path / "first")
    assert_same(loaded, reg)
    # As often as one likes, also fitted anew.
    loaded.save(tmp_path / "second")
    again = load(tmp_path / "second").fit(X, y)
    again.save(tmp_path / "third")
    assert_same(load(tmp_path / "third"), again)
    forget()
    name = "own_encoder" if kind == "function" else "OwnEncoder"
    with pytest.raises(ValueError, match=f"encoder of your own: give it again.*or register '{name}' first"):
        load(tmp_path / "first")
    assert_same(load(tmp_path / "first", encoder=encoder if kind == "module" else encoder(2)), reg)


def test_an_encoder_that_does_not_keep_its_arguments_is_given_again(tmp_path: Path) -> None:
    @register
    class Forgetful(nn.Linear):
        def __init__(self, columns: int) -> None:
            super().__init__(columns, 3)

    reg = fitted(encoder=Forgetful(2))
    reg.save(tmp_path)
    with pytest.raises(ValueError, match="give it again"):
        load(tmp_path)
    assert_same(load(tmp_path, encoder=Forgetful(2)), reg)


def test_a_module_with_own_parts_comes_back(tmp_path: Path) -> None:
    for part in (OwnDensity, OwnTempering, OwnEncoder):
        register(part)
    model = DensityRegression(OwnEncoder(2), 6, density=OwnDensity(), tempering=OwnTempering())
    x = torch.from_numpy(X).float()
    fit_density_regression(model, [(x, x[:, :1])], options=TrainingOptions(epochs=1), verbose=False)
    model.save(tmp_path)
    loaded = DensityRegression.load(tmp_path)
    assert torch.equal(loaded(x).stddev, model(x).stddev)
    assert isinstance(loaded.tempering, OwnTempering)


def test_an_own_regressor_comes_back(tmp_path: Path) -> None:
    reg = OwnRegressor(factor=2.0, hidden=(6,), epochs=1, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="OwnRegressor is a class of your own"):
        reg.save(tmp_path)
    assert register(OwnRegressor) is OwnRegressor
    reg.save(tmp_path)
    loaded = load(tmp_path)
    assert isinstance(loaded, OwnRegressor)
    assert loaded.factor == 2.0
    np.testing.assert_array_equal(loaded.predict(X, return_std=True), reg.predict(X, return_std=True))
    forget()
    with pytest.raises(InvalidModelError, match=r"'OwnRegressor'.*register it first"):
        load(tmp_path)


def test_a_registered_method_is_listed_last() -> None:
    count = len(methods())
    register(OwnRegressor)
    assert [method.name for method in methods()][count:] == ["OwnRegressor"]
    assert baselines.GaussianRegressor.about.name == "Gaussian"


@pytest.mark.parametrize(
    ("described", "match"),
    [
        ({"type": "OwnEncoder", "config": {"columns": 2, "widths": [10**6, 10**6]}}, "too few"),
        ({"type": "OwnEncoder", "config": {"command": "true"}}, "cannot|can be built"),
        ({"type": "OwnEncoder"}, "can be built"),
        ({"factory": "OwnDensity"}, "give it again"),
        ({"type": "system", "config": {}}, "give it again"),
        ({"factory": ["OwnEncoder"]}, "give it again"),
        ("OwnEncoder", "give it again"),
    ],
)
def test_forged_encoders(described: Any, match: str, tmp_path: Path) -> None:
    register(OwnEncoder)
    register(OwnDensity)
    fitted(encoder=OwnEncoder(2)).save(tmp_path)
    forge(tmp_path, config=lambda config: config["params"].update(encoder=described))
    with pytest.raises(ValueError, match=match):
        load(tmp_path)


def test_names_that_are_taken() -> None:
    def named(name: str, base: type) -> type:
        return type(name, (base,), {"__module__": __name__, "__qualname__": f"here.{name}"})

    for name, base in (("MixtureDensity", GaussianDensity), ("DensityRegressor", DensityRegressor)):
        with pytest.raises(ValueError, match="package's own"):
            register(named(name, base))
    register(OwnDensity)
    # Defined anew, as in a notebook.
    again = type("OwnDensity", (GaussianDensity,), {"__module__": __name__})
    assert register(again) is again
    with pytest.raises(ValueError, match="already: choose another"):
        register(named("OwnDensity", nn.Module))
    called = type("Called", (DensityRegressor,), {"about": About("Gaussian", "")})
    with pytest.raises(ValueError, match="as another method is"):
        register(called)
    for wrong in (OwnDensity(), dict, "OwnDensity", lambda columns: nn.Identity()):
        with pytest.raises(ValueError, match=r"register takes|no name"):
            register(wrong)


def test_a_part_that_forgets_its_arguments_says_so(tmp_path: Path) -> None:
    class Forgetful(GaussianDensity):
        def __init__(self, strength: float = 1.0) -> None:
            super().__init__()

    regressor = fitted(density=Forgetful())
    with pytest.raises(ValueError, match=r"Forgetful must keep each argument.*it lacks strength"):
        regressor.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


PLUGIN, USE, *_ = re.findall(
    r"```python\n(.*?)```", (DOCS / "guides" / "extending.md").read_text(encoding="utf-8"), flags=re.DOTALL
)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "my_parts.py").write_text(PLUGIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [part for part in sys.path if part != ""])
    yield "my_parts"
    sys.modules.pop("my_parts", None)


def forget_plugin(name: str) -> None:
    forget()
    sys.modules.pop(name, None)


def test_the_page_about_it(plugin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(".")
    names: dict[str, Any] = {}
    exec(compile(USE, "docs/guides/extending.md", "exec"), names)
    np.testing.assert_array_equal(names["mean"], names["reg"].predict(names["X"]))
    assert (names["std"] > 0).all()


def test_load_imports_what_the_caller_names(plugin: str) -> None:
    registry.import_plugin(plugin)
    sys.modules[plugin].NarrowRegressor(epochs=1, random_state=0).fit(X, y).save("model")
    forget_plugin(plugin)
    with pytest.raises(InvalidModelError, match="'NarrowRegressor'"):
        load("model")
    assert plugin not in sys.modules
    loaded = load("model", plugin=plugin)
    assert type(loaded.model_.density).__name__ == "NarrowDensity"
    with pytest.raises(ImportError, match="'no_such_module' cannot be imported"):
        load("model", plugin="no_such_module")


def test_bench_of_a_plugin(plugin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"hidden": (6,), "epochs": 1, "batch_size": 128, "patience": None}
    monkeypatch.setattr(runner, "paper_settings", lambda suite, dataset, method: settings)
    command = ["bench", "cubic", "--methods", "NarrowRegressor", "--splits", "2", "--jobs", "1"]
    assert CliRunner().invoke(app, command).exit_code == 2
    result = CliRunner().invoke(app, [*command, "--plugin", plugin])
    assert result.exit_code == 0, result.output
    records = [json.loads(line) for line in Path("results/cubic-paper.jsonl").read_text().splitlines()]
    assert [record["method"] for record in records] == ["NarrowRegressor"] * 2
    assert all("tests" in record for record in records)
    # As another process begins.
    forget_plugin(plugin)
    (again,) = runner.run_fits([runner.FitKey.of(records[0])], settings, None, {}, plugin)
    assert again["tests"] == records[0]["tests"]
    forget_plugin(plugin)
    report = CliRunner().invoke(app, ["report", "results"])
    assert report.exit_code == 0, report.output
    assert "NarrowRegressor" in Path("results/report.md").read_text()


def test_a_plugin_that_is_none(plugin: str) -> None:
    for name, match in (("no_such_module", "cannot be imported"), ("my_parts.", "")):
        result = CliRunner().invoke(app, ["bench", "cubic", "--plugin", name])
        assert result.exit_code == 2
        assert match in result.output.replace("\n", " ")
