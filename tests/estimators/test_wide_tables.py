"""Tables with many columns: defaults that suit them, and a time that does not grow with the columns' cube."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from density_regression import DensityRegressor, fit_together, load, methods
from density_regression.baselines import BayesianRegressor, GaussianRegressor
from density_regression.inference.fused import FusedRegression
from density_regression.nn.encoders import MLP
from density_regression.nn.heads import Head, MeanHead, NaturalHead
from density_regression.nn.network import Features
from density_regression.training.refit import refit_head

QUICK: dict[str, Any] = {"hidden": (8,), "epochs": 1, "verbose": False, "random_state": 0}


def noise(n: int, c: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (n, c) and targets (n,) of which only the first column tells anything."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, c))
    return X, 2 * X[:, 0] + rng.normal(size=n)


def test_the_mean_is_always_to_be_had() -> None:
    X, y = noise(1100, 300)
    reg = DensityRegressor(epochs=100, random_state=0, verbose=False).fit(X[:100], y[:100])
    assert reg.score(X[100:], y[100:]) > -0.1


@pytest.mark.parametrize("method", methods(), ids=lambda method: method.name)
def test_the_rate_falls_with_the_columns_and_no_earlier(method: Any) -> None:
    reg = method.estimator()
    rates = [reg._options(0, columns).learning_rate for columns in (1, 50, 100, 1000)]
    np.testing.assert_allclose(rates, np.array([1, 1, 1 / 2, 1 / 20]) * reg.usual_rate)
    assert method.estimator(learning_rate=0.3)._options(0, 1000).learning_rate == 0.3
    # Nobody knows what columns are to an encoder of one's own.
    assert method.estimator(encoder=MLP(1000))._options(0, 1000).learning_rate == reg.usual_rate


def test_rates_of_methods_differ() -> None:
    assert BayesianRegressor.usual_rate < GaussianRegressor.usual_rate


@pytest.mark.parametrize(("columns", "read"), [(50, 60), (51, 8)])
def test_the_head_reads_the_inputs_of_moderate_tables_only(columns: int, read: int) -> None:
    X, y = noise(30, columns)
    model = DensityRegressor(**QUICK).fit(X, y).model_
    assert model.features == 60  # 8 features and the inputs, up to a multiple of four
    assert model.head.features == read


@pytest.mark.parametrize("with_inputs", [True, "density", False])
def test_inputs_as_asked(with_inputs: bool | str, tmp_path: Path) -> None:
    X, y = noise(40, 60)
    reg = DensityRegressor(with_inputs=with_inputs, **QUICK).fit(X, y)
    assert (reg.model_.features, reg.model_.head.features) == {True: (68, 68), "density": (68, 8), False: (8, 8)}[
        with_inputs
    ]
    reg.save(tmp_path)
    np.testing.assert_array_equal(load(tmp_path).predict(X), reg.predict(X))


def test_a_head_that_reads_some_features_folds_as_it_is() -> None:
    X, y = noise(200, 60)
    reg = DensityRegressor(**QUICK).fit(X, np.stack([y, -y + X[:, 1]], 1))
    form = FusedRegression.of(reg.model_)
    assert form is not None
    x = torch.from_numpy(X).float() * torch.logspace(-1, 4, 200)[:, None]
    with torch.inference_mode():
        got, expected = form(x), reg.model_.moments(x)
    torch.testing.assert_close(got.mean, expected.mean, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(got.log_std, expected.log_std, rtol=1e-3, atol=1e-3)


def test_columns_that_only_the_density_sees_make_a_row_strange() -> None:
    X, y = noise(300, 60)
    reg = DensityRegressor(**QUICK).fit(X, y)
    strange = X[:20].copy()
    strange[:, -1] += 1000.0
    assert (reg.familiarity(strange) == 0).all()
    assert (reg.predict(strange, return_std=True)[1] > reg.predict(X[:20], return_std=True)[1]).all()


def test_a_head_with_more_features_than_rows_is_not_refitted() -> None:
    X, y = noise(20, 3)
    params = {"hidden": (30,), "epochs": 1, "members": 0, "with_inputs": False}
    model = DensityRegressor(verbose=False, random_state=0, **params).fit(X, y).model_
    before = model.head.linear.weight.clone()
    for rows, refitted in ((25, False), (100, True)):
        z = torch.randn(rows, 30, generator=torch.Generator().manual_seed(1))
        features = Features(z, z[:, :1] * 3.0, torch.ones(rows))
        refit_head(model, features, features)
        assert torch.equal(model.head.linear.weight, before) is not refitted


@pytest.mark.parametrize("kind", [MeanHead, NaturalHead])
def test_noise_apart_is_learnt_by_the_head_and_not_by_the_encoder(kind: type[Head]) -> None:
    torch.manual_seed(0)
    head, z = kind(5, 2), torch.randn(9, 5, requires_grad=True)
    torch.nn.init.normal_(head.linear.weight)
    together = head.unbounded(z)
    head.noise_apart = True
    apart = head.unbounded(z)
    torch.testing.assert_close(apart, together)
    through = [torch.autograd.grad(part.log_std.sum(), z, allow_unused=True)[0] for part in (together, apart)]
    assert through[0].abs().min() > 0
    assert through[1] is None
    apart.log_std.sum().backward()
    assert (head.linear.weight.grad[2:] != 0).all()


def test_noise_is_apart_in_wide_tables() -> None:
    for columns, apart in ((50, False), (51, True)):
        reg = DensityRegressor(**QUICK).fit(*noise(30, columns))
        assert reg.model_.head.noise_apart is apart
    own = DensityRegressor(**QUICK | {"encoder": MLP(51, (8,))}).fit(*noise(30, 51))
    assert not own.model_.head.noise_apart


def test_wide_tables_fitted_together_end_as_they_would_alone() -> None:
    X, y = noise(60, 60)
    alone = [DensityRegressor(**QUICK | {"random_state": seed}).fit(X, y) for seed in range(2)]
    together = [DensityRegressor(**QUICK | {"random_state": seed}) for seed in range(2)]
    fit_together(together, [(X, y)] * 2)
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(one.predict(X, return_std=True), other.predict(X, return_std=True), rtol=1e-3)
