"""Encoders, densities and temperings of one's own, and networks that exist already."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from density_regression import MLP, DensityRegressor, GaussianDensity, MeanHead, MixtureDensity, NaturalHead, load
from density_regression.nn.tempering import RobustTempering
from estimators.helpers import X20, Y20, Overflowing, Recording, assert_sound, moments, quick

# -- own encoders, densities, temperings ------------------------------------------------------------------------


def test_encoder_factory(friedman) -> None:
    asked = []

    def factory(inputs: int) -> nn.Module:
        asked.append(inputs)
        return nn.Sequential(nn.Linear(inputs, 6), nn.Tanh())

    reg = quick(encoder=factory, epochs=30).fit(*friedman)
    assert asked == [10] * 5  # its own network, and four that do not see all rows
    assert isinstance(reg.model_.encoder[1], nn.Tanh)
    assert reg.model_.features == 6
    assert reg.score(*friedman) > 0.5


def test_a_factory_that_returns_the_same_network_each_time(cubic) -> None:
    """Fits train copies: a later one neither changes an earlier one, nor goes on where it ended."""
    network = nn.Sequential(nn.Linear(1, 6), nn.Tanh())
    fits = [quick(encoder=lambda columns: network, random_state=0) for _ in range(2)]
    fits[0].fit(*cubic)
    before = fits[0].predict(cubic[0])
    fits[1].fit(*cubic)
    np.testing.assert_array_equal(fits[0].predict(cubic[0]), before)
    np.testing.assert_array_equal(fits[1].predict(cubic[0]), before)


def test_encoder_sees_scaled_inputs() -> None:
    rng = np.random.default_rng(0)
    X = 1e6 + 50.0 * rng.normal(size=(400, 2))
    reg = quick(encoder=Recording(), epochs=1).fit(X, X[:, 0])
    training = torch.cat(reg.model_.encoder.seen)
    np.testing.assert_allclose(training.mean(0), 0.0, atol=0.2)
    np.testing.assert_allclose(training.std(0), 1.0, atol=0.2)


def test_own_module_is_copied_and_predicts_in_eval_mode(cubic) -> None:
    encoder = nn.Sequential(nn.Linear(1, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3))
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    reg = quick(encoder=encoder, epochs=30).fit(*cubic)
    assert encoder.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in encoder.state_dict().items())
    assert reg.encoder is encoder
    assert not reg.model_.encoder.training
    trained = reg.model_.encoder.state_dict()
    assert not torch.equal(trained["0.weight"], before["0.weight"])
    np.testing.assert_array_equal(moments(reg, cubic.X), moments(reg, cubic.X))
    assert all(torch.equal(tensor, trained[name]) for name, tensor in reg.model_.encoder.state_dict().items())
    assert reg.score(*cubic) > 0.9


def test_own_module_starts_from_its_weights(cubic) -> None:
    """Fine-tuning: with next to no learning rate, the encoder stays what it was."""
    encoder = MLP(1, (16,))
    reg = quick(encoder=encoder, learning_rate=1e-12).fit(*cubic)
    for before, after in zip(encoder.parameters(), reg.model_.encoder.parameters(), strict=True):
        torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-6)


def test_own_density_and_tempering_are_copied_and_used(cubic) -> None:
    density, tempering = MixtureDensity(components=1), RobustTempering(exponent=2.0)
    reg = quick(density=density, tempering=tempering).fit(*cubic)
    assert not density.fitted
    assert reg.model_.density is not density
    assert reg.model_.density.config()["components"] == 1
    assert tempering.reference == 0.0
    gentle = quick(density=density, tempering=RobustTempering(exponent=1.0)).fit(*cubic)
    far = [[1e4]]
    assert moments(reg, far)[1] > 10 * moments(gentle, far)[1]


@pytest.mark.parametrize(("head", "kind"), [("natural", NaturalHead), ("mean", MeanHead)])
def test_head_is_the_one_asked_for(cubic, head: str, kind: type) -> None:
    assert isinstance(quick(head=head).fit(*cubic).model_.head, kind)


def test_encoder_that_overflows_is_held_finite(cubic) -> None:
    reg = quick(encoder=Overflowing(), epochs=15).fit(*cubic)
    far = np.array([[20.0], [-1e3], [1e30]])
    assert not torch.isfinite(reg.model_.encoder(torch.from_numpy(far).float())).all()
    assert_sound(reg, far)
    assert (moments(reg, far)[1] > moments(reg, cubic.X)[1].max()).all()


def test_plain_network_has_the_widths_asked_for(cubic) -> None:
    reg = quick(hidden=[5, 7]).fit(*cubic)
    assert [layer.out_features for layer in reg.model_.encoder.modules() if isinstance(layer, nn.Linear)] == [5, 7]


@pytest.mark.parametrize(
    "params", [{"batch_size": 7}, {"batch_size": 10_000, "members": 0}, {"device": "auto"}, {"patience": 1}]
)
def test_other_settings(cubic, params: dict[str, object]) -> None:
    reg = quick(epochs=15, **params).fit(*cubic)
    assert reg.score(*cubic) > 0.9


def test_mixed_precision(cubic) -> None:
    reg = quick(epochs=15, precision="bf16-mixed").fit(*cubic)
    assert reg.score(*cubic) > 0.9
    assert_sound(reg, cubic.X)


# -- a network somebody already has -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def linear_problem() -> tuple[np.ndarray, np.ndarray]:
    """Two columns in units of their own, and a linear target with noise of 0.5."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2)) * [3.0, 0.2] + [10.0, -1.0]
    return X, X @ [2.0, -5.0] + rng.normal(0, 0.5, 600)


def test_from_trained_on_a_linear_problem(linear_problem) -> None:
    X, y = linear_problem
    reg = DensityRegressor.from_trained(nn.Identity(), X[:400], y[:400], random_state=0)
    mean, std = reg.predict(X[400:], return_std=True)
    np.testing.assert_allclose(mean, X[400:] @ [2.0, -5.0], atol=0.5)
    assert np.median(std) == pytest.approx(0.5, rel=0.25)
    assert moments(reg, [[10.0, 200.0]])[1] > 10 * std.max()
    assert reg.report_.history == []
    assert reg.familiarity([[1e3, 1e3]]) == 0.0


@pytest.mark.parametrize("head", ["natural", "mean"])
def test_from_trained_leaves_the_encoder_as_it_is(linear_problem, head: str) -> None:
    X, y = linear_problem
    encoder = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5))
    encoder[1].running_mean.fill_(0.3)
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    reg = DensityRegressor.from_trained(encoder, X, y, head=head, random_state=0)
    assert encoder.training
    for module in (encoder, reg.model_.encoder):
        assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert reg.model_.encoder is not encoder
    assert not reg.model_.encoder.training
    np.testing.assert_array_equal(moments(reg, X), moments(reg, X))


def test_from_trained_gives_the_encoder_the_users_units(linear_problem) -> None:
    X, y = linear_problem
    reg = DensityRegressor.from_trained(Recording(), X, y, random_state=0)
    given = {tuple(row) for batch in reg.model_.encoder.seen for row in batch.tolist()}
    # Blocks of rows to predict are filled up with zeros.
    assert given - {(0.0, 0.0)} == {tuple(row) for row in X.astype(np.float32).tolist()}
    reg.model_.encoder.seen.clear()
    reg.predict(X[:20])
    np.testing.assert_array_equal(reg.model_.encoder.seen[0][:20], X[:20].astype(np.float32))


class SinceThen(nn.Module):
    """Features of seconds since 1970, more than a standardised input ever is."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - 1.7e9) / 1e6


@pytest.mark.parametrize("encoder", [SinceThen, nn.Identity])
def test_from_trained_on_large_numbers(tmp_path: Path, encoder: type[nn.Module]) -> None:
    rng = np.random.default_rng(0)
    X = 1.7e9 + 1e6 * rng.normal(size=(400, 1))
    y = 1e-6 * (X[:, 0] - 1.7e9) + rng.normal(0, 0.1, 400)
    reg = DensityRegressor.from_trained(encoder(), X, y, random_state=0)
    assert reg.score(X, y) > 0.98
    far = np.concatenate([X[:9], [[0.0], [-1e20], [1e30], [1e300]]])
    assert_sound(reg, far)
    reg.save(tmp_path / "model")
    np.testing.assert_array_equal(moments(load(tmp_path / "model", encoder=encoder()), far), moments(reg, far))


def test_from_trained_holds_a_plain_network_finite(linear_problem) -> None:
    X, y = linear_problem
    reg = DensityRegressor.from_trained(MLP(2, (8, 8)), X, y, random_state=0)
    far = np.concatenate([X[:5], 1e10 * X[:5], 1e300 * X[:5]])
    assert_sound(reg, far)
    mean, log_std = reg.model_.moments(reg.x_scaling_.apply(far))
    scaled = (moments(reg, far)[0] - reg.y_scaling_.center) / reg.y_scaling_.scale
    np.testing.assert_allclose(scaled, mean[:, 0].detach(), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(moments(reg, far)[1] / reg.y_scaling_.scale, log_std[:, 0].detach().exp(), rtol=1e-3)


def test_from_trained_uses_the_held_out_rows(linear_problem) -> None:
    X, y = linear_problem
    noise = 5.0 * np.random.default_rng(1).normal(size=200)
    quiet, noisy = (
        DensityRegressor.from_trained(nn.Identity(), X[:400], y[:400], held_out=(X[400:], held), random_state=0)
        for held in (y[400:], y[400:] + noise)
    )
    ratio = moments(noisy, X)[1] / moments(quiet, X)[1]
    assert np.median(ratio) == pytest.approx(10.0, rel=0.2)
    assert len(quiet.held_out_levels_) == 200
    np.testing.assert_allclose(np.sort(quiet.score_samples(X[400:])), quiet.held_out_levels_, atol=1e-4)


def test_from_trained_trains_on_every_row_if_others_are_held_out(linear_problem) -> None:
    X, y = linear_problem
    held_out = (X[400:], y[400:])
    reg = DensityRegressor.from_trained(Recording(), X[:400], y[:400], held_out=held_out, random_state=0)
    assert sum(len(batch) for batch in reg.model_.encoder.seen) >= 600
    # The target's centre is that of all training rows, and of no held-out row.
    assert reg.y_scaling_.center == pytest.approx(y[:400].mean())


def test_from_trained_takes_parameters_and_several_targets(linear_problem) -> None:
    X, y = linear_problem
    Y = np.column_stack([y, 1e4 * X[:, 0]])
    reg = DensityRegressor.from_trained(
        nn.Identity(), X, Y, held_out=(X[:50], Y[:50]), density="gaussian", tempering="rescaled", random_state=0
    )
    assert isinstance(reg.model_.density, GaussianDensity)
    assert reg.get_params()["tempering"] == "rescaled"
    assert reg.score(X, Y) > 0.95


def test_from_trained_refuses_what_is_no_module() -> None:
    for encoder in (None, lambda inputs: nn.Linear(inputs, 3), MLP, "mlp"):
        with pytest.raises(ValueError, match="encoder must be a trained torch module"):
            DensityRegressor.from_trained(encoder, X20, Y20)
    with pytest.raises(TypeError, match="hiden"):
        DensityRegressor.from_trained(nn.Identity(), X20, Y20, hiden=(3,))


def test_from_trained_refuses_bad_held_out_rows() -> None:
    two = np.column_stack([Y20, Y20])
    with pytest.raises(ValueError, match="2 features"):
        DensityRegressor.from_trained(nn.Identity(), X20, Y20, held_out=(np.column_stack([X20, X20]), Y20))
    with pytest.raises(ValueError, match="NaN"):
        DensityRegressor.from_trained(nn.Identity(), X20, Y20, held_out=(X20 * np.nan, Y20))
    for y, held in ((Y20, two), (two, Y20)):
        with pytest.raises(ValueError, match="held_out"):
            DensityRegressor.from_trained(nn.Identity(), X20, y, held_out=(X20, held))


def test_from_trained_does_not_resume_from_a_fit(linear_problem, tmp_path) -> None:
    X, y = linear_problem
    encoder = MLP(2, (8,))
    params = {"epochs": 2, "random_state": 0, "checkpoint_dir": tmp_path}
    DensityRegressor(encoder=encoder, **params).fit(X, y)
    reg = DensityRegressor.from_trained(encoder, X, y, **params)
    for before, after in zip(encoder.parameters(), reg.model_.encoder.parameters(), strict=True):
        assert torch.equal(before, after)
    other = DensityRegressor.from_trained(encoder, X, y, held_out=(X[:50], 10 * y[:50]), **params)
    assert not np.allclose(moments(other, X)[1], moments(reg, X)[1])
