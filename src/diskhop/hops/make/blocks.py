"""How wide a block of columns is: a pure function from counts and memory.

The wider, the fewer times lists are read. A block holds all rows that some edge takes; or the first ones only, and room
for what *cold* edges, those from others, take (cold.py), where that makes it wider.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from diskhop.hops.make.cold_edges import cold_file_bytes, counts_bytes, looking_bytes
from diskhop.hops.make.passes import aligned_bytes, least_staging_bytes
from diskhop.hops.make.task import Task
from diskhop.hops.tables import PAGE_BYTES, TILE_COLUMNS, TILE_ROWS
from diskhop.system.memory import buffer_bytes

# A pass is quick with as much as it needs to keep the disk busy.
_HUGE_PAGE_BYTES = 2 << 20
_GOOD_STAGING_BYTES = 8 << 20
MOST_STAGING_BYTES = 16 << 20
_STAGING_SHARE = 12  # of memory, where a block has cold edges
# A row of a block is this much for each tile.
TILE_ROW_BYTES = 4 * TILE_COLUMNS
_LINE_TILES = 4  # that a cache line holds
# Of memory, for the cold edges of what lists are under way: a few MiB of indices hold some thousand.
_WINDOW_SHARE = 256
_LEAST_WINDOW_BYTES = 8 * PAGE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdRows:
    """Rows from first_row on, which a block of the plan's columns does not hold, and edges from them.

    resident_tiles: as wide a block holds all rows.
    """

    first_row: int
    num_edges: int
    resident_tiles: int


class Block(NamedTuple):
    """How wide a block is, its bytes, and beside it those of staging."""

    tiles: int
    num_bytes: int
    staging_bytes: int
    cold: ColdRows | None = None


class _Wider(NamedTuple):
    """A block of the first rows only, and of room for cold edges."""

    tiles: int
    num_bytes: int
    staging_bytes: int
    first_row: int
    resident_tiles: int
    window_bytes: int


def first_cold_row(task: Task, memory_bytes: int, threads: int) -> int | None:
    """Rows that a wider block than one of all rows would hold; None: there is none whose lists are worth a look.

    Worth it are the dataset's own lists, in which a row's own does not count, where most rows would be in the block.
    """
    wider = _widen(task, memory_bytes, threads)
    return None if wider is None else wider.first_row


def choose_block(task: Task, memory_bytes: int, threads: int, moved_bytes: Callable[[Block], int]) -> Block:
    """The widest that holds all rows, or one with cold edges, where that moves fewer bytes, all passes together."""
    block = _resident_block(task, memory_bytes, threads)
    wider, sources = _widen(task, memory_bytes, threads), task.sources
    if wider is None or sources is None or wider.first_row != sources.first_cold:
        return block
    # A read that begins anywhere takes two pages more. Two pieces: of one sums are made while the next is on its way.
    row_bytes = wider.tiles * TILE_ROW_BYTES
    if 2 * (sources.most_per_piece * row_bytes + 2 * PAGE_BYTES) > wider.window_bytes:
        return block
    if sources.num_sources * wider.resident_tiles * TILE_ROW_BYTES > wider.num_bytes:
        return block
    cold = ColdRows(first_row=wider.first_row, num_edges=sources.num_cold, resident_tiles=wider.resident_tiles)
    with_cold = Block(wider.tiles, wider.num_bytes, wider.staging_bytes, cold)
    return with_cold if moved_bytes(with_cold) < moved_bytes(block) else block


def _resident_block(task: Task, memory_bytes: int, threads: int) -> Block:
    """The widest that holds all rows that are needed."""
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
    if tiles % _LINE_TILES == _LINE_TILES - 1:  # rows that straddle lines: see ColumnBlock
        room = (memory_bytes - staging_bytes) // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES
        num_bytes = max(num_bytes, min(room, num_bytes + num_rows * TILE_ROW_BYTES))
    return Block(tiles, num_bytes, staging_bytes)


def _widen(task: Task, memory_bytes: int, threads: int) -> _Wider | None:
    """The next wider block of which a page holds whole rows, where memory holds most rows of it."""
    counts_own = any(operator.info.self_weight for operator in task.operators)
    if task.sorted_edges or counts_own or memory_bytes < looking_bytes(task.index_bytes, memory_bytes):
        return None
    resident_tiles = _resident_block(task, memory_bytes, threads).tiles
    tiles = 1 << resident_tiles.bit_length()
    row_bytes = tiles * TILE_ROW_BYTES
    # A cold row costs little: of staging there may be enough.
    good_bytes = min(memory_bytes // _STAGING_SHARE, MOST_STAGING_BYTES)
    staging_bytes = max(_least_staging_bytes(task, tiles, threads), _largest_buffer(good_bytes))
    num_bytes = _largest_memory(memory_bytes - staging_bytes - counts_bytes(task.num_edges))
    window_bytes = max(memory_bytes // _WINDOW_SHARE, _LEAST_WINDOW_BYTES)
    first_row = (num_bytes - window_bytes) // row_bytes // TILE_ROWS * TILE_ROWS
    # The others are in the block's memory for a moment, too.
    if tiles > task.shape.num_tiles or PAGE_BYTES % row_bytes or 2 * first_row < task.shape.num_rows:
        return None
    return _Wider(tiles, num_bytes, staging_bytes, first_row, resident_tiles, window_bytes)


def num_blocks_of(task: Task, block: Block) -> int:
    """Whole ones, and of the tiles that are left such that hold all rows."""
    narrower = block.tiles if block.cold is None else block.cold.resident_tiles
    whole, left = divmod(task.shape.num_tiles, block.tiles)
    return whole + -(-left // narrower)


def cold_disk_bytes(task: Task, block: Block) -> int:
    """Of cold edges, on the disk."""
    if block.cold is None:
        return 0
    values_bytes = block.cold.num_edges * block.tiles * TILE_ROW_BYTES + PAGE_BYTES
    return cold_file_bytes(task.num_edges, block.cold.num_edges, task.index_bytes) + values_bytes


def _good_staging_bytes(memory_bytes: int) -> int:
    return min(memory_bytes // 32, _GOOD_STAGING_BYTES)


def _least_staging_bytes(task: Task, tiles: int, threads: int) -> int:
    num_bytes = least_staging_bytes(TILE_COLUMNS * tiles, task.shape.item_bytes, task.index_bytes, threads)
    return buffer_bytes(num_bytes)


def _largest_memory(num_bytes: int) -> int:
    """The most that aligned_memory() gives for so many bytes."""
    huge = num_bytes // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES
    small = (num_bytes - PAGE_BYTES) // PAGE_BYTES * PAGE_BYTES
    return small if aligned_bytes(small) <= num_bytes else huge


def _largest_buffer(num_bytes: int) -> int:
    """The most that a buffer takes of so many bytes without being rounded up."""
    if num_bytes >= _HUGE_PAGE_BYTES:
        return num_bytes // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES
    return min(num_bytes, _HUGE_PAGE_BYTES // 2) // PAGE_BYTES * PAGE_BYTES
