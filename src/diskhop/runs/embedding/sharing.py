"""Exchange among the ranks of an embedding run: partitions they wrote, relations they trained, sums of an epoch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.embedding.partitions.store import PartitionStore
from diskhop.embedding.step.shared_relations import SharedRelations
from diskhop.embedding.step.step import Table
from diskhop.runs.distributed import Group

# Ranks work side by side, so these are those of the slowest.
_OF_SLOWEST = ("seconds", "stall_seconds")


@dataclass(slots=True)
class Sums:
    """Sums over an epoch so far, of one rank or of all.

    loss: of all edges.
    edges: that were trained.
    seconds: of training.
    stall_seconds: waited for the disk.
    partitions_read, partitions_written: whole partitions.
    """

    loss: float = 0.0
    edges: int = 0
    seconds: float = 0.0
    stall_seconds: float = 0.0
    partitions_read: int = 0
    partitions_written: int = 0


class Sharing:
    """A rank's part in what all ranks share. With one rank, nothing is sent.

    relations: this rank's copy, trained in place; None for a model without relations.
    num_relations: number of relations.
    """

    def __init__(self, group: Group, store: PartitionStore, relations: Table | None, num_relations: int) -> None:
        self._group = group
        self._store = store
        is_shared = relations is not None and not group.is_alone
        self._relations = SharedRelations(relations, num_relations) if relations is not None and is_shared else None

    def exchange_versions(self) -> None:
        """Wait for all ranks, and learn which partitions they have written."""
        for written in self._group.gather(self._store.take_written()):
            self._store.learn(written)

    def keep_relations(self) -> None:
        """Take the relations as what all ranks have now."""
        if self._relations is not None:
            self._relations.keep()

    def count_relations(self, relations: NDArray[np.int32] | None) -> None:
        """Count edges that this rank has trained. relations: int32 (edges), or None without relations."""
        if self._relations is not None and relations is not None:
            self._relations.count(relations)

    def combine_relations(self) -> bool:
        """Wait for all ranks, and give all of them the same relations. Returns whether that may change them."""
        if self._relations is None:
            return False
        self._relations.combine(self._group.gather(self._relations.changes()))
        return True

    def gather_sums(self, sums: Sums) -> list[dict[str, Any]]:
        """Return the sums of each rank."""
        return self._group.gather(asdict(sums))

    def sum_of_ranks(self, sums: Sums) -> Sums:
        """Return the sums over all ranks, with the seconds of the slowest."""
        by_rank = self.gather_sums(sums)
        return Sums(
            **{name: (max if name in _OF_SLOWEST else sum)(each[name] for each in by_rank) for name in Sums.__slots__}
        )
