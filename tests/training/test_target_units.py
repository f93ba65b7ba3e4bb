"""Modules answer in the target's units, whatever these are; and with NaN where they were given NaN."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from density_regression import MLP, DensityRegression, TrainingOptions, fit_density_regression
from density_regression import baselines as b
from density_regression.nn.network import Predictor
from density_regression.training.batches import TensorBatches
from density_regression.training.targets import learn_target_scale

NETWORKS: dict[str, Callable[[nn.Module, int, int], Predictor]] = {
    "ours": DensityRegression,
    "deterministic": b.DeterministicNetwork,
    "gaussian": b.GaussianNetwork,
    "quantile": b.QuantileNetwork,
    "dropout": lambda *args: b.DropoutNetwork(*args, n_samples=3),
    "bayesian": lambda *args: b.BayesianNetwork(*args, n_samples=3),
    "evidential": b.EvidentialNetwork,
    "natural posterior": lambda *args: b.NaturalPosteriorNetwork(*args, latent=2),
    "SNGP": lambda *args: b.SNGPNetwork(*args, random_features=32),
    "DUE": lambda *args: b.DUENetwork(*args, n_inducing=5),
    "ensemble": lambda *args: b.EnsembleNetwork([b.GaussianNetwork(*args)]),
}
CENTER, SCALE = torch.tensor([1000.0, -3.0]), torch.tensor([50.0, 0.01])


def rows(n: int = 80) -> tuple[Tensor, Tensor]:
    """Inputs (n, 2) and two targets (n, 2) of about unit scale."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 2, generator=generator)
    return x, x + 0.1 * torch.randn(n, 2, generator=generator)


def fitted(kind: str, y: Tensor, epochs: int = 3, **settings: Any) -> Predictor:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = NETWORKS[kind](MLP(2, (8,)), 8, 2)
        fit = fit_density_regression if isinstance(model, DensityRegression) else b.fit_baseline
        batches = [(rows()[0], y)]
        fit(model, batches, batches, options=TrainingOptions(epochs=epochs), verbose=False, **settings)
    return model


def results(model: Any, x: Tensor) -> dict[str, Tensor]:
    """All that a module says of targets: values, and logarithms of standard deviations."""
    law = model(x)
    found = {"mean": law.mean, "log std": law.stddev.log()}
    if hasattr(model, "decompose"):
        aleatoric, epistemic, *_ = model.decompose(x)
        found |= {"log std of noise": aleatoric.log(), "log std of both": 0.5 * (aleatoric**2 + epistemic**2).log()}
    if hasattr(model, "member_moments"):
        means, log_stds = model.member_moments(x)
        found |= {"mean of a member": means[0], "log std of a member": log_stds[0]}
    if hasattr(model, "quantiles"):
        found["mean, or lowest quantile"] = model.quantiles(x)[..., 0]
    if hasattr(model, "belief"):
        belief = model.belief(x)
        found |= {"mean of the belief": belief.mean, "log std of noise": 0.5 * belief.log_aleatoric()}
    if hasattr(model, "variance"):
        found["log std of the process"] = 0.5 * model.variance(x).log()
    return found


@pytest.mark.parametrize("kind", NETWORKS)
def test_other_units_of_the_targets_are_those_of_the_answers(kind: str) -> None:
    x, y = rows()
    plain, moved = (results(fitted(kind, target), x) for target in (y, CENTER + SCALE * y))
    assert plain.keys() == moved.keys()
    # The searches of step 3 make more of a rounding.
    close = 0.2 if kind == "ours" else 0.01
    for name, value in plain.items():
        found = (moved[name] - CENTER) / SCALE if name.startswith("mean") else moved[name] - SCALE.log()
        torch.testing.assert_close(found, value, rtol=0, atol=close, msg=name)


@pytest.mark.parametrize("kind", ["ours", "gaussian"])
def test_targets_far_from_zero_are_learnt(kind: str) -> None:
    x, y = rows()
    target = 1000.0 + y
    error = fitted(kind, target, epochs=120)(x).mean - target
    assert error.square().mean().sqrt() < 0.5 * y.std()


def test_targets_taken_as_they_are() -> None:
    x, y = rows()
    model = fitted("gaussian", 1000.0 + y, scale_targets=False)
    assert model.target_center is None
    assert not {"target_center", "target_scale"} & model.state_dict().keys()
    assert model(x).mean.mean() < 500.0


def test_positions_weights_and_missing_targets() -> None:
    x = torch.randn(12, 2, 3, 5, generator=torch.Generator().manual_seed(0))
    y = 20.0 + 4.0 * x
    weight = (x[:, 0] > 0).float() + 0.5
    weight[3:5] = 0.0
    y[3:5] = math.nan
    model = DensityRegression(nn.Conv2d(2, 4, 1), 4, 2)
    loader = [(x[:7], y[:7], weight[:7]), (x[7:], y[7:], weight[7:])]
    learn_target_scale(model, loader, seed=0)
    known = weight > 0
    values = y.movedim(1, -1)[known].double()
    share = weight[known].double() / weight[known].double().sum()
    mean = share @ values
    torch.testing.assert_close(model.target_center, mean.float())
    torch.testing.assert_close(model.target_scale, (share @ (values - mean).square()).sqrt().float())
    fit_density_regression(model, loader, options=TrainingOptions(epochs=60), verbose=False)
    assert model(x).mean.shape == y.shape
    assert (model(x).mean - (20.0 + 4.0 * x)).abs().mean() < 2.0


def test_a_target_that_never_varies() -> None:
    x, y = rows()
    model = fitted("ours", torch.stack([torch.full((80,), 7.0), y[:, 1]], 1))
    law = model(x)
    torch.testing.assert_close(law.mean[:, 0], torch.full((80,), 7.0), atol=1e-3, rtol=0)
    assert (law.stddev[:, 0] < 1e-3).all()
    assert (law.stddev > 0).all()


def test_the_look_at_the_targets_draws_nothing() -> None:
    """Neither of the caller's generator nor of the loader's."""
    generator = torch.Generator().manual_seed(5)
    own = DataLoader(TensorDataset(*rows()), 20, shuffle=True, generator=generator)
    table = TensorBatches(*rows(), torch.ones(80), 20, [torch.Generator().manual_seed(seed) for seed in range(3)])
    model = DensityRegression(MLP(2, (8,)), 8, 2)
    torch.manual_seed(1)
    torch.randperm(3, generator=generator)
    before = [torch.get_rng_state(), generator.get_state(), *(part.get_state() for part in table.generators)]
    scales = []
    for batches in (own, DataLoader(TensorDataset(*rows()), 20, shuffle=True), table):
        learn_target_scale(model, batches, seed=0)
        scales.append(model.target_scale)
    after = [torch.get_rng_state(), generator.get_state(), *(part.get_state() for part in table.generators)]
    assert all(map(torch.equal, before, after))
    torch.testing.assert_close(torch.stack(scales), rows()[1].std(0, correction=0).expand(3, 2))


def test_few_targets_tell_the_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("density_regression.training.targets.MOST_TARGETS", 100)
    read = []

    class Loader:
        def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
            while True:
                read.append(1)
                yield rows(20)

    learn_target_scale(DensityRegression(MLP(2, (8,)), 8, 2), Loader(), seed=0)
    assert len(read) == 3


def test_states_with_units_and_without() -> None:
    x, y = rows()
    model = fitted("ours", CENTER + SCALE * y)
    fresh = DensityRegression(MLP(2, (8,)), 8, 2)
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(x).mean, model(x).mean)
    assert torch.equal(fresh(x).stddev, model(x).stddev)
    # A state of a version that did not scale.
    old = {name: value for name, value in model.state_dict().items() if not name.startswith("target_")}
    fresh.load_state_dict(old)
    assert torch.equal(fresh(x).mean, model.scaled_moments(x).mean)
    # Part of a state says nothing of units.
    model.load_state_dict({"encoder.0.bias": torch.zeros(8)}, strict=False)
    assert model.target_center is not None
    assert copy.deepcopy(model).double()(x.double()).mean.dtype == torch.float64


def test_a_resumed_fit_knows_the_units(tmp_path: Path) -> None:
    x, y = rows()
    means = []
    for target in (1000.0 + y, torch.zeros_like(y)):
        # The second fit is the first, taken up: it does not look at its targets again.
        model = fitted("ours", target, checkpoint_dir=tmp_path)
        means.append(model(x).mean)
    assert torch.equal(*means)
    other = fitted("ours", 1000.0 + y, checkpoint_dir=tmp_path, scale_targets=False)
    assert other.target_center is None


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_targets_that_are_no_numbers_are_said_first(value: float) -> None:
    x, y = rows()
    y[3, 1] = value
    with pytest.raises(ValueError, match="Targets are NaN or infinite"):
        b.fit_baseline(b.GaussianNetwork(MLP(2, (8,)), 8, 2), [(x, y)], verbose=False)


def test_targets_too_large_for_a_network() -> None:
    x, y = rows()
    with pytest.raises(ValueError, match="give them in a larger unit"):
        fit_density_regression(DensityRegression(MLP(2, (8,)), 8, 2), [(x, 1e200 * y.double())], verbose=False)


def test_batches_that_come_once() -> None:
    with pytest.raises(ValueError, match="come only once"):
        fit_density_regression(DensityRegression(MLP(2, (8,)), 8, 2), iter([rows()]), pretrained=True)


@pytest.mark.parametrize(
    ("encoder", "match"),
    [
        (MLP(3, (8,)), r"does not take inputs of shape \(80, 2\)"),
        (MLP(2, (7,)), "Set features= to its width"),
        (nn.Flatten(0), "Set features= to its width"),
        (nn.LSTM(2, 8), "expected one tensor of features"),
    ],
)
def test_the_encoder_is_tried_first(encoder: nn.Module, match: str) -> None:
    options = TrainingOptions(epochs=10**9)
    with pytest.raises(ValueError, match=match):
        b.fit_baseline(b.GaussianNetwork(encoder, 8, 2), [rows()], options=options, verbose=False)
    assert encoder.training


# -- NaN among inputs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", NETWORKS)
def test_nan_in_is_nan_out(kind: str) -> None:
    x, y = rows()
    model = fitted(kind, y, epochs=1)
    bad = x.clone()
    bad[3, 1] = math.nan
    with torch.no_grad():
        good, law = model(x), model(bad)
        lost = law.mean.isnan() & law.stddev.isnan()
        assert lost[3].all()
        assert lost.sum() == 2
        others = torch.arange(80) != 3
        torch.testing.assert_close(law.mean[others], good.mean[others])
        # What overflows on the way was a number.
        far = model(1e30 * x)
    assert far.mean.isfinite().all()
    assert far.stddev.isfinite().all()


def test_an_encoder_may_mask_what_is_missing() -> None:
    class Masking(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.nan_to_num())

    x, y = rows()
    x[::7] = math.nan
    model = DensityRegression(Masking(2, 8), 8, 2)
    fit_density_regression(model, [(x, y)], options=TrainingOptions(epochs=1), verbose=False)
    assert model(x).mean.isfinite().all()


def test_nan_stays_where_it_is_in_an_image() -> None:
    model = DensityRegression(nn.Conv1d(2, 8, 3, padding=1), 8)
    x = torch.randn(4, 2, 10)
    x[1, 0, 5] = math.nan
    lost = torch.zeros(4, 1, 10, dtype=torch.bool)
    lost[1, 0, 4:7] = True
    assert torch.equal(model(x).mean.isnan(), lost)
    assert torch.equal(model.decompose(x).aleatoric.isnan(), lost)


def test_nan_by_compiled_and_mapped_modules() -> None:
    model = fitted("ours", rows()[1], epochs=1).requires_grad_(False)
    x = rows()[0][:4].clone()
    x[2, 0] = math.nan
    compiled = torch.compile(model.moments, fullgraph=True, backend="eager")
    for fast, own in zip(compiled(x), model.moments(x), strict=True):
        assert fast.isnan()[2].all()
        torch.testing.assert_close(fast, own, equal_nan=True)
    good = torch.stack([rows()[0][:4]] * 2)
    torch.testing.assert_close(torch.vmap(model.moments)(good).mean[1], model.moments(good[0]).mean)


@pytest.mark.parametrize("kind", ["ours", "gaussian", "ensemble"])
def test_nan_inputs_are_not_learnt_from(kind: str) -> None:
    x, y = rows()
    x[3] = math.nan
    model = NETWORKS[kind](MLP(2, (8,)), 8, 2)
    fit: Any = fit_density_regression if kind == "ours" else b.fit_baseline
    with pytest.raises(ValueError, match="Inputs are NaN"):
        fit(model, [(x, y)], options=TrainingOptions(epochs=1), verbose=False)
