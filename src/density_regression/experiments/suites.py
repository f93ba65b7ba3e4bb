"""The paper's experiments as lists of splits: which rows train, and which test."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from density_regression.datasets import (
    UCI_NAMES,
    Rows,
    ShiftData,
    UCIDataset,
    gap_splits,
    load_stations,
    load_uci,
    load_weather,
    load_wine_shift,
    make_cubic,
    own_tables,
    random_splits,
    standard_splits,
    tail_splits,
)
from density_regression.datasets.fetch import local_file

__all__ = ["SUITES", "Suite", "Task", "chosen"]

Folder = str | Path | None
Split = tuple[NDArray[np.intp], NDArray[np.intp]]

FEWEST_ROWS: Final = 7
"""Of so many rows, any split leaves some to train on, to hold out and to judge a search by."""


class Task(NamedTuple):
    """One split: what trains, what tests (the first in distribution, where there are several), and facts to record."""

    train: Rows
    tests: dict[str, Rows]
    held_out: Rows | None = None
    facts: dict[str, Any] = {}  # noqa: RUF012


class Suite(ABC):
    """An experiment: data sets, each with splits that have a name.

    Attributes
    ----------
    levels : int
        Levels of the paper's calibration error.
    sample : {"spread", "first"}
        Which test rows to keep for figures.
    """

    levels: ClassVar[int] = 100
    sample: ClassVar[Literal["spread", "first"]] = "spread"

    @abstractmethod
    def datasets(self, data_dir: Folder) -> tuple[str, ...]:
        """Names of the data sets that are run unless others are chosen."""

    def known(self, data_dir: Folder) -> tuple[str, ...]:
        """Names of all data sets that may be chosen."""
        return self.datasets(data_dir)

    @abstractmethod
    def splits(self, dataset: str, data_dir: Folder) -> list[str]:
        """Names of all splits of a data set."""

    def usual(self, dataset: str) -> int | None:
        """How many of its splits are run unless a number is given; None is all."""
        return None

    @abstractmethod
    def load(self, dataset: str, split: str, data_dir: Folder) -> Task:
        """The rows of one split."""

    def checksum(self, dataset: str, data_dir: Folder) -> str | None:
        """Of the rows, where somebody may change them under their name; None elsewhere."""
        return None


def chosen(suite: Suite, names: Sequence[str], data_dir: Folder) -> tuple[str, ...]:
    """The data sets to run: those that are named, if the suite knows them, or else its usual ones."""
    if not names:
        return suite.datasets(data_dir)
    known = suite.known(data_dir)
    for name in names:
        if name not in known:
            raise ValueError(
                f"{name!r} is not a data set of this suite, or not in the folder; it has {', '.join(known)}."
            )
    return tuple(dict.fromkeys(names))


class Seeds(Suite):
    """One partition of the data, fitted from several seeds: a split is the name of a seed."""

    count: ClassVar[int] = 5

    def splits(self, dataset: str, data_dir: Folder) -> list[str]:
        """Seeds, of which there are as many as anybody wants."""
        return [str(seed) for seed in range(1000)]

    def usual(self, dataset: str) -> int | None:
        """How many seeds are run unless a number is given."""
        return self.count


class Cubic(Seeds):
    """The cubic toy (`fig:demo`): train on [-4, 4], test there and on what [-7, 7] has beyond."""

    count = 10
    NOISE: Final = 3.0
    EDGE: Final = 4.0
    FAR: Final = 7.0

    def datasets(self, data_dir: Folder) -> tuple[str, ...]:
        """Just one."""
        return ("cubic",)

    def load(self, dataset: str, split: str, data_dir: Folder) -> Task:
        """Rows drawn anew for each seed."""
        seed = int(split)
        train = Rows(*make_cubic(n=1000, low=-self.EDGE, high=self.EDGE, noise=self.NOISE, random_state=seed))
        X, y = make_cubic(n=3500, low=-self.FAR, high=self.FAR, noise=self.NOISE, random_state=seed + 1_000_000)
        inside = np.abs(X[:, 0]) <= self.EDGE
        return Task(train, {"inside": Rows(X[inside], y[inside]), "outside": Rows(X[~inside], y[~inside])})


class UCI(Suite):
    """The UCI tables with their standard splits; and the user's own, divided as often at random."""

    NAMES: Final = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine_red", "yacht")
    FEWER: Final = {"kin8nm": 5, "naval": 5, "power": 5, "protein": 2}

    def datasets(self, data_dir: Folder) -> tuple[str, ...]:
        """The paper's sets; the one of songs, which few have, if it is there."""
        return self.NAMES if local_file("uci/year.csv.gz", data_dir) is None else (*self.NAMES, "year")

    def known(self, data_dir: Folder) -> tuple[str, ...]:
        """The nine, the songs, and those of the user."""
        return (*self.NAMES, "year", *own_tables(data_dir))

    def splits(self, dataset: str, data_dir: Folder) -> list[str]:
        """Splits by number."""
        return [str(number) for number in range(len(_splits(dataset, data_dir)))]

    def usual(self, dataset: str) -> int | None:
        """All of the small sets, a few of the large ones."""
        return self.FEWER.get(dataset)

    def load(self, dataset: str, split: str, data_dir: Folder) -> Task:
        """Rows of a split."""
        X, y, *_ = _uci(dataset, data_dir)
        train, test = _splits(dataset, data_dir)[int(split)]
        return Task(Rows(X[train], y[train]), {"test": Rows(X[test], y[test])})

    def checksum(self, dataset: str, data_dir: Folder) -> str | None:
        """Of the whole table."""
        return _checksum(dataset, data_dir)


class UCIShift(Suite):
    """The UCI tables with a part of one feature's range hidden from training: its middle (gap) or its ends (tail)."""

    NAMES: Final = ("boston", "concrete", "energy", "kin8nm", "power", "wine_red", "yacht")

    def datasets(self, data_dir: Folder) -> tuple[str, ...]:
        """Those of moderate size."""
        return self.NAMES

    def known(self, data_dir: Folder) -> tuple[str, ...]:
        """Every UCI table, and those of the user."""
        return (*UCI_NAMES, *own_tables(data_dir))

    def splits(self, dataset: str, data_dir: Folder) -> list[str]:
        """Gap and tail of each feature, as "gap:FEATURE"."""
        return list(_shift_splits(dataset, data_dir))

    def load(self, dataset: str, split: str, data_dir: Folder) -> Task:
        """Rows of a gap or tail split."""
        X, y, *_ = _uci(dataset, data_dir)
        shift = _shift_splits(dataset, data_dir)[split]
        train, test = Rows(X[shift.train], y[shift.train]), Rows(X[shift.test], y[shift.test])
        return Task(train, {"test": test}, facts={"genuine": bool(shift.genuine)})

    def checksum(self, dataset: str, data_dir: Folder) -> str | None:
        """Of the whole table."""
        return _checksum(dataset, data_dir)


class Wine(Suite):
    """Red wine, and white wine as the shift (`tab:uci`)."""

    def datasets(self, data_dir: Folder) -> tuple[str, ...]:
        """Just one."""
        return ("wine_red",)

    def splits(self, dataset: str, data_dir: Folder) -> list[str]:
        """Standard splits of the red wines by number."""
        return [str(number) for number in range(len(_splits("wine_red", data_dir)))]

    def load(self, dataset: str, split: str, data_dir: Folder) -> Task:
        """Red wines of a standard split, and all white wines."""
        return _task(load_wine_shift(int(split), data_dir))


class Weather(Seeds):
    """Temperature of the next hour at Jena; another station and year as the shift (`tab:time-series`)."""

    levels = 20
    sample = "first"

    def datasets(self, data_dir: Folder) -> tuple[str, ...]:
        """The name of what the folder has: the paper's years, or the stand-in."""
        return (_weather(data_dir).name,)

    def load(self, dataset: str, split: str, data_dir: Folder) -> Task:
        """The same rows for every seed."""
        return _task(_weather(data_dir))


class Stations(Seeds):
    """Temperature of the next hour inland; the coast and the foothills of the Alps as shifts."""

    levels = 20
    sample = "first"

    def datasets(self, data_dir: Folder) -> tuple[str, ...]:
        """Just one."""
        return ("german_stations",)

    def load(self, dataset: str, split: str, data_dir: Folder) -> Task:
        """The same rows for every seed."""
        return _task(_stations(data_dir))


SUITES: Final[dict[str, Suite]] = {
    "cubic": Cubic(),
    "uci": UCI(),
    "uci-shift": UCIShift(),
    "wine": Wine(),
    "weather": Weather(),
    "stations": Stations(),
}

# A worker reads each file once, whatever the number of its fits.
_weather = lru_cache(maxsize=1)(load_weather)
_stations = lru_cache(maxsize=1)(load_stations)


@lru_cache(maxsize=2)
def _uci(dataset: str, data_dir: Folder) -> UCIDataset:
    table = load_uci(dataset, data_dir)
    if len(table.y) < FEWEST_ROWS:
        raise ValueError(
            f"{dataset} must have {FEWEST_ROWS} rows at least, to train, hold out and test, got {len(table.y)}."
        )
    return table


@lru_cache(maxsize=64)
def _checksum(dataset: str, data_dir: Folder) -> str:
    X, y, *_ = _uci(dataset, data_dir)
    return hashlib.sha256(np.column_stack([X, y]).tobytes()).hexdigest()[:16]


@lru_cache(maxsize=16)
def _splits(dataset: str, data_dir: Folder) -> list[Split]:
    if dataset in own_tables(data_dir):
        return random_splits(len(_uci(dataset, data_dir).y))
    return standard_splits(dataset, data_dir)


@lru_cache(maxsize=16)
def _shift_splits(dataset: str, data_dir: Folder) -> dict[str, Any]:
    table = _uci(dataset, data_dir)
    both = zip(gap_splits(table.X, table.feature_names), tail_splits(table.X, table.feature_names), strict=True)
    splits = {f"{split.kind}:{split.feature}": split for pair in both for split in pair}
    if not splits:
        raise ValueError(f"{dataset} has no feature that varies, so no part of one to hide.")
    return splits


def _task(data: ShiftData) -> Task:
    return Task(data.train, data.tests, data.held_out)
