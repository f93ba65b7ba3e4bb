"""Weights of single positions: every loss is that of the positions that have some, and no other is kept."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from density_regression import DensityRegression, TrainingOptions, fit_density_regression
from density_regression.baselines.base import BaselineModule, fit_baseline
from density_regression.baselines.bayesian import BayesianNetwork
from density_regression.baselines.deterministic import DeterministicNetwork
from density_regression.baselines.dropout import DropoutNetwork
from density_regression.baselines.due import DUENetwork
from density_regression.baselines.ensemble import EnsembleNetwork
from density_regression.baselines.gaussian import GaussianNetwork
from density_regression.baselines.sngp import SNGPNetwork
from density_regression.baselines.stochastic_layers import VALIDATION_SAMPLES
from density_regression.nn.heads import Moments
from density_regression.nn.network import position_weights
from density_regression.training.batches import TensorBatches, cache_features
from density_regression.training.pretraining import NegativeLogLikelihood


def conv() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Tanh())


def ensemble() -> EnsembleNetwork:
    return EnsembleNetwork([GaussianNetwork(conv(), 4) for _ in range(2)])


def some_images(n: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """Images (n, 3, 5, 7) with targets (n, 1, 5, 7), and weights (n, 5, 7) of which about half are zero."""
    source = torch.Generator().manual_seed(0)
    x = torch.rand(n, 3, 5, 7, generator=source)
    weight = torch.rand(n, 5, 7, generator=source).sub(0.5).clamp_min(0)
    return x, 3 * x[:, :1] + 0.1 * torch.randn(n, 1, 5, 7, generator=source), weight


def by_hand(moments: Moments, y: Tensor, weight: Tensor) -> Tensor:
    """Mean over single positions with weight, one after another."""
    terms = []
    for place in weight.nonzero().tolist():
        i, *rest = place
        mean, log_std, truth = (part[(i, 0, *rest)] for part in (*moments, y))
        terms.append((-torch.distributions.Normal(mean, log_std.exp()).log_prob(truth), weight[tuple(place)]))
    return sum(loss * share for loss, share in terms) / sum(share for _, share in terms)  # type: ignore[return-value]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


NETWORKS: dict[str, Callable[[], BaselineModule]] = {
    "gaussian": lambda: GaussianNetwork(conv(), 4),
    "dropout": lambda: DropoutNetwork(
        nn.Sequential(*conv(), nn.Dropout2d(0.5)), 4, dropout=0.5, n_samples=VALIDATION_SAMPLES
    ),
}


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS.keys())
def test_losses(network: Callable[[], BaselineModule]) -> None:
    model = network().eval()
    x, y, weight = some_images()
    torch.testing.assert_close(model.loss(x, y, weight), by_hand(model.moments(x), y, weight))
    # Targets without weight may be anything.
    other = torch.where(weight[:, None] > 0, y, 1e3)
    torch.testing.assert_close(model.loss(x, other, weight), model.loss(x, y, weight))


def test_loss_in_training() -> None:
    model = DropoutNetwork(conv(), 4, dropout=0.0).train()
    x, y, weight = some_images()
    torch.testing.assert_close(model.loss(x, y, weight), by_hand(GaussianNetwork.moments(model, x), y, weight))


def test_loss_of_an_ensemble() -> None:
    model = ensemble()
    x, y, weight = some_images()
    expected = sum(by_hand(member.moments(x), y, weight) for member in model.networks) / 2
    torch.testing.assert_close(model.loss(x, y, weight), expected)


def test_loss_of_step_one() -> None:
    model = DensityRegression(conv(), 4)
    x, y, weight = some_images()
    z = model.encoder(x)
    mean, log_std = (model.positions(part, z) for part in model.head.unbounded(model.rows(z)))
    torch.testing.assert_close(NegativeLogLikelihood(model)(x, y, weight), by_hand(Moments(mean, log_std), y, weight))


def test_weights_of_whole_samples_are_those_of_all_their_positions() -> None:
    model = GaussianNetwork(conv(), 4)
    x, y, _ = some_images()
    weight = torch.arange(6.0)
    torch.testing.assert_close(model.loss(x, y, weight), model.loss(x, y, weight[:, None, None].expand(6, 5, 7)))


@pytest.mark.parametrize("shape", [(6, 1, 5, 7), (6, 7, 5), (6, 5), (6, 35), (5, 5, 7), (7,), ()])
def test_wrong_shape(shape: tuple[int, ...]) -> None:
    x, y, _ = some_images()
    for model in (GaussianNetwork(conv(), 4), ensemble()):
        with pytest.raises(ValueError, match=r"Weights have shape .*, expected \(6,\) or \(6, 5, 7\)"):
            model.loss(x, y, torch.ones(shape))


def test_tables_have_one_weight_a_row() -> None:
    y = torch.zeros(4, 2)
    assert position_weights(torch.ones(4), y).shape == (4,)
    with pytest.raises(ValueError, match="Weights have shape"):
        position_weights(torch.ones(4, 2), y)


class _Sequences(nn.Module):
    """Features of every moment of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv1d(3, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x))


@pytest.mark.parametrize("members", [2, 3])
@pytest.mark.parametrize("kind", ["images", "images with batch norm", "sequences"])
def test_an_ensemble_is_fitted(kind: str, members: int) -> None:
    x, y, weight = some_images()
    y = torch.where(weight[:, None] > 0, y, 1e4)
    encoder: Callable[[], nn.Module] = conv
    if kind == "sequences":
        x, y, weight, encoder = x[..., 0], y[..., 0], weight[..., 0], _Sequences
    elif kind == "images with batch norm":
        encoder = lambda: nn.Sequential(conv(), nn.BatchNorm2d(4))  # noqa: E731
    # As many images in a batch as members, which must not be taken for one batch for each.
    batches = DataLoader(TensorDataset(x, y, weight), batch_size=members)
    model = EnsembleNetwork([GaussianNetwork(encoder(), 4) for _ in range(members)])
    options = TrainingOptions(epochs=20, learning_rate=0.02, patience=None)
    history = model.fit(batches, batches, options, None).held_out
    assert len(history) == 20
    assert history[-1] < history[0] - 0.2
    model.eval()
    assert min(history) == pytest.approx(model.loss(x, y, weight).item(), abs=0.05)


class TestCache:
    def test_positions_without_weight_are_dropped(self) -> None:
        x, y, weight = some_images()
        model = DensityRegression(conv(), 4)
        rows = cache_features(model, DataLoader(TensorDataset(x, y, weight), batch_size=4))
        places = weight.nonzero().tolist()
        assert len(rows.z) == len(rows.y) == len(rows.weight) == len(places) < weight.numel()
        z = model.encode(x)
        torch.testing.assert_close(rows.z, torch.stack([z[i, :, j, k] for i, j, k in places]))
        torch.testing.assert_close(rows.y, torch.stack([y[i, :, j, k] for i, j, k in places]))
        torch.testing.assert_close(rows.weight, weight[weight > 0])

    def test_nothing_has_weight(self) -> None:
        x, y, weight = some_images()
        batches = DataLoader(TensorDataset(x, y, torch.zeros_like(weight)), batch_size=4)
        with pytest.raises(ValueError, match="none with weight"):
            cache_features(DensityRegression(conv(), 4), batches)

    def test_one_batch_without_weight(self) -> None:
        x, y, weight = some_images()
        weight[:2] = 0
        rows = cache_features(DensityRegression(conv(), 4), DataLoader(TensorDataset(x, y, weight), batch_size=2))
        torch.testing.assert_close(rows.weight, weight[weight > 0])


def test_targets_without_weight_change_no_step() -> None:
    class Batches:
        """All images at once, with these targets where nothing has weight."""

        def __init__(self, filler: float) -> None:
            self.filler = filler

        def __len__(self) -> int:
            return 1

        def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
            x, y, weight = some_images()
            yield x, torch.where(weight[:, None] > 0, y, self.filler), weight

    states = []
    for filler in (0.0, 7.0, torch.nan):
        torch.manual_seed(0)
        model = DensityRegression(conv(), 4)
        fit_density_regression(model, Batches(filler), Batches(filler), options=TrainingOptions(epochs=3))
        states.append(model.state_dict())
    for other in states[1:]:
        assert all(torch.equal(value, other[name]) for name, value in states[0].items())


class _Pixelwise(nn.Module):
    """Features of every pixel, by a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x.movedim(1, -1))).movedim(-1, 1)


def test_a_bayesian_network_counts_positions_with_weight() -> None:
    weight = torch.zeros(40, 5, 6)
    weight.view(-1)[:601] = 1.0
    model = BayesianNetwork(_Pixelwise(), 4, targets=2)
    x, y = torch.rand(40, 3, 5, 6), torch.rand(40, 2, 5, 6)
    for given, expected in ((weight, 601), (torch.ones(40), 40 * 30), (torch.arange(40.0), 39 * 30)):
        model.begin(DataLoader(TensorDataset(x, y, given), batch_size=8))
        assert model.observations == 2 * expected


TRAINED: dict[str, Callable[[], BaselineModule]] = {
    "deterministic": lambda: DeterministicNetwork(conv(), 4),
    "gaussian": lambda: GaussianNetwork(conv(), 4),
    "ensemble": ensemble,
    "bayesian": lambda: BayesianNetwork(_Pixelwise(), 4),
    "SNGP": lambda: SNGPNetwork(conv(), 4, random_features=32),
    "DUE": lambda: DUENetwork(conv(), 4, n_inducing=5),
}


@pytest.mark.parametrize("network", TRAINED.values(), ids=TRAINED.keys())
@pytest.mark.parametrize("in_memory", [False, True])
def test_missing_targets_may_be_anything(network: Callable[[], BaselineModule], in_memory: bool) -> None:
    x, y, weight = some_images()
    # A batch without any target among them.
    weight[:2] = 0
    predictions = []
    for filler in (0.0, torch.nan):
        torch.manual_seed(0)
        model = network()
        rows = (x, torch.where(weight[:, None] > 0, y, filler), weight)
        batches = TensorBatches(*rows, 2) if in_memory else DataLoader(TensorDataset(*rows), batch_size=2)
        fit_baseline(model, batches, batches, options=TrainingOptions(epochs=2), verbose=False)
        predictions.append(model.moments(x))
    for part, other in zip(*predictions, strict=True):
        assert part.isfinite().all()
        assert torch.equal(part, other)


@pytest.mark.parametrize("network", [TRAINED["SNGP"], TRAINED["DUE"]], ids=["SNGP", "DUE"])
def test_a_gaussian_process_weighs_positions(network: Callable[[], SNGPNetwork | DUENetwork]) -> None:
    x, y, weight = some_images()
    model = network()
    model.begin(DataLoader(TensorDataset(x, y, weight), batch_size=4))
    assert model.total_weight == pytest.approx(weight.sum().item())


def test_an_ensemble_with_weights_in_training_alone() -> None:
    x, y, weight = some_images()
    model = ensemble()
    train, held_out = DataLoader(TensorDataset(x, y, weight), 2), DataLoader(TensorDataset(x, y), 6)
    history = model.fit(train, held_out, TrainingOptions(epochs=10, learning_rate=0.02), None).held_out
    assert history[-1] < history[0]
