"""Graphs in PyG's stores: a FeatureStore has the attributes, a GraphStore the edges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


class UntypedStores:
    """Stores of a graph without types, with the items that a Data has."""

    def __init__(self, items: Mapping[str, Any]) -> None:
        self.stores = [items]


class TypedStores:
    """Stores of a graph with types, with the items that a HeteroData has."""

    def __init__(self, nodes: Mapping[str, Any], edges: Mapping[tuple[str, str, str], Any]) -> None:
        self.stores: list[Mapping[str, Any]] = [{}]
        self._nodes = nodes
        self._edges = edges

    def node_items(self) -> Iterable[tuple[str, Any]]:
        """Attributes of nodes by type."""
        return self._nodes.items()

    def edge_items(self) -> Iterable[tuple[tuple[str, str, str], Any]]:
        """Attributes of edges by type, edge_index among them."""
        return self._edges.items()


def are_stores(data: Any) -> bool:
    """Check for a pair of a FeatureStore and a GraphStore."""
    is_pair = isinstance(data, tuple | list) and len(data) == 2
    return is_pair and hasattr(data[0], "get_all_tensor_attrs") and hasattr(data[1], "get_all_edge_attrs")


def read_stores(features: Any, graph: Any) -> UntypedStores | TypedStores:
    """Read all of a FeatureStore and a GraphStore into memory."""
    groups: dict[Any, dict[str, Any]] = {}
    for attr in features.get_all_tensor_attrs():
        values = features.get_tensor(group_name=attr.group_name, attr_name=attr.attr_name, index=None)
        groups.setdefault(attr.group_name, {})[attr.attr_name] = values
    known = graph.get_all_edge_attrs()
    sources, destinations, _ = graph.coo() if known else ({}, {}, None)
    if not isinstance(sources, dict):
        items = {**groups.get(None, {}), "edge_index": _pair(sources, destinations)}
        return UntypedStores(_with_count(items, [size for attr in known if attr.size for size in attr.size]))
    edges = {ends: {**groups.get(ends, {}), "edge_index": _pair(sources[ends], destinations[ends])} for ends in sources}
    nodes = {name: items for name, items in groups.items() if not isinstance(name, tuple)}
    for attr in known:
        for node_type, size in zip((attr.edge_type[0], attr.edge_type[-1]), attr.size or (), strict=False):
            nodes[node_type] = _with_count(nodes.get(node_type, {}), [size])
    return TypedStores(nodes, edges)


def _pair(sources: Any, destinations: Any) -> NDArray[Any]:
    return np.stack([sources.numpy(), destinations.numpy()])


def _with_count(items: dict[str, Any], sizes: list[int]) -> dict[str, Any]:
    """Add the number of nodes where no attribute has a row per node."""
    known = [size for size in sizes if size is not None]
    return items if {*items} - {"edge_index"} or not known else {**items, "num_nodes": max(known)}
