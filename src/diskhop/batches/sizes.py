"""Sizes of large mini-batches, which a plan reserves memory by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diskhop.protocols import NodeIds

# Measured on a few batches only: later ones may be larger.
HEADROOM = 1.1
# Of an edge in a batch: its source and its position.
_EDGE_BYTES = 12


@dataclass(frozen=True, slots=True)
class BatchSizes:
    """Sizes of the largest of a few sampled batches, with headroom.

    block_bytes: bytes of its nodes and edges in memory.
    record_bytes: bytes of its record in a trace.
    num_nodes: number of its nodes.
    num_rows: number of its distinct nodes.
    node_ids: its rows, ascending, without headroom.
    hop_read_bytes: memory in which a sampling thread reads one hop of lists from the disk.
    workspace_bytes: other working memory of a sampling thread.
    repeats_nodes: True if the batches are disjoint, so that a node may be there repeatedly.
    """

    block_bytes: int
    record_bytes: int
    num_nodes: int
    num_rows: int
    node_ids: NodeIds
    hop_read_bytes: int
    workspace_bytes: int
    repeats_nodes: bool = False

    @property
    def most_edges(self) -> int:
        """Number of edges that its bytes have room for, next to the nodes."""
        return max(0, self.block_bytes - 8 * self.num_nodes) // _EDGE_BYTES

    def num_misses(self, first_rows: int) -> int:
        """Rows of a batch that are not among the first rows of the table."""
        num_hits = int(np.searchsorted(self.node_ids, first_rows))
        return int((len(self.node_ids) - num_hits) * HEADROOM)
