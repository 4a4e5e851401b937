"""A short trace: a few sampled batches, on which plans are simulated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from diskhop.protocols import NodeIds, SampledBatch

FoundT = TypeVar("FoundT")


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
    # Not taken over by replace(): another trace has results of its own.
    _last: list[tuple[Any, Any]] = field(default_factory=list, init=False, repr=False)

    @property
    def num_rows(self) -> float:
        """Mean rows per batch."""
        return sum(map(len, self.node_ids)) / len(self.node_ids)

    def simulated(self, key: Any, simulate: Callable[[], FoundT]) -> FoundT:
        """Return what a function finds on this trace, or found when it was last called with an equal key."""
        if not self._last or self._last[0][0] != key:
            self._last[:] = [(key, simulate())]
        found: FoundT = self._last[0][1]
        return found
