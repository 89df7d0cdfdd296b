"""Arrow arrays from buffers.

``pa.array`` and ``pa.scalar`` import pandas where that is installed, which costs a fresh worker
most of a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from perdure.errors import StorageCorrupt
from perdure.pipeline.schema import TIMESTAMP


def moments(values: Any, missing: Any) -> Any:
    """Microseconds as moments; null where ``missing``."""
    valid = None
    if missing is not None:
        valid = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(TIMESTAMP, len(values), [valid, pa.py_buffer(values)])


def numbers(values: Any, kind: Any) -> Any:
    """A numpy array of just this width as an Arrow array."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def every(first: int, end: int, step: int) -> Any:
    """Indices from ``first`` up to ``end``."""
    return numbers(np.arange(first, end, step, dtype=np.int64), pa.int64())


def binary(values: Sequence[bytes]) -> Any:
    """Byte strings as an Arrow array."""
    bounds: Any = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int32, len(values)), out=bounds[1:])
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def strings(values: Sequence[str]) -> Any:
    """Texts as an Arrow array."""
    return binary([value.encode() for value in values]).cast(pa.string())


def text(values: Any, what: str) -> Any:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise StorageCorrupt(f"a {what} is not UTF-8") from error


def words(memory: Any, places: Any, kind: str) -> Any:
    """The numbers at some places of memory, wherever they begin, as numpy of this machine's order.

    Args:
        kind: as numpy names it: order, signed or not, and bytes (``>u8``).
    """
    dtype = np.dtype(kind)
    native = dtype.newbyteorder("=")
    if not len(places):
        return np.empty(0, dtype=native)
    every_one: Any = np.ndarray(
        len(memory) - dtype.itemsize + 1, dtype=dtype, buffer=memory, strides=(1,)
    )
    return every_one[places].astype(native)


def slots(memory: Any, bounds: Any) -> Any:
    """Memory as byte strings, cut at bounds."""
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(memory)]
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)


def pieces(memory: Any, starts: Any, ends: Any) -> Any:
    """Pieces of memory that do not overlap, in its order, as byte strings."""
    count = len(starts)
    bounds: Any = np.empty(2 * count + 1, dtype=np.int32)
    bounds[0:-1:2] = starts
    bounds[1::2] = ends
    bounds[-1] = ends[-1]
    return slots(memory, bounds).take(every(0, 2 * count, 2))
