"""Data to try the package on: the paper's cubic toy and the UCI regression tables."""

__all__ = ["UCI_NAMES", "UCIDataset", "load_uci", "make_cubic", "standard_splits"]

from density_regression.datasets.cubic import make_cubic
from density_regression.datasets.uci import UCI_NAMES, UCIDataset, load_uci, standard_splits
