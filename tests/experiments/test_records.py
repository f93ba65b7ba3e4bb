"""Records are appended whole, read back, and repaired where a line was cut short."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import IO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from density_regression.experiments.records import FitKey, RecordFile, _parse, read_records


def record(split: int, **more: object) -> dict[str, object]:
    cell = FitKey("uci", "paper", "yacht", str(split), 0, "Gaussian")
    return {**cell._asdict(), "tests": {}, **more}


def write(path: Path, *records: dict[str, object]) -> None:
    with RecordFile(path) as file:
        for one in records:
            file.append(one)


def test_what_is_appended_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "uci-paper.jsonl"
    with RecordFile(path) as file:
        assert file.records == []
        for split in range(3):
            file.append(record(split))
    with RecordFile(path) as again:
        assert again.records == [record(split) for split in range(3)]
        assert (again.dropped, len(again.done())) == (0, 3)
    assert read_records(tmp_path / "new") == read_records(path) == again.records


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_a_half_written_line_is_removed(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "uci-paper.jsonl"
    write(path, record(0), record(1))
    path.write_bytes(path.read_bytes()[:-cut])
    path.chmod(0o644)
    # Without its last byte, the end of the line, a record is still whole.
    kept = [record(0), record(1)] if cut == 1 else [record(0)]
    assert read_records(path) == kept
    with RecordFile(path) as repaired:
        assert repaired.dropped == (0 if cut == 1 else 1)
        repaired.append(record(2))
    assert read_records(path) == [*kept, record(2)]
    assert path.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["uci-paper.jsonl"]


@given(st.integers(0, 400))
def test_wherever_it_is_cut_whole_records_survive(cut: int) -> None:
    lines = [json.dumps(record(split)) + "\n" for split in range(3)]
    content = "".join(lines).encode()
    records, good, dropped = _parse(content[:cut])
    assert records == [record(split) for split in range(len(records))]
    assert dropped <= 1
    assert _parse(good) == (records, good, 0)


def test_what_is_no_record_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "uci-paper.jsonl"
    path.write_text(f'nonsense\n[1, 2]\n{{"other": 1}}\n\n{json.dumps(record(0))}\n\x00\x00\n')
    with RecordFile(path) as file:
        assert (file.records, file.dropped) == ([record(0)], 4)
    assert path.read_text() == json.dumps(record(0)) + "\n"


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        json.dumps(record(0, method=["Gaussian"])),
        json.dumps(record(0, method=None)),
        json.dumps(record(0) | {"split": 3}),
        json.dumps(record(0, seed="0")),
        json.dumps(record(0, seed=0.5)),
    ],
    ids=["deep", "list", "null", "number", "word", "fraction"],
)
def test_a_record_names_its_cell_by_words_and_a_seed(tmp_path: Path, line: str) -> None:
    path = tmp_path / "uci-paper.jsonl"
    path.write_text(f"{line}\n{json.dumps(record(1))}\n")
    assert read_records(path) == [record(1)]
    with RecordFile(path) as file:
        assert (list(file.done().values()), file.dropped) == ([record(1)], 1)


def test_of_a_cell_that_was_run_again_the_last_record_counts(tmp_path: Path) -> None:
    path = tmp_path / "uci-paper.jsonl"
    write(path, record(0, error="ValueError: diverged"))
    with RecordFile(path) as file:
        assert file.done() == {}
    write(path, record(0, seconds=1.0), record(0, seconds=2.0))
    assert read_records(path) == [record(0, seconds=2.0)]
    # A failure after a success, as of another folder, does not undo it.
    write(path, record(0, error="ValueError: diverged"))
    assert read_records(path) == [record(0, seconds=2.0)]
    with RecordFile(path) as file:
        assert len(file.done()) == 1


def test_two_runs_do_not_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "uci-paper.jsonl"
    path.write_text("half a li")
    with RecordFile(path) as file:
        assert file.dropped == 1
        with pytest.raises(BlockingIOError, match="in use by another run"):
            RecordFile(path)
        file.append(record(0))
    with RecordFile(path) as file:
        assert file.records == [record(0)]


def test_a_file_that_is_repaired_while_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")
    path, original = tmp_path / "uci-paper.jsonl", fcntl.flock
    path.write_text("half a li")

    def repaired(file: IO[bytes], flags: int) -> None:
        # Another run repairs it, and ends, between our opening it and our locking it.
        monkeypatch.setattr(fcntl, "flock", original)
        write(path, record(0))
        original(file, flags)

    monkeypatch.setattr(fcntl, "flock", repaired)
    write(path, record(1))
    assert read_records(path) == [record(0), record(1)]


def test_nan_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "uci-paper.jsonl"
    with RecordFile(path) as file, pytest.raises(ValueError, match="JSON"):
        file.append(record(0, nll=float("nan")))
    assert path.read_bytes() == b""


def test_a_full_disk_leaves_whole_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a line was written when the disk was full; closing the file does not try again."""
    path, limit = tmp_path / "uci-paper.jsonl", 200
    with RecordFile(path) as file:
        file.append(record(0))
        size = path.stat().st_size
        resource = pytest.importorskip("resource")
        signals = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            # No file may grow beyond this: as if the disk had no more room.
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
            with pytest.raises(OSError, match=re.escape(str(path))):
                file.append(record(1, more="x" * limit))
            file.close()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, signals)
    assert path.stat().st_size == size < limit
    with RecordFile(path) as file:
        assert (file.records, file.dropped) == ([record(0)], 0)


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="No results"):
        read_records(tmp_path)
    with pytest.raises(FileNotFoundError, match="There is no"):
        read_records(tmp_path / "missing")
