"""Data sets: the cubic toy, UCI tables, weather and depth, distribution shifts of them, and natural shifts."""

__all__ = [
    "UCI_NAMES",
    "ColumnCoder",
    "DepthFolder",
    "Rows",
    "ShiftData",
    "ShiftSplit",
    "ShiftTable",
    "UCIDataset",
    "gap_splits",
    "load_natural_shift",
    "load_stations",
    "load_uci",
    "load_weather",
    "load_wine_shift",
    "make_cubic",
    "make_scenes",
    "natural_shifts",
    "own_tables",
    "random_splits",
    "read_depth",
    "read_image",
    "read_table",
    "standard_splits",
    "tail_splits",
    "write_depth",
]

from importlib import import_module
from typing import TYPE_CHECKING, Any

from density_regression.datasets.columns import ColumnCoder
from density_regression.datasets.cubic import make_cubic
from density_regression.datasets.natural import ShiftTable, load_natural_shift, natural_shifts
from density_regression.datasets.shift import Rows, ShiftData, ShiftSplit, gap_splits, load_wine_shift, tail_splits
from density_regression.datasets.stations import load_stations
from density_regression.datasets.uci import (
    UCI_NAMES,
    UCIDataset,
    load_uci,
    own_tables,
    random_splits,
    read_table,
    standard_splits,
)
from density_regression.datasets.weather import load_weather

if TYPE_CHECKING:
    from density_regression.datasets.depth import DepthFolder
    from density_regression.datasets.images import read_depth, read_image, write_depth
    from density_regression.datasets.scenes import make_scenes


def __getattr__(name: str) -> Any:
    # Imported on first use, because only these need torch, which takes seconds to import.
    if name in __all__:
        module = {"DepthFolder": "depth", "make_scenes": "scenes"}.get(name, "images")
        return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
