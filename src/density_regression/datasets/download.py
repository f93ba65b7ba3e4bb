"""Downloads from public sources, verified by checksum and converted to the format of the loaders."""

__all__ = ["Source", "download", "splits_sha256", "table_sha256"]

import gzip
import hashlib
import io
import socket
import tempfile
import threading
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import numpy as np
from numpy.typing import NDArray

from density_regression.io.extras import import_extra
from density_regression.io.files import write_whole
from density_regression.io.progress import StepProgress

_CONNECT_SECONDS = 1.5
_READ_SECONDS = 30.0


class Source(TypedDict):
    """Address and checksum of a file.

    The url is that of a folder of `data.txt`, `index_features.txt` and so on for the kinds ``"table"`` and
    ``"splits"``, and of one file for the others. The sha256 is that of the bytes for ``"file"``, else of the values.
    """

    kind: Literal["table", "splits", "csv", "file"]
    url: str
    sha256: str
    names: NotRequired[list[str]]
    count: NotRequired[int]


def download(source: Source, target: Path) -> None:
    """Download a source to `target`.

    Raises a ValueError if the content is not the expected one, an OSError if the source cannot be reached or the target
    cannot be written, and an ImportError without pooch; nothing is then left behind.
    """
    addresses = _addresses(source)
    pooch = import_extra("pooch", needed_by="A download", extra="data")
    _check_connection(addresses[0])
    get = pooch.HTTPDownloader(timeout=(_CONNECT_SECONDS, _READ_SECONDS))
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
    # Adding 0 turns -0 into 0.
    rounded = np.array([float(f"{value:.9e}") for value in table.ravel().tolist()]) + 0.0
    return hashlib.sha256(rounded.astype("<f8").tobytes()).hexdigest()


def splits_sha256(splits: list[NDArray[np.int32]]) -> str:
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
    """Raise a ConnectionError within seconds; pooch would wait half a minute for a name server that hangs."""
    url = urlsplit(address)
    host, port = str(url.hostname), url.port or (443 if url.scheme == "https" else 80)
    if url.scheme in getproxies() and not proxy_bypass(host):
        return
    errors: list[OSError] = [TimeoutError("no answer in time")]

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
            errors.clear()
        except OSError as error:
            errors.insert(0, error)

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(_CONNECT_SECONDS)
    if errors:
        raise ConnectionError(f"no connection to {host}: {errors[0]}")


def _checked(source: Source, paths: list[Path]) -> bytes:
    """Content of the target file, or a ValueError if its checksum is wrong."""
    try:
        content, found = _packed(source, paths)
    except (ValueError, IndexError) as error:
        reason = str(error)
    else:
        if found == source["sha256"]:
            return content
        reason = f"its sha256 is {found}, not {source['sha256']}"
    raise ValueError(f"What {source['url']} sent is not the expected data, and was removed: {reason}. Try again.")


def _packed(source: Source, paths: list[Path]) -> tuple[bytes, str]:
    """Content of the target file, and the checksum of its values."""
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
