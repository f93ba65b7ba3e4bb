"""The piecewise-linear embedding of columns: its values, its width, and finite results for any input."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import nn

from density_regression.nn.encoders import MLP, Embedded, PiecewiseEmbedding, ResidualMLP, WithInputs, feature_width
from density_regression.training.vectorised import stack

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def rows(n: int = 200) -> torch.Tensor:
    """A normal column, a skewed one, one of two values, a constant, and one of four values."""
    torch.manual_seed(0)
    numbers = torch.randint(0, 4, (n,)).float()
    return torch.stack([torch.randn(n), torch.randn(n).exp() ** 2, (numbers > 1).float(), torch.ones(n), numbers], 1)


def slow(embedding: PiecewiseEmbedding, x: torch.Tensor, train: torch.Tensor) -> np.ndarray:
    """The embedding as its docstring has it, in float64 and number by number."""
    x, train = x.double().numpy(), train.double().numpy()
    columns = [x[:, j] / np.sqrt(1 + (x[:, j] / 3) ** 2) for j in range(x.shape[1])]
    for j in range(x.shape[1]):
        if len(set(train[:, j])) < 3:
            continue
        edges = sorted(set(np.quantile(train[:, j], np.arange(9) / 8, method="inverted_cdf")))
        for low, high in pairwise(edges):
            value, mean = (
                np.array([min(max((v - low) / (high - low), 0.0), 1.0) for v in values])
                for values in (x[:, j], train[:, j])
            )
            columns.append(0.3 * (value - mean.mean()))
    return np.stack(columns, 1)


def test_values_are_those_of_a_slow_loop() -> None:
    train = rows()
    embedding = PiecewiseEmbedding.fit(train)
    for x in (train, 3 * rows(50)):
        np.testing.assert_allclose(embedding(x).numpy(), slow(embedding, x, train), atol=2e-6)
    assert embedding(train)[:, 5:].mean(0).abs().max() < 1e-6


def test_columns_of_one_or_two_values_have_no_bins() -> None:
    train = rows()
    embedding = PiecewiseEmbedding.fit(train)
    assert torch.bincount(embedding.column, minlength=5).tolist() == [8, 8, 0, 0, 3]
    assert embedding.width == embedding(train).shape[1] == 5 + 19
    plain = PiecewiseEmbedding.fit(train[:, 2:4])
    assert plain.width == plain(train[:, 2:4]).shape[1] == 2


def test_rows_of_weight_zero_do_not_count() -> None:
    train, weight = rows(), torch.ones(200)
    weight[100:] = 0.0
    expected = PiecewiseEmbedding.fit(train[:100])
    torch.testing.assert_close(
        PiecewiseEmbedding.fit(train, weight).state_dict(), expected.state_dict(), rtol=0, atol=0
    )
    weight[100:] = 2.0
    repeated = PiecewiseEmbedding.fit(torch.cat([train, train[100:]]))
    torch.testing.assert_close(PiecewiseEmbedding.fit(train, weight).state_dict(), repeated.state_dict())


@settings(max_examples=50, deadline=None)
@given(train=hnp.arrays(np.float32, (7, 3), elements=FLOATS), x=hnp.arrays(np.float32, (4, 3), elements=FLOATS))
def test_finite_and_bounded_for_any_finite_input(train: np.ndarray, x: np.ndarray) -> None:
    embedding = PiecewiseEmbedding.fit(torch.from_numpy(train))
    given = torch.from_numpy(x).requires_grad_()
    embedded = embedding(given)
    assert embedded.isfinite().all()
    assert embedded[:, :3].abs().max() <= 3.0 * (1 + 1e-6)
    assert embedded[:, 3:].abs().sum() == 0 or embedded[:, 3:].abs().max() <= 0.3 * (1 + 1e-6)
    (gradient,) = torch.autograd.grad(embedded.sum(), given)
    assert gradient.isfinite().all()


def test_far_away_columns_keep_their_sign() -> None:
    embedding = PiecewiseEmbedding.fit(rows())
    far = embedding(torch.full((1, 5), -3e38))[0]
    torch.testing.assert_close(far[:5], torch.full((5,), -3.0))


@pytest.mark.parametrize("network", [MLP, ResidualMLP])
def test_width_is_known_without_a_pass(network: type[nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    x = rows()
    embedding = PiecewiseEmbedding.fit(x)
    encoder = Embedded(embedding, network(embedding.width, (7, 7, 3)))
    assert encoder(x).shape == (200, 3)
    monkeypatch.setattr(PiecewiseEmbedding, "forward", None)
    assert feature_width(encoder, x) == 3
    assert feature_width(WithInputs(encoder), x) == 8


def test_inputs_beside_the_features_are_not_embedded() -> None:
    x = 100 * rows()
    embedding = PiecewiseEmbedding.fit(rows())
    z = WithInputs(Embedded(embedding, MLP(embedding.width, (7,))))(x)
    torch.testing.assert_close(z[:, 7:12], x)


def test_stacked_encoders_are_each_its_own() -> None:
    tables = [rows()[:, [0, 1, 4]], 2 * rows()[:, [0, 1, 4]] - 1]
    embeddings = [PiecewiseEmbedding.fit(table) for table in tables]
    encoders = [WithInputs(Embedded(own, MLP(own.width, (6, 5)))) for own in embeddings]
    together = stack(encoders)
    assert together is not None
    # Not by vmap, which is several times slower.
    assert not any(type(part).__name__ == "_Mapped" for part in together.modules())
    for i, z in enumerate(together(torch.stack(tables))):
        torch.testing.assert_close(z, encoders[i](tables[i]))
        state = together.member_state(i)
        assert state.keys() == encoders[i].state_dict().keys()
        torch.testing.assert_close(state, dict(encoders[i].state_dict()), rtol=0, atol=0)
    other = PiecewiseEmbedding.fit(tables[0].clamp_min(0))
    assert stack([encoders[0], WithInputs(Embedded(other, MLP(other.width, (6, 5))))]) is None
