"""A short trace: a few sampled batches, on which plans are simulated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop.protocols import NodeIds, SampledBatch


class ListsRead(NamedTuple):
    """The mean cost of sampling one batch.

    reads: reads of neighbour lists on disk.
    bytes_read: bytes of those reads.
    cores_seconds: CPU seconds, summed over cores.
    """

    reads: float
    bytes_read: float
    cores_seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class ShortTrace:
    """Batches of a run: its first ones, or stretches of adjacent ones from all over a pass in order.

    node_ids: rows of each batch, ascending; uint32 if that is enough.
    block_bytes: mean bytes of a batch's nodes and edges in memory.
    record_bytes: mean bytes of a batch in a trace.
    sample_seconds: median CPU seconds of sampling one batch on one thread, without reading lists from the disk.
    middle: one whole batch.
    """

    node_ids: tuple[NDArray[np.uint32] | NodeIds, ...]
    block_bytes: float
    record_bytes: float
    sample_seconds: float
    middle: SampledBatch

    @property
    def num_rows(self) -> float:
        """Mean rows per batch."""
        return sum(map(len, self.node_ids)) / len(self.node_ids)
