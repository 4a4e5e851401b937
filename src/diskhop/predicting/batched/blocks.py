"""The edges of one batch as layers take them: those into its first rows, the destinations, from all of its rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from diskhop.nn.layers.aggregate import Block, BlockWeights, LayerBlock
from diskhop.predicting.batched.degrees import Degrees, SelfLoops
from diskhop.protocols import SampledBatch


@dataclass(frozen=True, eq=False)
class InputBlock:
    """A batch of one hop.

    lists: edges grouped by destination. The destinations are the first of the sources.
    degrees: degrees of the sources in the whole graph; None if no layer asks for them, and for lists with weights.
    """

    lists: LayerBlock
    degrees: Degrees | None = None

    @classmethod
    def of(
        cls,
        sampled: SampledBatch,
        in_degrees: Tensor | None,
        loops: SelfLoops | None,
        weights: BlockWeights | None = None,
    ) -> InputBlock:
        """Wrap a sampled batch; loops are counted for it if in_degrees are given, and it has no weights."""
        lists = Block.of(sampled, weights=weights).layer(0)
        if weights is not None:
            return cls(replace(lists, degrees=in_degrees))
        if in_degrees is None or loops is None:
            return cls(lists)
        return cls(lists, Degrees(in_degrees, loops.of(sampled.node_ids)))

    @property
    def num_rows(self) -> int:
        """Number of destinations."""
        return self.lists.num_targets

    @property
    def num_sources(self) -> int:
        """Number of rows of x."""
        return self.lists.num_sources

    @cached_property
    def edge_index(self) -> Tensor:
        """Edges as PyG's layers take them, int64 (2, edges): source, then destination, ascending."""
        return self.lists.edge_index()

    def for_own_layer(self) -> LayerBlock:
        """Return the lists as diskhop's layers take them.

        With degrees they have no self-loops, and degrees without: GcnLayer adds a loop to every destination. Of lists
        with weights it finds the loops itself.
        """
        if self.degrees is None:
            return self.lists
        lists, degrees = self.lists, self.degrees.proper
        if not bool(self.degrees.loops.any()):
            return replace(lists, degrees=degrees)
        sources, targets = self.edge_index
        is_proper = sources != targets
        counts = np.bincount(targets[is_proper].numpy(), minlength=self.num_rows)
        indptr = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
        return LayerBlock(indptr, lists.sources[is_proper], self.num_sources, degrees)
