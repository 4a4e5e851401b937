"""A short access trace: a few sampled batches that plans are simulated on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop.protocols import NodeIds, SampledBatch


class ListsRead(NamedTuple):
    """Of sampling a batch, on the mean: reads of lists on the disk and their bytes; seconds of one core, in all."""

    reads: float
    bytes_read: float
    cores_seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class ShortTrace:
    """Batches as they follow each other in a run.

    node_ids: of each its rows, ascending; uint32 where that is enough. block_bytes, record_bytes: of a batch, on the
    mean, in memory and in a trace. sample_seconds: of one thread, for one batch, as it was sampled. middle: one of them
    whole.
    """

    node_ids: tuple[NDArray[np.uint32] | NodeIds, ...]
    block_bytes: float
    record_bytes: float
    sample_seconds: float
    middle: SampledBatch

    @property
    def num_rows(self) -> float:
        """Of a batch, on the mean."""
        return sum(map(len, self.node_ids)) / len(self.node_ids)
