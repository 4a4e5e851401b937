"""Files of a dataset with rows inserted and left out: read once, checked against their checksum, and passed on.

Memory is that of a block and of the rows to insert.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.files import read_rows
from diskhop.dataset.manifest import FileEntry
from diskhop.errors import FormatError
from diskhop.io.checksums import BlockHasher

BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Splice:
    """Rows to insert into a column, and rows to leave out.

    inserted_at: int64, ascending: each new row comes before this old row, after the new ones of the same place.
    removed_at: int64, ascending: the old rows to leave out.
    """

    inserted_at: NDArray[np.int64]
    removed_at: NDArray[np.int64]

    @property
    def change(self) -> int:
        """Number of rows that the column grows by; it may be negative."""
        return len(self.inserted_at) - len(self.removed_at)

    def blocks(self, old: Iterable[NDArray[Any]], inserted: NDArray[Any]) -> Iterator[NDArray[Any]]:
        """Yield the new column. old: consecutive rows of the old one. inserted: the rows to insert, in order."""
        first = taken = 0
        for block in old:
            end = first + len(block)
            stop = int(np.searchsorted(self.inserted_at, end))
            begin_removed, end_removed = np.searchsorted(self.removed_at, [first, end])
            removed = self.removed_at[begin_removed:end_removed] - first
            yield spliced(block, self.inserted_at[taken:stop] - first, inserted[taken:stop], removed)
            first, taken = end, stop
        if taken < len(inserted):
            yield inserted[taken:]


def spliced(
    block: NDArray[Any], places: NDArray[np.int64], inserted: NDArray[Any], removed: NDArray[np.int64]
) -> NDArray[Any]:
    """Return a block without the rows at `removed`, and with others before its rows at `places`."""
    if len(removed):
        places = places - np.searchsorted(removed, places)
        block = np.delete(block, removed, axis=0)
    return np.insert(block, places, inserted, axis=0) if len(places) else block


def stored_rows(path: Path, entry: FileEntry, row_bytes: int) -> Iterator[NDArray[np.uint8]]:
    """Yield the rows of a file, uint8 (rows, row_bytes), in blocks.

    Raises FormatError, at the end, for a file that does not match its checksum.
    """
    hasher = BlockHasher()
    for block in read_rows(path, row_bytes, entry.num_bytes // row_bytes, max(1, BLOCK_BYTES // row_bytes)):
        hasher.update(block.reshape(-1))
        yield block
    if f"{hasher.finish().digest:016x}" != entry.xxh3_64:
        raise damaged(path)


def as_rows(values: NDArray[Any], row_bytes: int) -> NDArray[np.uint8]:
    """View values as rows of bytes, uint8 (rows, row_bytes)."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).reshape(-1, row_bytes)


def stored_values(path: Path, entry: FileEntry, dtype: Any) -> Iterator[NDArray[Any]]:
    """Yield the values of a file in blocks like stored_rows()."""
    wanted = np.dtype(dtype)
    return (rows.reshape(-1).view(wanted) for rows in stored_rows(path, entry, wanted.itemsize))


def damaged(path: Path) -> FormatError:
    """Return the error of a file that is not what was written."""
    return FormatError(
        f"{path}: does not match its checksum, so its content has changed; 'diskhop verify' names the damaged blocks: "
        "import the graph again"
    )
