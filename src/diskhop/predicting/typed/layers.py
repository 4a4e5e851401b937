"""One layer of a typed network for the nodes of one type, in batches of one hop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from diskhop.dataset.type_map import EdgeEnds, TypeMap
from diskhop.nn.dry_run import LiveTensors
from diskhop.nn.reproducible import reproducible
from diskhop.nn.typed.block import RelationLists, TypedBlock, TypedLayerBlock
from diskhop.nn.typed.network import TypedNetwork
from diskhop.pipeline.batch import MiniBatch
from diskhop.predicting.batched.dry_run import LayerCost
from diskhop.predicting.batched.layer_rows import ComputeRows
from diskhop.predicting.shared_network import SharedNetwork

# Nodes of the blocks on which memory is measured: few, and many, or twice as many, which as many edges read.
_FEW, _MANY = 64, 2048
_EDGES = 2 * _MANY
# Bytes of merged lists: per edge, per source, and per target and relation.
_EDGE_BYTES, _SOURCE_BYTES, _LIST_BYTES = 32, 16, 32


@dataclass(frozen=True, slots=True, eq=False)
class TypedLayer:
    """A layer for the nodes of one type; see RowLayer.

    number: its number, from 1.
    node_type: type of the nodes.
    network: the network, in evaluation mode. It keeps nothing between calls, so that threads share it.
    types: types of the graph.
    """

    number: int
    node_type: str
    network: TypedNetwork
    types: TypeMap

    @property
    def label(self) -> str:
        """See RowLayer."""
        return f"layer {self.number} ({self.node_type})"

    @property
    def uses_degrees(self) -> bool:
        """See RowLayer."""
        return False

    @property
    def relations(self) -> list[EdgeEnds]:
        """Edge types that lead to the nodes."""
        return [edges.ends for edges in self.types.edges if edges.destination == self.node_type]

    @property
    def inputs(self) -> list[str]:
        """Node types whose rows of the layer below are read: those of neighbours, and the nodes' own."""
        read = {self.node_type, *(source for source, _, _ in self.relations)}
        return [name for name in self.types.node_types if name in read and self.types.num_nodes[name]]

    def measure(self) -> LayerCost:
        """Measure the memory of the layer on small blocks: of an edge, a source and a row, each by itself.

        The steps of a layer take memory for different ones of these, so that a peak hides what other steps take. The
        cost of a source is that of the type which takes most.
        """
        with reproducible(1):
            edges = self._measure({}, _FEW, _EDGES)
            source_bytes = max(self._bytes_more({name: _MANY}, 0) for name in self.inputs)
            row_bytes = self._bytes_more({self.node_type: _MANY}, _MANY)
        num_relations = len(self.relations)
        return LayerCost(
            in_dim=self.network.table_dim(self.number - 1),
            out_dim=self.network.table_dim(self.number),
            edge_bytes=edges / max(1, _EDGES * num_relations) + _EDGE_BYTES,
            source_bytes=source_bytes + _SOURCE_BYTES,
            row_bytes=row_bytes + _LIST_BYTES * (num_relations + 1),
        )

    def _bytes_more(self, num_sources: Mapping[str, int], num_rows: int) -> float:
        """Return the bytes that each of _MANY more sources takes, or each of as many more rows, which are sources too.

        Measured with few edges, whose memory hides nothing, and with enough to read all sources.
        """
        twice = {name: 2 * count for name, count in num_sources.items()}
        rows, twice_rows = max(_FEW, num_rows), max(_FEW, 2 * num_rows)
        return max(
            max(0, self._measure(twice, twice_rows, num_edges) - self._measure(num_sources, rows, num_edges)) / _MANY
            for num_edges in (_FEW, _EDGES)
        )

    def of_batch(self, batch: MiniBatch) -> Tensor:
        """Compute the rows of a batch, see ComputeRows."""
        assert batch.x_by_type is not None, "the types of the graph are merged"
        dim = self.network.table_dim(self.number - 1)
        empty = torch.empty(0, dim)
        rows = {name: batch.x_by_type.get(name, empty) for name in self.types.node_types}
        return self._rows(rows, TypedBlock.of(batch.prepared).layer(0))

    def _rows(self, rows: dict[str, Tensor], layer: TypedLayerBlock) -> Tensor:
        with torch.no_grad():
            out = self.network.layer_rows(self.number - 1, self.node_type, rows, layer)
            return out.to(torch.float32, copy=True)

    def _measure(self, num_sources: Mapping[str, int], num_rows: int, num_edges: int) -> int:
        """Measure the peak bytes of new tensors on a block: num_edges per relation, _FEW sources of other types."""
        num_of = {name: num_sources.get(name, _FEW) if name in self.inputs else 0 for name in self.types.node_types}
        indptr = torch.from_numpy(np.linspace(0, num_edges, num_rows + 1).astype(np.int32))
        sources = torch.arange(num_edges, dtype=torch.int32)
        lists = {ends: RelationLists(indptr, sources % max(1, num_of[ends[0]])) for ends in self.relations}
        targets = {name: num_rows if name == self.node_type else 0 for name in num_of}
        rows = {name: torch.randn(count, self.network.table_dim(self.number - 1)) for name, count in num_of.items()}
        live = LiveTensors([*rows.values(), *self.network.parameters()])
        with live:
            self._rows(rows, TypedLayerBlock(num_of, targets, lists))
        return live.peak_bytes


@dataclass(frozen=True, slots=True, eq=False)
class TypedSource:
    """A layer that processes share; see LayerSource.

    number, node_type, types: see TypedLayer. network: the network.
    """

    number: int
    node_type: str
    network: SharedNetwork[TypedNetwork]
    types: TypeMap

    @property
    def layer(self) -> TypedLayer:
        """See LayerSource."""
        return TypedLayer(self.number, self.node_type, self.network.network, self.types)

    def open(self) -> ComputeRows:
        """See LayerSource."""
        return self.layer.of_batch
