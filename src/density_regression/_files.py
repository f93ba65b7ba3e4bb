"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["named", "write_whole"]


def named(path: str | os.PathLike[str], argument: str) -> Path:
    """The path that an argument names.

    Raises
    ------
    ValueError
        If it is empty: that would be the current folder, which nobody asked for.
    """
    if not os.fspath(path):
        raise ValueError(f"{argument} must not be empty; give a path, such as '.' for the current folder.")
    return Path(path)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, and its folder where there is none, so that whoever looks finds the old content or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files that only their owner reads; ours are shared like any other file.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        # A full disk does not say which file it has no room for.
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            error.filename = os.fspath(path)
        raise
