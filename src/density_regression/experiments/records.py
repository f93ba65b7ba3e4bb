"""Result records: JSON lines that are appended whole, and repaired where a line was cut short."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from density_regression._files import write_whole

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has no such locks
    fcntl = None  # type: ignore[assignment]

__all__ = ["Cell", "Record", "RecordFile", "latest", "read_records"]

Record = dict[str, Any]
"""One cell of a benchmark; `docs/bench.md` describes its fields."""


class Cell(NamedTuple):
    """One fit: what a record is found again by."""

    suite: str
    protocol: str
    dataset: str
    split: str
    seed: int
    method: str

    @classmethod
    def of(cls, record: Record) -> Cell:
        """The cell that a record is of."""
        return cls(*(record[name] for name in cls._fields))


class RecordFile:
    """A file of records, one JSON object a line, that one process at a time may open.

    Opening it drops what a killed run left half-written, so that it can be appended to. Close it, or use it as a
    context, to let others in.

    Parameters
    ----------
    path : path
        Made, with its folder, if it is not there.

    Attributes
    ----------
    records : list of dict
        What it held when it was opened.
    dropped : int
        Lines that were no records and were removed.

    Raises
    ------
    BlockingIOError
        If another process has it open.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._locked()
        content = self.path.read_bytes()
        self.records, good, self.dropped = _parse(content)
        if good != content:
            write_whole(self.path, good)
            # The lock was on the file that has just been replaced.
            self._file.close()
            self._file = self._locked()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let others in."""
        self._file.close()

    def done(self) -> dict[Cell, Record]:
        """Those of its records that are of a fit that did not fail, by their cells."""
        return {Cell.of(record): record for record in self.records if "error" not in record}

    def append(self, record: Record) -> None:
        """Add a record, on the disk before this returns; or none of it, if the disk is full."""
        line = (json.dumps(record, allow_nan=False) + "\n").encode()
        size = os.fstat(self._file.fileno()).st_size
        try:
            # The file has no buffer, and may take a part at a time: what did not fit must not be written by `close`.
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
        # Another run has repaired it since it was opened here: what is appended to the old one would be lost.
        file.close()
        return self._locked()


def read_records(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[Record]:
    """Read the records of files, or of all `.jsonl` files in folders; what is no record is passed over.

    Raises
    ------
    FileNotFoundError
        If a path is not there, or none holds a record.
    """
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
    """One record of each cell: the last that did not fail, or else the last."""
    found: dict[Cell, Record] = {}
    for record in records:
        before = found.get(Cell.of(record))
        if before is None or "error" in before or "error" not in record:
            found[Cell.of(record)] = record
    return list(found.values())


def _parse(content: bytes) -> tuple[list[Record], bytes, int]:
    """Records, the lines they came from, and how many other lines there were."""
    records, good, bad = [], [], 0
    for line in content.split(b"\n"):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if _is_record(record):
            records.append(record)
            good.append(line + b"\n")
        elif line.strip():
            bad += 1
    return records, b"".join(good), bad


def _is_record(value: Any) -> bool:
    """Whether it names a cell: by words, and the number of a seed."""
    kinds = {"seed": int}
    return isinstance(value, dict) and all(isinstance(value.get(name), kinds.get(name, str)) for name in Cell._fields)
