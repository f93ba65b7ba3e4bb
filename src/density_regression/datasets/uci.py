"""UCI regression tables with their standard train/test splits, and the user's own tables."""

__all__ = ["UCI_NAMES", "UCIDataset", "load_uci", "own_tables", "random_splits", "read_table", "standard_splits"]

import csv
import gzip
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from density_regression.datasets.fetch import PathLike, find_file, named_folder

_WITH_SPLITS = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine_red", "yacht")
UCI_NAMES = (*_WITH_SPLITS, "wine_white", "year", "year_partial_90feat")

_YEAR_ROWS = (463_715, 515_345)
"""Number of training rows of YearPredictionMSD, and of all its rows."""

Split = tuple[NDArray[np.intp], NDArray[np.intp]]


class UCIDataset(NamedTuple):
    """Features X (n, d) and target y (n,), both float64 in their original units, and their names."""

    X: NDArray[np.float64]
    y: NDArray[np.float64]
    feature_names: tuple[str, ...]
    target_name: str


def load_uci(name: str, data_dir: PathLike | None = None) -> UCIDataset:
    """Read one UCI regression table, with its rows in the order that `standard_splits` refers to.

    Parameters
    ----------
    name : str
        One of ``UCI_NAMES``, or of `own_tables`. ``"year"`` is YearPredictionMSD, its year moved to the last column,
        and ``"year_partial_90feat"`` a sample of it (1,176 rows).
    data_dir : path, optional
        Folder that holds ``uci/NAME.csv.gz``: a header row, features first, target last, separated by commas. By
        default that of the environment variable ``DENSITY_REGRESSION_DATA``; without either, the table is downloaded
        once, if it has a public source (all but the two of YearPredictionMSD).

    Examples
    --------
    >>> data = load_uci("yacht")  # doctest: +SKIP
    """
    own = _own_files(data_dir)
    _check_name(name, (*UCI_NAMES, *own), "is neither a known UCI table nor one in the folder")
    if len(own.get(name, ())) > 1:
        raise ValueError(f"{name!r} is there twice, as {' and '.join(map(str, own[name]))}; keep one of them.")
    path = own[name][0] if name in own else find_file(f"uci/{name}.csv.gz", data_dir)
    header, table = read_table(path)
    return UCIDataset(table[:, :-1], table[:, -1], tuple(header[:-1]), header[-1])


def read_table(path: PathLike) -> tuple[list[str], NDArray[np.float64]]:
    r"""Column names and finite numbers (n, columns) of a ``.csv`` or ``.csv.gz`` file with a header row.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("flats.csv").write_text("area,rent\n60,900\n")
    >>> names, numbers = read_table("flats.csv")
    >>> names, numbers.tolist()
    (['area', 'rent'], [[60.0, 900.0]])
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
    if missing := [name for name, values in zip(header, table.T, strict=True) if not np.isfinite(values).all()]:
        raise ValueError(f"{path} has values that are missing or infinite, in {', '.join(missing)}.")
    return header, table


def own_tables(data_dir: PathLike | None = None) -> tuple[str, ...]:
    r"""Names of the user's own tables: ``uci/NAME.csv`` or ``.csv.gz`` in a data folder, NAME not in ``UCI_NAMES``.

    Examples
    --------
    >>> from pathlib import Path
    >>> Path("data/uci").mkdir(parents=True)
    >>> _ = Path("data/uci/flats.csv").write_text("area,rent\n60,900\n")
    >>> own_tables("data")
    ('flats',)
    """
    return tuple(_own_files(data_dir))


def random_splits(rows: int, count: int = 20, random_state: int = 0) -> list[Split]:
    """Draw `count` random train/test splits (90/10) of the rows of a table.

    Examples
    --------
    >>> splits = random_splits(10, count=3)
    >>> [(len(train), len(test)) for train, test in splits]
    [(9, 1), (9, 1), (9, 1)]
    """
    rng = np.random.default_rng(random_state)
    test = max(rows // 10, 1)
    orders = [rng.permutation(rows) for _ in range(count)]
    return [(np.sort(order[test:]), np.sort(order[:test])) for order in orders]


def standard_splits(name: str, data_dir: PathLike | None = None) -> list[Split]:
    """Read the train/test splits (90/10) that published results on a UCI table use.

    Parameters
    ----------
    name : str
        One of ``UCI_NAMES``, except ``"wine_white"`` and ``"year_partial_90feat"``, which have none.
    data_dir : path, optional
        Folder that holds ``uci/splits/NAME.npz``, with arrays ``train_0, test_0, train_1, ...``. By default that of
        the environment variable ``DENSITY_REGRESSION_DATA``; without either, the splits are downloaded once.

    Returns
    -------
    list of (train, test)
        Row indices into what `load_uci` returns: 20 pairs, for protein 5, and for ``"year"`` the one of its authors.

    Examples
    --------
    >>> train, test = standard_splits("yacht")[0]  # doctest: +SKIP
    """
    _check_name(name, UCI_NAMES, "is not a known UCI table")
    if name == "year":
        return [(np.arange(_YEAR_ROWS[0]), np.arange(*_YEAR_ROWS))]
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
    """Header and numbers; without rows an error is raised instead of NumPy's warning."""
    open_text = gzip.open if path.suffix == ".gz" else open
    with open_text(path, "rt", encoding="utf-8-sig") as file, warnings.catch_warnings(action="ignore"):
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
    try:
        list(map(float, names))
    except ValueError:
        pass
    else:
        raise ValueError("its first line is numbers, not names of columns")
    if "" in names:
        raise ValueError(f"column {names.index('') + 1} has no name; an index that was written along is no feature")
    if repeated := [name for name, times in Counter(names).items() if times > 1]:
        raise ValueError(f"names of columns must differ: {', '.join(repeated)}")
    return names


def _own_files(data_dir: PathLike | None) -> dict[str, list[Path]]:
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
