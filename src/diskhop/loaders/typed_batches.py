"""Sampled batches of a graph with several types as HeteroData: a part per node type and per edge type.

A batch has every type of the graph, also those that it has no nodes or edges of, as PyG's loaders give it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import HeteroData

from diskhop.batches.typed import EdgePart, NodePart, TypedBatch, split_types
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.id_map import IdMap
from diskhop.dataset.type_map import EdgeEnds, MergedEdges, TypeMap
from diskhop.loaders.batches import OF_LINKS, BatchSeedValues, LinkValues, features_in, features_of
from diskhop.loaders.repeated import repeat_seeds
from diskhop.loaders.typed_opposites import with_opposites
from diskhop.pipeline.batch import TypedFeatures
from diskhop.pipeline.batch_values import OpenValues
from diskhop.protocols import NodeRows, SampledBatch


class TypedBatchMaker:
    """Makes batches of one graph with types. Threads of the pipeline call it; it indexes with NumPy, see tensor_of().

    dataset: the graph that is read, its types merged.
    id_maps: ids of the nodes of each type.
    values: what batches have besides features.
    out_dtype: dtype that x is converted to; None: that of the source.
    make_empty: makes an empty batch.
    opposites: the edge type of the opposites of each type, which batches have too, without attributes of edges; None:
        batches have the drawn edges.
    """

    def __init__(
        self,
        dataset: Dataset,
        id_maps: Mapping[str, IdMap],
        values: OpenValues,
        *,
        out_dtype: torch.dtype | None = None,
        make_empty: Callable[[], HeteroData] | None = None,
        opposites: Mapping[EdgeEnds, EdgeEnds] | None = None,
    ) -> None:
        assert dataset.types is not None
        self._dataset = dataset
        self._types: TypeMap = dataset.types
        self._id_maps = id_maps
        self.values = values
        self._out_dtype = out_dtype
        self._make_empty = make_empty or HeteroData
        self._opposites = opposites

    def make(self, sampled: SampledBatch, x: TypedFeatures, seeds: BatchSeedValues, seed_type: str) -> HeteroData:
        """Make a batch of seeds of one type. x: features of the types that have some."""
        if len(seeds.rows) > sampled.num_seeds:
            repeated, of_nodes = repeat_seeds(sampled, seeds.rows)
            x = _repeated(x, split_types(sampled, self._types), split_types(repeated, self._types), of_nodes)
            sampled = repeated
        batch, typed = self._make_graph(sampled, x)
        nodes: Any = batch[seed_type]
        nodes["input_id"] = torch.from_numpy(np.ascontiguousarray(seeds.input_id))
        nodes["batch_size"] = sampled.num_seeds
        if seeds.times is not None:
            nodes["seed_time"] = torch.from_numpy(seeds.times)
        if sampled.seed_of is not None:
            self._add_seeds(batch, typed, sampled.seed_of)
        return batch

    def make_links(
        self, sampled: SampledBatch, x: TypedFeatures, values: LinkValues, edge_type: tuple[str, str, str]
    ) -> HeteroData:
        """Make a batch of links of one edge type. x: features of the types that have some."""
        batch, typed = self._make_graph(sampled, x)
        source, _, destination = edge_type

        def within(node_type: str, places: torch.Tensor) -> torch.Tensor:
            return torch.from_numpy(np.searchsorted(typed.parts[node_type].places, places.numpy()))

        edges: Any = batch[edge_type]
        for name in OF_LINKS:
            # The graph may have attributes of these names, which a batch must not give as those of its links.
            edges.pop(name, None)
        for name, value in values.of_edges.items():
            if name == "edge_label_index":
                value = torch.stack([within(source, value[0]), within(destination, value[1])])
            edges[name] = value
        for name, value in values.of_nodes.items():
            node_type = source if name == "src_index" else destination
            batch[node_type][name] = value if name == "seed_time" else within(node_type, value)
        if sampled.seed_of is not None and values.link_of is not None:
            self._add_seeds(batch, typed, values.link_of[sampled.seed_of])
        return batch

    def features(self, x: torch.Tensor, node_type: str) -> torch.Tensor:
        """Return features of a type in the dtype that batches have them in."""
        return features_in(x, self._dataset.nodes[node_type], self._out_dtype)

    def _make_graph(self, sampled: SampledBatch, x: TypedFeatures) -> tuple[HeteroData, TypedBatch]:
        """Make a batch without what tells of its seeds."""
        typed = split_types(sampled, self._types)
        batch = self._make_empty()
        by_hop = sampled.by_hop and self._opposites is None
        for name, part in typed.parts.items():
            self._add_nodes(batch[name], name, part, x.get(name), by_hop=by_hop)
        if self._opposites is not None:
            for ends, index in with_opposites(typed, self._opposites).items():
                batch[ends]["edge_index"] = torch.from_numpy(index)
            return batch, typed
        for number, edges in enumerate(self._types.edges):
            own = typed.blocks[edges.ends]
            self._add_edges(batch[edges.ends], number, edges, own, by_hop=by_hop)
            if sampled.edge_weights is not None:
                batch[edges.ends]["edge_importance"] = torch.from_numpy(sampled.edge_weights[own.places])
        return batch, typed

    def _add_nodes(self, store: Any, name: str, part: NodePart, x: torch.Tensor | None, *, by_hop: bool) -> None:
        values = self.values.of_nodes(part.node_ids, of=name)
        # PyG has its own `batch`, which tells the seed of every node.
        values.pop("batch", None)
        if x is not None:
            # Addresses of rows that are assembled on a device stand for them.
            store["x"] = x if x.dtype == torch.int64 else self.features(x, name)
        for each, value in values.items():
            is_converted = each == "x" and self._out_dtype is not None
            store[each] = value.to(self._out_dtype) if is_converted else value
        if "n_id" not in store:
            store["n_id"] = torch.from_numpy(self._id_maps[name].ids(NodeRows(part.node_ids)))
        if "x" not in store or self._dataset.nodes[name].states_count:
            store["num_nodes"] = len(part.node_ids)
        if by_hop:
            store["num_sampled_nodes"] = list(part.num_sampled_nodes)

    def _add_edges(self, store: Any, number: int, edges: MergedEdges, own: EdgePart, *, by_hop: bool) -> None:
        destinations = np.repeat(np.arange(len(own.indptr) - 1), np.diff(own.indptr))
        store["edge_index"] = torch.from_numpy(np.stack([own.sources.astype(np.int64), destinations]))
        positions = self._positions(number, edges, own.edge_positions)
        for name, value in self.values.of_edges(positions, of=edges.name).items():
            store[name] = value
        if by_hop:
            store["num_sampled_edges"] = list(own.num_sampled_edges)

    def _positions(self, number: int, edges: MergedEdges, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions in the dataset: the edges of a reverse type are those of its forward type."""
        reverse = self._dataset.topology.reverse
        if not edges.is_reverse or reverse is None:
            return positions
        return reverse.positions(self._types, number, positions)

    def _add_seeds(self, batch: HeteroData, typed: TypedBatch, seed_of: NDArray[np.int64]) -> None:
        for name, part in typed.parts.items():
            batch[name]["batch"] = torch.from_numpy(seed_of[part.places])


def _repeated(
    x: TypedFeatures, once: TypedBatch, repeated: TypedBatch, of_nodes: NDArray[np.int64]
) -> dict[str, torch.Tensor]:
    """Return features with rows for repeated seeds. of_nodes: the node of `once` that each of `repeated` is."""
    return {
        name: features_of(rows, np.searchsorted(once.parts[name].places, of_nodes[repeated.parts[name].places]))
        for name, rows in x.items()
    }
