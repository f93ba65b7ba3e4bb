"""Tables on disk for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor


def write(folder: Path, sizes: Sequence[int], group: int) -> Path:
    """Files with so many rows each, numbered throughout, in row groups of so many."""
    folder.mkdir(exist_ok=True)
    start = 0
    for i, size in enumerate(sizes):
        number = np.arange(start, start + size, dtype=np.float64)
        pq.write_table(pa.table({"x": number, "y": -number}), folder / f"{i}.parquet", row_group_size=group)
        start += size
    return folder


def encode(table: Any) -> tuple[Tensor, ...]:
    """Both columns as they are."""
    return tuple(torch.from_numpy(table[name].to_numpy().copy())[:, None] for name in ("x", "y"))
