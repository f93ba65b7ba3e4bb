"""Downloads from public sources: checked, re-packed as the loaders read them, and whole or not at all."""

__all__ = ["Source", "download", "splits_sha256", "table_sha256"]

import gzip
import hashlib
import io
import queue
import socket
import tempfile
import threading
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import numpy as np
from numpy.typing import NDArray

from density_regression._extras import import_extra
from density_regression._files import write_whole
from density_regression._progress import StepProgress

_CONNECT_S = 1.5
_READ_S = 30.0

Indices = NDArray[np.int32]


class Source(TypedDict):
    """Where a file comes from, and the sha256 of its content.

    ``"table"`` and ``"splits"`` have the address of a folder of `data.txt`, `index_features.txt` and so on; ``"csv"``
    and ``"file"`` that of one file. The sha256 is that of the values for the first three, of the bytes for the last.
    """

    kind: Literal["table", "splits", "csv", "file"]
    url: str
    sha256: str
    names: NotRequired[list[str]]
    count: NotRequired[int]


def download(source: Source, target: Path) -> None:
    """Download a source, check it, and write it to `target`.

    Raises
    ------
    ValueError
        If the content is not the expected one. Nothing is left behind.
    OSError
        If the source cannot be reached, or the target cannot be written.
    ImportError
        If pooch is not installed.
    """
    addresses = _addresses(source)
    pooch = import_extra("pooch", needed_by="A download", extra="data")
    _check_connection(addresses[0])
    get = pooch.HTTPDownloader(timeout=(_CONNECT_S, _READ_S))
    with tempfile.TemporaryDirectory() as folder, StepProgress() as progress:
        progress.step(f"Downloading {target.name}", len(addresses))
        paths = [Path(folder, str(i)) for i in range(len(addresses))]
        for address, path in zip(addresses, paths, strict=True):
            get(address, str(path), None)
            progress.advance()
        content = _checked(source, paths)
    write_whole(target, content)


def table_sha256(table: NDArray[np.float64]) -> str:
    """Sha256 of a table (n, c) in row order, its values rounded to ten significant digits."""
    # Adding 0 makes 0 of -0.
    rounded = np.array([float(f"{value:.9e}") for value in table.ravel().tolist()]) + 0.0
    return hashlib.sha256(rounded.astype("<f8").tobytes()).hexdigest()


def splits_sha256(splits: list[Indices]) -> str:
    """Sha256 of the index arrays train_0, test_0, train_1 and so on, each after its length."""
    digest = hashlib.sha256()
    for indices in splits:
        digest.update(np.array([len(indices), *indices], dtype="<i4").tobytes())
    return digest.hexdigest()


def _addresses(source: Source) -> list[str]:
    if source["kind"] == "table":
        return [f"{source['url']}{name}.txt" for name in ("data", "index_features", "index_target")]
    if source["kind"] == "splits":
        return [f"{source['url']}index_{name}.txt" for name in _split_names(source)]
    return [source["url"]]


def _split_names(source: Source) -> list[str]:
    return [f"{part}_{i}" for i in range(source["count"]) for part in ("train", "test")]


def _check_connection(address: str) -> None:
    # A dead name server would hold a download up for half a minute, whatever its own time limit.
    url = urlsplit(address)
    host, port = str(url.hostname), url.port or (443 if url.scheme == "https" else 80)
    if url.scheme in getproxies() and not proxy_bypass(host):
        return
    outcome: queue.SimpleQueue[OSError | None] = queue.SimpleQueue()

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=_CONNECT_S).close()
            outcome.put(None)
        except OSError as error:
            outcome.put(error)

    threading.Thread(target=connect, daemon=True).start()
    try:
        error = outcome.get(timeout=_CONNECT_S)
    except queue.Empty:
        error = TimeoutError("no answer in time")
    if error is not None:
        raise ConnectionError(f"no connection to {host}: {error}")


def _checked(source: Source, paths: list[Path]) -> bytes:
    """Content of the target, if what was downloaded is what was expected."""
    try:
        content, found = _packed(source, paths)
        reason = f"its sha256 is {found}, not {source['sha256']}"
    except (ValueError, IndexError) as error:
        content, found, reason = b"", "", str(error)
    if found != source["sha256"]:
        raise ValueError(f"What {source['url']} sent is not the expected data, and was removed: {reason}. Try again.")
    return content


def _packed(source: Source, paths: list[Path]) -> tuple[bytes, str]:
    if source["kind"] == "file":
        raw = paths[0].read_bytes()
        return gzip.compress(raw, mtime=0), hashlib.sha256(raw).hexdigest()
    if source["kind"] == "splits":
        arrays = [np.loadtxt(path, dtype=np.int32, ndmin=1) for path in paths]
        buffer = io.BytesIO()
        named: dict[str, Any] = dict(zip(_split_names(source), arrays, strict=True))
        np.savez_compressed(buffer, **named)
        return buffer.getvalue(), splits_sha256(arrays)
    table = np.loadtxt(paths[0], delimiter="," if source["kind"] == "csv" else None, ndmin=2)
    if source["kind"] == "table":
        table = table[:, np.concatenate([np.loadtxt(path, dtype=np.intp, ndmin=1) for path in paths[1:]])]
    lines = [",".join(source["names"]), *(",".join(map(repr, row)) for row in table.tolist())]
    return gzip.compress("\n".join([*lines, ""]).encode(), mtime=0), table_sha256(table)
