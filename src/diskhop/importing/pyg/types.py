"""Nodes and edges of one type in a PyG object, checked by shape and dtype."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from diskhop.dataset.manifest import MOST_COUNT
from diskhop.errors import SourceError
from diskhop.importing.columns import check_features, classes_or_tasks, count_tasks
from diskhop.importing.pyg.attributes import Attributes, HeldValues, MaskedRows
from diskhop.importing.source import Column

_PARTS = {"train_mask": "train", "val_mask": "valid", "test_mask": "test"}


class NodeAttributes:
    """Attributes of the nodes of one type. count: number of nodes that they state; None: none does."""

    def __init__(self, store: Attributes) -> None:
        counts: dict[str, int] = {}
        num_nodes = store.take("num_nodes")
        if num_nodes is not None:
            counts["num_nodes"] = _whole_number(num_nodes, store.place("num_nodes"))
        self.features = store.take_column("x")
        if self.features is not None:
            check_features(self.features)
            counts["x"] = self.features.shape[0]
        self.labels: Column | None = store.take_column("y")
        if self.labels is not None:
            self.labels = classes_or_tasks(self.labels)
            count_tasks(self.labels)
            counts["y"] = self.labels.shape[0]
        masks = {key: column for key in _PARTS if (column := store.take_column(key)) is not None}
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
        # A mask (nodes) next to masks (nodes, splits) applies to every split.
        num_splits = max((each.shape[1] for each in masks.values() if len(each.shape) == 2), default=1)
        self.splits: dict[str, list[Column]] = {
            _PARTS[key]: [
                MaskedRows(each, number) for number in range(num_splits if len(each.shape) == 1 else each.shape[1])
            ]
            for key, each in masks.items()
        }


class EdgeAttributes:
    """Attributes of the edges of one type. num_nodes: of Data, where nodes and edges share one set of attributes."""

    def __init__(self, store: Attributes, source: str, destination: str, num_nodes: int | None) -> None:
        self.source = source
        self.destination = destination
        self.where = store.place("edge_index")
        found = store.take_column("edge_index")
        if found is None:
            self._refuse_missing(store)
            raise SourceError(f"{store.where}: has no edge_index; add its edges as integers (2, edges)")
        empty = found.shape == (2, 0)  # an empty tensor is float32 by default
        if len(found.shape) != 2 or found.shape[0] != 2 or (found.dtype.kind not in "iu" and not empty):
            raise SourceError(
                f"{self.where}: must be integers of shape (2, edges), got shape {found.shape} of {found.dtype}; "
                f"{_integers_of_edges(self.where, found)}"
            )
        self.pairs = np.zeros((2, 0), np.int64) if empty else found.array()
        self.has_more = False
        self.weights = self._find_weights(store)
        self.times = self._find_times(store, num_nodes)

    def _refuse_missing(self, store: Attributes) -> None:
        for key in ("adj_t", "adj"):
            if store.take(key) is not None:
                call = f"torch_geometric.utils.to_edge_index({store.place(key)}{'.t()' if key == 'adj_t' else ''})"
                raise SourceError(
                    f"{store.place(key)}: is a sparse matrix, and edge_index is required; "
                    f"set {store.where}.edge_index, "
                    f"weights = {call}"
                )

    def _find_weights(self, store: Attributes) -> Column | None:
        weights = store.take_column("edge_weight")
        if weights is not None:
            if not self._is_one_per_edge(weights.shape):
                raise SourceError(
                    f"{weights.where}: must be one number for each of {self.pairs.shape[1]} edges, got shape "
                    f"{weights.shape}; give one per edge"
                )
            return weights
        value = store.take("edge_attr")
        if value is None:
            return None
        shape = tuple(getattr(value, "shape", ()))
        if not self._is_one_per_edge(shape):
            self.has_more = shape[:1] == self.pairs.shape[1:]
            store.leave("edge_attr", value, f" of shape {shape} (edges have one weight at most)")
            return None
        return HeldValues(value, store.place("edge_attr"))

    def _find_times(self, store: Attributes, num_nodes: int | None) -> Column | None:
        times = store.take_column("edge_time")
        value = None if times is not None else store.take("time")
        if value is not None:
            shape = tuple(getattr(value, "shape", ()))
            if shape[:1] == (num_nodes,) or not self._is_one_per_edge(shape):
                store.leave("time", value, " (not one per edge, or one per node)")
                return None
            times = HeldValues(value, store.place("time"))
        if times is not None and (not self._is_one_per_edge(times.shape) or times.dtype.kind not in "iu"):
            raise SourceError(
                f"{times.where}: must be one whole number for each of {self.pairs.shape[1]} edges, got shape "
                f"{times.shape} of {times.dtype}; give one integer per edge"
            )
        return times

    def _is_one_per_edge(self, shape: tuple[int, ...]) -> bool:
        num_edges = self.pairs.shape[1]
        return shape in ((num_edges,), (num_edges, 1))


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
