"""Memory and disk that the store `packed` takes, for the plan and for the store."""

from __future__ import annotations

import numpy as np

from diskhop.protocols import Table
from diskhop.stores.packed.chunk import BLOCK_BYTES, aligned
from diskhop.stores.packed.row_lists import list_bytes
from diskhop.stores.row_cache import RowCache
from diskhop.system.memory import buffer_bytes

# One body is made while two are written; finding rows takes ids, two sorted copies of them, and their list.
_BODIES_IN_MEMORY, _BYTES_PER_ROW_TO_FIND = 3, 28
# Alignment of memory that direct I/O needs on common disks; on others the page cache steps in.
_MEMORY_ALIGNMENT = 512
_MOST_ROWS = 2**32


def packed_reserves(table: Table, cache_rows: int, _batch_rows: int) -> dict[str, int]:
    """Bytes that the store holds whatever it packs, by name in the budget."""
    return RowCache.reserves(table, cache_rows)


def own_rows(table: Table, num_packed: int, num_shared: int) -> int:
    """Rows of the buffer that one batch takes."""
    unit = aligned_rows(table)
    packed_rows = -(-aligned(num_packed * table.row_bytes) // table.row_bytes)
    return (-(-num_shared // unit) + -(-packed_rows // unit)) * unit


def head_bytes(num_nodes: int, record_bytes: int) -> int:
    """Bytes of a batch in addition to its rows: positions, and its chunk's head and body if all rows are shared."""
    return buffer_bytes(BLOCK_BYTES + aligned(8 * num_nodes + record_bytes)) + buffer_bytes(8 * num_nodes)


def packed_batch_bytes(num_nodes: int) -> int:
    """Bytes in which a batch of n nodes is prepared for packing: bodies, and what finds its rows."""
    return (_BODIES_IN_MEMORY * 4 + _BYTES_PER_ROW_TO_FIND) * num_nodes


def chunk_bytes(table: Table, num_nodes: int, num_packed: int) -> int:
    """Disk space of a batch that shares no rows: its chunk, and the list of its rows while it is packed."""
    return 3 * BLOCK_BYTES + aligned(4 * num_nodes) + num_packed * table.row_bytes + list_bytes(num_packed)


def why_not_packable(table: Table) -> str:
    """Return why a table cannot be packed: it has more rows than ids on the disk, uint32, can name; '' if it can."""
    if table.num_rows <= _MOST_ROWS:
        return ""
    return f"{table.path}: has {table.num_rows} rows, --store packed takes at most {_MOST_ROWS}; use --store static"


def aligned_rows(table: Table) -> int:
    """Return after how many rows a row starts at a multiple of the alignment again."""
    return int(np.lcm(table.row_bytes, _MEMORY_ALIGNMENT)) // table.row_bytes
