"""The kernel of Adagrad over rows; row_adagrad.py has its reference.

A program has one place of the sorted rows. The first of a row adds up the gradients of all its places, in their order,
and updates the row: no two programs write to one, and sums do not depend on scheduling.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from diskhop.nn.kernels.choice import on_device_of


def update_rows_by_triton(
    values: Tensor, squares: Tensor, rows: Tensor, grads: Tensor, lr: float, epsilon: float
) -> None:
    """Compute update_rows(). Raises ValueError for tensors that are not contiguous."""
    if not all(each.is_contiguous() for each in (values, squares, grads)):
        raise ValueError("values, squares and gradients must be contiguous")
    if not len(rows):
        return
    found, places = torch.sort(rows, stable=True)
    dim = values.shape[1]
    with on_device_of(values):
        _update_rows[(len(rows),)](
            values,
            squares,
            found,
            places,
            grads,
            len(rows),
            dim,
            lr,
            epsilon,
            BY_ROW=squares.shape[1] != dim,
            BLOCK=triton.next_power_of_2(dim),
        )


@triton.jit  # type: ignore[untyped-decorator]
def _update_rows(
    values: tl.tensor,
    squares: tl.tensor,
    rows: tl.tensor,
    places: tl.tensor,
    grads: tl.tensor,
    num_rows: tl.tensor,
    dim: tl.tensor,
    lr: tl.tensor,
    epsilon: tl.tensor,
    BY_ROW: tl.constexpr,  # noqa: N803 - Triton's habit for constants
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    item = tl.program_id(0)
    row = tl.load(rows + item)
    before = tl.load(rows + item - 1, mask=item > 0, other=-1)
    if before != row:
        columns = tl.arange(0, BLOCK)
        is_column = columns < dim
        grad = tl.zeros((BLOCK,), tl.float32)
        found = row
        while found == row:
            grad += tl.load(grads + tl.load(places + item) * dim + columns, mask=is_column, other=0.0)
            item += 1
            found = tl.load(rows + item, mask=item < num_rows, other=-1)
        if BY_ROW:
            square = tl.load(squares + row) + tl.sum(grad * grad) / dim
            tl.store(squares + row, square)
            change = grad * (lr / (tl.sqrt_rn(square) + epsilon))
        else:
            of_columns = squares + row * dim + columns
            square = tl.load(of_columns, mask=is_column, other=0.0) + grad * grad
            tl.store(of_columns, square, mask=is_column)
            change = grad * (lr / (tl.sqrt_rn(square) + epsilon))
        of_values = values + row * dim + columns
        tl.store(of_values, tl.load(of_values, mask=is_column, other=0.0) - change, mask=is_column)
