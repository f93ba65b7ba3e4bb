"""The fused form must give what the model gives, near and far, whatever rows stand beside a row."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from density_regression import DensityRegressor
from density_regression.baselines import GaussianRegressor
from density_regression.inference.fused import Constants, FusedRegression, Layers, fused_form
from density_regression.nn.density import GaussianDensity, MixtureDensity
from density_regression.nn.encoders import MLP, WithInputs
from density_regression.tabular.table import INPUT_LIMIT, Floats

QUICK: dict[str, Any] = {"epochs": 2, "hidden": (16, 16), "verbose": False, "random_state": 0}
PLAIN = QUICK | {"embedding": None}
"""Of a network that reads the columns as they are."""
CPU = torch.device("cpu")


def fused(reg: DensityRegressor) -> FusedRegression | None:
    return fused_form(reg.model_, CPU, reg.x_scaling_.limit)


@pytest.fixture(scope="module")
def rows() -> tuple[Floats, Floats]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5))
    return x, np.stack([3 * x[:, 0] + rng.normal(size=300), x[:, 1] * x[:, 2]], 1)


@pytest.mark.parametrize("components", [1, 3, 8])
@pytest.mark.parametrize("max_dims", [4, 16, None])
@pytest.mark.parametrize("targets", [1, 2])
def test_same_as_the_model(components: int, max_dims: int | None, targets: int, rows: tuple[Floats, Floats]) -> None:
    density = MixtureDensity(components, max_dims=max_dims, variance=1.0)
    model = DensityRegressor(**QUICK, density=density).fit(rows[0], rows[1][:, :targets]).model_
    form = FusedRegression.of(model)
    assert form is not None
    sizes = torch.tensor([0.1, 1.0, 10.0, 1e4, INPUT_LIMIT]).repeat_interleave(60)[:, None]
    x = (sizes * torch.randn(300, 5, generator=torch.Generator().manual_seed(1))).clamp(-INPUT_LIMIT, INPUT_LIMIT)
    with torch.inference_mode():
        found, (mean, log_std), log_density = form(x), model.moments(x), model.log_density(x)
    torch.testing.assert_close(found.log_std, log_std, rtol=0, atol=1e-4)
    torch.testing.assert_close(form.log_density(x), log_density, rtol=1e-4, atol=1e-3)
    assert ((found.mean - mean).abs() <= 1e-4 * mean.abs().maximum(log_std.exp())).all()


@pytest.mark.parametrize(
    "settings",
    [
        {"density": "kernel"},
        {"density": None},
        {"head": "natural"},
        {"tempering": "exact"},
        {"encoder": lambda columns: torch.nn.Sequential(torch.nn.Linear(columns, 8), torch.nn.Tanh())},
    ],
    ids=["kernel", "no density", "natural", "exact", "own encoder"],
)
def test_other_parts_have_no_fused_form(settings: dict[str, Any], rows: tuple[Floats, Floats]) -> None:
    reg = DensityRegressor(**{**QUICK, **settings}).fit(*rows)
    assert fused(reg) is None
    assert np.isfinite(reg.predict(rows[0])).all()


class Bent(MLP):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).tanh()


class Halved(WithInputs):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) / 2


class Flat(GaussianDensity):
    def _log_prob(self, t: torch.Tensor) -> torch.Tensor:
        return super()._log_prob(t) / 2


def _hooked(columns: int) -> MLP:
    encoder = MLP(columns, (8,))
    encoder.register_forward_hook(lambda module, inputs, output: output.tanh())
    return encoder


def _without_bias(columns: int) -> MLP:
    encoder = MLP(columns, (8,))
    encoder[0] = torch.nn.Linear(columns, 8, bias=False)
    return encoder


@pytest.mark.parametrize(
    "settings",
    [
        {"encoder": lambda columns: Bent(columns, (8,))},
        {"encoder": lambda columns: Halved(MLP(columns, (8,)))},
        {"encoder": lambda columns: MLP(columns, (8,)).append(torch.nn.Linear(8, 4))},
        {"encoder": _hooked},
        {"encoder": _without_bias},
        {"density": Flat()},
    ],
    ids=["derived", "derived with inputs", "one more layer", "hook", "no bias", "derived density"],
)
def test_what_is_derived_from_ours_is_computed_as_it_says(
    settings: dict[str, Any], rows: tuple[Floats, Floats], tmp_path: Path
) -> None:
    reg = DensityRegressor(**QUICK, **settings).fit(*rows)
    assert fused(reg) is None
    with torch.inference_mode():
        mean, log_std = reg.model_.moments(reg.x_scaling_.apply(rows[0]))
    found = reg.predict(rows[0], return_std=True)
    np.testing.assert_allclose(found[0], mean.double() * reg.y_scaling_.scale + reg.y_scaling_.center, rtol=1e-4)
    np.testing.assert_allclose(found[1], log_std.double().exp() * reg.y_scaling_.scale, rtol=1e-4)
    assert reg.to_onnx(tmp_path / "model.onnx") < 1e-3


def test_only_of_a_density_regression(rows: tuple[Floats, Floats]) -> None:
    assert FusedRegression.of(GaussianRegressor(**QUICK).fit(*rows).model_) is None


def test_what_may_overflow_has_no_fused_form(rows: tuple[Floats, Floats]) -> None:
    model = DensityRegressor(**PLAIN).fit(*rows).model_
    assert FusedRegression.of(model) is not None
    with torch.no_grad():
        model.encoder.encoder[0].weight *= 1e35
    assert FusedRegression.of(model) is None


def test_features_that_may_grow_large_are_clipped(rows: tuple[Floats, Floats]) -> None:
    model = DensityRegressor(**PLAIN).fit(*rows).model_
    with torch.no_grad():
        model.encoder.encoder[2].weight *= 1e10
    form, layers = FusedRegression.of(model), Layers.of(model.encoder)
    assert form is not None
    assert layers is not None
    constants = Constants.of(model, layers.bounds())
    assert constants is not None
    assert constants.clip_features
    x = INPUT_LIMIT * torch.randn(50, 5, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        torch.testing.assert_close(form.log_density(x), model.log_density(x), rtol=1e-3, atol=0)


@pytest.mark.parametrize("components", [1, 2, 8])
def test_a_row_is_predicted_alike_in_any_company(components: int, rows: tuple[Floats, Floats]) -> None:
    x, y = rows
    reg = DensityRegressor(**QUICK, density=MixtureDensity(components)).fit(x, y)
    x = np.concatenate([x, 5 * x, 1e5 * x])
    mean, std = reg.predict(x, return_std=True)
    scores = reg.score_samples(x)
    for size in (1, 7, 33, 500):
        for start in range(0, len(x), 41):
            part = slice(start, start + size)
            for found, whole in zip(reg.predict(x[part], return_std=True), (mean, std), strict=True):
                np.testing.assert_array_equal(found, whole[part])
            np.testing.assert_array_equal(reg.score_samples(x[part]), scores[part])


def test_a_model_whose_weights_changed(rows: tuple[Floats, Floats]) -> None:
    """Predictions are those of the model as it is now, also of copies made before and afterwards."""
    x, y = rows
    reg, other = (DensityRegressor(**QUICK, density=MixtureDensity(3)).fit(x, target) for target in (y, -y))
    before, copies = reg.predict(x), [copy.deepcopy(reg), pickle.loads(pickle.dumps(reg))]
    forms = []
    for one in (reg, *copies):
        np.testing.assert_array_equal(one.predict(x), before)
        form = fused(one)
        assert form is not None
        assert form.is_current(CPU)
        assert fused(one) is form
        forms.append(form)
    for one in (reg, *copies):
        one.model_.load_state_dict(other.model_.state_dict())
    for form in forms:
        assert not form.is_current(CPU)
    for one in (reg, *copies, copy.deepcopy(reg), pickle.loads(pickle.dumps(reg))):
        scaled = one.x_scaling_.apply(x).float()
        with torch.no_grad():
            mean, _ = one.model_.moments(scaled)
        expected = mean.double().numpy() * one.y_scaling_.scale + one.y_scaling_.center
        np.testing.assert_allclose(one.predict(x), expected, rtol=1e-6, atol=1e-6)
        assert np.abs(one.predict(x) - before).max() > 1
        new = fused(one)
        assert new is not None
        assert new not in forms
        assert new.is_current(CPU)


def test_a_fused_form_ends_with_its_model(rows: tuple[Floats, Floats]) -> None:
    reg = DensityRegressor(**QUICK).fit(*rows)
    reg.predict(rows[0])
    model, form = weakref.ref(reg.model_), weakref.ref(fused(reg))
    del reg
    gc.collect()
    assert model() is None
    assert form() is None
