"""Mini-batches from disk: every row once, in a new order each epoch, and taken up at any batch."""

from __future__ import annotations

import threading
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.dataset as pd
import pytest
import torch
from stream_helpers import encode, write

from density_regression.tabular.files import TableError
from density_regression.tabular.stream import RowGroups, StreamBatches
from density_regression.tabular.stream.read_ahead import read_ahead
from density_regression.tabular.stream.row_groups import Group
from density_regression.tabular.stream.windows import LANES, Windows
from density_regression.training.batches import Seekable

SIZES = (700, 1, 350, 1049)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "rows", SIZES, 128)


def batches(folder: Path, **settings: Any) -> StreamBatches:
    return StreamBatches(
        RowGroups(folder), **{"encode": encode, "batch_size": 32, "seed": 5, "window": 256, **settings}
    )


def test_every_row_once_in_batches_of_nearly_equal_size(folder: Path) -> None:
    stream = batches(folder)
    epochs = [list(stream), list(stream)]
    for epoch in epochs:
        assert len(epoch) == len(stream) == -(-2100 // 32)
        x, y, weight = (torch.cat(parts) for parts in zip(*epoch, strict=True))
        assert (x[:, 0].sort().values == torch.arange(2100)).all()
        assert (x == -y).all()
        assert (weight == 1).all()
        sizes = sorted(len(batch[0]) for batch in epoch)
        assert 20 < sizes[0] <= sizes[-4] <= 32
        assert sizes[-1] <= 64
    first, second = (torch.cat([batch[0] for batch in epoch]) for epoch in epochs)
    assert not (first == second).all()
    # Another seed, another order; the same one, the same.
    assert not (torch.cat([batch[0] for batch in batches(folder, seed=6)]) == first).all()
    assert (torch.cat([batch[0] for batch in batches(folder)]) == first).all()


def test_a_few_batches_have_rows_of_the_whole_table(folder: Path) -> None:
    stream = batches(write(folder.parent / "more", (4000,), 256))
    numbers = [batch[0][:, 0] for batch in stream]
    # Of 256 rows that follow each other in the file, the range would be a sixteenth.
    ranges = [torch.cat(numbers[i : i + 8]).aminmax() for i in range(0, len(numbers) - 8, 8)]
    assert min(float(high - low) for low, high in ranges) > 0.4 * 4000


@pytest.mark.parametrize("done", [0, 1, 30, 65, 66])
def test_taken_up_at_a_batch(folder: Path, done: int) -> None:
    stream = batches(folder)
    assert isinstance(stream, Seekable)
    list(stream)
    running = iter(stream)
    for _ in islice(running, done):
        pass
    position = stream.position()
    rest = list(running)
    after = stream.position()

    again = batches(folder)
    again.seek(position)
    assert all((part == again.position()[name]).all() for name, part in position.items())
    resumed = list(again)
    assert len(resumed) == len(rest) == 66 - done if done else 66
    for one, other in zip(rest, resumed, strict=True):
        assert (one[0] == other[0]).all()
    assert again.position() == after
    assert (next(iter(again))[0] == next(iter(stream))[0]).all()


def test_rows_that_do_not_train_make_batches_smaller_not_fewer(folder: Path) -> None:
    stream = batches(folder, encode=lambda table: tuple(part[part[:, 0].abs() % 10 > 0] for part in encode(table)))
    epoch = list(stream)
    assert len(epoch) == 66
    assert sum(len(batch[0]) for batch in epoch) == 2100 - 210


def test_what_is_told_of_rows(folder: Path) -> None:
    told: list[int] = []
    sizes = [len(batch[0]) for batch in batches(folder, on_rows=told.append)]
    assert sum(told) == sum(sizes) == 2100
    assert {*told} <= {31, 32}
    # Those that do not train count, and those before a position.
    told.clear()
    stream = batches(folder, on_rows=told.append, encode=lambda table: tuple(part[:10] for part in encode(table)))
    stream.seek({"epoch": torch.tensor(2), "batch": torch.tensor(33)})
    assert told == [2 * 2100 + 1050]
    assert len(list(stream)) == 33
    assert sum(told) == 3 * 2100


@pytest.mark.parametrize("rows", [(5,), (3, 100, 7), tuple([64] * 20), (1000, 1)])
@pytest.mark.parametrize("window", [1, 16, 10_000])
def test_windows_have_all_batches(rows: tuple[int, ...], window: int) -> None:
    groups = [Group(0, i, size) for i, size in enumerate(rows)]
    windows = Windows.of(groups, window, 12, (0, 0))
    assert sum(windows.batches) == 12
    assert sorted(group for lane in windows.lanes for group in lane) == groups
    lengths = [sum(group.rows for group in lane) for lane in windows.lanes]
    assert len(lengths) == min(LANES, len(rows))
    assert max(lengths) - min(lengths) <= max(rows)
    assert min(windows.batches) > 0
    own = [(window, i) for window, count in enumerate(windows.batches) for i in range(count)]
    assert [windows.of_batch(batch) for batch in range(12)] == own


def test_a_file_a_folder_and_a_data_set_are_read_alike(folder: Path) -> None:
    whole, data = RowGroups(folder), RowGroups(pd.dataset(folder))
    assert whole.rows == data.rows == 2100
    assert [group.rows for group in whole.groups] == [group.rows for group in data.groups]
    assert all(one.equals(other) for one, other in zip(whole.read(whole.groups), data.read(data.groups), strict=True))
    one = RowGroups(folder / "2.parquet", drop=["y"])
    assert (one.rows, one.columns) == (350, ("x",))
    chunks = [chunk["x"].to_pylist() for chunk in one.read(one.groups, skip=130)]
    assert [x for chunk in chunks for x in chunk] == list(range(701 + 130, 701 + 350))
    assert whole.place(Group(3, 1, 128), 2) == f"{folder / '3.parquet'}: row 131"


def test_what_cannot_be_read(folder: Path) -> None:
    (folder / "4.parquet").write_bytes((folder / "2.parquet").read_bytes()[:-100])
    with pytest.raises(TableError, match=r"4\.parquet is cut off, damaged or no Parquet file"):
        RowGroups(folder)
    text = folder.parent / "rows.csv"
    text.write_text("x,y\n1,2\n")
    with pytest.raises(TableError, match="training from disk needs Parquet"):
        RowGroups(text)
    with pytest.raises(TableError, match="not one of Parquet files"):
        RowGroups(pd.dataset(text, format="csv"))


def test_read_ahead_gives_items_and_errors_in_their_place_and_ends_with_its_reader() -> None:
    made = []

    def items() -> Any:
        for i in range(100):
            made.append(i)
            yield i

    before = threading.active_count()
    read = read_ahead(items())
    assert list(islice(read, 3)) == [0, 1, 2]
    read.close()
    assert len(made) <= 6
    assert threading.active_count() == before
    assert list(read_ahead(iter(range(5)))) == [*range(5)]

    def failing() -> Any:
        yield 1
        raise ValueError("lost")

    read = read_ahead(failing())
    assert next(read) == 1
    with pytest.raises(ValueError, match="lost"):
        next(read)
