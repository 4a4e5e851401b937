"""The kernel of assembly; assembly.py has its reference.

A program writes a block of columns of one row, which it reads from the memory that the row's address names. Pinned
memory has an address on the device, too: Triton takes its pointer, and the device reads it over the bus.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from diskhop.nn.kernels.choice import on_device_of
from diskhop.nn.kernels.leveled_rows import SCALE_BYTES, LeveledRows
from diskhop.policies.device_rows import LEVEL_SHIFT

_MOST_COLUMNS = 1024


def assemble_by_triton(rows: LeveledRows, addresses: Tensor) -> Tensor:
    """Compute assemble(). Raises ValueError for rows that are not contiguous."""
    memories = rows.device, rows.host, rows.staged
    if not all(each.is_contiguous() for each in memories):
        raise ValueError("rows must be contiguous")
    out = torch.empty(len(addresses), rows.dim, dtype=rows.dtype, device=addresses.device)
    is_scaled = rows.staged.dtype == torch.int8
    block = min(_MOST_COLUMNS, triton.next_power_of_2(max(1, rows.dim)))
    if out.numel():
        with on_device_of(out):
            _assemble_rows[(len(addresses), triton.cdiv(rows.dim, block))](
                *memories,
                addresses,
                out,
                rows.dim,
                rows.dim + SCALE_BYTES * is_scaled,
                SHIFT=LEVEL_SHIFT,
                IS_SCALED=is_scaled,
                BLOCK=block,
            )
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _assemble_rows(
    device: tl.tensor,
    host: tl.tensor,
    staged: tl.tensor,
    addresses: tl.tensor,
    out: tl.tensor,
    num_columns: tl.tensor,
    row_stride: tl.tensor,
    SHIFT: tl.constexpr,  # noqa: N803 - Triton's habit for constants
    IS_SCALED: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column = columns < num_columns
    address = tl.load(addresses + row)
    level = address >> SHIFT
    start = (address & ((1 << SHIFT) - 1)) * row_stride
    if level == 0:
        memory = device + start
    elif level == 1:
        memory = host + start
    else:
        memory = staged + start
    values = tl.load(memory + columns, mask=is_column, other=0)
    if IS_SCALED:
        # The scale's four bytes need not lie where their number divides the address.
        bits = tl.zeros((), tl.int32)
        for byte in tl.static_range(4):
            part = tl.load(memory + num_columns + byte).to(tl.int32) & 255
            bits |= part << (8 * byte)
        scale = bits.to(tl.float32, bitcast=True)
        tl.store(out + row * num_columns + columns, values.to(tl.float32) * scale, mask=is_column)
    else:
        tl.store(out + row * num_columns + columns, values, mask=is_column)
