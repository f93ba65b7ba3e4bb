"""Encoders for tables: fully connected networks, also with the inputs appended to the features."""

from collections.abc import Sequence
from itertools import pairwise
from numbers import Integral

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from density_regression.nn.encoders.embedding import Embedded, PiecewiseEmbedding, embedding_of
from density_regression.nn.runtime import FEATURE_BLOCK

__all__ = ["MLP", "ResidualMLP", "WithInputs", "beside", "feature_width", "ignore_last_column", "plain_layers"]


class MLP(nn.Sequential):
    """Fully connected layers, each followed by an in-place ReLU; z is the output of the last.

    Parameters
    ----------
    inputs : int
        Number of input columns.
    hidden : sequence of int
        Width of each layer.

    Examples
    --------
    >>> import torch
    >>> MLP(3, (50, 20))(torch.zeros(7, 3)).shape
    torch.Size([7, 20])
    """

    def __init__(self, inputs: int, hidden: Sequence[int] = (100, 100)) -> None:
        _check_widths(hidden)
        layers: list[nn.Module] = []
        for before, after in zip((inputs, *hidden), hidden, strict=False):
            layers += [nn.Linear(before, after), nn.ReLU(inplace=True)]
        super().__init__(*layers)


class ResidualMLP(nn.Sequential):
    """A linear layer, then residual blocks z + relu(W z + b); z is the output of the last.

    If |W| <= c < 1, a block changes distances by a factor between 1 - c and 1 + c (Liu et al., 2020). Between layers of
    different widths the block is a plain layer relu(W z + b).

    Parameters
    ----------
    inputs, hidden
        See `MLP`; the widths are those of the linear layer and of each block.

    Examples
    --------
    >>> import torch
    >>> ResidualMLP(3, (50, 50, 20))(torch.zeros(7, 3)).shape
    torch.Size([7, 20])
    """

    def __init__(self, inputs: int, hidden: Sequence[int] = (100, 100)) -> None:
        _check_widths(hidden)
        layers: list[nn.Module] = [nn.Linear(inputs, hidden[0])]
        for before, after in pairwise(hidden):
            layers += [_Block(before)] if before == after else [nn.Linear(before, after), nn.ReLU()]
        super().__init__(*layers)


class WithInputs(nn.Module):
    """An encoder's features with the inputs appended: z = (f(x), x), for tables.

    It prevents feature collapse, by which a network maps distant inputs to one feature vector, where no density can
    distinguish them: |z - z'| >= |x - x'|. The head reads the inputs too, as a linear part of the mean.

    Parameters
    ----------
    encoder : nn.Module
        Network from inputs (n, c) to features (n, d).

    Examples
    --------
    >>> import torch
    >>> WithInputs(MLP(3, (50, 20)))(torch.zeros(7, 3)).shape
    torch.Size([7, 24])
    """

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, d + c), padded by zeros, of inputs (n, c)."""
        return beside(self.encoder(x), x)


def beside(z: Tensor, x: Tensor) -> Tensor:
    """Concatenate features (..., d) and inputs (..., c), padded by zeros to a multiple of `FEATURE_BLOCK` columns."""
    padding = _padding(z.shape[-1], x.shape[-1])
    return torch.cat([z, F.pad(x, (0, padding)) if padding else x], dim=-1)


def _padding(features: int, inputs: int) -> int:
    return -(features + inputs) % FEATURE_BLOCK


def plain_layers(encoder: nn.Module) -> tuple[PiecewiseEmbedding | None, list[nn.Linear]]:
    """The embedding, if any, and the linear layers of an `MLP`, with or without inputs beside its features.

    Raises a ValueError for any other encoder.
    """
    inner = encoder.encoder if type(encoder) is WithInputs else encoder
    embedding = None
    if type(inner) is Embedded:
        embedding, inner = inner.embedding, inner.encoder
    linear = [part for part in inner.children() if isinstance(part, nn.Linear)]
    if type(inner) is not MLP or [type(part) for part in inner] != [nn.Linear, nn.ReLU] * len(linear):
        raise ValueError(f"{type(encoder).__name__} is not a plain network.")
    return embedding, linear


@torch.no_grad()
def ignore_last_column(encoder: nn.Module) -> None:
    """Let the first linear layer of a network no longer read the last column of its inputs, in place.

    It changes nothing for rows in which that column is zero. In `WithInputs` it still stands beside the features.
    """
    embedding, first = embedding_of(encoder), next(part for part in encoder.modules() if isinstance(part, nn.Linear))
    columns = first.in_features if embedding is None else embedding.columns
    first.weight[:, columns - 1] = 0.0


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, z: Tensor) -> Tensor:
        return z + torch.relu(self.linear(z))


def _check_widths(hidden: Sequence[int]) -> None:
    if len(hidden) == 0 or not all(isinstance(width, Integral) and width >= 1 for width in hidden):
        raise ValueError(f"hidden must be one or more positive whole numbers, got {hidden!r}.")


@torch.no_grad()
def feature_width(encoder: nn.Module, x: Tensor) -> int:
    """Number of features of `encoder` for a batch `x`; its mode and statistics are left as they are."""
    known = _stated_width(encoder, x)
    if known is not None:
        return known
    training = encoder.training
    try:
        z = encoder.eval()(x)
    except RuntimeError as error:
        shape = tuple(x.shape)
        raise ValueError(f"The encoder does not take inputs of shape {shape} and type {x.dtype}: {error}") from error
    finally:
        encoder.train(training)
    if not isinstance(z, Tensor) or z.ndim < 2 or len(z) != len(x):
        got = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
        raise ValueError(f"The encoder must return features of shape (batch, d) or (batch, d, ...), got {got}.")
    return z.shape[1]


def _stated_width(encoder: nn.Module, x: Tensor) -> int | None:
    """Number of features of a plain network, embedded or in `WithInputs` too, for `x` (n, c); None for other encoders.

    Read off the layers: evaluated on the meta device, where a saved model is sized before it is built, a linear layer
    makes torch import torch._dynamo and sympy, which takes longer than the rest of loading.
    """
    if type(encoder) is WithInputs:
        width = _stated_width(encoder.encoder, x)
        return None if width is None else width + x.shape[1] + _padding(width, x.shape[1])
    columns = x.shape[-1]
    if type(encoder) is Embedded:
        columns, encoder = columns + len(encoder.embedding.column), encoder.encoder
    # The layers of an MLP may have been changed since it was built.
    known, kinds = type(encoder) in (MLP, ResidualMLP), (nn.Linear, nn.ReLU, _Block)
    if not known or not all(type(part) in kinds for part in encoder.children()):
        return None
    linear = [layer for layer in encoder.modules() if isinstance(layer, nn.Linear)]
    takes = x.ndim == 2 and linear[0].in_features == columns and linear[0].weight.dtype == x.dtype
    # Inputs that do not fit are left to the encoder to refuse.
    return linear[-1].out_features if takes else None
