"""`predict --engine ray`: a Parquet table predicted by the processes of a cluster."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from density_regression.estimators.base import DeepRegressor
    from density_regression.estimators.cluster import ScoredPart
    from density_regression.tabular.files import TableFile

__all__ = ["check_parquet_out", "write_by_ray"]

REMOVALS: Final = 10
"""Attempts to remove a folder."""


def check_parquet_out(out: Path | None) -> None:
    """Raise a usage error unless results go to a Parquet file, or to a folder that is new or empty."""
    if out is None or out.suffix.lower() not in ("", ".parquet"):
        raise typer.BadParameter(
            "--engine ray writes Parquet: name a file .parquet, or a folder for parts.", param_hint="--out"
        )
    if not out.suffix and out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise typer.BadParameter(f"{out} is there already: remove it, or name another folder.", param_hint="--out")


def write_by_ray(
    load: Callable[[], DeepRegressor],
    table: TableFile,
    out: Path,
    coverage: float,
    workers: int | None,
    address: str | None,
) -> tuple[int, int | None]:
    """Write the predictions, whole or not at all; number of rows, and of unfamiliar ones if the method knows them."""
    from density_regression.estimators.cluster import scored_parts
    from density_regression.io.cluster import connected
    from density_regression.io.progress import RowProgress

    rows, unfamiliar = 0, None
    with (
        _hidden_folder(out) as folder,
        connected(address, workers) as ray,
        RowProgress("predict", table.rows) as progress,
        closing(scored_parts(ray, load, table, folder, coverage, workers)) as scored,
    ):
        parts = _counted(scored, progress)
        done = list(parts) if not out.suffix else _joined(parts, out)
        for part in done:
            rows += part.rows
            if part.unfamiliar is not None:
                unfamiliar = (unfamiliar or 0) + part.unfamiliar
        if not out.suffix:
            _clean(folder, [part.path.name for part in done])
            os.replace(folder, out)
    return rows, unfamiliar


def _counted(parts: Iterator[ScoredPart], progress: Any) -> Iterator[ScoredPart]:
    for part in parts:
        progress.advance(part.rows)
        yield part


def _joined(parts: Iterator[ScoredPart], out: Path) -> list[ScoredPart]:
    """Append parts to one file in their order, and remove each."""
    from density_regression.tabular.files import TableWriter
    from density_regression.tabular.files.parquet import ParquetFile
    from density_regression.tabular.files.table import ROWS

    waiting: dict[int, ScoredPart] = {}
    joined: list[ScoredPart] = []
    with TableWriter(out) as writer:
        for part in parts:
            waiting[part.number] = part
            while (following := waiting.pop(len(joined), None)) is not None:
                for rows in ParquetFile(following.path).chunks(ROWS):
                    writer.write(rows)
                following.path.unlink()
                joined.append(following)
    return joined


@contextmanager
def _hidden_folder(out: Path) -> Iterator[Path]:
    """A new hidden folder beside a path; removed at the end, unless it has been moved."""
    place = out.resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}."))
    # mkdtemp makes folders that only their owner can read; use the usual permissions.
    umask = os.umask(0)
    os.umask(umask)
    folder.chmod(0o777 & ~umask)
    try:
        yield folder
    finally:
        # A process that was told to end may write once more.
        for _ in range(REMOVALS):
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
            time.sleep(0.2)


def _clean(folder: Path, names: list[str]) -> None:
    """Remove what actors left that were killed while they wrote."""
    for path in folder.iterdir():
        if path.name not in names:
            path.unlink()
