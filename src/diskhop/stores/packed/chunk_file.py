"""A temporary file of chunks, while their batches are sampled."""

from __future__ import annotations

import os
from pathlib import Path

from diskhop.io.atomic import allocate, destination_errors
from diskhop.stores.packed.chunk import Chunk, slot_bytes_for
from diskhop.stores.packed.row_lists import list_bytes


class ChunkFile:
    """Reserves disk space for the chunks of batches that share no rows.

    It also reserves the space of packing's temporary lists. A file that is used again keeps its space.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.chunks: list[Chunk] = []
        self._list_bytes = self._num_bytes = 0
        with destination_errors(path):
            path.touch()
            self._found_bytes = path.stat().st_size

    def add(self, number: int, num_nodes: int, num_packed: int, row_bytes: int, num_resident: int) -> None:
        """Reserve space for a batch and for the list of its rows. Raises DestinationError for a full disk."""
        chunk = Chunk(
            offset=self.chunks[-1].end if self.chunks else 0,
            number=number,
            num_nodes=num_nodes,
            num_packed=num_packed,
            num_shared=0,
            row_bytes=row_bytes,
            slot_bytes=slot_bytes_for(num_resident + num_packed),
            record_bytes=0,
        )
        num_list_bytes = self._list_bytes + list_bytes(num_packed)
        allocate(self.path, self._num_bytes, chunk.end + num_list_bytes - self._num_bytes)
        self._num_bytes = chunk.end + num_list_bytes
        self._list_bytes = num_list_bytes
        self.chunks.append(chunk)

    def begin(self, num_batches: int) -> list[Chunk]:
        """Return the chunks of the first batches, and free the space of their lists for packing."""
        chunks = self.chunks[:num_batches]
        with destination_errors(self.path):
            os.truncate(self.path, max(chunks[-1].end, self._found_bytes - self._list_bytes))
        return chunks
