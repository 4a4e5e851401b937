"""Adagrad of the rows of a table on a device: the reference, and the choice between it and the kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from diskhop.nn.kernels.choice import runs_kernels


def update_rows(values: Tensor, squares: Tensor, rows: Tensor, grads: Tensor, lr: float, epsilon: float) -> None:
    """Update a table's rows in place. Gradients of repeated rows are added up in their order, so each is updated once.

    values: float32 (table rows, dim). squares: sums of squares, float32 (table rows, dim), or (table rows, 1) for the
    mean over a row. rows: int64 (n). grads: float32 (n, dim); where all of a column are 0, it stays.
    """
    if runs_kernels(values):
        from diskhop.nn.kernels.triton_row_adagrad import update_rows_by_triton as run
    else:
        run = update_rows_reference
    run(values, squares, rows, grads, lr, epsilon)


def update_rows_reference(
    values: Tensor, squares: Tensor, rows: Tensor, grads: Tensor, lr: float, epsilon: float
) -> None:
    """Compute update_rows() by torch alone."""
    found, places = torch.unique(rows, return_inverse=True)
    grad = torch.zeros(len(found), values.shape[1], device=values.device).index_add_(0, places, grads)
    square = squares.index_select(0, found)
    square += grad.square() if squares.shape[1] == values.shape[1] else grad.square().mean(1, keepdim=True)
    squares.index_copy_(0, found, square)
    values.index_copy_(0, found, values.index_select(0, found) - grad * (lr / (square.sqrt() + epsilon)))
