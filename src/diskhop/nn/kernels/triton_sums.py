"""The kernel of sums over neighbour lists; sums.py has its reference.

A program sums a block of columns of one list, edge by edge, so that the order of additions is fixed. The rows of some
edges are in flight at once; rows that several lists name stay in the device's cache.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from diskhop.nn.kernels.choice import on_device_of
from diskhop.nn.kernels.lists import NeighborLists

_MOST_COLUMNS = 256
# Of a warp: four numbers of each thread, which reads them at once.
_COLUMNS_PER_WARP = 128
# Edges whose rows are read at once.
_EDGES = tl.constexpr(4)


def sums_by_triton(x: Tensor, lists: NeighborLists, dtype: torch.dtype) -> Tensor:
    """Compute neighbor_sums() without gradients. Raises ValueError for rows whose columns are apart."""
    if x.stride(1) != 1:
        raise ValueError(f"columns must be contiguous, got strides {x.stride()}")
    num_columns = x.shape[1]
    num_heads = lists.num_heads
    out = torch.empty(lists.num_lists, num_columns, dtype=dtype, device=x.device)
    block = min(_MOST_COLUMNS, triton.next_power_of_2(max(1, num_columns)))
    grid = (lists.num_lists, triton.cdiv(num_columns, block))
    if out.numel():
        with on_device_of(x):
            _sum_lists[grid](
                lists.indptr,
                lists.sources,
                lists.weights if lists.weights is not None else lists.sources,
                lists.own_weights if lists.own_weights is not None else lists.sources,
                0 if lists.own_weights is None else len(lists.own_weights),
                x,
                out,
                # Constants of the kernel: only then are rows read in wide pieces.
                X_STRIDE=x.stride(0),
                NUM_COLUMNS=num_columns,
                NUM_HEADS=num_heads,
                HEAD_COLUMNS=max(1, num_columns // num_heads),
                HAS_WEIGHTS=lists.weights is not None,
                HAS_OWN=lists.own_weights is not None,
                BLOCK=block,
                num_warps=max(1, block // _COLUMNS_PER_WARP),
            )
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _sum_lists(
    indptr: tl.tensor,
    sources: tl.tensor,
    weights: tl.tensor,
    own_weights: tl.tensor,
    num_own: tl.tensor,
    x: tl.tensor,
    out: tl.tensor,
    X_STRIDE: tl.constexpr,  # noqa: N803 - Triton's habit for constants
    NUM_COLUMNS: tl.constexpr,  # noqa: N803
    NUM_HEADS: tl.constexpr,  # noqa: N803
    HEAD_COLUMNS: tl.constexpr,  # noqa: N803
    HAS_WEIGHTS: tl.constexpr,  # noqa: N803
    HAS_OWN: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    row = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column = columns < NUM_COLUMNS
    heads = columns // HEAD_COLUMNS
    edge = tl.load(indptr + row)
    end = tl.load(indptr + row + 1)
    total = tl.zeros((BLOCK,), tl.float32)
    while edge < end:
        for each in tl.static_range(_EDGES):
            is_edge = edge + each < end
            source = tl.load(sources + edge + each, mask=is_edge, other=0).to(tl.int64)
            values = tl.load(x + source * X_STRIDE + columns, mask=is_column & is_edge, other=0.0).to(tl.float32)
            if HAS_WEIGHTS:
                of_edge = weights + (edge + each).to(tl.int64) * NUM_HEADS
                values = values * tl.load(of_edge + heads, mask=is_column & is_edge, other=0.0)
            total = tl.where(is_edge, total + values, total)
        edge += _EDGES
    if HAS_OWN:  # noqa: SIM102 - decided when the kernel is compiled
        if row < num_own:
            own = tl.load(x + row.to(tl.int64) * X_STRIDE + columns, mask=is_column, other=0.0).to(tl.float32)
            total += own * tl.load(own_weights + row)
    tl.store(out + row.to(tl.int64) * NUM_COLUMNS + columns, total.to(out.dtype.element_ty), mask=is_column)


def products_by_triton(x: Tensor, grad: Tensor, lists: NeighborLists, num_heads: int) -> Tensor:
    """Compute products_reference(): float32 (edges, heads)."""
    out = torch.zeros(len(lists.sources), num_heads, device=x.device)
    head_columns = x.shape[1] // num_heads
    block = min(_MOST_COLUMNS, triton.next_power_of_2(max(1, head_columns)))
    if out.numel() and head_columns:
        with on_device_of(x):
            _multiply_lists[(lists.num_lists, num_heads)](
                lists.indptr,
                lists.sources,
                x,
                grad,
                out,
                X_STRIDE=x.stride(0),
                GRAD_STRIDE=grad.stride(0),
                NUM_HEADS=num_heads,
                HEAD_COLUMNS=head_columns,
                BLOCK=block,
                num_warps=max(1, block // _COLUMNS_PER_WARP),
            )
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _multiply_lists(
    indptr: tl.tensor,
    sources: tl.tensor,
    x: tl.tensor,
    grad: tl.tensor,
    out: tl.tensor,
    X_STRIDE: tl.constexpr,  # noqa: N803
    GRAD_STRIDE: tl.constexpr,  # noqa: N803
    NUM_HEADS: tl.constexpr,  # noqa: N803
    HEAD_COLUMNS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    row = tl.program_id(0)
    head = tl.program_id(1)
    edge = tl.load(indptr + row)
    end = tl.load(indptr + row + 1)
    of_list = grad + row.to(tl.int64) * GRAD_STRIDE + head * HEAD_COLUMNS
    while edge < end:
        for each in tl.static_range(_EDGES):
            is_edge = edge + each < end
            source = tl.load(sources + edge + each, mask=is_edge, other=0).to(tl.int64)
            of_edge = x + source * X_STRIDE + head * HEAD_COLUMNS
            total = tl.zeros((BLOCK,), tl.float32)
            column = 0
            while column < HEAD_COLUMNS:
                columns = column + tl.arange(0, BLOCK)
                is_column = (columns < HEAD_COLUMNS) & is_edge
                left = tl.load(of_edge + columns, mask=is_column, other=0.0).to(tl.float32)
                total += left * tl.load(of_list + columns, mask=is_column, other=0.0).to(tl.float32)
                column += BLOCK
            tl.store(out + (edge + each).to(tl.int64) * NUM_HEADS + head, tl.sum(total), mask=is_edge)
        edge += _EDGES
