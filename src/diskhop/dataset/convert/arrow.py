"""Numbers out of an Arrow C stream, which DuckDB gives for a query: a block at a time, and no Arrow library needed.

The structs are those of Arrow's C data interface; a stream ends with an array that has no release.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray


class StreamError(Exception):
    """What the stream's source says went wrong."""


class _Array(ctypes.Structure):
    pass


_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
    ("dictionary", ctypes.POINTER(_Array)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Array))),
    ("private_data", ctypes.c_void_p),
]


class _Stream(ctypes.Structure):
    pass


_Stream._fields_ = [
    ("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Stream), ctypes.c_void_p)),
    ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Stream), ctypes.POINTER(_Array))),
    ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(_Stream))),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Stream))),
    ("private_data", ctypes.c_void_p),
]

_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def read_numbers(capsule: object, dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
    """The first column, which must be of the dtype, in blocks as they come; a null is NaN. Raises StreamError."""
    address = _get_pointer(capsule, b"arrow_array_stream")
    assert address is not None
    stream = _Stream.from_address(address)
    while True:
        array = _Array()
        if stream.get_next(ctypes.byref(stream), ctypes.byref(array)):
            raise StreamError((stream.get_last_error(ctypes.byref(stream)) or b"").decode(errors="replace"))
        if not array.release:
            return
        try:
            block = _numbers_of(array.children[0].contents, array.offset, array.length, dtype)
        finally:
            array.release(ctypes.byref(array))
        yield block


def _numbers_of(column: Any, offset: int, length: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    first = offset + column.offset
    block = np.empty(length, dtype)
    if length:
        ctypes.memmove(block.ctypes.data, column.buffers[1] + first * dtype.itemsize, block.nbytes)
    if length and column.null_count != 0 and column.buffers[0]:
        begin, end = first // 8, -(-(first + length) // 8)
        bits = np.frombuffer(ctypes.string_at(column.buffers[0] + begin, end - begin), np.uint8)
        is_valid = np.unpackbits(bits, bitorder="little")[first - 8 * begin :][:length]
        block[is_valid == 0] = np.nan
    return block
