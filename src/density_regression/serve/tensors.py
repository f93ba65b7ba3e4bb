"""Tensors of the Open Inference Protocol: from JSON or bytes to columns, and from results back."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["DATATYPES", "Tensor", "binary_result", "columns_of", "read_tensor"]

DATATYPES: Final = {
    "BOOL": "?",
    "UINT8": "<u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "<i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}
"""Types of fixed size, by their names in the protocol; beside them there is BYTES."""

_IN_JSON: Final[dict[str, set[type]]] = {"BYTES": {str}, "BOOL": {bool}}
"""Types of values in JSON; numbers of all other datatypes."""

Data = NDArray[Any] | list[Any]


class Tensor(NamedTuple):
    """One input of a request: values in the order of rows, as an array or as a list, and their shape."""

    name: str
    shape: tuple[int, ...]
    data: Data

    def columns(self) -> list[Data]:
        """The columns of a tensor (n, c), or the one of a tensor (n,)."""
        if len(self.shape) == 1:
            return [self.data]
        if isinstance(self.data, np.ndarray):
            return list(self.data.reshape(self.shape).T)
        return [self.data[i :: self.shape[1]] for i in range(self.shape[1])]


def read_tensor(given: Any, binary: memoryview) -> tuple[Tensor, memoryview]:
    """One input as the protocol describes it, and what is left of the bytes after it."""
    name, datatype = (_text(given, key) for key in ("name", "datatype"))
    shape = given.get("shape")
    whole = isinstance(shape, list) and all(type(size) is int and 0 <= size < 2**40 for size in shape)
    if not whole or not shape:
        raise ValueError(f"Input {name!r:.140} has the shape {shape!r:.80}: give a list of whole numbers.")
    if datatype != "BYTES" and datatype not in DATATYPES:
        raise ValueError(
            f"Input {name!r:.140} has the datatype {datatype!r:.40}: give {', '.join(DATATYPES)} or BYTES."
        )
    if len(shape) > 2:
        raise ValueError(f"Input {name!r:.140} has {len(shape)} axes: give (n,) or (n, c).")
    count = math.prod(shape)
    parameters = given.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise ValueError(f"The parameters of input {name!r:.140} are not an object.")
    size = None if parameters is None else parameters.get("binary_data_size")
    if size is None:
        data = _from_json(name, datatype, given.get("data"), count)
    elif type(size) is int and 0 <= size <= len(binary):
        data, binary = _from_bytes(name, datatype, binary[:size], count), binary[size:]
    else:
        raise ValueError(f"Input {name!r:.140} has binary_data_size={size!r:.40}, but {len(binary)} bytes are left.")
    return Tensor(name, tuple(shape), data), binary


def binary_result(values: NDArray[Any]) -> bytes:
    """Results (n,) or (n, k) as FP64."""
    return np.ascontiguousarray(values, dtype="<f8").tobytes()


def _text(given: Any, key: str) -> str:
    value = given.get(key) if isinstance(given, dict) else None
    if not isinstance(value, str):
        raise ValueError(f"An input lacks its {key}: give name, shape, datatype and data.")
    return value


def _from_json(name: str, datatype: str, data: Any, count: int) -> Data:
    """Values of a flat list, or of a list of rows."""
    if not isinstance(data, list):
        raise ValueError(f"Input {name!r:.140} has no data: give a list of values.")
    if data and isinstance(data[0], list):
        if set(map(type, data)) != {list}:
            raise ValueError(f"Input {name!r:.140} mixes values and lists: give a flat list, or a list of rows.")
        data = [value for row in data for value in row]
    if len(data) != count:
        raise ValueError(f"Input {name!r:.140} has {len(data)} values, but its shape has room for {count}.")
    if wrong := set(map(type, data)) - _IN_JSON.get(datatype, {int, float}) - {type(None)}:
        kind = min(kind.__name__ for kind in wrong)
        raise ValueError(f"Input {name!r:.140} holds a {kind}, but its datatype is {datatype}.")
    return list(data)


def _from_bytes(name: str, datatype: str, content: memoryview, count: int) -> Data:
    if datatype == "BYTES":
        return _strings(name, content, count)
    kind = np.dtype(DATATYPES[datatype])
    if len(content) != count * kind.itemsize:
        raise ValueError(
            f"Input {name!r:.140} has {len(content)} bytes, but its shape and {datatype} make {count * kind.itemsize}."
        )
    if kind.kind == "b":
        # Any byte but 0 is true.
        return np.asarray(np.frombuffer(content, np.uint8) != 0)
    return np.frombuffer(content, kind).astype(np.float64)


def _strings(name: str, content: memoryview, count: int) -> list[Any]:
    """Strings of UTF-8, each after its length in four bytes."""
    strings: list[str] = []
    place = 0
    while place + 4 <= len(content) and len(strings) < count:
        (size,) = struct.unpack_from("<I", content, place)
        place += 4
        if place + size > len(content):
            break
        try:
            strings.append(str(content[place : place + size], "utf-8"))
        except UnicodeDecodeError:
            raise ValueError(f"Input {name!r:.140} holds text that is not UTF-8 (row {len(strings)}).") from None
        place += size
    if place != len(content) or len(strings) != count:
        raise ValueError(f"Input {name!r:.140} does not hold {count} strings, each after its length in four bytes.")
    return strings


def columns_of(tensors: Sequence[Tensor], names: Sequence[str]) -> dict[str, Data] | NDArray[Any]:
    """Rows from inputs: one for each column, or one `X` of shape (n, c) with all."""
    if len(tensors) == 1 and tensors[0].name == "X" and (len(tensors[0].shape) == 2 or "X" not in names):
        whole = tensors[0]
        if len(whole.shape) != 2 or whole.shape[1] != len(names):
            raise ValueError(
                f"Input 'X' has shape {list(whole.shape)}, but the model reads {len(names)} columns: (n, c)."
            )
        if isinstance(whole.data, np.ndarray):
            return whole.data.reshape(whole.shape)
        return dict(zip(names, whole.columns(), strict=True))
    columns: dict[str, Data] = {}
    for tensor in tensors:
        if tensor.name not in names:
            raise ValueError(f"There is no input {tensor.name!r:.140}: the model reads {_listed(names)}.")
        if tensor.name in columns or tensor.shape[1:] not in ((), (1,)):
            raise ValueError(f"Input {tensor.name!r:.140} comes twice, or is not of shape (n,).")
        columns[tensor.name] = tensor.data
    return columns


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:8])}{f' and {len(names) - 8} more' if len(names) > 8 else ''}"
