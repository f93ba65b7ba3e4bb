"""Result records: a file of JSON lines to which whole lines are appended; incomplete ones are removed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

from density_regression.io.files import write_whole

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has no such locks
    fcntl = None  # type: ignore[assignment]

__all__ = ["FitKey", "Record", "RecordFile", "latest", "read_records"]

Record = dict[str, Any]
"""Result of one fit; `docs/guides/bench.md` describes its fields."""


class FitKey(NamedTuple):
    """What identifies one fit and its record."""

    suite: str
    protocol: str
    dataset: str
    split: str
    seed: int
    method: str

    @classmethod
    def of(cls, record: Record) -> FitKey:
        """Key of a record."""
        return cls(*(record[name] for name in cls._fields))

    @property
    def is_search(self) -> bool:
        """Whether the fit belongs to a search for settings."""
        return self.split.startswith("search ")


class RecordFile(AbstractContextManager["RecordFile"]):
    """File of records, one JSON object per line, that one process at a time may open (else `BlockingIOError`).

    Opening it creates it if it is missing, reads its `records`, and removes lines that a killed run left incomplete;
    `dropped` is their number. Use it as a context manager, or close it, to release its lock.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._locked()
        content = self.path.read_bytes()
        self.records, good, self.dropped = _parse(content)
        if good != content:
            write_whole(self.path, good)
            # The lock was on the file that was just replaced.
            self._file.close()
            self._file = self._locked()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock."""
        self._file.close()

    def done(self) -> dict[FitKey, Record]:
        """Records of fits that did not fail, by key."""
        return {FitKey.of(record): record for record in self.records if "error" not in record}

    def append(self, record: Record) -> None:
        """Append a record and flush it to the disk; if the disk is full, the file is left as it was."""
        line = (json.dumps(record, allow_nan=False) + "\n").encode()
        size = os.fstat(self._file.fileno()).st_size
        try:
            # An unbuffered file may take a part at a time; a buffer would be written again by `close`.
            while line:
                line = line[self._file.write(line) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            self._file.truncate(size)
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def _locked(self) -> FileIO:
        file = self.path.open("ab", buffering=0)
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise BlockingIOError(
                f"{self.path} is in use by another run; wait for it, or choose another --out."
            ) from error
        if os.path.samestat(os.fstat(file.fileno()), self.path.stat()):
            return file
        # Another run replaced the file after it was opened here.
        file.close()
        return self._locked()


def read_records(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[Record]:
    """Read the records of files, or of all `.jsonl` files in folders; other lines are skipped."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    records = []
    for path in map(Path, given):
        if not path.exists():
            raise FileNotFoundError(f"There is no {path}; `density-regression bench` writes results.")
        for file in sorted(path.glob("*.jsonl")) if path.is_dir() else [path]:
            records += _parse(file.read_bytes())[0]
    if not records:
        raise FileNotFoundError(f"No results in {', '.join(map(str, given))}; `density-regression bench` writes them.")
    return latest(records)


def latest(records: Iterable[Record]) -> list[Record]:
    """One record for each fit: the last that did not fail, or else the last."""
    found: dict[FitKey, Record] = {}
    for record in records:
        key = FitKey.of(record)
        if "error" not in record or "error" in found.get(key, record):
            found[key] = record
    return list(found.values())


def _parse(content: bytes) -> tuple[list[Record], bytes, int]:
    """Records, the lines that hold them, and the number of other lines."""
    records, good, bad = [], [], 0
    for line in content.split(b"\n"):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict) and all(
            isinstance(record.get(name), int if name == "seed" else str) for name in FitKey._fields
        ):
            records.append(record)
            good.append(line + b"\n")
        elif line.strip():
            bad += 1
    return records, b"".join(good), bad
