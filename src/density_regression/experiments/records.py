"""Result records: JSON lines that are appended whole, and repaired where a line was cut short."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Cell", "Record", "RecordFile", "read_records"]

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
        return cls(*(record.get(name) for name in cls._fields))  # type: ignore[arg-type]


class RecordFile:
    """A file of records, one JSON object a line.

    Opening it drops what a killed run left half-written, so that it can be appended to.

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
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = self.path.read_bytes() if self.path.exists() else b""
        self.records, good, self.dropped = _parse(content)
        if good != content:
            _replace(self.path, good)

    def done(self) -> dict[Cell, Record]:
        """Those of its records that are of a fit that did not fail, by their cells."""
        return {Cell.of(record): record for record in self.records if "error" not in record}

    def append(self, record: Record) -> None:
        """Add a record: one write, on the disk before this returns."""
        line = json.dumps(record, allow_nan=False) + "\n"
        with self.path.open("ab") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())


def read_records(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[Record]:
    """Read the records of files, or of all `.jsonl` files in folders; a half-written line is passed over.

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
    # A cell that failed and was run again is there twice; what came last counts.
    return list({Cell.of(record): record for record in records}.values())


def _parse(content: bytes) -> tuple[list[Record], bytes, int]:
    """Records, the lines they came from, and how many other lines there were."""
    records, good, bad = [], [], 0
    for line in content.split(b"\n"):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if isinstance(record, dict):
            records.append(record)
            good.append(line + b"\n")
        elif line.strip():
            bad += 1
    return records, b"".join(good), bad


def _replace(path: Path, content: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    os.replace(file.name, path)
