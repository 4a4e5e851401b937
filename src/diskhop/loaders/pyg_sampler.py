"""The BaseSampler of a dataset: it samples from disk for PyG's loaders of nodes and of links."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.sampler import BaseSampler, EdgeSamplerInput, HeteroSamplerOutput, SamplerOutput
from torch_geometric.sampler.neighbor_sampler import node_sample

from diskhop.errors import ConfigError
from diskhop.loaders.pyg_graph import PygGraph, PygSample
from diskhop.nn.layers.aggregate import Block
from diskhop.sampling.links import LinkBatch


class DiskSampler(BaseSampler):  # type: ignore[misc]
    """Samples neighbours from disk for PyG's loaders."""

    def __init__(self, graph: PygGraph) -> None:
        self._graph = graph

    def sample_from_nodes(self, index: Any, **kwargs: Any) -> SamplerOutput | HeteroSamplerOutput:
        """Sample the neighbourhood of seed nodes; see BaseSampler."""
        return node_sample(index, self._sample)

    def sample_from_edges(
        self, index: EdgeSamplerInput, neg_sampling: Any = None
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Sample the neighbourhood of the ends of edges and of their negatives; see BaseSampler."""
        known = self._graph.edge_type
        if known is not None and index.input_type not in (known, (known[0], known[-1])):
            raise ConfigError(
                f"edge_label_index is of the type {index.input_type}, and the edges are {known}; pass ({known}, links)"
            )
        pairs = np.stack([index.row.numpy(), index.col.numpy()])
        batch, sampled = self._graph.sample_links(pairs, index.time, neg_sampling)
        out = self._output(sampled, batch.link_of)
        out.metadata = _metadata(index, batch)
        return out

    def _sample(self, seeds: Any, times: Any) -> SamplerOutput | HeteroSamplerOutput:
        if isinstance(times, dict):
            times = times.get(self._graph.node_type)
        node_type = self._graph.node_type
        if isinstance(seeds, dict):
            if [*seeds] != [node_type]:
                given = ", ".join(map(str, seeds))
                raise ConfigError(
                    f"seed nodes are of type {given}, and the nodes are {node_type}; pass ('{node_type}', ids)"
                )
            seeds = seeds[node_type]
        return self._output(self._graph.sample(seeds.numpy(), times), None)

    def _output(self, sample: PygSample, link_of: NDArray[np.int64] | None) -> SamplerOutput | HeteroSamplerOutput:
        """Return a sample as PyG has it. link_of: what `batch` gives of each seed; None: the number of the seed."""
        node_type, edge_type = self._graph.node_type, self._graph.edge_type
        sampled = sample.batch
        row, col = Block.of(sampled).layer(0).edge_index()
        node = torch.from_numpy(sample.ids)
        seed_of = sampled.seed_of if sampled.seed_of is None or link_of is None else link_of[sampled.seed_of]
        batch = None if seed_of is None else torch.from_numpy(seed_of)
        num_nodes = [*sampled.num_sampled_nodes] if sampled.by_hop else None
        num_edges = [*sampled.num_sampled_edges] if sampled.by_hop else None
        if node_type is None:
            return SamplerOutput(
                node=node,
                row=row,
                col=col,
                edge=sample.edge_ids,
                batch=batch,
                num_sampled_nodes=num_nodes,
                num_sampled_edges=num_edges,
            )
        return HeteroSamplerOutput(
            node={node_type: node},
            row={edge_type: row},
            col={edge_type: col},
            edge={edge_type: sample.edge_ids},
            batch=None if batch is None else {node_type: batch},
            num_sampled_nodes=None if num_nodes is None else {node_type: num_nodes},
            num_sampled_edges=None if num_edges is None else {edge_type: num_edges},
        )


def _metadata(index: EdgeSamplerInput, batch: LinkBatch) -> tuple[Any, ...]:
    """Return what PyG's LinkLoader reads: input_id, ends, labels and times of links, or ends of triplets."""
    times = None if batch.label_times is None else torch.from_numpy(batch.label_times)
    sources, destinations = torch.from_numpy(batch.sources), torch.from_numpy(batch.destinations)
    if batch.negatives is not None:
        negatives = torch.from_numpy(np.ascontiguousarray(batch.negatives)).squeeze(-1)
        return index.input_id, sources, destinations, negatives, times
    label, num_negatives = index.label, len(batch.sources) - len(batch.positions)
    if num_negatives:
        label = torch.ones(len(batch.positions)) if label is None else label
        label = torch.cat([label, label.new_zeros((num_negatives, *label.shape[1:]))])
    return index.input_id, torch.stack([sources, destinations]), label, times
