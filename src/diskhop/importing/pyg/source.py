"""Imports objects of PyTorch Geometric: Data and HeteroData with tensors or NumPy arrays, memory-mapped ones too."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diskhop.budget import Budget, parse_bytes
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edges import ArrayEdges
from diskhop.dataset.fields import TYPE_NAME
from diskhop.dataset.manifest import EDGE, NODE
from diskhop.errors import ConfigError, SourceError
from diskhop.importing.arrays.loads import (
    load_of_attributes,
    load_of_edge_attributes,
    load_of_edge_values,
    load_of_nodes,
)
from diskhop.importing.estimate import Load
from diskhop.importing.evidence.decisions import Decision
from diskhop.importing.named import dtype_name
from diskhop.importing.options import EdgeIds, ImportOptions, Keep, Order
from diskhop.importing.pyg.attributes import Attributes
from diskhop.importing.pyg.stores import are_stores, read_stores
from diskhop.importing.pyg.types import EdgeAttributes, NodeAttributes, take_others
from diskhop.importing.run import import_graph
from diskhop.importing.source import SourceEdges, SourceGraph, SourceNodes
from diskhop.importing.tools import ImportLimits, ImportTools
from diskhop.io.engine import open_engine


def from_pyg(
    data: Any,
    path: str | Path,
    *,
    name: str | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    dtype: str | None = None,
    undirected: bool | None = None,
    self_loops: Keep | None = None,
    duplicates: Keep | None = None,
    order: Order | None = None,
    edge_ids: EdgeIds | None = None,
    label_kind: str | None = None,
    overwrite: bool = False,
) -> Dataset:
    """Make a dataset at `path` from a torch_geometric.data.Data or HeteroData, and open it.

    A pair of a FeatureStore and a GraphStore is read into memory first, and of an adj_t an edge_index is made.

    Tensors and arrays with a row per node or edge keep their names, dtypes and shapes; a warning lists what has none.
    These are also trained with:
    edge_index, or a sparse adj_t, which loaders of sampled neighbours then give; num_nodes;
    x: features (nodes, dim);
    y: classes as integers (nodes) or (nodes, 1), tasks (nodes, tasks) of 0, 1 and NaN, or values as floats (nodes) or
        (nodes, columns);
    train_mask, val_mask, test_mask: (nodes), or (nodes, splits);
    edge_weight, or else an edge_attr of floats: one finite weight per edge;
    edge_time, or else time: one whole number per edge.
    Edges of a HeteroData between types a and b get the type a__relation__b.

    name: the dataset's name; default: the last part of path.
    memory: bytes, or a size such as '2GB', in addition to data; default: half of the free memory.
    threads: default: all cores.
    dtype: features are stored as float32, float16, bfloat16 or int8, and x of batches is too; default: as they are.
    undirected: stores each edge in both directions; most Data have both already.
    self_loops, duplicates: 'keep' or 'drop'.
    order: 'hot' stores nodes by how often they are read; ids and masks stay those of data.
    edge_ids: 'keep' or 'drop' the numbers of edges in edge_index, which batches give as e_id; default: keep those of
        edges with weights, times or attributes, and of up to 100 million others.
    label_kind: 'classes', 'tasks' (columns of 0 and 1) or 'values' (numbers to predict); default: as y is.
    overwrite: whether a dataset at path is replaced.

    Raises SourceError, naming the attribute, for data that breaks a rule; nothing is then left at path.

    >>> import torch
    >>> from torch_geometric.data import Data
    >>> data = Data(x=torch.randn(3, 4), edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.tensor([0, 1, 0]))
    >>> diskhop.from_pyg(data, "from-pyg", memory="200MB").feature_dim
    4
    """
    options = ImportOptions(
        dtype=dtype,
        undirected=undirected,
        self_loops=self_loops,
        duplicates=duplicates,
        order=order,
        edge_ids=edge_ids,
        label_kind=label_kind,
    )
    source = PygGraph(data, Path(path).name, label_kind)
    if source.left_out:
        what = ", ".join(source.left_out)
        warnings.warn(f"not imported: {what}; datasets keep values with a row per node or edge", stacklevel=2)
    memory_bytes = parse_bytes(memory) if isinstance(memory, str) else memory
    return import_graph(
        source,
        Path(path),
        origin="data",
        name=name,
        options=options,
        engine=open_engine("auto").engine,
        budget=None if memory_bytes is None else Budget(memory_bytes),
        threads=threads,
        overwrite=overwrite,
    )


class PygGraph:
    """Source in a Data, a HeteroData or a pair of stores.

    label_kind: kind that labels are imported as; None: as their values are.
    left_out: attributes that are not imported, for people.
    """

    decisions: Sequence[Decision] = ()

    def __init__(self, data: Any, name: str, label_kind: str | None = None) -> None:
        self.name = name
        self._label_kind = label_kind
        self._nodes: dict[str, NodeAttributes] = {}
        self._edges: dict[str, EdgeAttributes] = {}
        # PyG has the number of nodes in every batch of a pair of stores.
        self._are_stores = are_stores(data)
        if self._are_stores:
            data = read_stores(*data)
        if hasattr(data, "node_items") and hasattr(data, "edge_items"):
            stores = self._open_types(data)
        elif hasattr(data, "stores"):
            stores = [Attributes("data", data.stores[0])]
            # Who says how many nodes there are, and names no edges, means a graph without edges.
            is_counted = "num_nodes" in stores[0].names()
            nodes = self._nodes[NODE] = NodeAttributes(stores[0], label_kind)
            edges = self._edges[EDGE] = EdgeAttributes(stores[0], NODE, NODE, may_be_missing=is_counted)
            nodes.count = self._count(NODE)
            edges.find_values(stores[0], nodes.count)
            take_others(stores[0], nodes, edges)
        else:
            raise ConfigError(
                "data must be a torch_geometric.data.Data or HeteroData, or a pair of a FeatureStore and a "
                f"GraphStore, got {type(data).__name__}; pass one of these"
            )
        self.left_out = [what for store in stores for what in store.left_out()]

    def least_memory(self, limits: ImportLimits) -> Mapping[str, int]:
        """See Source."""
        return {}

    @property
    def load(self) -> Load:
        """See Source. Nothing is read from disk."""
        load = Load()
        for nodes in self._nodes.values():
            load += load_of_nodes(nodes.count or 0, nodes.features, nodes.labels)
            load += load_of_attributes(nodes.count or 0, nodes.attributes)
        for edges in self._edges.values():
            num_edges = edges.num_edges
            load += Load(num_edges=num_edges) + load_of_edge_values(num_edges, edges.weights, edges.times)
            load += load_of_edge_attributes(num_edges, edges.attributes)
        return load

    def read(self, work: ImportTools) -> SourceGraph:
        """See Source."""
        nodes = {}
        for node_type, each in self._nodes.items():
            nodes[node_type] = SourceNodes(
                count=self._count(node_type),
                features=each.features,
                feature_dtype=None if each.features is None or dtype_name(each.features) != "bfloat16" else "bfloat16",
                labels=each.labels,
                splits=each.splits,
                attributes=each.attributes,
                states_count=self._are_stores or each.states_count,
            )
        edges = {
            edge_type: SourceEdges(
                source=each.source,
                destination=each.destination,
                edges=ArrayEdges(each.pairs),
                origin=each.where,
                weights=each.weights,
                times=each.times,
                attributes=each.attributes,
                adj_t=None if each.adjacency is None else each.adjacency.info,
            )
            for edge_type, each in self._edges.items()
        }
        return SourceGraph(nodes=nodes, edges=edges)

    def _open_types(self, data: Any) -> list[Attributes]:
        stores = [Attributes("data", data.stores[0])]
        of_nodes: dict[str, Attributes] = {}
        is_counted = False
        for node_type, items in data.node_items():
            _check_type_name(node_type, f"data[{node_type!r}]")
            of_nodes[node_type] = Attributes(f"data[{node_type!r}]", items)
            is_counted = "num_nodes" in of_nodes[node_type].names()
            self._nodes[node_type] = NodeAttributes(of_nodes[node_type], self._label_kind)
        for ends, items in data.edge_items():
            where = f"data[{', '.join(map(repr, ends))}]"
            edge_type = "__".join(ends)
            _check_type_name(edge_type, where)
            if edge_type in self._edges:
                raise SourceError(f"{where}: has the same name {edge_type} as other edges; rename one of the types")
            stores.append(Attributes(where, items))
            source, _, destination = ends
            edges = self._edges[edge_type] = EdgeAttributes(stores[-1], source, destination)
            edges.find_values(stores[-1], None)
            take_others(stores[-1], None, edges)
            for node_type in (source, destination):
                if node_type not in self._nodes:
                    _check_type_name(node_type, where)
                    self._nodes[node_type] = NodeAttributes(Attributes(f"data[{node_type!r}]", {}))
        if not self._edges and len(of_nodes) == 1 and is_counted:
            # As in Data: who counts the nodes of the only type and names no edges means a graph without edges.
            (node_type,) = of_nodes
            nothing = Attributes(f"data[{node_type!r}, 'to', {node_type!r}]", {})
            edges = EdgeAttributes(nothing, node_type, node_type, may_be_missing=True)
            self._edges["__".join((node_type, "to", node_type))] = edges
        if not self._edges:
            raise SourceError("data: has no edges; add an edge type with edge_index")
        for node_type, store in of_nodes.items():
            self._nodes[node_type].count = self._count(node_type)
            take_others(store, self._nodes[node_type], None)
        return [*stores, *of_nodes.values()]

    def _count(self, node_type: str) -> int:
        """Return the number of nodes that data states; else it is the highest id + 1."""
        count = self._nodes[node_type].count
        if count is not None:
            return count
        return 1 + max(
            (
                each.highest_id(end)
                for each in self._edges.values()
                for end, at_end in enumerate((each.source, each.destination))
                if at_end == node_type
            ),
            default=-1,
        )


def _check_type_name(name: Any, where: str) -> None:
    if not isinstance(name, str) or not TYPE_NAME.fullmatch(name):
        raise SourceError(
            f"{where}: type name {name!r} must be letters, digits and _ . + = -, at most 100 characters; "
            "rename the type"
        )
