"""The UCI regression tables and their standard train/test splits; and tables of your own beside them."""

__all__ = ["UCI_NAMES", "UCIDataset", "load_uci", "own_tables", "random_splits", "read_table", "standard_splits"]

import csv
import gzip
import os
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from density_regression.datasets.fetch import find_file, named_folder

_WITH_SPLITS = (
    "boston",
    "concrete",
    "energy",
    "kin8nm",
    "naval",
    "power",
    "protein",
    "wine_red",
    "yacht",
)
UCI_NAMES = (*_WITH_SPLITS, "wine_white", "year", "year_partial_90feat")

_YEAR = (463_715, 515_345)
"""Rows of the standard training part of YearPredictionMSD, and all of its rows."""

Split = tuple[NDArray[np.intp], NDArray[np.intp]]


class UCIDataset(NamedTuple):
    """One table: features X (n, d), target y (n,), both float64 in their original units, and names."""

    X: NDArray[np.float64]
    y: NDArray[np.float64]
    feature_names: tuple[str, ...]
    target_name: str


def load_uci(name: str, data_dir: str | os.PathLike[str] | None = None) -> UCIDataset:
    """Read one UCI regression table.

    Parameters
    ----------
    name : str
        One of ``UCI_NAMES``, or of `own_tables`. ``"year"`` is YearPredictionMSD, its year moved to the last column,
        and ``"year_partial_90feat"`` a sample of it (1,176 rows).
    data_dir : path, optional
        Folder that holds ``uci/NAME.csv.gz``: a header row, features first, target last, separated by commas. If
        omitted, the environment variable ``DENSITY_REGRESSION_DATA`` names it; without either, the table is downloaded
        once, if it has a public source (all but the two of songs).

    Returns
    -------
    UCIDataset
        Named tuple ``(X, y, feature_names, target_name)``, with X of shape (n, d) and y of shape (n,),
        in the original units and in the row order that `standard_splits` refers to.

    Raises
    ------
    ValueError
        If the name is unknown, or the file or the download is not such a table.
    FileNotFoundError
        If the file is not in the folder, or no folder is given and it cannot be downloaded.
    """
    own = _own_files(data_dir)
    _check_name(name, (*UCI_NAMES, *own), "is neither a known UCI table nor one in the folder")
    if len(own.get(name, ())) > 1:
        raise ValueError(f"{name!r} is there twice, as {' and '.join(map(str, own[name]))}; keep one of them.")
    path = own[name][0] if name in own else find_file(f"uci/{name}.csv.gz", data_dir)
    header, table = read_table(path)
    return UCIDataset(table[:, :-1], table[:, -1], tuple(header[:-1]), header[-1])


def read_table(path: str | os.PathLike[str]) -> tuple[list[str], NDArray[np.float64]]:
    """Names of the columns and finite numbers (n, columns) of a ``.csv`` or ``.csv.gz`` file with a header row.

    Raises
    ------
    ValueError
        If it is not such a table.
    """
    path = Path(path)
    try:
        header, table = _read(path)
    except (OSError, EOFError, ValueError, csv.Error, zlib.error) as error:
        reason = str(error).rstrip(".")
        raise ValueError(f"{path} cannot be read as a table of numbers: {reason}.") from error
    if table.shape[1] != len(header):
        raise ValueError(
            f"{path} must have a header that names each column: "
            f"got {len(header)} names and rows of {table.shape[1]} values."
        )
    missing = [column for column, values in zip(header, table.T, strict=True) if not np.isfinite(values).all()]
    if missing:
        raise ValueError(f"{path} has values that are missing or infinite, in {', '.join(missing)}.")
    return header, table


def own_tables(data_dir: str | os.PathLike[str] | None = None) -> tuple[str, ...]:
    """Names of tables that are not UCI's but the user's own: ``uci/NAME.csv``, or ``.csv.gz``, in a data folder."""
    return tuple(_own_files(data_dir))


def random_splits(rows: int, count: int = 20, random_state: int = 0) -> list[Split]:
    """Divide the rows of a table at random, nine to one, as the standard splits are; `count` times."""
    rng = np.random.default_rng(random_state)
    test = max(rows // 10, 1)
    orders = [rng.permutation(rows) for _ in range(count)]
    return [(np.sort(order[test:]), np.sort(order[:test])) for order in orders]


def standard_splits(name: str, data_dir: str | os.PathLike[str] | None = None) -> list[Split]:
    """Read the train/test splits (90/10) that published results on a UCI table use.

    Parameters
    ----------
    name : str
        One of ``UCI_NAMES``, except ``"wine_white"`` and ``"year_partial_90feat"``, which have none.
    data_dir : path, optional
        Folder that holds ``uci/splits/NAME.npz``, with arrays ``train_0, test_0, train_1, ...``. If
        omitted, the environment variable ``DENSITY_REGRESSION_DATA`` names it; without either, the splits are
        downloaded once.

    Returns
    -------
    list of (train, test)
        0-based row indices into what `load_uci` returns, each an integer array of one dimension;
        20 pairs, for protein 5, and for ``"year"`` the one that its authors give.

    Raises
    ------
    ValueError
        If the name is unknown or has no standard splits, or the file does not hold pairs of arrays.
    FileNotFoundError
        If the file is not in the folder, or no folder is given and it cannot be downloaded.
    """
    _check_name(name, UCI_NAMES, "is not a known UCI table")
    if name == "year":
        return [(np.arange(_YEAR[0]), np.arange(*_YEAR))]
    _check_name(name, _WITH_SPLITS, "has no standard splits")
    path = find_file(f"uci/splits/{name}.npz", data_dir)
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
    except (OSError, EOFError, ValueError, zlib.error, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read as splits; it may be damaged: {error}.") from error
    count = len(arrays) // 2
    if count == 0 or set(arrays) != {f"{part}_{i}" for i in range(count) for part in ("train", "test")}:
        raise ValueError(f"{path} must hold train_0, test_0, train_1, test_1 and so on, got {sorted(arrays)}.")
    return [(arrays[f"train_{i}"].astype(np.intp), arrays[f"test_{i}"].astype(np.intp)) for i in range(count)]


def _read(path: Path) -> tuple[list[str], NDArray[np.float64]]:
    """Header and numbers; where there are none, an error stands for NumPy's warning."""
    with (
        gzip.open(path, "rt", encoding="utf-8-sig")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8-sig") as file,
        warnings.catch_warnings(action="ignore"),
    ):
        header = _header(file)
        table = np.loadtxt(file, dtype=np.float64, delimiter=",", quotechar='"', comments=None, ndmin=2)
    if table.size == 0:
        raise ValueError("it has no rows")
    return header, table


def _header(lines: Iterable[str]) -> list[str]:
    """The names in the first line that is not blank."""
    rows = csv.reader(lines, skipinitialspace=True, strict=True)
    names = [name.strip() for name in next(filter(None, rows), [])]
    if not names:
        raise ValueError("it has no rows")
    if len(names) < 2:
        raise ValueError(f"its header must name two columns or more, separated by commas, got {names[0]!r}")
    if all(map(_is_number, names)):
        raise ValueError("its first line is numbers, not names of columns")
    if "" in names:
        raise ValueError(f"column {names.index('') + 1} has no name; an index that was written along is no feature")
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise ValueError(f"names of columns must differ: {', '.join(repeated)}")
    return names


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _own_files(data_dir: str | os.PathLike[str] | None) -> dict[str, list[Path]]:
    folder = named_folder(data_dir)
    found: dict[str, list[Path]] = {}
    for file in sorted((folder / "uci").glob("*.csv*")) if folder is not None else []:
        name = file.name.removesuffix(".gz").removesuffix(".csv")
        if file.name in (f"{name}.csv", f"{name}.csv.gz") and name not in UCI_NAMES:
            found.setdefault(name, []).append(file)
    return found


def _check_name(name: str, known: tuple[str, ...], complaint: str) -> None:
    if name not in known:
        raise ValueError(f"{name!r} {complaint}; choose one of {', '.join(known)}.")
