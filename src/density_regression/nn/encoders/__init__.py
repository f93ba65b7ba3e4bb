"""Encoders f: from inputs to the features z on which density and head work."""

from density_regression.nn.encoders.embedding import Embedded, PiecewiseEmbedding, embed, embedding_of
from density_regression.nn.encoders.tabular import (
    MLP,
    ResidualMLP,
    WithInputs,
    beside,
    feature_width,
    ignore_last_column,
    plain_layers,
)
from density_regression.nn.encoders.unet import UNet

__all__ = [
    "MLP",
    "Embedded",
    "PiecewiseEmbedding",
    "ResidualMLP",
    "UNet",
    "WithInputs",
    "beside",
    "embed",
    "embedding_of",
    "feature_width",
    "ignore_last_column",
    "plain_layers",
]
