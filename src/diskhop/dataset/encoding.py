"""Encoding of feature rows as bytes, for each dtype of the format.

float32, float16 and bfloat16 rows are consecutive values. An int8 row is dim signed bytes, followed by the float32
scale of the row: value = byte * scale, with scale = largest magnitude of the row / 127.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.errors import ConfigError

_ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}
FEATURE_DTYPES = tuple(_ITEM_BYTES)

# Half way between the largest value and the next power of 2: values from here on round to infinity.
_FLOAT16_LIMIT = np.float32(65520)
_BFLOAT16_LIMIT = np.uint32(0x7F7F8000).view(np.float32)


def check_feature_dtype(dtype: str) -> str:
    """Return a feature dtype unchanged. Raises ConfigError if the format does not support it."""
    if dtype not in _ITEM_BYTES:
        raise ConfigError(f"feature dtype '{dtype}' is unknown; choose one of {', '.join(FEATURE_DTYPES)}")
    return dtype


def row_bytes(dtype: str, dim: int) -> int:
    """Return the bytes of one row of `dim` values."""
    return dim * _ITEM_BYTES[dtype] + (4 if dtype == "int8" else 0)


def encode_rows(values: NDArray[Any], dtype: str) -> NDArray[np.uint8]:
    """Encode finite values (rows, dim), none of them too_large(), as bytes (rows, row bytes)."""
    if dtype == "float16":
        return _as_bytes(values.astype("<f2"))
    floats = np.ascontiguousarray(values, dtype="<f4")
    if dtype == "float32":
        return _as_bytes(floats)
    if dtype == "bfloat16":
        # Round to nearest, ties to even: the upper half, plus one if the lower half rounds up.
        bits = floats.view("<u4")
        rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
        return _as_bytes((rounded >> np.uint32(16)).astype("<u2"))
    scales = np.max(np.abs(floats), axis=1, initial=0.0, keepdims=True) / np.float32(127)
    # If the scale of a row underflows to zero, the row is zeros.
    quotients = np.divide(floats, scales, out=np.zeros_like(floats), where=scales > 0)
    # Subnormal scales are so coarse that quotients can exceed 127.
    quantised = np.clip(np.rint(quotients), -127, 127).astype(np.int8)
    return np.concatenate([quantised.view(np.uint8), _as_bytes(scales.astype("<f4"))], axis=1)


def decoded_dtype(dtype: str) -> np.dtype[Any]:
    """Return the dtype of decode_rows: float16 for float16, else float32."""
    return np.dtype("<f2" if dtype == "float16" else "<f4")


def decode_rows(rows: NDArray[np.uint8], dtype: str, dim: int) -> NDArray[Any]:
    """Decode rows (rows, row bytes or more) to values (rows, dim); padding is ignored."""
    content = np.ascontiguousarray(rows[:, : dim * _ITEM_BYTES[dtype]])
    values: NDArray[Any]
    if dtype == "bfloat16":
        values = (content.view("<u2").astype("<u4") << np.uint32(16)).view("<f4")
    elif dtype == "int8":
        values = content.view(np.int8) * np.ascontiguousarray(rows[:, dim : dim + 4]).view("<f4")
    else:
        values = content.view(decoded_dtype(dtype))
    return values


def too_large(values: NDArray[Any], dtype: str) -> NDArray[np.bool_]:
    """Return a mask of the finite values that become infinite in a dtype."""
    if dtype == "float16":
        return np.asarray(np.abs(values) >= _FLOAT16_LIMIT)
    with np.errstate(over="ignore"):
        floats = values.astype(np.float32, copy=False)
    return np.asarray(np.abs(floats) >= (_BFLOAT16_LIMIT if dtype == "bfloat16" else np.inf))


def _as_bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(values).view(np.uint8)
