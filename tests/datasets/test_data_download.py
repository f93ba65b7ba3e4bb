"""Downloads from a server in this process: accepted, refused, broken off, out of reach; and what is never asked for."""

import gzip
import hashlib
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from density_regression.datasets import UCI_NAMES, fetch, load_uci, standard_splits
from density_regression.datasets.download import Source, splits_sha256, table_sha256

VARIABLE = "DENSITY_REGRESSION_DATA"
REAL_FOLDER = os.environ.get(VARIABLE)
needs_data = pytest.mark.skipif(not REAL_FOLDER, reason=f"{VARIABLE} does not name the data folder")

TABLE = np.array([[1.5, -2.0, 0.1], [3.0, 4.0, 7e-3]])
SPLITS = [np.array(rows, dtype=np.int32) for rows in ([1, 0], [2], [2, 1], [0])]
# The original keeps the target in the middle, and a column that nobody reads.
GOOD = {
    "/set/data.txt": b" 1.5 0.1000000000000 9 -2\n 3.0 7.0e-03 9 4\n\n",
    "/set/index_features.txt": b"0\n3\n\n",
    "/set/index_target.txt": b"1\n",
    "/set/index_train_0.txt": b"1\n0\n",
    "/set/index_test_0.txt": b"2\n",
    "/set/index_train_1.txt": b"2\n1\n",
    "/set/index_test_1.txt": b"0\n",
    "/white.csv": b"1.5,-2,0.1\n3,4,0.007\n",
    "/jena.csv": b"Date Time,T\n1,2\n",
}
NAMES = ("uci/yacht.csv.gz", "uci/splits/yacht.npz", "uci/wine_white.csv.gz", "weather/jena_climate_2022_ood.csv.gz")


class Server(ThreadingHTTPServer):
    """Serves `files`, notes what was asked for, and may hang up halfway."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = dict(GOOD)
        self.asked: list[str] = []
        self.hang_up = False


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        content = self.server.files.get(self.path)
        self.send_response(404 if content is None else 200)
        content = content or b""
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if self.server.hang_up else content)

    def log_message(self, format: str, *args: object) -> None:
        pass


def known(url: str) -> dict[str, Source]:
    names = ["a", "b", "y"]
    return {
        NAMES[0]: {"kind": "table", "url": f"{url}/set/", "sha256": table_sha256(TABLE), "names": names},
        NAMES[1]: {"kind": "splits", "url": f"{url}/set/", "sha256": splits_sha256(SPLITS), "count": 2},
        NAMES[2]: {"kind": "csv", "url": f"{url}/white.csv", "sha256": table_sha256(TABLE), "names": names},
        NAMES[3]: {"kind": "file", "url": f"{url}/jena.csv", "sha256": hashlib.sha256(GOOD["/jena.csv"]).hexdigest()},
    }


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache" / "density-regression"


@pytest.fixture
def server(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        sources = known(f"http://127.0.0.1:{running.server_port}")
        monkeypatch.setattr(fetch, "sources", lambda: sources)
        yield running
        running.shutdown()
        thread.join()


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_table_is_downloaded_once(server: Server, cache: Path) -> None:
    for _ in range(2):
        data = load_uci("yacht")
        np.testing.assert_array_equal(np.column_stack([data.X, data.y]), TABLE)
        assert data.feature_names == ("a", "b")
        assert data.target_name == "y"
    assert server.asked == ["/set/data.txt", "/set/index_features.txt", "/set/index_target.txt"]
    assert files_in(cache) == [cache / "uci" / "yacht.csv.gz"]


def test_splits(server: Server) -> None:
    for _ in range(2):
        splits = standard_splits("yacht")
        assert [part.tolist() for pair in splits for part in pair] == [part.tolist() for part in SPLITS]
    assert len(server.asked) == 4


def test_plain_csv(server: Server) -> None:
    np.testing.assert_array_equal(load_uci("wine_white").y, TABLE[:, -1])


def test_whole_file_is_kept_byte_for_byte(server: Server, cache: Path) -> None:
    path = fetch.find_file(NAMES[3])
    assert path == cache / NAMES[3]
    assert gzip.decompress(path.read_bytes()) == GOOD["/jena.csv"]


@pytest.mark.parametrize(
    ("name", "path", "content"),
    [
        (NAMES[0], "/set/data.txt", b"1.5 0.1 9 -2\n3 0.007 9 5\n"),
        (NAMES[0], "/set/data.txt", b"<html>Sign in</html>"),
        (NAMES[0], "/set/data.txt", b"1.5 0.1\n3 0.007\n"),
        (NAMES[0], "/set/index_features.txt", b"3\n0\n"),
        (NAMES[1], "/set/index_test_1.txt", b"1\n"),
        (NAMES[1], "/set/index_train_0.txt", b"1 0\n2 3\n"),
        (NAMES[2], "/white.csv", b"1.5,-2,0.1\n"),
        (NAMES[3], "/jena.csv", b"Date Time,T\n1,3\n"),
    ],
)
def test_corrupted_download_is_refused_and_removed(
    server: Server, cache: Path, name: str, path: str, content: bytes
) -> None:
    server.files[path] = content
    with pytest.raises(ValueError, match="is not the expected data, and was removed"):
        fetch.find_file(name)
    assert files_in(cache) == []
    server.files[path] = GOOD[path]
    assert fetch.find_file(name).is_file()


@pytest.mark.parametrize("name", NAMES)
def test_half_a_download_leaves_nothing(server: Server, cache: Path, name: str) -> None:
    server.hang_up = True
    with pytest.raises(FileNotFoundError, match="could not be downloaded"):
        fetch.find_file(name)
    assert files_in(cache) == []


def test_source_is_gone(server: Server, cache: Path) -> None:
    del server.files["/jena.csv"]
    with pytest.raises(FileNotFoundError, match=rf"could not be downloaded \(404.*data_dir=.*{VARIABLE}.*{NAMES[3]}"):
        fetch.find_file(NAMES[3])
    assert files_in(cache) == []


def test_target_that_cannot_be_written(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(FileNotFoundError, match="disk full"):
        fetch.find_file(NAMES[3])
    assert files_in(cache) == []


def test_named_folder_is_the_only_place(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch.find_file(NAMES[3])
    server.asked.clear()
    with pytest.raises(FileNotFoundError, match="There is no file"):
        fetch.find_file(NAMES[3], tmp_path)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(FileNotFoundError, match="There is no file"):
        fetch.find_file(NAMES[3])
    assert server.asked == []


def test_what_has_no_source(server: Server) -> None:
    with pytest.raises(FileNotFoundError, match=r"weather/other\.csv cannot be downloaded: .*holds weather/other\.csv"):
        fetch.find_file("weather/other.csv")
    assert server.asked == []


def test_nobody_answers(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setattr(fetch, "sources", lambda: known(f"http://127.0.0.1:{port}"))
    began = time.perf_counter()
    with pytest.raises(FileNotFoundError, match=rf"no connection to 127.0.0.1.*connect, or .*data_dir=.*{VARIABLE}"):
        load_uci("yacht")
    assert time.perf_counter() - began < 2
    assert not cache.exists()


def test_name_server_that_hangs(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: released.wait(20) and [])
    monkeypatch.setattr(fetch, "sources", lambda: known("https://data.example"))
    began = time.perf_counter()
    with pytest.raises(FileNotFoundError, match=r"no connection to data\.example: no answer in time"):
        load_uci("yacht")
    assert time.perf_counter() - began < 2
    released.set()


def test_without_pooch(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(FileNotFoundError, match=rf"density-regression\[data\].*data_dir=.*{VARIABLE}"):
        load_uci("yacht")
    assert server.asked == []


def test_checksum_sees_content_not_notation() -> None:
    assert table_sha256(TABLE) == table_sha256(np.asfortranarray(TABLE * (1 + 1e-13)))
    assert table_sha256(np.array([[-0.0]])) == table_sha256(np.array([[0.0]]))
    assert table_sha256(TABLE) != table_sha256(TABLE * (1 + 1e-8))
    assert table_sha256(TABLE) != table_sha256(TABLE[::-1])
    # Values with few digits are not rounded at all.
    assert table_sha256(TABLE) == hashlib.sha256(TABLE.astype("<f8").tobytes()).hexdigest()
    assert splits_sha256(SPLITS) != splits_sha256([SPLITS[0][:1], np.append(SPLITS[0][1:], SPLITS[1]), *SPLITS[2:]])


def test_sources_of_the_package() -> None:
    names = [name for name in UCI_NAMES if not name.startswith("year")]
    tables = {f"uci/{name}.csv.gz" for name in names}
    splits = {f"uci/splits/{name}.npz" for name in names if name != "wine_white"}
    assert set(fetch.sources()) == tables | splits | {"weather/jena_climate_2022_ood.csv.gz"}
    for source in fetch.sources().values():
        # A branch may move; a full commit hash cannot.
        assert len(source["url"].split("/")[5]) == 40
        assert len(source["sha256"]) == 64


@needs_data
@pytest.mark.parametrize("name", sorted(fetch.sources()))
def test_real_files_have_the_checksums(name: str) -> None:
    source = fetch.sources()[name]
    path = fetch.find_file(name, REAL_FOLDER)
    if source["kind"] == "file":
        assert hashlib.sha256(gzip.decompress(path.read_bytes())).hexdigest() == source["sha256"]
    elif source["kind"] == "splits":
        pairs = standard_splits(path.stem, REAL_FOLDER)
        assert len(pairs) == source["count"]
        assert splits_sha256([part.astype(np.int32) for pair in pairs for part in pair]) == source["sha256"]
    else:
        data = load_uci(path.name.removesuffix(".csv.gz"), REAL_FOLDER)
        assert [*data.feature_names, data.target_name] == source["names"]
        assert table_sha256(np.column_stack([data.X, data.y])) == source["sha256"]
