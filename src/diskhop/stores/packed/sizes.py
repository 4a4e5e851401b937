"""What the store `packed` takes of memory and of the disk, for the plan and for the store."""

from __future__ import annotations

import numpy as np

from diskhop.errors import ConfigError
from diskhop.protocols import Table
from diskhop.stores.packed.chunk import BLOCK_BYTES, aligned
from diskhop.stores.packed.row_lists import list_bytes
from diskhop.stores.row_cache import RowCache
from diskhop.system.memory import buffer_bytes

# One is made while two are on their way to the disk; and its ids, as they come and sorted twice over, and their list.
_BODIES_IN_MEMORY, _BYTES_PER_ROW_TO_FIND = 3, 28
# What direct I/O asks of memory on common disks; where one asks for more, the page cache helps out.
_MEMORY_ALIGNMENT = 512
_MOST_ROWS = 2**32


def packed_reserves(table: Table, cache_rows: int, _batch_rows: int) -> dict[str, int]:
    """Bytes that the store holds whatever it packs, by their names in the budget."""
    return RowCache.reserves(table, cache_rows)


def own_rows(table: Table, num_packed: int, num_shared: int) -> int:
    """Rows of the buffer that a batch takes."""
    unit = aligned_rows(table)
    packed_rows = -(-aligned(num_packed * table.row_bytes) // table.row_bytes)
    return (-(-num_shared // unit) + -(-packed_rows // unit)) * unit


def head_bytes(num_nodes: int, record_bytes: int) -> int:
    """Memory that a batch takes beside its rows: its chunk's head and body (shared rows at most all), and positions."""
    return buffer_bytes(BLOCK_BYTES + aligned(8 * num_nodes + record_bytes)) + buffer_bytes(8 * num_nodes)


def packed_batch_bytes(num_nodes: int) -> int:
    """Memory in which a batch of so many nodes is made ready for packing: bodies, and what finds its rows."""
    return (_BODIES_IN_MEMORY * 4 + _BYTES_PER_ROW_TO_FIND) * num_nodes


def chunk_bytes(table: Table, num_nodes: int, num_packed: int) -> int:
    """Of the disk, of a batch that shares nothing: its chunk, and while it is packed the list of its rows."""
    return 3 * BLOCK_BYTES + aligned(4 * num_nodes) + num_packed * table.row_bytes + list_bytes(num_packed)


def require_packable(table: Table) -> None:
    """Raise ConfigError for a table of more rows than ids on the disk, uint32, can name."""
    if table.num_rows > _MOST_ROWS:
        raise ConfigError(
            f"{table.path}: has {table.num_rows} rows, and the store 'packed' takes at most {_MOST_ROWS}; "
            "name another store"
        )


def aligned_rows(table: Table) -> int:
    """Rows after which a row is at a multiple of the alignment again."""
    return int(np.lcm(table.row_bytes, _MEMORY_ALIGNMENT)) // table.row_bytes
