"""The kernel of assembly; assembly.py has its reference.

A program writes a stretch of the result, whatever rows it belongs to, so that no thread is idle at the end of a row. It
is cut to pieces of up to 16 bytes, which a thread reads at once from the memory that the row's address names. Pinned
memory has an address on the device, too: Triton takes its pointer, and the device reads it over the bus.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from diskhop.nn.kernels.choice import on_device_of
from diskhop.nn.kernels.leveled_rows import SCALE_BYTES, LeveledRows
from diskhop.policies.device_rows import LEVEL_SHIFT

# That a thread reads or writes by one instruction, at most.
_PIECE_BYTES = 16
# Of a scale, where its bytes lie together.
_WORDS = tl.constexpr(tl.pointer_type(tl.int32))


class Tile(NamedTuple):
    """The part of the result that a program writes: a power of two of pieces, by a number of warps."""

    num_pieces: int
    num_warps: int


# Eight pieces of a thread are in flight, in 48 to 62 registers.
TILE = Tile(1024, 4)


def assemble_by_triton(rows: LeveledRows, addresses: Tensor, tile: Tile = TILE) -> Tensor:
    """Compute assemble(). Raises ValueError for rows that are not contiguous."""
    memories = rows.device, rows.host, rows.staged
    if not all(each.is_contiguous() for each in memories):
        raise ValueError("rows must be contiguous")
    out = torch.empty(len(addresses), rows.dim, dtype=rows.dtype, device=addresses.device)
    is_scaled = rows.staged.dtype == torch.int8
    # Rows begin at multiples of it. With a scale, they have four bytes more: a multiple of it, too.
    piece = gcd(rows.dim, _PIECE_BYTES // out.element_size())
    if out.numel():
        with on_device_of(out):
            _assemble_rows[(triton.cdiv(out.numel() // piece, tile.num_pieces),)](
                *memories,
                addresses,
                out,
                len(addresses),
                # Constants of the kernel: only then are rows read in wide pieces.
                NUM_COLUMNS=rows.dim,
                ROW_STRIDE=rows.dim + SCALE_BYTES * is_scaled,
                SHIFT=LEVEL_SHIFT,
                IS_SCALED=is_scaled,
                PIECE=piece,
                NUM_PIECES=tile.num_pieces,
                num_warps=tile.num_warps,
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
    PIECE: tl.constexpr,  # noqa: N803
    NUM_PIECES: tl.constexpr,  # noqa: N803
) -> None:
    per_row: tl.constexpr = NUM_COLUMNS // PIECE
    first = tl.program_id(0).to(tl.int64) * NUM_PIECES
    first_row = first // per_row
    # From the beginning of the first row: short numbers, which divide fast.
    pieces = (first - first_row * per_row).to(tl.int32) + tl.arange(0, NUM_PIECES)
    rows = first_row + pieces // per_row
    is_row = rows < num_rows
    address = tl.load(addresses + rows, mask=is_row, other=0)
    level = address >> SHIFT
    starts = (address & ((1 << SHIFT) - 1)) * ROW_STRIDE
    memory = tl.where(level == 0, device, tl.where(level == 1, host, staged))
    in_piece = tl.arange(0, PIECE)
    places = (starts + pieces % per_row * PIECE)[:, None] + in_piece[None, :]
    values = tl.load(memory[:, None] + places, mask=is_row[:, None])
    if IS_SCALED:
        if ROW_STRIDE % 4 == 0:
            bits = tl.load(memory.to(_WORDS, bitcast=True) + (starts + NUM_COLUMNS) // 4, mask=is_row)
        else:
            bits = tl.zeros((NUM_PIECES,), tl.int32)
            for byte in tl.static_range(4):
                part = tl.load(memory + starts + NUM_COLUMNS + byte, mask=is_row)
                bits |= (part.to(tl.int32) & 255) << (8 * byte)
        values = values.to(tl.float32) * bits.to(tl.float32, bitcast=True)[:, None]
    written = (first + tl.arange(0, NUM_PIECES)) * PIECE
    tl.store(out + written[:, None] + in_piece[None, :], values, mask=is_row[:, None])
