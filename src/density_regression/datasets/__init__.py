"""Data to try the package on: the cubic toy, the UCI tables, weather and depth, and shifts of them."""

__all__ = [
    "UCI_NAMES",
    "DepthFolder",
    "Rows",
    "ShiftData",
    "ShiftSplit",
    "UCIDataset",
    "gap_splits",
    "load_stations",
    "load_uci",
    "load_weather",
    "load_wine_shift",
    "make_cubic",
    "standard_splits",
    "tail_splits",
]

from density_regression.datasets.cubic import make_cubic
from density_regression.datasets.depth import DepthFolder
from density_regression.datasets.shift import Rows, ShiftData, ShiftSplit, gap_splits, load_wine_shift, tail_splits
from density_regression.datasets.stations import load_stations
from density_regression.datasets.uci import UCI_NAMES, UCIDataset, load_uci, standard_splits
from density_regression.datasets.weather import load_weather
