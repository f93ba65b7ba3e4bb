"""The list of methods, and what `load` may build."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

import density_regression
from density_regression import DensityRegressor, InvalidModelError, baselines, load
from density_regression.estimators.base import DeepRegressor
from density_regression.registry import estimators

PAPER = [
    "Density-Regression",
    "Deterministic",
    "Gaussian",
    "Quantile",
    "MC Dropout",
    "MFVI-BNN",
    "EDL",
    "NatPN",
    "SNGP",
    "DUE",
    "Deep Ensembles",
]


def test_every_method_of_the_paper_is_listed() -> None:
    listed = density_regression.methods()
    assert [method.name for method in listed] == PAPER
    assert listed[0].estimator is DensityRegressor
    for method in listed:
        assert issubclass(method.estimator, DeepRegressor)
        assert any(character.isdigit() for character in method.reference)


def test_no_regressor_is_forgotten() -> None:
    public = {part for part in vars(baselines).values() if isinstance(part, type) and issubclass(part, DeepRegressor)}
    assert {method.estimator for method in density_regression.methods()} == {DensityRegressor, *public}
    assert list(estimators()) == [method.estimator.__name__ for method in density_regression.methods()]


def test_passes_are_those_of_the_default_settings() -> None:
    for method in density_regression.methods():
        params = method.estimator().get_params()
        assert method.passes == params.get("n_members", params.get("n_samples", 1))


def test_who_needs_a_prior() -> None:
    needs = {method.name for method in density_regression.methods() if method.needs_prior}
    assert needs == {"MFVI-BNN", "EDL", "NatPN", "SNGP", "DUE"}


FORGED = [
    ("DeepEnsembleRegressor", {"n_members": 1000}),
    ("DeepEnsembleRegressor", {"n_members": 10**9}),
    ("DUERegressor", {"n_inducing": 1024}),
    ("SNGPRegressor", {"random_features": 2**16}),
    ("QuantileRegressor", {"levels": [0.001 * level for level in range(1, 1000)]}),
    ("NaturalPosteriorRegressor", {"latent": 1024}),
    ("GaussianRegressor", {"hidden": [10**6, 10**6]}),
    ("DensityRegressor", {"hidden": [10**6, 10**6]}),
]


@pytest.mark.parametrize(("name", "params"), FORGED)
def test_forged_settings_do_not_ask_for_memory(name: str, params: dict[str, object], tmp_path: Path, cubic) -> None:
    estimators()[name](hidden=(8,), epochs=1, verbose=False, random_state=0).fit(*cubic).save(tmp_path)
    path = next(tmp_path.glob("*.json"))
    config = json.loads(path.read_text())
    config["params"] |= params
    body = {key: value for key, value in config.items() if key != "sha256"}
    config["sha256"] = hashlib.sha256(json.dumps(body, sort_keys=True, allow_nan=False).encode()).hexdigest()
    path.write_text(json.dumps(config))
    with pytest.raises(InvalidModelError, match=r"too few|do not fit|n_members"):
        load(tmp_path)
