"""Choosing the width of a column block: a pure function of counts and memory.

The wider the block, the fewer times the lists are read. A block contains all rows that some edge needs. Alternatively
it contains only the first rows plus space for the values of *cold* edges, those from other rows (cold_edges.py), if
that makes it wider.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from diskhop.hops.make.cold_edges import cold_file_bytes, counts_bytes, scan_bytes
from diskhop.hops.make.passes import aligned_bytes, least_staging_bytes
from diskhop.hops.make.task import Task
from diskhop.hops.tables import PAGE_BYTES, TILE_COLUMNS, TILE_ROWS
from diskhop.system.memory import buffer_bytes

_HUGE_PAGE_BYTES = 2 << 20
# Enough staging to keep the disk busy.
_GOOD_STAGING_BYTES = 8 << 20
MOST_STAGING_BYTES = 16 << 20
_STAGING_SHARE = 12  # 1 / this of memory, for a block with cold edges
# Bytes of a block per row and tile.
TILE_ROW_BYTES = 4 * TILE_COLUMNS
_LINE_TILES = 4  # tiles per cache line
# 1 / this of memory for the cold edges of the list pieces in flight: a few MiB of indices have some thousand.
_WINDOW_SHARE = 256
_LEAST_WINDOW_BYTES = 8 * PAGE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdRows:
    """Rows that a block of the planned width does not contain, and the edges from them.

    first_row: first of these rows.
    num_edges: number of edges from them.
    resident_tiles: width of a block that contains all rows.
    """

    first_row: int
    num_edges: int
    resident_tiles: int


class Block(NamedTuple):
    """A block of columns.

    tiles: width.
    num_bytes: bytes of the block.
    staging_bytes: bytes of staging buffers.
    cold: rows that are not in the block; None if all are.
    """

    tiles: int
    num_bytes: int
    staging_bytes: int
    cold: ColdRows | None = None


class _Wider(NamedTuple):
    """A block of the first rows only, with space for the values of cold edges.

    tiles: width.
    num_bytes: bytes of the block.
    staging_bytes: bytes of staging buffers.
    first_row: first row that is not in the block.
    resident_tiles: width of a block that contains all rows.
    window_bytes: space for values of cold edges.
    """

    tiles: int
    num_bytes: int
    staging_bytes: int
    first_row: int
    resident_tiles: int
    window_bytes: int


def first_cold_row(task: Task, memory_bytes: int, threads: int) -> int | None:
    """Return the number of rows in a block that is wider than one of all rows; None if counting is not worthwhile.

    It is worthwhile for the dataset's own lists, without weights of edges or own rows, if the block contains most
    rows.
    """
    wider = _widen(task, memory_bytes, threads)
    return None if wider is None else wider.first_row


def choose_block(task: Task, memory_bytes: int, threads: int, moved_bytes: Callable[[Block], int]) -> Block:
    """Choose the widest block of all rows, or one with cold edges if all its passes together move fewer bytes."""
    block = _resident_block(task, memory_bytes, threads)
    wider, sources = _widen(task, memory_bytes, threads), task.sources
    if wider is None or sources is None or wider.first_row != sources.first_cold:
        return block
    # Unaligned reads take two more pages. Two pieces: one is summed while the next is read.
    row_bytes = wider.tiles * TILE_ROW_BYTES
    if 2 * (sources.most_per_piece * row_bytes + 2 * PAGE_BYTES) > wider.window_bytes:
        return block
    if sources.num_sources * wider.resident_tiles * TILE_ROW_BYTES > wider.num_bytes:
        return block
    cold = ColdRows(first_row=wider.first_row, num_edges=sources.num_cold, resident_tiles=wider.resident_tiles)
    with_cold = Block(wider.tiles, wider.num_bytes, wider.staging_bytes, cold)
    return with_cold if moved_bytes(with_cold) < moved_bytes(block) else block


def _resident_block(task: Task, memory_bytes: int, threads: int) -> Block:
    """Choose the widest block of all rows that are needed."""
    shape, num_rows = task.shape, task.num_block_rows

    def block_bytes(tiles: int) -> int:
        return num_rows * tiles * TILE_ROW_BYTES

    def fits(tiles: int) -> bool:
        least_bytes = max(_good_staging_bytes(memory_bytes), _least_staging_bytes(task, tiles, threads))
        return aligned_bytes(block_bytes(tiles)) + least_bytes <= memory_bytes

    tiles = next((tiles for tiles in range(shape.num_tiles, 1, -1) if fits(tiles)), 1)
    num_bytes = block_bytes(tiles)
    left_bytes = memory_bytes - aligned_bytes(num_bytes)
    least_bytes = _least_staging_bytes(task, tiles, threads)
    staging_bytes = max(least_bytes, _largest_buffer(min(left_bytes, MOST_STAGING_BYTES)))
    if tiles % _LINE_TILES == _LINE_TILES - 1:  # pad rows that straddle cache lines, see ColumnBlock
        room = (memory_bytes - staging_bytes) // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES
        num_bytes = max(num_bytes, min(room, num_bytes + num_rows * TILE_ROW_BYTES))
    return Block(tiles, num_bytes, staging_bytes)


def _widen(task: Task, memory_bytes: int, threads: int) -> _Wider | None:
    """Choose the next wider block with rows that divide a page, if memory fits most of them."""
    counts_own = any(operator.info.self_weight for operator in task.operators)
    if task.sorted_edges or task.weight_bytes or counts_own:
        return None
    if memory_bytes < scan_bytes(task.index_bytes, memory_bytes):
        return None
    resident_tiles = _resident_block(task, memory_bytes, threads).tiles
    tiles = 1 << resident_tiles.bit_length()
    row_bytes = tiles * TILE_ROW_BYTES
    # Cold rows cost little, so there may be plenty of staging.
    good_bytes = min(memory_bytes // _STAGING_SHARE, MOST_STAGING_BYTES)
    staging_bytes = max(_least_staging_bytes(task, tiles, threads), _largest_buffer(good_bytes))
    num_bytes = _largest_memory(memory_bytes - staging_bytes - counts_bytes(task.num_edges))
    window_bytes = max(memory_bytes // _WINDOW_SHARE, _LEAST_WINDOW_BYTES)
    first_row = (num_bytes - window_bytes) // row_bytes // TILE_ROWS * TILE_ROWS
    # The other rows are temporarily in the memory of the block, too.
    if tiles > task.shape.num_tiles or PAGE_BYTES % row_bytes or 2 * first_row < task.shape.num_rows:
        return None
    return _Wider(tiles, num_bytes, staging_bytes, first_row, resident_tiles, window_bytes)


def num_blocks_of(task: Task, block: Block) -> int:
    """Return the number of blocks: full ones, and narrower ones of all rows for the remaining tiles."""
    narrower = block.tiles if block.cold is None else block.cold.resident_tiles
    whole, left = divmod(task.shape.num_tiles, block.tiles)
    return whole + -(-left // narrower)


def cold_disk_bytes(task: Task, block: Block, processes: int) -> int:
    """Return the disk space of cold edges: their sources, and the values of a block in a file of each process."""
    if block.cold is None:
        return 0
    values_bytes = block.cold.num_edges * block.tiles * TILE_ROW_BYTES + PAGE_BYTES
    return cold_file_bytes(task.num_edges, block.cold.num_edges, task.index_bytes) + processes * values_bytes


def _good_staging_bytes(memory_bytes: int) -> int:
    return min(memory_bytes // 32, _GOOD_STAGING_BYTES)


def _least_staging_bytes(task: Task, tiles: int, threads: int) -> int:
    num_bytes = least_staging_bytes(
        TILE_COLUMNS * tiles, task.shape.item_bytes, task.index_bytes, threads, task.weight_bytes
    )
    return buffer_bytes(num_bytes)


def _largest_memory(num_bytes: int) -> int:
    """Return the most bytes for which aligned_memory() takes at most num_bytes."""
    huge = num_bytes // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES
    small = (num_bytes - PAGE_BYTES) // PAGE_BYTES * PAGE_BYTES
    return small if aligned_bytes(small) <= num_bytes else huge


def _largest_buffer(num_bytes: int) -> int:
    """Return the most bytes, at most num_bytes, that a buffer takes without rounding up."""
    if num_bytes >= _HUGE_PAGE_BYTES:
        return num_bytes // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES
    return min(num_bytes, _HUGE_PAGE_BYTES // 2) // PAGE_BYTES * PAGE_BYTES
