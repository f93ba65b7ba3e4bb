"""Each of the three steps changes its own part only, and is given the right rows."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import pytest
import torch
from torch import Tensor

from density_regression import (
    DensityRegressor,
    GaussianDensity,
    KernelDensity,
    TrainingOptions,
    fit_density_regression,
    fit_together,
)
from density_regression.nn.density import Density
from density_regression.nn.tempering import RobustTempering
from density_regression.training import algorithm
from density_regression.training.algorithm import fit_density, fit_density_regressions_together, pretrain
from density_regression.training.batches import cache_features
from density_regression.training.refit import refit_head
from training.helpers import (
    SMALL_DENSITIES,
    assert_equal,
    batches,
    features,
    finite,
    generator,
    head_nll,
    network,
    on_features,
    state,
    wave,
)


@pytest.mark.parametrize("density", SMALL_DENSITIES.values(), ids=SMALL_DENSITIES.keys())
def test_step_two_leaves_encoder_and_head(density: Callable[[], Density]) -> None:
    model = network(density=density())
    train, held_out = (cache_features(model, batches(*wave(seed=seed))) for seed in (0, 10))
    before = state(model)
    assert not model.density.fitted
    fit_density(model, train, held_out)
    after = state(model)
    assert model.density.fitted
    assert_equal(after, before, "encoder.")
    assert_equal(after, before, "head.")
    assert after["tempering.reference"] != before["tempering.reference"]


@pytest.mark.parametrize("density", SMALL_DENSITIES.values(), ids=SMALL_DENSITIES.keys())
def test_step_three_leaves_encoder_density_and_tempering(density: Callable[[], Density]) -> None:
    model = network(density=density())
    train, held_out = (cache_features(model, batches(*wave(seed=seed))) for seed in (0, 10))
    fit_density(model, train, held_out)
    before = state(model)
    refit_head(model, train, held_out)
    after = state(model)
    for part in ("encoder.", "density.", "tempering."):
        assert_equal(after, before, part)
    assert not torch.equal(after["head.linear.weight"], before["head.linear.weight"])
    assert not torch.equal(after["head.offset"], before["head.offset"])


def test_step_three_does_without_a_density() -> None:
    model = network(density=None)
    train, held_out = (cache_features(model, batches(*wave(seed=seed))) for seed in (0, 10))
    fit_density(model, train, held_out)
    before = state(model)
    refit_head(model, train, held_out)
    assert_equal(state(model), before, "encoder.")
    assert head_nll(model.head, held_out) < 1.0


def test_step_one_knows_nothing_of_the_density() -> None:
    """Fitting again a model that was fitted starts from step 1 as if it had no density and no bounds."""
    loader, held_out = batches(*wave(), seed=0), batches(*wave(seed=10))
    model = network()
    fit_density_regression(model, loader, held_out, options=TrainingOptions(epochs=3))
    again = network()
    again.load_state_dict(model.state_dict())
    plain = network(density=None)
    plain.encoder.load_state_dict(model.encoder.state_dict())
    plain.head.load_state_dict(model.head.state_dict())
    options = TrainingOptions(epochs=2)
    assert pretrain(again, batches(*wave()), held_out, options) == pretrain(plain, batches(*wave()), held_out, options)


@pytest.mark.parametrize("together", [False, True])
def test_without_held_out_rows_some_are_set_aside_for_the_density(together: bool) -> None:
    """Kernels at the very rows that choose their bandwidth would be as narrow as can be."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = X[:, 0] + 0.3 * rng.normal(size=200)
    settings: dict[str, Any] = {"epochs": 10, "hidden": (20,), "density": KernelDensity(max_points=500)}
    fitted = [DensityRegressor(validation_fraction=0, random_state=seed, **settings) for seed in range(2)]
    if together:
        fit_together(fitted, [(X, y), (X, y)])
    else:
        fitted[0].fit(X, y)
    density = fitted[0].model_.density
    assert isinstance(density, KernelDensity)
    assert len(density.points) == 160
    assert density.width > 0.05
    assert np.median(fitted[0].predict(X, return_std=True)[1]) < 1.0


class Told(GaussianDensity):
    """Writes down what it is fitted to."""

    def fit(self, z: Tensor, sample_weight: Tensor | None = None, **how: Any) -> Self:
        self.told = (z, sample_weight, how["held_out"], how["generator"].initial_seed())
        return super().fit(z, sample_weight, **how)


def test_density_and_tempering_are_fitted_to_the_rows_and_judged_by_the_others() -> None:
    model, train, held_out = on_features(density=Told()), features(), features(50, seed=1)
    train, held_out = (
        rows._replace(weight=torch.rand(len(rows.z), generator=generator(i), dtype=torch.float64))
        for i, rows in enumerate((train, held_out))
    )
    fit_density(model, train, held_out, seed=7)
    z, weight, held, seed = model.density.told
    assert z is train.z
    assert weight is train.weight
    assert held is held_out.z
    assert seed == 7
    expected = RobustTempering().double().fit(*[model.density.log_prob(held_out.z)] * 2, held_out.weight)
    assert torch.equal(model.tempering.reference, expected.reference)
    assert torch.equal(model.tempering.spread, expected.spread)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_steps_two_and_three_are_given_the_held_out_rows(
    apart: bool, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(algorithm, "fit_density", lambda model, *rows, seed: told.append((*rows, seed)))
    monkeypatch.setattr(algorithm, "refit_head", lambda model, *rows, **how: told.append(rows[:2]))
    train = batches(*wave(40))
    held_out = batches(*wave(20, seed=1)) if apart else train
    options = TrainingOptions(epochs=1, seed=3)
    if together:
        models = [network(seed) for seed in range(2)]
        fit_density_regressions_together(
            models, [train] * 2, [held_out] * 2, options=options, seeds=[3, 4], verbose=False
        )
    else:
        fit_density_regression(network(), train, held_out, options=options, verbose=False)
    (rows, held, seed), (again, judges) = told[:2]
    assert len(rows.z) == len(again.z) == 40
    assert len(judges.z) == (20 if apart else 40)
    assert (held is not None and len(held.z) == 20) if apart else held is None
    assert seed == 3
    assert [one[2] for one in told[2::2]] == ([4] if together else [])


def test_a_single_row_is_all_there_is() -> None:
    model, rows = on_features(density="gaussian"), features(1)
    fit_density(model, rows, None)
    assert finite(model)
