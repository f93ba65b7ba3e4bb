"""Benchmark suites: which rows of which data sets train and test."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, NamedTuple

import numpy as np

from density_regression import datasets
from density_regression.datasets import Rows, ShiftData, ShiftTable
from density_regression.datasets.fetch import local_file
from density_regression.datasets.natural import MAX_TRAIN_ROWS

__all__ = ["SUITES", "NaturalShifts", "SplitData", "Suite", "find_suite", "shift_kind"]

Folder = str | Path | None

MIN_ROWS: Final = 7
"""Fewest rows of a table that leave some to train, hold out, validate a search and test."""


class SplitData(NamedTuple):
    """Rows of one split; of several test sets the first is in distribution. `facts` are added to the record."""

    train: Rows
    tests: dict[str, Rows]
    held_out: Rows | None = None
    facts: dict[str, Any] = {}  # noqa: RUF012


class Suite(ABC):
    """An experiment: data sets, each with named splits.

    `names` are the data sets run by default, and `n_splits` the number of splits of each (None is all), but for those
    in `fewer_splits`. `levels` is the number of levels of the paper's calibration error, and `sample` says which test
    rows a record keeps for figures.
    """

    names: ClassVar[tuple[str, ...]] = ()
    n_splits: ClassVar[int | None] = None
    fewer_splits: ClassVar[dict[str, int]] = {}
    levels: ClassVar[int] = 100
    sample: ClassVar[Literal["spread", "first"]] = "spread"

    def default_datasets(self, data_dir: Folder) -> tuple[str, ...]:
        """Data sets that are run by default."""
        return self.names

    def available(self, data_dir: Folder) -> tuple[str, ...]:
        """All data sets that may be selected."""
        return self.default_datasets(data_dir)

    def select(self, names: Sequence[str], data_dir: Folder) -> tuple[str, ...]:
        """The named data sets without repeats, or the default ones if none is named."""
        if not names:
            return self.default_datasets(data_dir)
        known = self.available(data_dir)
        for name in names:
            if name not in known:
                raise ValueError(
                    f"{name!r} is not a data set of this suite, or not in the folder; it has {', '.join(known)}."
                )
        return tuple(dict.fromkeys(names))

    @abstractmethod
    def splits(self, dataset: str, data_dir: Folder) -> list[str]:
        """Names of all splits of a data set."""

    def default_splits(self, dataset: str) -> int | None:
        """Number of splits that are run by default; None is all."""
        return self.fewer_splits.get(dataset, self.n_splits)

    @abstractmethod
    def load(self, dataset: str, split: str, data_dir: Folder) -> SplitData:
        """Rows of one split."""

    def checksum(self, dataset: str, data_dir: Folder) -> str | None:
        """Checksum of a table that users may change under its name; None for other data."""
        return None


class SeedSuite(Suite):
    """Suite whose splits are seeds of the fit, "0" to "999"."""

    n_splits = 5

    def splits(self, dataset: str, data_dir: Folder) -> list[str]:
        """Seeds as text."""
        return [str(seed) for seed in range(1000)]


class Cubic(SeedSuite):
    """Cubic toy (`fig:demo`): trained on [-4, 4], tested there and on the rest of [-7, 7]; drawn anew for each seed."""

    names = ("cubic",)
    n_splits = 10
    NOISE: Final = 3.0
    EDGE: Final = 4.0
    FAR: Final = 7.0

    def load(self, dataset: str, split: str, data_dir: Folder) -> SplitData:
        """1,000 training rows, and 3,500 test rows inside and outside of their range."""
        seed = int(split)
        train = Rows(*datasets.make_cubic(n=1000, low=-self.EDGE, high=self.EDGE, noise=self.NOISE, random_state=seed))
        X, y = datasets.make_cubic(3500, -self.FAR, self.FAR, self.NOISE, random_state=seed + 1_000_000)
        inside = np.abs(X[:, 0]) <= self.EDGE
        return SplitData(train, {"inside": Rows(X[inside], y[inside]), "outside": Rows(X[~inside], y[~inside])})


class UCITables(Suite):
    """UCI tables and the user's own."""

    tables: ClassVar[tuple[str, ...]]

    def available(self, data_dir: Folder) -> tuple[str, ...]:
        """Tables of the suite and of the user."""
        return (*self.tables, *datasets.own_tables(data_dir))

    def checksum(self, dataset: str, data_dir: Folder) -> str:
        """First 16 hexadecimal digits of the SHA-256 of a table."""
        return _checksum(dataset, data_dir)


class UCI(UCITables):
    """UCI tables with their standard splits; twenty random splits of the user's own."""

    names = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine_red", "yacht")
    tables = (*names, "year")
    fewer_splits: ClassVar = {"kin8nm": 5, "naval": 5, "power": 5, "protein": 2}

    def default_datasets(self, data_dir: Folder) -> tuple[str, ...]:
        """The paper's tables; YearPredictionMSD only if its file is there."""
        return self.names if local_file("uci/year.csv.gz", data_dir) is None else self.tables

    def splits(self, dataset: str, data_dir: Folder) -> list[str]:
        """Numbers of the splits."""
        return [str(number) for number in range(len(_splits(dataset, data_dir)))]

    def load(self, dataset: str, split: str, data_dir: Folder) -> SplitData:
        """Rows of a split by its number."""
        X, y, *_ = _uci(dataset, data_dir)
        train, test = _splits(dataset, data_dir)[int(split)]
        return SplitData(Rows(X[train], y[train]), {"test": Rows(X[test], y[test])})


class UCIShift(UCITables):
    """UCI tables with a part of one feature's range hidden from training: its middle (gap) or its ends (tail)."""

    names = ("boston", "concrete", "energy", "kin8nm", "power", "wine_red", "yacht")
    tables = datasets.UCI_NAMES

    def splits(self, dataset: str, data_dir: Folder) -> list[str]:
        """Gap and tail of each feature, as "gap:FEATURE" and "tail:FEATURE"."""
        return list(_shift_splits(dataset, data_dir))

    def load(self, dataset: str, split: str, data_dir: Folder) -> SplitData:
        """Rows of a gap or tail split."""
        X, y, *_ = _uci(dataset, data_dir)
        shift = _shift_splits(dataset, data_dir)[split]
        train, test = Rows(X[shift.train], y[shift.train]), Rows(X[shift.test], y[shift.test])
        return SplitData(train, {"test": test}, facts={"genuine": bool(shift.genuine)})


class Wine(Suite):
    """Red wine with its standard splits, and all white wine as the shift (`tab:uci`)."""

    names = ("wine_red",)

    def splits(self, dataset: str, data_dir: Folder) -> list[str]:
        """Numbers of the splits of red wine."""
        return [str(number) for number in range(len(_splits("wine_red", data_dir)))]

    def load(self, dataset: str, split: str, data_dir: Folder) -> SplitData:
        """Rows of a split by its number."""
        return _split_data(datasets.load_wine_shift(int(split), data_dir))


class Temperature(SeedSuite):
    """Temperature of the next hour, the same rows for every seed; other stations as the shift (`tab:time-series`)."""

    levels = 20
    sample = "first"

    def __init__(self, loader: Callable[[Folder], ShiftData]) -> None:
        # A worker reads the file once for all its fits.
        self._data = lru_cache(maxsize=1)(loader)

    def default_datasets(self, data_dir: Folder) -> tuple[str, ...]:
        """Name of the series in the folder: the paper's, or its stand-in."""
        return (self._data(data_dir).name,)

    def load(self, dataset: str, split: str, data_dir: Folder) -> SplitData:
        """All rows of the series."""
        return _split_data(self._data(data_dir))


@dataclass(frozen=True)
class NaturalShifts(SeedSuite):
    """Tables with a natural shift: those of a folder's ``shifts.json``, or one `table`; a seed also draws the rows.

    At most `max_rows` rows train.
    """

    table: ShiftTable | None = None
    max_rows: int = MAX_TRAIN_ROWS

    def default_datasets(self, data_dir: Folder) -> tuple[str, ...]:
        """All tables."""
        return tuple(self._tables(data_dir))

    def load(self, dataset: str, split: str, data_dir: Folder) -> SplitData:
        """Rows of a split by its seed, coded as numbers."""
        table = self._tables(data_dir)[dataset]
        data = datasets.load_natural_shift(table, random_state=int(split), max_rows=self.max_rows)
        return _split_data(data)._replace(facts={"columns": data.train.X.shape[1]})

    def checksum(self, dataset: str, data_dir: Folder) -> str:
        """First 16 hexadecimal digits of the SHA-256 of the file, the choice of rows and columns, and `max_rows`."""
        table = self._tables(data_dir)[dataset]
        choice = repr((*table[2:], self.max_rows)).encode()
        return hashlib.sha256(Path(table.path).read_bytes() + choice).hexdigest()[:16]

    def _tables(self, data_dir: Folder) -> dict[str, ShiftTable]:
        return datasets.natural_shifts(data_dir) if self.table is None else {self.table.name: self.table}


SUITES: Final[dict[str, Suite]] = {
    "cubic": Cubic(),
    "uci": UCI(),
    "uci-shift": UCIShift(),
    "shift": NaturalShifts(),
    "wine": Wine(),
    "weather": Temperature(datasets.load_weather),
    "stations": Temperature(datasets.load_stations),
}


def find_suite(name: str, own: Suite | None = None) -> Suite:
    """Suite of a name, or one's own form of it, such as `NaturalShifts` of one file."""
    return SUITES[name] if own is None else own


def shift_kind(split: str) -> str:
    """Kind of a split "gap:FEATURE" or "tail:FEATURE"; empty for others."""
    return split.partition(":")[0] if ":" in split else ""


@lru_cache(maxsize=2)
def _uci(dataset: str, data_dir: Folder) -> datasets.UCIDataset:
    table = datasets.load_uci(dataset, data_dir)
    if len(table.y) < MIN_ROWS:
        raise ValueError(
            f"{dataset} must have {MIN_ROWS} rows at least, to train, hold out and test, got {len(table.y)}."
        )
    return table


@lru_cache(maxsize=64)
def _checksum(dataset: str, data_dir: Folder) -> str:
    X, y, *_ = _uci(dataset, data_dir)
    return hashlib.sha256(np.column_stack([X, y]).tobytes()).hexdigest()[:16]


@lru_cache(maxsize=16)
def _splits(dataset: str, data_dir: Folder) -> list[Any]:
    """Training and test indices of each split."""
    if dataset in datasets.own_tables(data_dir):
        return datasets.random_splits(len(_uci(dataset, data_dir).y))
    return datasets.standard_splits(dataset, data_dir)


@lru_cache(maxsize=16)
def _shift_splits(dataset: str, data_dir: Folder) -> dict[str, Any]:
    table = _uci(dataset, data_dir)
    X, names = table.X, table.feature_names
    both = zip(datasets.gap_splits(X, names), datasets.tail_splits(X, names), strict=True)
    splits = {f"{split.kind}:{split.feature}": split for pair in both for split in pair}
    if not splits:
        raise ValueError(f"{dataset} has no feature that varies, so no part of one to hide.")
    return splits


def _split_data(data: ShiftData) -> SplitData:
    return SplitData(data.train, data.tests, data.held_out)
