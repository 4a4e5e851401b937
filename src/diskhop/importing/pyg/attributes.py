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
    """Attributes of one type by name. Taking one removes it; what remains in the end is not imported."""

    def __init__(self, where: str, items: Mapping[str, Any]) -> None:
        self.where = where
        self._values = {key: value for key, value in items.items() if value is not None}
        self._reasons: dict[str, str] = {}

    def place(self, key: str) -> str:
        """Spell the attribute as Python does, for errors."""
        return f"{self.where}.{key}"

    def take(self, key: str) -> Any:
        """Take the value of an attribute; None: there is none."""
        return self._values.pop(key, None)

    def peek(self, key: str) -> Any:
        """Return the value of an attribute without taking it; None: there is none."""
        return self._values.get(key)

    def put(self, key: str, value: Any) -> None:
        """Add an attribute, made from another one."""
        self._values[key] = value

    def take_column(self, key: str) -> HeldValues | None:
        """Take the values of an attribute as a column; None: there is none."""
        value = self.take(key)
        return None if value is None else HeldValues(value, self.place(key))

    def names(self) -> list[str]:
        """List the attributes that were not taken."""
        return list(self._values)

    def column_like(self, key: str) -> HeldValues | None:
        """Return an attribute as a column without taking it; None: there is none, or it is no plain array."""
        if key not in self._values:
            return None
        try:
            return HeldValues(self._values[key], self.place(key))
        except SourceError as error:
            self.explain(key, f" ({str(error).removeprefix(f'{self.place(key)}: ')})")
            return None

    def explain(self, key: str, why: str) -> None:
        """Say why an attribute cannot be imported, for people."""
        self._reasons[key] = why

    def left_out(self) -> list[str]:
        """List the attributes that were not taken, with reasons, for people."""
        return [self.place(key) + self._reasons.get(key, "") for key in self._values]


class HeldValues:
    """Column in an array or tensor in memory. Blocks are copies where values are not contiguous.

    bits: whether a tensor of bfloat16 is read as its bits, uint16, in place of float32.
    """

    def __init__(self, value: Any, where: str, *, bits: bool = False) -> None:
        self.where = where
        self.identity = f"array {secrets.token_hex(8)}"  # contents of memory cannot be recognised by another process
        self._value = _strided(value, where)
        self._is_bits = bits
        self.is_bfloat16 = str(self._value.dtype) == "torch.bfloat16" and not bits
        # The dtype of one row, because bfloat16 is converted to find it.
        self.dtype: np.dtype[Any] = self._rows(0, 1).dtype if self._value.ndim else np.dtype(object)
        self.shape = tuple(self._value.shape)
        if self.dtype.kind not in "biuf":
            raise SourceError(
                f"{where}: must be an array of plain booleans, integers or floats, got shape {self.shape} of "
                f"{self._value.dtype}; convert it"
            )

    @property
    def as_stored(self) -> HeldValues:
        """The same values as attributes store them: those of bfloat16 as bits."""
        return HeldValues(self._value, self.where, bits=True) if self.is_bfloat16 else self

    @property
    def resident(self) -> NDArray[Any] | None:
        """All values without a copy; None: they are a map of a file, or must be converted."""
        return None if isinstance(self._value, np.memmap) or self.is_bfloat16 or self._is_bits else self.array()

    def array(self) -> NDArray[Any]:
        """Return all values without a copy, if NumPy can represent them."""
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
            if self._is_bits:
                # The upper half of a float32: NumPy has no bfloat16.
                return (np.ascontiguousarray(rows.float().numpy()).view(np.uint32) >> 16).astype(np.uint16)
            return np.asarray((rows.float() if self.is_bfloat16 else rows).numpy())
        except (TypeError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise SourceError(f"{self.where}: cannot become a NumPy array: {reason}; convert it") from error


class MaskedRows:
    """Column of the nodes for which a mask (nodes), or one of several (nodes, splits), is true."""

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
    """Return an array, or a tensor in main memory, detached. Raises SourceError for other values."""
    if isinstance(value, np.ndarray):
        return value
    if str(getattr(value, "layout", "")) == "torch.strided":
        if value.device.type != "cpu":
            raise SourceError(f"{where}: must be in main memory, is on {value.device}; give data.cpu()")
        return value.detach()
    if hasattr(value, "to_dense") or hasattr(value, "todense"):
        dense = "to_dense" if hasattr(value, "to_dense") else "toarray"
        raise SourceError(f"{where}: is sparse; give {where}.{dense}()")
    raise SourceError(f"{where}: must be a tensor or a NumPy array, got {type(value).__name__}; convert it")
