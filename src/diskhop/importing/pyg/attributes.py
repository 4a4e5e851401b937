"""Attributes of a PyG object, and their values as columns.

PyTorch is not imported here: a tensor is any object with torch's strided layout that returns its NumPy array. Values
belong to the caller, and are read in place.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.errors import SourceError
from diskhop.runtime.blocks import row_ranges

_BLOCK_BYTES = 4 << 20
_ROWS_OF_MASKS = 1 << 19


class Attributes:
    """What an object has for one type, by name; what is taken is gone, and the rest is left out."""

    def __init__(self, where: str, items: Mapping[str, Any]) -> None:
        self.where = where
        self._values = {key: value for key, value in items.items() if value is not None}
        self._reasons: dict[str, str] = {}

    def place(self, key: str) -> str:
        """The attribute as Python has it."""
        return f"{self.where}.{key}"

    def take(self, key: str) -> Any:
        """The value, None where there is none."""
        return self._values.pop(key, None)

    def take_column(self, key: str) -> HeldValues | None:
        """The values as a column."""
        value = self.take(key)
        return None if value is None else HeldValues(value, self.place(key))

    def leave(self, key: str, value: Any, why: str = "") -> None:
        """Put back what was taken, since it cannot be used."""
        self._values[key] = value
        self._reasons[key] = why

    def left_out(self) -> list[str]:
        """What nobody took, and why, for people."""
        return [self.place(key) + self._reasons.get(key, "") for key in self._values]


class HeldValues:
    """See Column. An array or a tensor in memory; blocks are copied of what does not lie as NumPy has it."""

    def __init__(self, value: Any, where: str) -> None:
        self.where = where
        self.identity = f"array {secrets.token_hex(8)}"  # nobody can tell whether it is that of a process before
        self._value = _strided(value, where)
        self.is_bfloat16 = str(self._value.dtype) == "torch.bfloat16"
        # Of one row: bfloat16 is converted, and that should not be all of it.
        self.dtype: np.dtype[Any] = self._rows(0, 1).dtype if self._value.ndim else np.dtype(object)
        self.shape = tuple(self._value.shape)
        if self.dtype.kind not in "biuf":
            raise SourceError(
                f"{where}: must be an array of plain booleans, integers or floats, got shape {self.shape} of "
                f"{self._value.dtype}; convert it"
            )

    def array(self) -> NDArray[Any]:
        """All values, where they lie."""
        return self._rows(0, self.shape[0])

    def blocks(self) -> Iterator[NDArray[Any]]:
        """See Column."""
        row_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize
        for start, stop in row_ranges(self.shape[0], max(1, _BLOCK_BYTES // max(1, row_bytes))):
            yield np.ascontiguousarray(self._rows(start, stop))

    def _rows(self, start: int, stop: int) -> NDArray[Any]:
        rows = self._value[start:stop]
        if isinstance(rows, np.ndarray):
            return rows
        try:
            return np.asarray((rows.float() if self.is_bfloat16 else rows).numpy())
        except (TypeError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise SourceError(f"{self.where}: is no array: {reason}; convert it") from error


class MaskedRows:
    """See Column. The nodes for which a mask (nodes), or one of several (nodes, splits), is true."""

    dtype: np.dtype[Any] = np.dtype(np.int64)

    def __init__(self, masks: HeldValues, number: int) -> None:
        self.where = masks.where
        self.identity = f"{masks.identity}, mask {number}"
        self.shape = masks.shape[:1]
        self._mask = masks.array() if len(masks.shape) == 1 else masks.array()[:, number]

    def blocks(self) -> Iterator[NDArray[Any]]:
        """See Column."""
        for start, stop in row_ranges(self.shape[0], _ROWS_OF_MASKS):
            yield np.flatnonzero(self._mask[start:stop]) + start


def _strided(value: Any, where: str) -> Any:
    """An array, or a tensor in this machine's memory without its history."""
    if isinstance(value, np.ndarray):
        return value
    if str(getattr(value, "layout", "")) == "torch.strided":
        if value.device.type != "cpu":
            raise SourceError(f"{where}: must be in memory, is on {value.device}; give data.cpu()")
        return value.detach()
    if hasattr(value, "to_dense") or hasattr(value, "todense"):
        dense = "to_dense" if hasattr(value, "to_dense") else "toarray"
        raise SourceError(f"{where}: is sparse; give {where}.{dense}()")
    raise SourceError(f"{where}: must be a tensor or a NumPy array, got {type(value).__name__}; convert it")
