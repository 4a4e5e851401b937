"""ShaDowKHopSampler: PyTorch Geometric's loader of a shallow subgraph per seed node (Zeng et al., 2021), from disk."""

from __future__ import annotations

import numbers
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Batch as GraphBatch

from diskhop.config.options import require
from diskhop.config.sampled import FANOUT
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.id_map import IdMap
from diskhop.errors import ConfigError
from diskhop.loaders.batches import Batch, BatchMaker, BatchSeedValues, features_of, sort_by_source
from diskhop.loaders.neighbor import NeighborLoader
from diskhop.loaders.opened import AnyBatchMaker
from diskhop.loaders.shares import made_together
from diskhop.pipeline.batch_values import E_ID
from diskhop.protocols import NodeRows, SampledBatch

_NOT_TAKEN = ("input_nodes", "subgraph_type", "disjoint", "directed", "custom_cls", "time_attr", "input_time")


class ShaDowKHopSampler(NeighborLoader):
    """Mini-batches of localized subgraphs: for each seed node the graph among the nodes that are sampled around it.

    Each batch is a torch_geometric.data.Batch with a graph per seed. Its nodes are in ascending order of their ids, its
    edges in that of sources, then targets. It has every attribute of NeighborLoader's batches, and batch, ptr, and
    root_n_id (places of the seed nodes); y is of the seed nodes alone. Layers of any number use all edges.

    data: a Dataset or its path.
    depth: hops to sample, at least 1.
    num_neighbors: neighbours drawn per node and hop, -1 for all.
    node_idx: seed nodes, as input_nodes of NeighborLoader; None for all nodes.
    replace: True to draw neighbours with replacement.
    arguments: others of NeighborLoader, such as batch_size, shuffle, weight_attr, memory and store.

    >>> with diskhop.ShaDowKHopSampler(
    ...     "my-graph", depth=2, num_neighbors=5, batch_size=32, memory="200MB", seed=0
    ... ) as loader:
    ...     batch = next(iter(loader))
    >>> batch.num_graphs
    32
    """

    _class_name = "ShaDowKHopSampler"
    _copies_rows = True

    @made_together
    def __init__(
        self,
        data: Dataset | PathLike[str] | str,
        depth: int,
        num_neighbors: int,
        node_idx: Any = None,
        replace: bool = False,
        **arguments: Any,
    ) -> None:
        for name in _NOT_TAKEN:
            if name in arguments:
                raise ConfigError(f"{self._class_name} has no argument '{name}'; leave it out, or use NeighborLoader")
        is_depth = _is_whole(depth) and 1 <= depth <= 100
        require(is_depth, "depth", "from 1 to 100", depth, "for example depth=2")
        is_count = _is_whole(num_neighbors) and FANOUT.holds([num_neighbors])
        require(is_count, "num_neighbors", FANOUT.text, num_neighbors, "for example num_neighbors=10")
        super().__init__(
            data,
            [int(num_neighbors)] * int(depth),
            node_idx,
            replace=replace,
            subgraph_type="induced",
            disjoint=True,
            **arguments,
        )
        if self.data.is_typed:
            self.close()
            raise ConfigError(
                f"{self._class_name} takes graphs without types, and {self.data.path} has some; use "
                "diskhop.NeighborLoader"
            )

    def _make(self, maker: AnyBatchMaker, sampled: SampledBatch, x: Any, seeds: BatchSeedValues) -> Batch:
        assert isinstance(maker, BatchMaker)
        seed_of = sampled.seed_of
        assert seed_of is not None
        assert isinstance(self._id_map, IdMap)
        ids = self._id_map.ids(NodeRows(sampled.node_ids))
        order = np.lexsort((ids, seed_of))
        graph = maker.make(_reordered(sampled, order), features_of(x, order), seeds)
        sort_by_source(graph, self.data.names_per_edge(has_numbers=E_ID in graph))
        roots = np.flatnonzero(order < sampled.num_seeds)
        counts = np.bincount(seed_of, minlength=sampled.num_seeds)
        batch = GraphBatch(batch=graph["batch"], ptr=torch.from_numpy(np.concatenate([[0], np.cumsum(counts)])))
        batch.root_n_id = torch.from_numpy(roots)
        for name, value in graph.to_dict().items():
            if name == "y":
                batch.y = features_of(value, roots)
            elif name not in ("batch", "batch_size", "num_nodes"):
                batch[name] = value
        batch.num_nodes = sampled.num_nodes
        result: Batch = batch
        return result


def _is_whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _reordered(sampled: SampledBatch, order: NDArray[np.int64]) -> SampledBatch:
    """Return a batch with its nodes in another order. It has edges of all nodes, grouped by destination."""
    assert sampled.seed_of is not None
    assert sampled.distinct is not None
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    starts, counts = sampled.indptr[order], np.diff(sampled.indptr)[order]
    indptr = np.concatenate([[0], np.cumsum(counts)])
    edges = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], counts)
    return replace(
        sampled,
        node_ids=sampled.node_ids[order],
        seed_of=sampled.seed_of[order],
        distinct=replace(sampled.distinct, of_nodes=sampled.distinct.of_nodes[order]),
        indptr=indptr,
        sources=places[sampled.sources[edges]].astype(np.int32),
        edge_positions=sampled.edge_positions[edges],
    )
