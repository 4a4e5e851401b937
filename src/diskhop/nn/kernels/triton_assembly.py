"""The kernel of assembly; assembly.py has its reference.

A program writes a block of columns of some rows, each of which it reads from the memory that the row's address names.
Pinned memory has an address on the device, too: Triton takes its pointer, and the device reads it over the bus.
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
# Of the rows that a program writes at once: enough reads in flight to use all of a memory's rate.
_BYTES_PER_PROGRAM = 8192
# Of a scale, where its bytes lie together.
_WORDS = tl.constexpr(tl.pointer_type(tl.int32))


def assemble_by_triton(rows: LeveledRows, addresses: Tensor) -> Tensor:
    """Compute assemble(). Raises ValueError for rows that are not contiguous."""
    memories = rows.device, rows.host, rows.staged
    if not all(each.is_contiguous() for each in memories):
        raise ValueError("rows must be contiguous")
    out = torch.empty(len(addresses), rows.dim, dtype=rows.dtype, device=addresses.device)
    is_scaled = rows.staged.dtype == torch.int8
    block = min(_MOST_COLUMNS, triton.next_power_of_2(max(1, rows.dim)))
    num_rows = max(1, _BYTES_PER_PROGRAM // (block * out.element_size()))
    if out.numel():
        with on_device_of(out):
            _assemble_rows[(triton.cdiv(len(addresses), num_rows), triton.cdiv(rows.dim, block))](
                *memories,
                addresses,
                out,
                len(addresses),
                # Constants of the kernel: only then are rows read in wide pieces.
                NUM_COLUMNS=rows.dim,
                ROW_STRIDE=rows.dim + SCALE_BYTES * is_scaled,
                SHIFT=LEVEL_SHIFT,
                IS_SCALED=is_scaled,
                ROWS=num_rows,
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
    num_rows: tl.tensor,
    NUM_COLUMNS: tl.constexpr,  # noqa: N803 - Triton's habit for constants
    ROW_STRIDE: tl.constexpr,  # noqa: N803
    SHIFT: tl.constexpr,  # noqa: N803
    IS_SCALED: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    is_row = rows < num_rows
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_value = is_row[:, None] & (columns < NUM_COLUMNS)[None, :]
    address = tl.load(addresses + rows, mask=is_row, other=0)
    level = address >> SHIFT
    starts = (address & ((1 << SHIFT) - 1)) * ROW_STRIDE
    places = starts[:, None] + columns[None, :]
    # All three are in flight at once; two of them read nothing.
    of_device = tl.load(device + places, mask=is_value & (level == 0)[:, None], other=0)
    of_host = tl.load(host + places, mask=is_value & (level == 1)[:, None], other=0)
    of_staged = tl.load(staged + places, mask=is_value & (level == 2)[:, None], other=0)
    values = tl.where((level == 0)[:, None], of_device, tl.where((level == 1)[:, None], of_host, of_staged))
    if IS_SCALED:
        bits = tl.zeros((ROWS,), tl.int32)
        if ROW_STRIDE % 4 == 0:
            words = (starts + NUM_COLUMNS) // 4
            bits += tl.load(device.to(_WORDS, bitcast=True) + words, mask=is_row & (level == 0), other=0)
            bits += tl.load(host.to(_WORDS, bitcast=True) + words, mask=is_row & (level == 1), other=0)
            bits += tl.load(staged.to(_WORDS, bitcast=True) + words, mask=is_row & (level == 2), other=0)
        else:
            for byte in tl.static_range(4):
                place = starts + NUM_COLUMNS + byte
                part = tl.load(device + place, mask=is_row & (level == 0), other=0)
                part += tl.load(host + place, mask=is_row & (level == 1), other=0)
                part += tl.load(staged + place, mask=is_row & (level == 2), other=0)
                bits |= (part.to(tl.int32) & 255) << (8 * byte)
        scales = bits.to(tl.float32, bitcast=True)
        tl.store(
            out + rows[:, None] * NUM_COLUMNS + columns[None, :], values.to(tl.float32) * scales[:, None], is_value
        )
    else:
        tl.store(out + rows[:, None] * NUM_COLUMNS + columns[None, :], values, mask=is_value)
