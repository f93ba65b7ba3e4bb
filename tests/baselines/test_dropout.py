"""MC Dropout: thinned networks against all masks at once, and what is the same for all rows."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from density_regression import load
from density_regression.baselines import DropoutNetwork, MCDropoutRegressor, fit_baseline
from density_regression.baselines.dropout import MCDropout
from density_regression.baselines.mixture import mixture_moments
from density_regression.baselines.stochastic_layers import replace_modules
from density_regression.nn.encoders import MLP
from density_regression.nn.heads import Moments
from density_regression.nn.runtime import TrainingOptions
from density_regression.training.batches import TensorBatches


def network(hidden: tuple[int, ...] = (3, 2), dropout: float = 0.3, **params: int) -> DropoutNetwork:
    """A tiny network in float64, in prediction mode; its log-variance depends on the features too."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = DropoutNetwork(MLP(2, hidden), hidden[-1], dropout=dropout, **params).double().eval()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.7)
    return model


def inputs(n: int = 5) -> Tensor:
    return torch.randn(n, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def all_masks(model: DropoutNetwork, x: Tensor, p: float) -> tuple[np.ndarray, np.ndarray]:
    """Exact mean and variance over all masks of 3 + 2 units, by numpy."""
    first, second = (layer for layer in model.encoder if isinstance(layer, nn.Linear))
    linears = [(layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in (first, second, model.linear)]
    total, square = 0.0, 0.0
    for bits in itertools.product([0, 1], repeat=5):
        probability = np.prod([(1 - p) if bit else p for bit in bits])
        keep = np.array(bits) / (1 - p)
        a = np.maximum(x.numpy() @ linears[0][0].T + linears[0][1], 0) * keep[:3]
        z = np.maximum(a @ linears[1][0].T + linears[1][1], 0) * keep[3:]
        mean, log_std = (z @ linears[2][0].T + linears[2][1]).T
        total = total + probability * mean
        square = square + probability * (np.exp(2 * log_std) + mean**2)
    return total, square - total**2


@torch.no_grad()
def errors(n_samples: int, seeds: int, p: float = 0.3) -> np.ndarray:
    """Root mean square error of mean and variance over many seeds, each relative to its size."""
    model, x = network(dropout=p, n_samples=n_samples), inputs()
    exact_mean, exact_variance = all_masks(model, x, p)
    found = []
    for seed in range(seeds):
        model.seed.fill_(seed)
        mean, log_std = (part[:, 0].numpy() for part in model.moments(x))
        found.append([(mean - exact_mean) / np.sqrt(exact_variance), np.exp(2 * log_std) / exact_variance - 1])
    return np.sqrt(np.mean(np.square(found), axis=(0, 2)))


def test_moments_converge_to_those_of_all_masks() -> None:
    few, many = errors(40, seeds=100), errors(40 * 16, seeds=100)
    # At the rate of Monte Carlo: 16 times the samples, a quarter of the error.
    np.testing.assert_allclose(few / many, 4.0, rtol=0.2)
    assert (many < 0.1).all()


def test_members_are_independent_draws() -> None:
    """The variance of the mean of S members is that of one member over S, also between seeds next to each other."""
    model, x = network(n_samples=20), inputs(1)
    with torch.no_grad():
        means = []
        for seed in range(400):
            model.seed.fill_(seed)
            means.append(model.member_moments(x).mean[:, 0, 0].numpy())
    means = np.array(means)
    assert means.mean(1).var() == pytest.approx(means.var() / 20, rel=0.25)


def test_prediction_is_repeated_by_its_seed() -> None:
    model, x = network(), inputs()
    first, again = model.moments(x), model.moments(x)
    assert torch.equal(first.mean, again.mean)
    assert torch.equal(first.log_std, again.log_std)
    model.seed.add_(1)
    assert not torch.allclose(model.moments(x).mean, first.mean, rtol=1e-3)


def test_masks_are_the_same_for_all_rows() -> None:
    model = network(n_samples=30)
    row = inputs(1)
    means = model.member_moments(row.repeat(6, 1)).mean
    torch.testing.assert_close(means, means[:, :1].expand_as(means))
    assert means[:, 0].std() > 0.01


@pytest.mark.parametrize("rows", [1, 17, 700])
def test_members_do_not_depend_on_how_many_rows_there_are(rows: int) -> None:
    """However many networks are computed at once, row by row they are the same."""
    model, x = network(n_samples=40), inputs(700)
    together, alone = model.member_moments(x), model.member_moments(x[:rows])
    torch.testing.assert_close(alone.mean, together.mean[:, :rows])
    torch.testing.assert_close(alone.log_std, together.log_std[:, :rows])


@pytest.mark.parametrize("dropout", [0.0, 1e-12])
def test_without_dropout_it_is_one_network(dropout: float) -> None:
    model, x = network(dropout=dropout, n_samples=5), inputs()
    members, plain = model.member_moments(x), model.row_moments(model.encode(x))
    for part, expected in zip(members, plain, strict=True):
        torch.testing.assert_close(part, expected.expand_as(part))
    torch.testing.assert_close(model.moments(x).log_std, plain.log_std)


def test_training_masks_differ_by_row() -> None:
    model = network((8, 2), dropout=0.5).train()
    z = model.encode(inputs(5).repeat(40, 1)).unflatten(0, (40, 5))
    assert all(len(z[:, row].unique(dim=0)) > 2 for row in range(5))
    outputs = model.row_moments(torch.ones(40, 2, dtype=torch.float64)).mean
    assert 2 <= len(outputs.unique()) <= 4


def test_units_are_dropped_as_often_as_asked() -> None:
    layer = MCDropout(0.2).train()
    x = torch.ones(200_000, 3)
    assert (layer(x) == 0).float().mean().item() == pytest.approx(0.2, abs=0.005)
    assert layer(x).mean().item() == pytest.approx(1.0, abs=0.01)
    assert torch.equal(layer.eval()(x), x)


def test_dropout_follows_every_activation_and_the_features() -> None:
    model = DropoutNetwork(MLP(4, (5, 6, 7)), 7, dropout=0.1)
    kinds = [type(layer) for layer in model.encoder]
    pair = [nn.Linear, nn.ReLU]
    assert kinds == [*pair, MCDropout, *pair, MCDropout, *pair]
    assert [part.p for part in model.modules() if isinstance(part, MCDropout)] == [0.1] * 3


def test_dropout_layers_of_an_own_encoder_are_converted() -> None:
    shared = nn.Dropout(0.4)
    encoder = nn.Sequential(nn.Linear(2, 4), shared, nn.Sequential(nn.Linear(4, 3), shared), nn.Unflatten(1, (3, 1)))
    encoder.extend([nn.Dropout1d(0.3), nn.Flatten()])
    model = DropoutNetwork(encoder, 3, dropout=0.1, n_samples=64).eval()
    inside = [part for part in model.encoder.modules() if isinstance(part, MCDropout)]
    assert [(part.p, part.channels) for part in inside] == [(0.4, False), (0.3, True)]
    assert model.encoder[1] is model.encoder[2][1]
    assert not any(isinstance(part, nn.Dropout | nn.Dropout1d) for part in model.modules())
    assert isinstance(encoder[1], nn.Dropout), "the caller's encoder is not touched"
    # With the dropout of the features off, that of the encoder still acts at prediction.
    model.dropout.p = 0.0
    nn.init.ones_(model.linear.weight)
    assert model.member_moments(inputs(3).float()).mean.std(0).min() > 0.01


def test_a_plain_network_with_a_forward_of_its_own_keeps_it() -> None:
    class Shifted(MLP):
        def forward(self, x: Tensor) -> Tensor:
            features: Tensor = super().forward(x)
            return features + 5.0

    encoder = Shifted(2, (3,))
    x = torch.randn(4, 2)
    assert torch.equal(DropoutNetwork(encoder, 3).eval().encoder(x), encoder(x))


def test_an_encoder_that_is_a_dropout_layer_itself() -> None:
    assert isinstance(DropoutNetwork(nn.Dropout(0.5), 2).encoder, MCDropout)
    lone = nn.Linear(2, 2)
    assert type(replace_modules(lone, lambda _: None)) is nn.Linear


def test_channels_are_dropped_whole() -> None:
    x = torch.ones(50, 6, 4, 4)
    out = MCDropout(0.5, channels=True).train()(x)
    assert torch.equal(out, out[..., :1, :1].expand_as(out))
    assert 0 < (out == 0).float().mean() < 1
    assert (out != out[:1]).any()


def test_early_stopping_looks_at_a_mixture() -> None:
    model, x = network(n_samples=8), inputs(30)
    y, weight = torch.sin(x[:, :1]), torch.linspace(0.0, 2.0, 30, dtype=torch.float64)
    mean, log_std = mixture_moments(model.member_moments(x))
    nll = -torch.distributions.Normal(mean, log_std.exp()).log_prob(y)[:, 0]
    torch.testing.assert_close(model.loss(x, y, weight), (nll * weight).sum() / weight.sum())
    with pytest.raises(ValueError, match="Targets have shape"):
        model.loss(x, y[:, 0], weight)


def test_prediction_leaves_the_generator_alone() -> None:
    model = network()
    before = torch.random.get_rng_state()
    model.moments(inputs())
    model.loss(inputs(), inputs()[:, :1], torch.ones(5))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_threads_may_share_a_network() -> None:
    model, x = network(n_samples=200), inputs(50)
    expected = model.moments(x).mean.detach()
    found: list[Tensor] = []
    threads = [threading.Thread(target=lambda: found.append(model.moments(x).mean.detach())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(torch.equal(part, expected) for part in found)


def test_images_are_predicted_per_pixel() -> None:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Dropout2d(0.2), nn.Conv2d(8, 5, 1), nn.ReLU())
    model = DropoutNetwork(encoder, 5, 2, n_samples=7)
    x = torch.randn(12, 3, 6, 4)
    y = torch.stack([x.sum(1), x[:, 0]], 1)
    batches = TensorBatches(x, y, torch.ones(12), 4, torch.Generator().manual_seed(0))
    report = fit_baseline(model, batches, batches, options=TrainingOptions(epochs=1), verbose=False)
    assert np.isfinite(report.history).all()
    members = model.member_moments(x)
    assert members.mean.shape == members.log_std.shape == (7, 12, 2, 6, 4)
    dist = model(x)
    assert dist.mean.shape == (12, 2, 6, 4)
    # Each image, and for the features each pixel, meets the same networks.
    torch.testing.assert_close(model.member_moments(x[3:4]).mean, members.mean[:, 3:4])
    z = torch.ones(1, 5, 6, 4)
    model.encoder = nn.Identity()
    means = model.member_moments(z).mean
    torch.testing.assert_close(means, means[..., :1, :1].expand_as(means))


def test_gradient_reaches_every_parameter() -> None:
    model = network((8, 8)).train()
    model.loss(inputs(40), inputs(40)[:, :1], torch.ones(40, dtype=torch.float64)).backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


def test_the_seed_is_of_the_fit_and_saved(tmp_path, cubic) -> None:
    settings = {"hidden": (8,), "epochs": 2, "dropout": 0.4, "verbose": False}
    first, same, other = (MCDropoutRegressor(random_state=s, **settings).fit(*cubic) for s in (0, 0, 1))
    assert first.model_.seed == same.model_.seed != other.model_.seed
    first.save(tmp_path)
    back = load(tmp_path)
    assert back.model_.seed == first.model_.seed
    np.testing.assert_array_equal(back.predict_members(cubic.X), first.predict_members(cubic.X))


@pytest.mark.parametrize(
    "params", [{"dropout": 1.0}, {"dropout": -0.1}, {"n_samples": 0}, {"n_samples": 10**9}], ids=str
)
def test_bad_parameters(params: dict[str, float], cubic) -> None:
    with pytest.raises(ValueError, match=next(iter(params))):
        MCDropoutRegressor(**params).fit(*cubic)


@pytest.mark.parametrize("params", [{"dropout": 1.0}, {"n_samples": 0}], ids=str)
def test_bad_arguments_of_the_network(params: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(params))):
        DropoutNetwork(MLP(2), 100, **params)


def test_far_away_moments_are_finite() -> None:
    with torch.no_grad():
        moments = network().float().moments(torch.full((2, 2), 1e12))
    assert isinstance(moments, Moments)
    assert all(part.isfinite().all() for part in moments)


def test_fits_in_threads_draw_what_they_would_alone() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))

    def fitted(_: int) -> NDArray[np.float64]:
        return MCDropoutRegressor(hidden=(8,), epochs=5, random_state=0, verbose=False).fit(X, X[:, 0]).predict(X)

    expected = fitted(0)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(fitted, range(8)):
            np.testing.assert_array_equal(found, expected)
