"""Natural distribution shifts: tables whose training and test rows differ in time, place or kind."""

from __future__ import annotations

__all__ = ["MAX_TEST_ROWS", "MAX_TRAIN_ROWS", "ShiftTable", "load_natural_shift", "natural_shifts"]

import json
import zlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from density_regression.datasets.columns import ColumnCoder
from density_regression.datasets.fetch import DATA_DIR_VARIABLE, PathLike, named_folder
from density_regression.datasets.shift import Rows, ShiftData
from density_regression.io.extras import import_extra

if TYPE_CHECKING:
    import pandas as pd

MAX_TRAIN_ROWS: Final = 5000
"""Most training rows of a split, by default."""

MAX_TEST_ROWS: Final = 10_000
"""Most rows of each of the two tests."""

MIN_ROWS: Final = {"train": 20, "test": 10}
"""Fewest rows of each side: a tenth of the former tests."""

_KEYS: Final = ("train", "test", "target", "drop")

Index = NDArray[np.intp]


class ShiftTable(NamedTuple):
    """A table, and queries of pandas that choose its training and shifted rows; `drop` are columns not to use."""

    name: str
    path: str
    train: str
    test: str
    target: str
    drop: tuple[str, ...] = ()


def natural_shifts(data_dir: PathLike | None = None) -> dict[str, ShiftTable]:
    """Tables of a folder, by name, as its file ``shifts.json`` describes them.

    Parameters
    ----------
    data_dir : path, optional
        Folder with ``shifts.json`` and ``NAME.csv`` or ``NAME.csv.gz``, or with a subfolder ``shift`` that has them. By
        default that of the environment variable ``DENSITY_REGRESSION_DATA``. The JSON file is an object: ``{NAME:
        {"train": QUERY, "test": QUERY, "target": COLUMN, "drop": [COLUMN, ...]}}``. Queries are run by pandas, so use
        only a file that you trust.

    Examples
    --------
    >>> tables = natural_shifts("data")  # doctest: +SKIP
    """
    path = _description(data_dir)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} must be JSON in UTF-8: {error}. Correct the file.") from error
    if not isinstance(content, dict) or not content:
        raise ValueError(f"{path} must be a JSON object that describes one table or more by name, got {content!r:.60}.")
    return {name: _table(path, name, entry) for name, entry in content.items()}


def load_natural_shift(
    table: ShiftTable | str,
    data_dir: PathLike | None = None,
    *,
    random_state: int = 0,
    max_rows: int = MAX_TRAIN_ROWS,
    coded: bool = True,
) -> ShiftData:
    """Rows of one split of a table: to train, to test in distribution, and to test under the shift.

    A random tenth of the training side is the test "in distribution", and at most `max_rows` random rows of the rest
    are for training. The test "shifted" has the rows of the test side, the same for every split. Either test has
    `MAX_TEST_ROWS` random rows if there are more. Rows without a target are left out. Columns are coded by a
    `ColumnCoder` that is fitted to the training rows of this split alone.

    Parameters
    ----------
    table : ShiftTable or str
        A table of your own, or the name of one in a folder.
    data_dir : path, optional
        Folder of tables, as for `natural_shifts`; not read for a table of your own.
    random_state : int
        Seed of the split, >= 0.
    max_rows : int
        Most training rows.
    coded : bool
        Whether X are numbers, or the data frames themselves, with text, dates and gaps.

    Examples
    --------
    >>> split = load_natural_shift("kc_house")  # doctest: +SKIP
    """
    if isinstance(table, str):
        known = natural_shifts(data_dir)
        if table not in known:
            raise ValueError(f"{table!r} is not in the folder's shifts.json; choose one of {', '.join(known)}.")
        table = known[table]
    if max_rows < MIN_ROWS["train"]:
        raise ValueError(f"max_rows must be {MIN_ROWS['train']} or more, to train and hold out, got {max_rows}.")
    sides = _sides(table, _stamp(table.path))
    tested, trained = _split(len(sides.train_y), random_state, max_rows)
    shifted = _sample(len(sides.test_y))
    coder = ColumnCoder().fit(sides.train.iloc[trained])
    if not coder.names:
        raise ValueError(f"{table.path} has no column that varies in its training rows, so nothing to learn from.")

    def rows(frame: pd.DataFrame, y: NDArray[np.float64], index: Index) -> Rows:
        chosen = frame.iloc[index]
        return Rows(coder.transform(chosen) if coded else chosen, y[index])

    tests = {
        "in distribution": rows(sides.train, sides.train_y, tested),
        "shifted": rows(sides.test, sides.test_y, shifted),
    }
    return ShiftData(table.name, rows(sides.train, sides.train_y, trained), None, tests)


class _Sides(NamedTuple):
    """Features and targets of the training and the test side."""

    train: pd.DataFrame
    train_y: NDArray[np.float64]
    test: pd.DataFrame
    test_y: NDArray[np.float64]


def _split(rows: int, seed: int, max_rows: int) -> tuple[Index, Index]:
    """Sorted indices of test rows in distribution and of training rows."""
    order = np.random.default_rng(seed).permutation(rows)
    tenth = rows // 10
    return np.sort(order[:tenth][:MAX_TEST_ROWS]), np.sort(order[tenth:][:max_rows])


def _sample(rows: int) -> Index:
    return np.sort(np.random.default_rng(0).permutation(rows)[:MAX_TEST_ROWS])


@lru_cache(maxsize=2)
def _sides(table: ShiftTable, stamp: tuple[int, ...]) -> _Sides:
    """Both sides of a table; `stamp` is that of its file, so that a changed one is read again."""
    frame = _read(table)
    _check_columns(table, frame)
    masks = {side: _chosen(frame, table, side) for side in ("train", "test")}
    if shared := int((masks["train"] & masks["test"]).sum()):
        raise ValueError(
            f"train {table.train!r} and test {table.test!r} both choose {shared} rows of {table.path}: "
            "change one, so that no row is in both."
        )
    parts: list[Any] = []
    for side, mask in masks.items():
        y = _target(frame[table.target][mask], table)
        known = np.isfinite(y)
        if known.sum() < MIN_ROWS[side]:
            raise ValueError(
                f"{side} {getattr(table, side)!r} chooses {int(known.sum())} rows of {table.path} that have a target, "
                f"but {MIN_ROWS[side]} are needed: choose more rows."
            )
        features = frame[mask].drop(columns=[table.target, *(set(table.drop) - {table.target})])
        parts += [features[known], y[known]]
    return _Sides(*parts)


def _stamp(path: str) -> tuple[int, ...]:
    """Time of change and size of a file, or a FileNotFoundError."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no file {path}: give the path of a .csv or .csv.gz file.")
    status = Path(path).stat()
    return status.st_mtime_ns, status.st_size


def _read(table: ShiftTable) -> pd.DataFrame:
    pd = import_extra("pandas", needed_by="A table with a natural shift", extra="data")
    try:
        # In one piece: in several, the type of a column may differ from piece to piece.
        return pd.read_csv(table.path, low_memory=False)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ValueError(f"{table.path} cannot be read as a table: {str(error).rstrip('.')}.") from error


def _check_columns(table: ShiftTable, frame: pd.DataFrame) -> None:
    for argument, names in (("target", [table.target]), ("drop", table.drop)):
        for name in names:
            if name not in frame.columns:
                raise ValueError(
                    f"{argument} names the column {name!r}, which {table.path} does not have; it has "
                    f"{', '.join(map(str, frame.columns))}."
                )
    if not set(frame.columns) - {table.target, *table.drop}:
        raise ValueError(f"{table.path} has no column beside target and drop, so nothing to learn from.")


def _chosen(frame: pd.DataFrame, table: ShiftTable, side: str) -> NDArray[np.bool_]:
    """Whether a row is chosen by the query of a side."""
    query = getattr(table, side)
    try:
        # Of names a query knows the columns alone, not the variables of this module.
        mask = frame.eval(query, engine="python", local_dict={}, global_dict={})
    except Exception as error:  # pandas raises errors of many kinds
        raise ValueError(
            f"{side} {query!r} is no query that pandas can run on {table.path}: {str(error).strip()}. Write one such "
            "as year < 2015, names with blanks in backquotes, text in quotes; columns are "
            f"{', '.join(map(str, frame.columns))}."
        ) from error
    if np.shape(mask) != (len(frame),) or np.asarray(mask).dtype != np.bool_:
        raise ValueError(f'{side} {query!r} must be true or false for each row, such as "year < 2015".')
    return np.asarray(mask, dtype=np.bool_)


def _target(column: pd.Series[Any], table: ShiftTable) -> NDArray[np.float64]:
    """Targets, NaN if missing."""
    pd = import_extra("pandas", needed_by="A table with a natural shift", extra="data")
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64)
    wrong = column[np.isnan(values) & column.notna().to_numpy()]
    if len(wrong):
        raise ValueError(f"target {table.target!r} of {table.path} must be numbers, got {wrong.iloc[0]!r}.")
    return np.asarray(values, dtype=np.float64)


def _description(data_dir: PathLike | None) -> Path:
    folder = named_folder(data_dir)
    remedy = (
        f"pass data_dir= (--data-dir on the command line), or set the environment variable {DATA_DIR_VARIABLE}, to a "
        "folder with shifts.json, or with a subfolder shift that has it"
    )
    if folder is None:
        raise FileNotFoundError(f"No data folder was given: {remedy}.")
    paths = folder / "shifts.json", folder / "shift" / "shifts.json"
    for path in paths:
        if path.is_file():
            return path
    raise FileNotFoundError(f"There is no file {paths[0]}, nor {paths[1]}: {remedy}.")


def _table(path: Path, name: str, entry: Any) -> ShiftTable:
    """One table of the description, checked."""
    place = f"{path}, entry {name!r}:"
    if Path(name).name != name:
        raise ValueError(f"{place} a name is that of a file beside shifts.json, without .csv, and no path.")
    if not isinstance(entry, dict):
        raise ValueError(f"{place} must be an object with the keys {', '.join(_KEYS)}, got {entry!r:.60}.")
    if unknown := sorted(set(entry) - set(_KEYS)):
        raise ValueError(f"{place} has the unknown key {unknown[0]!r}; the keys are {', '.join(_KEYS)}.")
    for key in _KEYS[:3]:
        if not (isinstance(entry.get(key), str) and entry[key].strip()):
            raise ValueError(f"{place} the key {key!r} must be a text that is not empty, got {entry.get(key)!r:.60}.")
    drop = entry.get("drop", [])
    if not (isinstance(drop, list) and all(isinstance(column, str) for column in drop)):
        raise ValueError(f"{place} the key 'drop' must be a list of names of columns, got {drop!r:.60}.")
    files = [file for ending in (".csv", ".csv.gz") if (file := path.with_name(name + ending)).is_file()]
    if len(files) > 1:
        raise ValueError(f"{name!r} is there twice, as {files[0]} and {files[1]}; keep one of them.")
    file = files[0] if files else path.with_name(f"{name}.csv.gz")
    return ShiftTable(name, str(file), entry["train"], entry["test"], entry["target"], tuple(drop))
