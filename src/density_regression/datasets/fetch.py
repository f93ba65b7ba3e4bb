"""Locating data files: in a folder that the user names, or else in a cache of downloads."""

__all__ = ["DATA_DIR_VARIABLE", "PathLike", "cache_folder", "find_file", "local_file", "named_folder", "sources"]

import functools
import json
import os
from importlib import resources
from pathlib import Path

from density_regression.datasets.download import Source, download

DATA_DIR_VARIABLE = "DENSITY_REGRESSION_DATA"

PathLike = str | os.PathLike[str]


def find_file(relative: str, data_dir: PathLike | None = None) -> Path:
    """Path of a data file such as ``"uci/yacht.csv.gz"``, or a FileNotFoundError.

    Only `data_dir` is searched if given, else only the folder that the environment variable ``DENSITY_REGRESSION_DATA``
    names. Without either, the file is looked up in the cache and then downloaded from its public source.
    """
    folder = named_folder(data_dir)
    path = (folder or cache_folder()) / relative
    if path.is_file():
        return path
    remedy = (
        f"pass data_dir= (--data-dir on the command line), or set the environment variable {DATA_DIR_VARIABLE}, "
        f"to a folder that holds {relative}"
    )
    if folder is not None:
        raise FileNotFoundError(f"There is no file {path}: {remedy}.")
    if relative not in sources():
        raise FileNotFoundError(f"No data folder was given, and {relative} cannot be downloaded: {remedy}.")
    try:
        download(sources()[relative], path)
    except (OSError, ImportError) as error:
        raise FileNotFoundError(f"{relative} could not be downloaded ({error}): connect, or {remedy}.") from error
    return path


def local_file(relative: str, data_dir: PathLike | None = None) -> Path | None:
    """Path of a data file in the user's folder, else in the cache; None if it is not there."""
    path = (named_folder(data_dir) or cache_folder()) / relative
    return path if path.is_file() else None


def cache_folder() -> Path:
    """Folder of downloads, laid out like a data folder: ``~/.cache/density-regression``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "density-regression"


@functools.cache
def sources() -> dict[str, Source]:
    """Public sources by name within the data folder."""
    text = resources.files("density_regression.datasets").joinpath("sources.json").read_text(encoding="utf-8")
    known: dict[str, Source] = json.loads(text)
    return known


def named_folder(data_dir: PathLike | None) -> Path | None:
    """Folder that the user names by an argument or by the environment, or None."""
    folder = data_dir if data_dir is not None else os.environ.get(DATA_DIR_VARIABLE)
    return Path(folder).expanduser() if folder else None
