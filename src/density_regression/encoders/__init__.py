"""Encoders f: from inputs to the features z on which density and head work."""

from density_regression.encoders.scene import Patches, WithScene
from density_regression.encoders.tabular import MLP, ResidualMLP, WithInputs, beside, feature_width
from density_regression.encoders.unet import UNet

__all__ = ["MLP", "Patches", "ResidualMLP", "UNet", "WithInputs", "WithScene", "beside", "feature_width"]
