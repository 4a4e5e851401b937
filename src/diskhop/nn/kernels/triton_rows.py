"""Reading and writing rows of a table inside of kernels."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def load_rows(
    table: tl.tensor, rows: tl.tensor, columns: tl.tensor, is_row: tl.tensor, is_column: tl.tensor, dim: tl.tensor
) -> tl.tensor:
    """Return columns of rows, 0 where there is none."""
    places = rows[:, None] * dim + columns[None, :]
    return tl.load(table + places, mask=is_row[:, None] & is_column[None, :], other=0.0)


@triton.jit  # type: ignore[untyped-decorator]
def store_rows(
    table: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    values: tl.tensor,
    is_row: tl.tensor,
    is_column: tl.tensor,
    dim: tl.tensor,
) -> None:
    """Write columns of rows, where there are any."""
    places = rows[:, None] * dim + columns[None, :]
    tl.store(table + places, values, mask=is_row[:, None] & is_column[None, :])
