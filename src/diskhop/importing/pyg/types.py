"""Nodes and edges of one type in a PyG object, checked by shape and dtype."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.attribute_info import ATTRIBUTE_NAME, MOST_DIMENSIONS
from diskhop.dataset.attribute_set import MASKS
from diskhop.dataset.manifest import MOST_COUNT
from diskhop.dataset.sort.keys import RENUMBERING
from diskhop.errors import SourceError
from diskhop.importing.columns import choose_labels, count_tasks
from diskhop.importing.named import (
    edge_attribute,
    is_finite_in_float32,
    labels_attribute,
    own_attribute,
    split_features,
)
from diskhop.importing.pyg.adjacency import take_adjacency
from diskhop.importing.pyg.attributes import Attributes, HeldValues, MaskedRows
from diskhop.importing.source import Column, SourceAttribute

# Names by which PyG finds the number of nodes, next to x and those that contain 'node'.
_OF_NODES = ("feat", "pos", "batch", "node_type", "n_id")


class NodeAttributes:
    """Attributes of the nodes of one type.

    count: number of nodes that they state; None: none does.
    states_count: whether num_nodes is one of them.
    label_kind: kind that labels are imported as; None: as their values are.
    """

    def __init__(self, store: Attributes, label_kind: str | None = None) -> None:
        self.attributes: dict[str, SourceAttribute] = {}
        counts: dict[str, int] = {}
        num_nodes = store.take("num_nodes")
        self.states_count = num_nodes is not None
        if num_nodes is not None:
            counts["num_nodes"] = _whole_number(num_nodes, store.place("num_nodes"))
        self.features: Column | None = None
        x = store.take_column("x")
        if x is not None:
            _require_rows(x)
            self.features, attribute = split_features(x)
            self._keep("x", attribute)
            counts["x"] = x.shape[0]
        self.labels: Column | None = None
        y = store.take_column("y")
        if y is not None:
            self.labels = choose_labels(y, label_kind)
            count_tasks(self.labels)
            self._keep("y", labels_attribute(y, self.labels))
            counts["y"] = y.shape[0]
        masks = {key: column for key in MASKS if (column := store.take_column(key)) is not None}
        for key, each in masks.items():
            if each.dtype.kind != "b" or len(each.shape) > 2 or each.shape[1:] == (0,):
                raise SourceError(
                    f"{each.where}: must be booleans of shape (nodes) or (nodes, splits), got shape {each.shape} of "
                    f"{each.dtype}; convert it to a mask"
                )
            counts[key] = each.shape[0]
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{key} {count}" for key, count in counts.items())
            raise SourceError(
                f"{store.where}: its attributes differ in the number of nodes ({listed}); make them agree"
            )
        self.count = next(iter(counts.values()), None)
        if self.count is None:
            self.count = _count_by_names(store)
        self.splits = self._splits(masks)

    def _splits(self, masks: Mapping[str, HeldValues]) -> dict[str, list[Column]]:
        """List the splits. A mask (nodes) next to masks (nodes, splits) applies to every split."""
        num_splits = max((each.shape[1] for each in masks.values() if len(each.shape) == 2), default=1)
        for key, each in masks.items():
            if each.shape[1:] != ((num_splits,) if num_splits > 1 else ()):
                self.attributes[key] = own_attribute(each)
        return {
            MASKS[key]: [
                MaskedRows(each, number) for number in range(num_splits if len(each.shape) == 1 else each.shape[1])
            ]
            for key, each in masks.items()
        }

    def _keep(self, key: str, attribute: SourceAttribute | None) -> None:
        if attribute is not None:
            self.attributes[key] = attribute


class EdgeAttributes:
    """Attributes of the edges of one type.

    may_be_missing: without edge_index and adj_t, there are no edges.
    adjacency: the adj_t that they are given as; None: they are an edge_index.
    """

    def __init__(self, store: Attributes, source: str, destination: str, *, may_be_missing: bool = False) -> None:
        self.source = source
        self.destination = destination
        self.attributes: dict[str, SourceAttribute] = {}
        self.weights: Column | None = None
        self.times: Column | None = None
        self.adjacency = take_adjacency(store)
        if self.adjacency is not None:
            self.where = store.place("adj_t")
            self.pairs: NDArray[Any] = self.adjacency.pairs
            return
        self.where = store.place("edge_index")
        found = store.take_column("edge_index")
        if found is None:
            self._refuse_missing(store)
            if may_be_missing:
                found = HeldValues(np.empty((2, 0), np.int64), self.where)
        if found is None:
            raise SourceError(f"{store.where}: has no edge_index; add its edges as integers (2, edges)")
        empty = found.shape == (2, 0)  # an empty tensor is float32 by default
        if len(found.shape) != 2 or found.shape[0] != 2 or (found.dtype.kind not in "iu" and not empty):
            raise SourceError(
                f"{self.where}: must be integers of shape (2, edges), got shape {found.shape} of {found.dtype}; "
                f"{_integers_of_edges(self.where, found)}"
            )
        self.pairs = np.zeros((2, 0), np.int64) if empty else found.array()

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return int(self.pairs.shape[1])

    def highest_id(self, end: int) -> int:
        """Return the highest id at one end, 0 or 1; -1 without edges. Raises SourceError if it is out of range.

        An adj_t tells it by its size.
        """
        adjacency = self.adjacency
        highest = int(self.pairs[end].max(initial=-1)) if adjacency is None else adjacency.sizes[end] - 1
        if highest >= MOST_COUNT:
            raise SourceError(
                f"data: node {highest} is out of range: ids must be less than {MOST_COUNT}; {RENUMBERING}"
            )
        return highest

    def find_values(self, store: Attributes, num_nodes: int | None) -> None:
        """Find weights and times. num_nodes: of Data, where nodes and edges share one set of attributes."""
        self.weights = self._find_weights(store)
        self.times = self._find_times(store, num_nodes)

    def _refuse_missing(self, store: Attributes) -> None:
        if store.take("adj") is not None:
            where = store.place("adj")
            raise SourceError(
                f"{where}: is a matrix, and edge_index or adj_t is required; set {store.where}.edge_index, weights = "
                f"torch_geometric.utils.to_edge_index({where})"
            )

    def _find_weights(self, store: Attributes) -> Column | None:
        weights = store.take_column("edge_weight")
        if weights is not None:
            if not self._is_one_per_edge(weights):
                raise SourceError(
                    f"{weights.where}: must be one number for each of {self.num_edges} edges, got shape "
                    f"{weights.shape}; give one per edge"
                )
            self._keep("edge_weight", edge_attribute(weights, "weights", renamed=False))
            return weights
        attr = store.column_like("edge_attr")
        # Integers may as well be kinds or ids.
        if attr is None or not self._is_one_per_edge(attr) or attr.dtype.kind != "f" or not is_finite_in_float32(attr):
            return None
        store.take("edge_attr")
        self._keep("edge_attr", edge_attribute(attr, "weights", renamed=True))
        return attr

    def _find_times(self, store: Attributes, num_nodes: int | None) -> Column | None:
        times = store.take_column("edge_time")
        if times is not None:
            if not self._is_one_per_edge(times):
                raise SourceError(
                    f"{times.where}: must be one number for each of {self.num_edges} edges, got shape "
                    f"{times.shape}; give one per edge"
                )
            if times.dtype.kind not in "iu":
                self._keep("edge_time", own_attribute(times))
                return None
            self._keep("edge_time", edge_attribute(times, "times", renamed=False))
            return times
        times = store.column_like("time")
        if times is None or not self._is_one_per_edge(times) or times.dtype.kind not in "iu":
            return None
        if times.shape[0] == num_nodes:
            return None
        store.take("time")
        self._keep("time", edge_attribute(times, "times", renamed=True))
        return times

    def _is_one_per_edge(self, values: HeldValues) -> bool:
        return values.shape in ((self.num_edges,), (self.num_edges, 1))

    def _keep(self, key: str, attribute: SourceAttribute | None) -> None:
        if attribute is not None:
            self.attributes[key] = attribute


def take_others(store: Attributes, nodes: NodeAttributes | None, edges: EdgeAttributes | None) -> None:
    """Take all other values with one row per node or edge. What is left in the end is not imported.

    Like PyG: where there are as many nodes as edges, the name tells which of them the values are of.
    """
    num_nodes = None if nodes is None else nodes.count
    num_edges = None if edges is None else edges.num_edges
    for key in store.names():
        column = store.column_like(key)
        if column is None or not column.shape or column.shape[0] not in (num_nodes, num_edges):
            continue
        if not ATTRIBUTE_NAME.fullmatch(key):
            store.explain(key, " (names of attributes are letters, digits and _ . + = -, at most 96)")
        elif len(column.shape) > MOST_DIMENSIONS + 1:
            store.explain(key, f" (values have more than {MOST_DIMENSIONS} dimensions)")
        elif "index" in key and len(column.shape) > 1:
            store.explain(key, " (PyG stores an index by columns)")
        else:
            is_of_edges = column.shape[0] == num_edges and (num_edges != num_nodes or "edge" in key)
            owner = edges if is_of_edges else nodes
            assert owner is not None
            owner.attributes[key] = own_attribute(column)
            store.take(key)


def _count_by_names(store: Attributes) -> int | None:
    """Find the number of nodes by the names that PyG knows, which have a row per node."""
    for key in (*_OF_NODES, *(key for key in store.names() if "node" in key)):
        column = store.column_like(key)
        if column is not None and column.shape:
            return int(column.shape[0])
    return None


def _require_rows(column: Column) -> None:
    if not column.shape:
        raise SourceError(f"{column.where}: must have a row per node, got one number; give (nodes, dim)")


def _integers_of_edges(where: str, found: Column) -> str:
    """Return the call that makes edges of another shape or dtype what they must be."""
    by_rows = len(found.shape) == 2 and found.shape[0] != 2 and found.shape[1] == 2
    if not by_rows and (len(found.shape) != 2 or found.shape[0] != 2):
        return "give a row of sources and a row of destinations"
    calls = ".t().contiguous()" * by_rows + ".long()" * (found.dtype.kind not in "iu")
    return f"set {where} = {where}{calls}"


def _whole_number(value: Any, where: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number <= MOST_COUNT:
        raise SourceError(f"{where}: must be a whole number from 0 to {MOST_COUNT}, got {value!r}; correct it")
    return number
