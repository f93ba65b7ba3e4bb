"""Encoders f: from inputs to the features z on which density and head work."""

from density_regression.nn.encoders.tabular import MLP, ResidualMLP, WithInputs, beside, feature_width
from density_regression.nn.encoders.unet import UNet

__all__ = ["MLP", "ResidualMLP", "UNet", "WithInputs", "beside", "feature_width"]
