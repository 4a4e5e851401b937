"""Rows on disk hold the values that went in, as well as their dtype can."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from diskhop.dataset.encoding import FEATURE_DTYPES, encode_rows, row_bytes, too_large

MATRICES = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 5), st.integers(1, 9)),
    elements=st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=True),
)


def nearest_bfloat16(value: np.float32) -> float:
    """Search the values next to the truncated one; of two that are as near, return the even one."""
    bits = int(np.float32(value).view(np.uint32)) & 0xFFFF0000
    candidates = [np.uint32(bits), np.uint32(bits + 0x10000)]
    exact = float(value)
    return min(
        (abs(float(one.view(np.float32)) - exact), int(one) >> 16 & 1, float(one.view(np.float32)))
        for one in candidates
    )[2]


@pytest.mark.parametrize("dtype", FEATURE_DTYPES)
@given(values=MATRICES)
def test_rows_have_their_length(dtype: str, values: NDArray[np.float32]) -> None:
    values = np.where(too_large(values, dtype), np.float32(1), values)
    encoded = encode_rows(values, dtype)
    assert encoded.dtype == np.uint8
    assert encoded.shape == (len(values), row_bytes(dtype, values.shape[1]))


@given(values=MATRICES)
def test_float32_is_exact(values: NDArray[np.float32]) -> None:
    assert encode_rows(values, "float32").tobytes() == values.tobytes()


@given(values=MATRICES)
def test_bfloat16_is_the_nearest(values: NDArray[np.float32]) -> None:
    halves = encode_rows(values, "bfloat16").view(np.uint16).astype(np.uint32) << 16
    decoded = halves.view(np.float32)
    assert decoded.ravel().tolist() == [nearest_bfloat16(value) for value in values.ravel()]


@given(values=MATRICES)
def test_int8_is_within_half_a_step_of_the_row(values: NDArray[np.float32]) -> None:
    dim = values.shape[1]
    encoded = encode_rows(values, "int8")
    scales = np.ascontiguousarray(encoded[:, dim:]).view(np.float32).astype(np.float64)
    decoded = encoded[:, :dim].view(np.int8) * scales
    largest = np.abs(values).max(axis=1, keepdims=True).astype(np.float64)
    # Below 127 subnormal steps a float32 scale itself is coarse.
    allowed = np.maximum(0.5001 * largest / 127, 128 * 2.0**-149)
    assert (np.abs(decoded - values) <= allowed).all()


def test_a_row_of_zeros_has_scale_zero() -> None:
    assert encode_rows(np.zeros((1, 3), np.float32), "int8").tolist() == [[0] * 7]


@pytest.mark.parametrize(
    ("dtype", "largest", "next_larger"),
    [
        ("float16", 65519.0, 65520.0),
        ("bfloat16", float(np.uint32(0x7F7F7FFF).view(np.float32)), float(np.uint32(0x7F7F8000).view(np.float32))),
        ("float32", 2.0**128 - 2.0**104, 2.0**128),
        ("int8", -(2.0**128 - 2.0**104), -(2.0**128)),
    ],
)
def test_what_would_become_infinite_is_too_large(dtype: str, largest: float, next_larger: float) -> None:
    assert too_large(np.array([[largest, next_larger]]), dtype).tolist() == [[False, True]]
    encoded = encode_rows(np.array([[largest]]), dtype)
    if dtype == "bfloat16":
        assert encoded.view(np.uint16).tolist() == [[0x7F7F]]
    else:
        assert np.isfinite(encoded[:, -4:].copy().view(np.float16 if dtype == "float16" else np.float32)).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64])
def test_what_float16_cannot_hold_is_what_becomes_infinite(dtype: type[np.generic]) -> None:
    near = np.concatenate([np.linspace(65400, 65600, 2001), [65504, 65519.99, 65519.999, 65520, 65520.001]])
    most = 65504 if dtype is np.float16 else 1e5
    values = np.concatenate([near, -near])[:, np.newaxis]
    values = values[np.abs(values[:, 0]) <= most].astype(dtype)
    with np.errstate(over="ignore"):
        expected = np.isinf(values.astype(np.float16))
    np.testing.assert_array_equal(too_large(values, "float16"), expected)
