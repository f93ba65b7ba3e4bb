"""Where a data file lies: in the folder that the user names, or else in the cache, downloaded if need be."""

__all__ = ["DATA_DIR_VARIABLE", "cache_folder", "find_file", "local_file", "named_folder", "sources"]

import functools
import json
import os
from importlib import resources
from pathlib import Path

from density_regression.datasets.download import Source, download

DATA_DIR_VARIABLE = "DENSITY_REGRESSION_DATA"

PathLike = str | os.PathLike[str]


def find_file(relative: str, data_dir: PathLike | None = None) -> Path:
    """Path of a data file, downloaded into the cache if no folder is named and there is a source.

    Parameters
    ----------
    relative : str
        Name within the folder, such as ``"uci/yacht.csv.gz"``.
    data_dir : path, optional
        Folder to look in. If omitted, the environment variable ``DENSITY_REGRESSION_DATA`` names it. A folder that is
        named is the only place looked in. If none is, the cache is, and then the public source.

    Raises
    ------
    FileNotFoundError
        If the file is not in the folder that was named, or has no public source, or the source cannot be reached.
    ValueError
        If what came from the source is not the expected data. Nothing of it is kept.
    """
    path = local_file(relative, data_dir)
    if path is not None:
        return path
    remedy = (
        f"pass data_dir= (--data-dir on the command line), or set the environment variable {DATA_DIR_VARIABLE}, "
        f"to a folder that holds {relative}"
    )
    folder = named_folder(data_dir)
    if folder is not None:
        raise FileNotFoundError(f"There is no file {folder / relative}: {remedy}.")
    if relative not in sources():
        raise FileNotFoundError(f"No data folder was given, and {relative} cannot be downloaded: {remedy}.")
    path = cache_folder() / relative
    try:
        download(sources()[relative], path)
    except (OSError, ImportError) as error:
        raise FileNotFoundError(f"{relative} could not be downloaded ({error}): connect, or {remedy}.") from error
    return path


def local_file(relative: str, data_dir: PathLike | None = None) -> Path | None:
    """Path of a data file in the folder that is named, else in the cache; None if it is not there."""
    path = (named_folder(data_dir) or cache_folder()) / relative
    return path if path.is_file() else None


def cache_folder() -> Path:
    """Folder that downloads are kept in, laid out like a data folder: ``~/.cache/density-regression``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "density-regression"


@functools.cache
def sources() -> dict[str, Source]:
    """Public sources by name within the data folder."""
    text = resources.files("density_regression.datasets").joinpath("sources.json").read_text(encoding="utf-8")
    known: dict[str, Source] = json.loads(text)
    return known


def named_folder(data_dir: PathLike | None) -> Path | None:
    """The folder that the user names, by an argument or by the environment; None if there is none."""
    folder = data_dir if data_dir is not None else os.environ.get(DATA_DIR_VARIABLE)
    return Path(folder).expanduser() if folder else None
