"""Several fits as one batched computation: each must end as it would alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from torch import nn

import density_regression
from density_regression import DensityRegressor, MixtureDensity, fit_together
from density_regression.baselines import DeepEnsembleRegressor, GaussianRegressor, MCDropoutRegressor
from density_regression.estimators.base import DeepRegressor
from density_regression.training.batches import TensorBatches
from density_regression.training.vectorised import MappedLoss

SETTINGS = {"hidden": (8,), "epochs": 3, "batch_size": 20, "n_threads": 1, "verbose": False}
ESTIMATORS = {method.name: method.estimator for method in density_regression.methods()}
STOCHASTIC = ("MC Dropout", "MFVI-BNN")
TABLES = [make_friedman1(80, n_features=5, noise=1.0, random_state=seed) for seed in range(3)]
X_NEW = make_friedman1(40, n_features=5, random_state=9)[0]

Table = tuple[np.ndarray, np.ndarray]


class Scaled(nn.Linear):
    """Has numbers of its own that its state does not show."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.scale = torch.rand(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.scale


def regressors(name: str, **settings: object) -> list[DeepRegressor]:
    return [ESTIMATORS[name](random_state=seed, **(SETTINGS | settings)) for seed in range(3)]


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name not in STOCHASTIC])
@pytest.mark.parametrize("patience", [None, 1])
def test_each_ends_as_it_would_alone(name: str, patience: int | None) -> None:
    together = regressors(name, patience=patience, epochs=5 if patience else 3)
    alone = [clone(regressor).fit(*table) for regressor, table in zip(together, TABLES, strict=True)]
    fit_together(together, TABLES)
    for one, other in zip(together, alone, strict=True):
        assert one.report_.history == pytest.approx(other.report_.history, abs=1e-4)
        # In float32; step 3 of Density-Regression, by L-BFGS, magnifies what rounds differently.
        for a, b in zip(one.predict(X_NEW, return_std=True), other.predict(X_NEW, return_std=True), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-2 if name == "Density-Regression" else 1e-4, atol=1e-4)


@pytest.mark.parametrize("name", STOCHASTIC)
def test_stochastic_networks_differ_but_learn_alike(name: str) -> None:
    together = regressors(name, epochs=60, learning_rate=1e-2)
    alone = [clone(regressor).fit(*table) for regressor, table in zip(together, TABLES, strict=True)]
    fit_together(together, TABLES)
    scores = [
        np.mean([regressor.score(*table) for regressor, table in zip(group, TABLES, strict=True)])
        for group in (together, alone)
    ]
    assert scores[0] > 0.5
    assert scores[0] == pytest.approx(scores[1], abs=0.1)


def test_members_draw_masks_of_their_own() -> None:
    # The same table, seed and weights: only the dropout differs.
    twins = [MCDropoutRegressor(dropout=0.5, random_state=0, **SETTINGS) for _ in range(2)]
    fit_together(twins, [TABLES[0]] * 2)
    assert not np.allclose(*(twin.predict(X_NEW) for twin in twins))


def test_the_same_again_gives_the_same() -> None:
    first, second = regressors("MC Dropout"), regressors("MC Dropout")
    fit_together(first, TABLES)
    fit_together(second, TABLES)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.predict(X_NEW), other.predict(X_NEW))


def test_it_is_one_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("fitted one by one")

    group = regressors("Gaussian")
    monkeypatch.setattr(DeepRegressor, "fit", refuse)
    fit_together(group, TABLES)
    assert [len(regressor.predict(X_NEW)) for regressor in group] == [40] * 3


@pytest.mark.parametrize(
    ("tables", "settings"),
    [
        ([TABLES[0], TABLES[1], (TABLES[2][0][:70], TABLES[2][1][:70])], {}),
        (TABLES, {"encoder": lambda inputs: nn.Sequential(nn.Linear(inputs, 8), nn.BatchNorm1d(8), nn.ReLU())}),
        (TABLES, {"encoder": lambda inputs: nn.Sequential(nn.Linear(inputs, 8), nn.ELU(float(torch.rand(()))))}),
        (TABLES, {"encoder": lambda inputs: Scaled(inputs, 8)}),
    ],
    ids=["unequal lengths", "running statistics", "own slope", "own numbers"],
)
@pytest.mark.parametrize("name", ["Gaussian", "Density-Regression"])
def test_what_cannot_be_stacked_is_fitted_one_by_one(
    name: str, tables: list[Table], settings: dict[str, object]
) -> None:
    together = regressors(name, **settings)
    alone = [clone(regressor).fit(*table) for regressor, table in zip(together, tables, strict=True)]
    fit_together(together, tables)
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_array_equal(one.predict(X_NEW), other.predict(X_NEW))


def test_given_rows_are_held_out() -> None:
    group = [DensityRegressor(random_state=seed, **SETTINGS) for seed in range(2)]
    fit_together(group, [TABLES[0]] * 2, [TABLES[1], TABLES[2]])
    for regressor, (X, _) in zip(group, TABLES[1:], strict=True):
        # Familiarity is a percentile of the held-out rows: among themselves it is uniform.
        assert np.sort(regressor.familiarity(X)) == pytest.approx(np.arange(1, 81) / 80, abs=0.03)
        assert regressor.x_scaling_.center == pytest.approx(TABLES[0][0].mean(axis=0))


def test_held_out_rows_for_none_are_too_few() -> None:
    with pytest.raises(ValueError, match="2 tables and 0 held_outs do not match"):
        fit_together([GaussianRegressor(random_state=seed, **SETTINGS) for seed in range(2)], TABLES[:2], [])


def test_threads_are_checked() -> None:
    group = [GaussianRegressor(n_threads=0) for _ in range(2)]
    with pytest.raises(ValueError, match="'n_threads' parameter"):
        fit_together(group, TABLES[:2])


def test_a_failure_leaves_all_as_they_were() -> None:
    group = regressors("Gaussian")
    bad = (np.full((80, 5), np.nan), TABLES[0][1])
    with pytest.raises(ValueError, match="only gaps"):
        fit_together(group, [TABLES[0], TABLES[1], bad])
    assert not any(hasattr(regressor, "n_features_in_") for regressor in group)


def test_a_failure_among_those_fitted_one_by_one_leaves_all_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    group = [regressor.fit(*TABLES[0]) for regressor in regressors("Gaussian")]
    before = [regressor.predict(X_NEW) for regressor in group]
    train = GaussianRegressor._train

    def interrupted(self: GaussianRegressor, *args: object) -> object:
        if self.random_state == 1:
            raise KeyboardInterrupt
        return train(self, *args)

    monkeypatch.setattr(GaussianRegressor, "_train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit_together(group, [make_friedman1(rows, n_features=6) for rows in (40, 41, 42)])
    for regressor, mean in zip(group, before, strict=True):
        np.testing.assert_array_equal(regressor.predict(X_NEW), mean)


@pytest.mark.parametrize(
    "settings",
    [{"density": MixtureDensity(2)}, {"encoder": nn.Linear(5, 4)}, {"hidden": np.array([8, 8])}],
    ids=["density", "encoder", "array"],
)
def test_clones_have_the_same_settings(settings: dict[str, object]) -> None:
    one = DensityRegressor(random_state=0, **(SETTINGS | settings))
    group = [one, clone(one)]
    fit_together(group, TABLES[:2])
    assert all(regressor.predict(X_NEW).shape == (40,) for regressor in group)


def test_the_setting_that_differs_is_named() -> None:
    for name, values in {
        "density": (MixtureDensity(2), MixtureDensity(3)),
        "encoder": (nn.Linear(5, 4), nn.Linear(5, 4)),
        "hidden": (np.array([8, 8]), (8,)),
    }.items():
        with pytest.raises(ValueError, match=f"differ in {name}"):
            fit_together([DensityRegressor(**{name: value}) for value in values], TABLES[:2])


def test_settings_must_agree() -> None:
    with pytest.raises(ValueError, match="same settings"):
        fit_together([GaussianRegressor(epochs=1), GaussianRegressor(epochs=2)], TABLES[:2])
    with pytest.raises(ValueError, match="same settings"):
        fit_together([GaussianRegressor(), DeepEnsembleRegressor()], TABLES[:2])
    with pytest.raises(ValueError, match="same one twice"):
        fit_together([GaussianRegressor()] * 2, TABLES[:2])
    with pytest.raises(ValueError, match="do not match"):
        fit_together(regressors("Gaussian"), TABLES[:2])


def test_batches_side_by_side() -> None:
    def batches(offset: int, *seeds: int) -> TensorBatches:
        x = torch.arange(7.0)[:, None] + offset
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        return TensorBatches(x, 2 * x, torch.ones(7), 3, generators if len(generators) > 1 else generators[0])

    alone = [batches(offset, seed) for offset, seed in ((0, 1), (0, 2), (100, 3), (100, 4))]
    expected = [torch.stack(parts) for parts in zip(*([x for x, *_ in part] for part in alone), strict=True)]
    together = TensorBatches.side_by_side([batches(0, 1, 2), batches(100, 3, 4)], members=2)
    found = list(together)
    assert len(together) == len(found) == 3
    for (x, y, weight), wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(x, wanted)
        torch.testing.assert_close(y, 2 * x)
        assert weight.shape == x.shape[:2]


def test_batches_side_by_side_in_order() -> None:
    parts = [
        TensorBatches(torch.arange(5.0)[:, None] + offset, torch.zeros(5, 1), torch.ones(5), 3) for offset in (0, 9)
    ]
    x = torch.cat([x for x, *_ in TensorBatches.side_by_side(parts, members=2)], dim=1)[..., 0]
    torch.testing.assert_close(x, torch.arange(5.0) + torch.tensor([0.0, 0.0, 9.0, 9.0])[:, None])


def test_mapped_losses_are_those_of_the_objectives() -> None:
    class Objective(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 1)

        def forward(self, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            if not self.training:
                float(weight.sum())  # which vmap refuses
            return (weight * (self.linear(x) - y)[:, 0].square()).sum()

    objectives = [Objective() for _ in range(4)]
    loss = MappedLoss.of(objectives)
    assert loss is not None
    batch = torch.randn(4, 6, 3), torch.randn(4, 6, 1), torch.rand(4, 6)
    expected = torch.stack([part(*(rows[i] for rows in batch)) for i, part in enumerate(objectives)])
    torch.testing.assert_close(loss.train()(*batch), expected)
    torch.testing.assert_close(loss.eval()(*batch), expected)
