"""Atomic writing of files."""

import os
import tempfile
from pathlib import Path

__all__ = ["named", "write_whole"]


def named(path: str | os.PathLike[str], argument: str) -> Path:
    """The path given as `argument`; a ValueError if it is empty, which would be the current folder."""
    if not os.fspath(path):
        raise ValueError(f"{argument} must not be empty; give a path, such as '.' for the current folder.")
    return Path(path)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically: readers find the old content or the new. Its folder is made if missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files that only their owner can read; use the usual permissions.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        # The error of a full disk names no file.
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            error.filename = os.fspath(path)
        raise
