"""What every file of a table can do, whatever its format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from density_regression.tabular.files.sniff import Dialect

__all__ = ["Part"]


class Part(ABC):
    """One file of a table.

    Attributes
    ----------
    path : Path
        Of the file.
    columns : tuple of str
        Names of its columns.
    rows : int or None
        Number of rows, if the file says.
    dialect : Dialect or None
        How values are written; None where they have types of their own.
    """

    path: Path
    columns: tuple[str, ...]
    rows: int | None
    dialect: Dialect | None

    @abstractmethod
    def chunks(self, rows: int, names: Sequence[str] | None = None) -> Iterator[Any]:
        """Arrow tables of so many rows, of all columns or those of some names, as the file has them."""

    @abstractmethod
    def place(self, row: int) -> str:
        """A row (0 is the first) in words."""
