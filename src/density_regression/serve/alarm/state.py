"""The file that an alarm's state is kept in: JSON with a checksum, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, Final, NoReturn

from density_regression.io.files import named, write_whole

__all__ = ["AlarmStateError", "digest", "read_state", "write_state"]

FORMAT: Final = (1, 0)
"""Major and minor version of the format; readers refuse a newer major one."""


class AlarmStateError(ValueError):
    """A file of an alarm's state that is truncated, edited, from a newer version, or of another model."""


def digest(content: Any) -> str:
    """Checksum of what JSON can say."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def write_state(path: str | os.PathLike[str], state: dict[str, Any]) -> None:
    """Write a state; an OSError, as of a full disk, leaves the old file as it is."""
    body = {"what": "density-regression alarm", "format": list(FORMAT), **state}
    content = json.dumps({**body, "sha256": digest(body)}, allow_nan=False, separators=(",", ":"))
    write_whole(named(path, "path"), content.encode())


def read_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what `write_state` wrote."""
    path = named(path, "path")
    remedy = "put back a copy of it, or delete it to begin anew"
    try:
        body = json.loads(path.read_bytes(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise AlarmStateError(f"{path} is truncated or not JSON ({error}): {remedy}.") from error
    if not isinstance(body, dict) or body.get("what") != "density-regression alarm":
        raise AlarmStateError(f"{path} is no state of an alarm: give the path of one, or of a file to be made.")
    version = body.get("format")
    if not (isinstance(version, list) and version and isinstance(version[0], int)):
        raise AlarmStateError(f"{path} has no readable format version, but {version!r}: {remedy}.")
    # Before the checksum, which a later format may compute in another way.
    if version[0] > FORMAT[0]:
        raise AlarmStateError(
            f"{path} has format {version[0]}, newer than the {FORMAT[0]} this version reads: upgrade."
        )
    if body.pop("sha256", None) != digest(body):
        raise AlarmStateError(f"{path} was edited or damaged, its checksum differs: {remedy}.")
    return dict(body)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
