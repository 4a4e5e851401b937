"""Sampled batches as objects of PyTorch Geometric: Data, or HeteroData for a graph with types of its own.

A batch has what PyG's loaders give: every attribute of the graph, of the batch's nodes and edges, and `n_id`, `e_id`,
`input_id`, `batch_size`, `num_sampled_nodes`, `num_sampled_edges`. `block` has the same edges for diskhop's layers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data, HeteroData

from diskhop.config.options import require
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.id_map import IdMap
from diskhop.dataset.node_set import NodeSet
from diskhop.loaders.loader_data import LoaderData
from diskhop.loaders.repeated import repeat_seeds
from diskhop.nn.layers.aggregate import Block
from diskhop.pipeline.batch_values import OpenValues
from diskhop.protocols import NodeIds, NodeRows, SampledBatch, SeedTimes

Batch: TypeAlias = Data | HeteroData
OF_LINKS = ("edge_label_index", "edge_label", "edge_label_time")


class BatchSeedValues(NamedTuple):
    """Seeds of a batch, in its order.

    rows: int64 (seeds); some may be there repeatedly, of which the sampled batch has one.
    input_id: int64 (seeds).
    times: see SeedTimes.
    """

    rows: NodeIds
    input_id: NDArray[np.int64]
    times: SeedTimes = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkValues:
    """Values that a batch of links has besides its graph, by name: of the links, and of their ends.

    of_edges, of_nodes: where a typed graph has them, in the part of its edges or of its nodes.
    link_of: the link of each seed, int64 (seeds); None unless each seed has a subgraph of its own.
    """

    of_edges: Mapping[str, torch.Tensor]
    of_nodes: Mapping[str, torch.Tensor] = field(default_factory=dict)
    link_of: NDArray[np.int64] | None = None


class BatchMaker:
    """Makes batches of one graph. Threads of the pipeline call it; it indexes with NumPy, see tensor_of().

    dataset: the graph that is read.
    data: the graph as its users changed it.
    id_map: ids of its nodes.
    values: what batches have besides features.
    out_dtype: dtype that x is converted to; None: that of the source.
    make: makes an empty batch; None: Data or HeteroData, as the graph is.
    """

    def __init__(
        self,
        dataset: Dataset,
        data: LoaderData,
        id_map: IdMap,
        values: OpenValues,
        *,
        out_dtype: torch.dtype | None = None,
        make: Callable[[], Batch] | None = None,
    ) -> None:
        self._id_map = id_map
        self.values = values
        self._out_dtype = out_dtype
        self._node_type = dataset.only_nodes.name if dataset.is_typed else None
        self._edge_type = dataset.only_edges.ends if dataset.is_typed else None
        self._make = make or (HeteroData if dataset.is_typed else Data)
        self._nodes_read = dataset.only_nodes
        self._data = data

    def make(
        self,
        sampled: SampledBatch,
        x: torch.Tensor,
        seeds: BatchSeedValues,
    ) -> Batch:
        """Make a batch. x: features of its nodes, with no columns where there are none."""
        if len(seeds.rows) > sampled.num_seeds:
            sampled, of_nodes = repeat_seeds(sampled, seeds.rows)
            x = features_of(x, of_nodes)
        batch = self.make_graph(sampled, x)
        nodes: Any = self._nodes_of(batch)
        nodes["input_id"] = torch.from_numpy(np.ascontiguousarray(seeds.input_id))
        nodes["batch_size"] = sampled.num_seeds
        if seeds.times is not None:
            nodes["seed_time"] = torch.from_numpy(seeds.times)
        if sampled.seed_of is not None:
            nodes["batch"] = torch.from_numpy(sampled.seed_of)
        return batch

    def make_links(self, sampled: SampledBatch, x: torch.Tensor, values: LinkValues) -> Batch:
        """Make a batch of links. x: features of its nodes, with no columns where there are none."""
        batch = self.make_graph(sampled, x)
        nodes, edges = self._nodes_of(batch), self._edges_of(batch)
        for name in OF_LINKS:
            # The graph may have attributes of these names, which a batch must not give as those of its links.
            edges.pop(name, None)
        for part, own in ((nodes, values.of_nodes), (edges, values.of_edges)):
            for name, value in own.items():
                part[name] = value
        if sampled.seed_of is not None and values.link_of is not None:
            nodes["batch"] = torch.from_numpy(values.link_of[sampled.seed_of])
        return batch

    def _nodes_of(self, batch: Batch) -> Any:
        return batch if self._node_type is None else batch[self._node_type]

    def _edges_of(self, batch: Batch) -> Any:
        return batch if self._edge_type is None else batch[self._edge_type]

    def make_graph(self, sampled: SampledBatch, x: torch.Tensor) -> Batch:
        """Make a batch without what tells of its seeds. x: features of its nodes."""
        block = Block.of(sampled)
        batch: Batch = self._make()
        nodes, edges = self._nodes_of(batch), self._edges_of(batch)
        for name, values in self._nodes(sampled, x).items():
            nodes[name] = values
        edges["edge_index"] = block.layer(0).edge_index()
        for name, values in self.values.of_edges(sampled.edge_positions).items():
            edges[name] = values
        if sampled.edge_weights is not None:
            edges["edge_importance"] = torch.from_numpy(sampled.edge_weights)
        self._data.add_to(batch, self._id_map, NodeRows(sampled.node_ids), edges.get("e_id"))
        if "n_id" not in nodes:
            nodes["n_id"] = torch.from_numpy(self._id_map.ids(NodeRows(sampled.node_ids)))
        if "x" not in nodes or self._nodes_read.states_count:
            nodes["num_nodes"] = sampled.num_nodes
        if sampled.by_hop:
            nodes["num_sampled_nodes"] = list(sampled.num_sampled_nodes)
            edges["num_sampled_edges"] = list(sampled.num_sampled_edges)
        if "block" not in edges:
            edges["block"] = block
        return batch

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """Return features in the dtype that batches have them in."""
        return features_in(x, self._nodes_read, self._out_dtype)

    def _nodes(self, sampled: SampledBatch, x: torch.Tensor) -> dict[str, torch.Tensor]:
        values = self.values.of_nodes(sampled.node_ids)
        # PyG has its own `batch`, which tells the seed of every node.
        values.pop("batch", None)
        if x.shape[1] > 0:
            # Addresses of rows that are assembled on a device stand for them.
            return {"x": x if x.dtype == torch.int64 else self.features(x), **values}
        if self._out_dtype is not None and "x" in values:
            values["x"] = values["x"].to(self._out_dtype)
        return values


def batch_class(custom: Any, dataset: Dataset) -> type[Batch] | None:
    """Check the class of batches that a user asks for; None: not given."""
    wanted = HeteroData if dataset.is_typed else Data
    is_class = custom is None or (isinstance(custom, type) and issubclass(custom, wanted))
    require(is_class, "custom_cls", f"a class of {wanted.__name__}", custom, "leave custom_cls out")
    return None if custom is None else cast(type[Batch], custom)


def edge_store(batch: Batch) -> Any:
    """Return the part of a batch that has its edges, of one type."""
    return batch.edge_stores[0]


def sort_by_source(batch: Batch, names: Collection[str]) -> None:
    """Sort the edges of a batch by source, then target. `block` keeps its own order. names: of values per edge."""
    sources, targets = batch.edge_index.numpy()
    order = np.lexsort((targets, sources))
    batch.edge_index = torch.from_numpy(np.stack([sources[order], targets[order]]))
    for name in names:
        if name in batch:
            batch[name] = batch[name][torch.from_numpy(order)]


def features_of(x: torch.Tensor, places: NDArray[np.int64]) -> torch.Tensor:
    """Return rows of features at some places."""
    if x.dtype == torch.bfloat16:
        return torch.from_numpy(x.view(torch.int16).numpy()[places]).view(torch.bfloat16)
    return torch.from_numpy(x.numpy()[places])


def features_in(x: torch.Tensor, nodes: NodeSet, out_dtype: torch.dtype | None) -> torch.Tensor:
    """Return stored features in the dtype that batches have them in: out_dtype, else that of the source."""
    info = nodes.attributes.get("x")
    if info is not None and info.stored_as == "features" and x.dtype != getattr(torch, info.dtype):
        dtype = getattr(torch, info.dtype)
        x = x.to(dtype) if x.is_cuda else torch.from_numpy(x.numpy().astype(info.stored_dtype))
    return x if out_dtype is None else x.to(out_dtype)
