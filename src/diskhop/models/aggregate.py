"""Neighbour aggregation: the one place where a model touches edges, and the seam that a faster kernel replaces.

A *block* is the sampled edges of a whole mini-batch; a *layer block* is what one layer needs of it. Because every
node is expanded once, hop by hop, layer i of L needs the edges of the first L - i hops and nothing else: its
*targets* (rows it computes) are a prefix of its *sources* (rows it reads), which are a prefix of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from diskhop.protocols import SampledBatch


@dataclass(frozen=True, slots=True, eq=False)
class LayerBlock:
    """The edges of one layer, grouped by target: target i's neighbours are sources[indptr[i] : indptr[i + 1]].

    indptr: int32 (targets + 1). sources: int32 (edges), below num_sources. degrees: int64 (num_sources), how many
    in-neighbours each node has in the whole graph; None: count those of the block.
    """

    indptr: Tensor
    sources: Tensor
    num_sources: int
    degrees: Tensor | None = None

    @property
    def num_targets(self) -> int:
        """Rows that the layer computes: the first of its sources."""
        return len(self.indptr) - 1

    def target_of_edge(self) -> Tensor:
        """int64 (edges): the target of each edge."""
        return torch.repeat_interleave(torch.arange(self.num_targets), self.indptr.diff())

    def edge_index(self) -> Tensor:
        """int64 (2, edges), source then target, as PyG's layers take them."""
        return torch.stack([self.sources.long(), self.target_of_edge()])


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The edges of a mini-batch; see SampledBatch. degrees: int64 (nodes), in the whole graph, or None."""

    indptr: Tensor
    sources: Tensor
    num_sampled_nodes: tuple[int, ...]
    num_sampled_edges: tuple[int, ...]
    degrees: Tensor | None = None

    @classmethod
    def of(cls, sampled: SampledBatch, degrees: Tensor | None = None) -> Block:
        """Wrap a sampled batch; its edges are not copied."""
        return cls(
            torch.from_numpy(sampled.indptr).int(),
            torch.from_numpy(sampled.sources),
            sampled.num_sampled_nodes,
            sampled.num_sampled_edges,
            degrees,
        )

    @property
    def num_layers(self) -> int:
        """How many layers the sampled hops feed."""
        return len(self.num_sampled_edges)

    def layer(self, index: int) -> LayerBlock:
        """What layer `index` needs (0: the first, which reads features)."""
        num_hops = self.num_layers - index
        num_targets = sum(self.num_sampled_nodes[:num_hops])
        num_sources = sum(self.num_sampled_nodes[: num_hops + 1])
        return LayerBlock(
            self.indptr[: num_targets + 1],
            self.sources[: sum(self.num_sampled_edges[:num_hops])],
            num_sources,
            None if self.degrees is None else self.degrees[:num_sources],
        )


def aggregate_mean(x: Tensor, layer: LayerBlock) -> Tensor:
    """The mean of each target's neighbours, (targets, columns); 0 where there is none.

    Both this and `aggregate_sum` add in the order of the edges, whatever the number of threads, and compute no
    gradient for an x that needs none.
    """
    return _bag(x, layer, "mean", None)


def aggregate_sum(x: Tensor, layer: LayerBlock, weights: Tensor) -> Tensor:
    """The sum of each target's neighbours times the weight of the edge, float32 (edges)."""
    return _bag(x, layer, "sum", weights)


def _bag(x: Tensor, layer: LayerBlock, mode: str, weights: Tensor | None) -> Tensor:
    # An embedding bag is gather and segment sum in one: no (edges, columns) tensor, 50 times segment_reduce.
    return functional.embedding_bag(
        layer.sources, x, layer.indptr, mode=mode, per_sample_weights=weights, include_last_offset=True
    )
