"""MariusGNN as a system: the sampler `marius`, and a store that keeps the rows of the resident partitions in memory.

A partition whose rows a batch needs replaces the one that was needed longest ago, which the epoch's order has left, and
is read from front to back. What the first state of an epoch has to load is what GNNDrive calls data preparation.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from diskhop._native import RowReader, copy_rows
from diskhop.counters import FetchCounts
from diskhop.protocols import Bytes, NodeIds, Table
from diskhop.sampling.marius import nodes_per_partition
from diskhop.stores.gathering import GatheringStore
from diskhop.stores.resources import StoreResources, open_reader, read_in_pieces
from diskhop.stores.stores import STORES

STORE = "partition buffer"
# Resident partitions, two logical ones of two each: the order of partitions needs an even number.
NUM_RESIDENT = 4
# Fewest rows that may be resident, of all: there are at most 63 partitions.
SMALLEST_FRACTION = NUM_RESIDENT / 62


class Partitions(NamedTuple):
    """Partitions of a graph, NUM_RESIDENT of them resident. num_nodes: nodes of the graph."""

    num_partitions: int
    num_nodes: int

    @property
    def resident_rows(self) -> int:
        """Rows of the resident partitions."""
        return NUM_RESIDENT * nodes_per_partition(self.num_nodes, self.num_partitions)

    @property
    def options(self) -> dict[str, int | str]:
        """Options of a run."""
        return {"sampler": "marius", "node_partitions": self.num_partitions, "resident_partitions": NUM_RESIDENT}


def partitions_within(fraction: float, num_nodes: int) -> Partitions:
    """Return as few partitions as keep at most a fraction of the rows resident."""
    return Partitions(NUM_RESIDENT // 2 * math.ceil(2 / fraction - 1e-9), num_nodes)


def register_buffer(partitions: Partitions) -> list[PartitionBuffer]:
    """Add the store to the registry of this process. Returns a list to which each store is added when it is opened."""
    opened: list[PartitionBuffer] = []

    def open_store(table: Table, resources: StoreResources) -> PartitionBuffer:
        opened.append(PartitionBuffer(table, resources, partitions))
        return opened[-1]

    STORES[STORE] = replace(STORES["static"], name=STORE, uses=frozenset({"cache"}), open=open_store)
    return opened


class PartitionBuffer(GatheringStore):
    """Rows of NUM_RESIDENT partitions. load_seconds: seconds of each load of a partition, in order."""

    def __init__(self, table: Table, resources: StoreResources, partitions: Partitions) -> None:
        super().__init__(table, resources, self._read_rows)
        if resources.share.cache_rows < min(partitions.resident_rows, table.num_rows):
            raise ValueError(f"{NUM_RESIDENT} partitions do not fit in {resources.share.cache_rows} cached rows")
        self.load_seconds: list[float] = []
        self._num_nodes = nodes_per_partition(table.num_rows, partitions.num_partitions)
        self._threads = resources.threads
        self._reader = open_reader(RowReader, table, resources, resources.max_gap_bytes)
        self._rows = np.empty((partitions.resident_rows, table.row_bytes), np.uint8)
        self._slot_of: OrderedDict[int, int] = OrderedDict()

    @property
    def preparation_seconds(self) -> float:
        """Seconds to load the first state of an epoch, by the mean load."""
        return NUM_RESIDENT * float(np.mean(self.load_seconds))

    def _read_rows(self, ids: NodeIds, out: Bytes) -> FetchCounts:
        counts = FetchCounts(rows_requested=len(ids), rows_hit=len(ids), bytes_needed=out.nbytes)
        partitions = ids // self._num_nodes
        # Resident ones first, so that a batch of more partitions than fit reads each once.
        needed = sorted(np.unique(partitions).tolist(), key=lambda each: each not in self._slot_of)
        for group in (needed[first : first + NUM_RESIDENT] for first in range(0, len(needed), NUM_RESIDENT)):
            self._make_resident(group, partitions, counts)
            slots = np.zeros(max(group) + 1, np.int64)
            slots[group] = [self._slot_of[each] for each in group]
            chosen = np.flatnonzero(np.isin(partitions, group))
            places = slots[partitions[chosen]] * self._num_nodes + ids[chosen] % self._num_nodes
            counts.bytes_copied += copy_rows(self._rows, places, out, chosen, self._threads)
        return counts

    def _make_resident(self, group: list[int], partitions: NodeIds, counts: FetchCounts) -> None:
        """Load those of a group of partitions that are not resident. partitions: of each requested row."""
        missing = [each for each in group if each not in self._slot_of]
        for each in group:
            if each not in missing:
                self._slot_of.move_to_end(each)
        for each in missing:
            self._load(each, counts)
            counts.rows_hit -= int(np.count_nonzero(partitions == each))

    def _load(self, partition: int, counts: FetchCounts) -> None:
        """Read a partition in place of the one that was needed longest ago."""
        is_full = len(self._slot_of) == NUM_RESIDENT
        slot = self._slot_of.popitem(last=False)[1] if is_full else len(self._slot_of)
        self._slot_of[partition] = slot
        first = partition * self._num_nodes
        ids = np.arange(first, min(first + self._num_nodes, self.table.num_rows))
        started = time.perf_counter()
        read_in_pieces(self._reader, ids, self._rows[slot * self._num_nodes :][: len(ids)], None, counts)
        self.load_seconds.append(time.perf_counter() - started)
        counts.rows_filled += len(ids)
