"""Networks with random weights or masks: attention, batches in the first place, bounded memory, frozen layers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from density_regression import MLP
from density_regression.baselines import BayesianNetwork, DropoutNetwork, stochastic_layers


class Attention(nn.Module):
    """One layer of a transformer over the columns of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(1, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.embed(x[..., None])).mean(1)


class TimeFirst(nn.Module):
    """Columns before rows, as recurrent networks like them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.T[..., None]).mean(0)


@pytest.mark.parametrize("kind", [DropoutNetwork, BayesianNetwork])
def test_attention_draws_too(kind) -> None:
    torch.manual_seed(0)
    model = kind(Attention(), 8, n_samples=10).eval()
    if kind is DropoutNetwork:
        # Only the encoder's own.
        model.dropout.p = 0.0
    x = torch.randn(5, 3)
    with torch.inference_mode():
        spread = model.member_moments(x).mean.std(0)
    assert (spread > 1e-4).all()
    assert torch.backends.mha.get_fastpath_enabled()
    assert torch.isfinite(model.loss(x, x[:, :1], torch.ones(5)))


def test_the_fast_path_of_attention_stays_off_while_another_thread_samples() -> None:
    first, second = (stochastic_layers._AttentionFastPath.off() for _ in range(2))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not torch.backends.mha.get_fastpath_enabled()
    second.__exit__(None, None, None)
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("kind", [DropoutNetwork, BayesianNetwork])
def test_a_batch_that_is_not_in_the_first_place_is_refused(kind) -> None:
    model = kind(TimeFirst(), 8, n_samples=10).eval()
    with pytest.raises(ValueError, match="in the first place"):
        model(torch.randn(5, 3))


@pytest.mark.parametrize("kind", [DropoutNetwork, BayesianNetwork])
def test_no_rows_have_no_predictions(kind) -> None:
    model = kind(MLP(3, (8, 8)), 8, 2, n_samples=10).eval()
    assert model.member_moments(torch.zeros(0, 3)).mean.shape == (10, 0, 2)
    assert model(torch.zeros(0, 3)).stddev.shape == (0, 2)


def test_memory_does_not_grow_with_the_number_of_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = BayesianNetwork(MLP(3, (8,)), 8, n_samples=7).eval()
    x = torch.randn(4, 3)
    expected = model.member_moments(x)
    sizes = []
    original = stochastic_layers._drawing
    monkeypatch.setattr(
        stochastic_layers, "_drawing", lambda group, rows: sizes.append(len(group)) or original(group, rows)
    )
    monkeypatch.setattr(stochastic_layers, "MAX_WEIGHTS_AT_ONCE", 2 * sum(part.numel() for part in model.parameters()))
    got = model.member_moments(x)
    assert sizes == [2, 2, 2, 1]
    torch.testing.assert_close(got.mean, expected.mean)
    torch.testing.assert_close(got.log_std, expected.log_std)


def test_frozen_layers_stay_frozen() -> None:
    encoder = MLP(3, (8, 8))
    encoder[0].requires_grad_(False)
    model = BayesianNetwork(encoder, 8)
    assert [part.requires_grad for part in model.encoder.parameters()] == [False, False, True, True]


def test_noise_in_half_precision_is_computed_in_single() -> None:
    torch.manual_seed(0)
    model = BayesianNetwork(nn.Sequential(nn.Linear(3, 8, bias=False), nn.Tanh()), 8, initial_std=1e-4).train()
    with torch.autocast("cpu", torch.float16):
        loss = model.loss(3000 * torch.randn(6, 3), torch.randn(6, 1), torch.ones(6))
    loss.backward()
    assert all(part.grad.isfinite().all() for part in model.encoder.parameters())
