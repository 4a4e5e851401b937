"""Neighbour lists in memory that others have between superbatches (Ginex, section 3.1).

While a superbatch is sampled, the memory has lists: all of them, or the most useful ones in a neighbour cache. While it
is fetched, cached rows take their place. `load` brings the lists back in large reads: all lists from the dataset, those
of a neighbour cache from a file that is written once, when they are picked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File
from diskhop.budget import Budget
from diskhop.dataset.edge_set import TopologyFiles
from diskhop.errors import ReadError
from diskhop.io.atomic import allocate, destination_errors
from diskhop.io.streams import in_pieces
from diskhop.sampling.cached_topology import (
    AnyTopology,
    NeighborCacheOptions,
    cached_topology_bytes,
    list_bytes,
    open_cached_topology,
)
from diskhop.sampling.topology import Topology, index_dtype_of, open_indptr
from diskhop.sampling.whole_files import check_length, read_whole
from diskhop.system.resident import Part

# Direct I/O of any disk accepts these.
_BLOCK_BYTES = 64 << 10


def lists_in_turn_bytes(files: TopologyFiles, num_bytes: int) -> int:
    """Bytes that stay reserved as "topology" while others have the memory of the lists. num_bytes: of that memory."""
    if num_bytes >= list_bytes(files):
        return 8 * (files.num_lists + 1)
    return cached_topology_bytes(files, 0)


def memory_in_turn(num_bytes: int) -> NDArray[np.uint8]:
    """Return uninitialised memory for num_bytes of lists or rows, in whole blocks."""
    return BufferPool(0).take(-(-num_bytes // _BLOCK_BYTES) * _BLOCK_BYTES)


@dataclass(frozen=True, slots=True, eq=False)
class ListsInTurn:
    """Lists that are in memory while they are needed; see open_lists_in_turn().

    topology: the lists, valid from load() until others write to the memory.
    memory: that others have in turn, in whole blocks.
    source: file with their bytes.
    num_bytes: bytes of the lists.
    checksum: of the file; None for one of the dataset.
    engine: reads the file.
    """

    topology: AnyTopology
    memory: NDArray[np.uint8]
    source: Path
    num_bytes: int
    checksum: int | None
    engine: Engine

    def load(self) -> None:
        """Read the lists to the memory. Raises ReadError."""
        if self.num_bytes:
            read_whole(File(str(self.source), "read"), self.num_bytes, self.engine, self.memory, Part(0, 1))
        if self.checksum is not None and self.checksum != _checksum_of(self.memory[: self.num_bytes]):
            raise ReadError(
                f"{self.source}: the neighbour cache does not match its checksum; check the disk, then run the "
                "command again"
            )


@contextmanager
def open_lists_in_turn(
    files: TopologyFiles,
    options: NeighborCacheOptions,
    memory: NDArray[np.uint8],
    engine: Engine,
    budget: Budget,
    pool: BufferPool,
    scratch: Path,
) -> Iterator[ListsInTurn]:
    """Open lists for sampling, in memory that others have in turn; the rest is reserved meanwhile.

    options: cache_bytes of the memory are for lists. memory: see memory_in_turn(), reserved by others.
    scratch: folder for the file of a neighbour cache.

    Raises BudgetError, ReadError, DestinationError, and FormatError for damaged lists.
    """
    num_bytes = list_bytes(files)
    if options.cache_bytes < num_bytes:
        with open_cached_topology(files, options, engine, budget, pool, place_of_lists=memory) as cached:
            path = scratch / "neighbor-cache.bin"
            content = memory[: -(-cached.lists.nbytes // _BLOCK_BYTES) * _BLOCK_BYTES]
            _write(path, content, engine)
            checksum = _checksum_of(content[: cached.lists.nbytes])
            yield ListsInTurn(cached, memory, path, cached.lists.nbytes, checksum, engine)
        return
    with budget.reserve("topology", lists_in_turn_bytes(files, num_bytes)):
        indptr = open_indptr(files, "memory", engine)
        check_length(files.indices_path, num_bytes)
        indices = memory[:num_bytes].view(index_dtype_of(files))
        whole = Topology(files.indices_path, indptr, indices, {}, files.clusters, files.types)
        yield ListsInTurn(whole, memory, files.indices_path, num_bytes, None, engine)


def _write(path: Path, content: NDArray[np.uint8], engine: Engine) -> None:
    """Write whole blocks to a new file. Raises DestinationError or WriteError."""
    with destination_errors(path):
        file = File(str(path), "write")
        allocate(path, 0, len(content))
        places, lengths = in_pieces(len(content))
        engine.wait(engine.submit_write(file, places, lengths, content, places))


def _checksum_of(content: NDArray[np.uint8]) -> int:
    return xxhash.xxh3_64_intdigest(content.data)
