"""Graphs in objects of PyTorch Geometric: Data and HeteroData, with tensors or NumPy arrays, also mapped ones.

PyTorch is not loaded here: a tensor is what lays out memory as NumPy does and gives an array of it. What the object
holds is its owner's, and read in place.
"""

from __future__ import annotations

import math
import operator
import secrets
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.budget import Budget, parse_bytes
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edges import ArrayEdges
from diskhop.dataset.fields import TYPE_NAME
from diskhop.dataset.manifest import EDGE, MOST_COUNT, NODE
from diskhop.errors import ConfigError, SourceError
from diskhop.importing.arrays.loads import load_of_edge_values, load_of_nodes
from diskhop.importing.columns import check_features, count_tasks
from diskhop.importing.estimate import Load
from diskhop.importing.options import ImportOptions, Keep, Order
from diskhop.importing.run import import_source
from diskhop.importing.source import Column, SourceEdges, SourceGraph, SourceNodes
from diskhop.io.engine import open_engine
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.work_tools import WorkTools

_PARTS = {"train_mask": "train", "val_mask": "valid", "test_mask": "test"}
_BLOCK_BYTES = 4 << 20
_ROWS_OF_MASKS = 1 << 19


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
) -> Dataset:
    """Make a dataset at `path` of a torch_geometric.data.Data or HeteroData, and open it.

    Taken: edge_index; x; y, classes as integers (nodes) or (nodes, 1), or tasks (nodes, tasks) of 0, 1 and NaN;
    train_mask, val_mask, test_mask (nodes), or (nodes, splits); num_nodes; one weight an edge in edge_weight or
    edge_attr; edge_time, or time where there is one an edge. A warning lists what else there is: it is left out. Edges
    of a HeteroData between types a and b are of type a__relation__b.

    name: of the dataset; default: the last part of path. memory: bytes or a size such as '2GB' for what is held beside
    data; default: half of what is free. dtype: of features; default: as they are. undirected: store each edge both
    ways, which Data mostly does already. self_loops, duplicates: 'keep' or 'drop'. order: 'hot' numbers nodes by how
    often they are read.

    Raises SourceError, naming the attribute, for what breaks a rule; nothing is then left at path.
    """
    source = PygGraph(data, Path(path).name)
    if source.left_out:
        warnings.warn(f"left out: {', '.join(source.left_out)}; a dataset has no place for it", stacklevel=2)
    memory_bytes = parse_bytes(memory) if isinstance(memory, str) else memory
    return import_source(
        source,
        Path(path),
        origin="data",
        name=name,
        options=ImportOptions(
            dtype=dtype, undirected=undirected, self_loops=self_loops, duplicates=duplicates, order=order
        ),
        engine=open_engine("auto").engine,
        budget=None if memory_bytes is None else Budget(memory_bytes),
        threads=threads,
    )


class PygGraph:
    """See Source. left_out: what else data has, for people."""

    least_memory: Mapping[str, int] = {}

    def __init__(self, data: Any, name: str) -> None:
        self.name = name
        self._nodes: dict[str, _Nodes] = {}
        self._edges: dict[str, _Edges] = {}
        if hasattr(data, "node_items") and hasattr(data, "edge_items"):
            stores = self._look_at_types(data)
        elif hasattr(data, "stores"):
            stores = [_Attributes("data", data.stores[0])]
            self._nodes[NODE] = _Nodes(stores[0])
            self._edges[EDGE] = _Edges(stores[0], NODE, NODE, self._nodes[NODE].told)
        else:
            raise ConfigError(
                f"data must be a torch_geometric.data.Data or HeteroData, got {type(data).__name__}; make one of it"
            )
        self.left_out = [what for store in stores for what in store.left_out()]

    @property
    def load(self) -> Load:
        """See Source: nothing is on a disk."""
        load = Load()
        for nodes in self._nodes.values():
            load += load_of_nodes(nodes.told or 0, nodes.features, nodes.labels)
        for edges in self._edges.values():
            num_edges = int(edges.pairs.shape[1])
            load += Load(num_edges=num_edges) + load_of_edge_values(num_edges, edges.weights, edges.times)
        return load

    def read(self, shop: WorkTools) -> SourceGraph:
        """See Source."""
        nodes = {}
        for node_type, each in self._nodes.items():
            nodes[node_type] = SourceNodes(
                count=self._count(node_type),
                features=each.features,
                feature_dtype="bfloat16" if each.features is not None and each.features.is_bfloat16 else None,
                labels=each.labels,
                splits=each.splits,
            )
        edges = {
            edge_type: SourceEdges(
                source=each.source,
                destination=each.destination,
                edges=ArrayEdges(each.pairs),
                origin=each.where,
                weights=each.weights,
                times=each.times,
            )
            for edge_type, each in self._edges.items()
        }
        return SourceGraph(nodes=nodes, edges=edges)

    def _look_at_types(self, data: Any) -> list[_Attributes]:
        stores = [_Attributes("data", data.stores[0])]
        for node_type, items in data.node_items():
            _check_type_name(node_type, f"data[{node_type!r}]")
            stores.append(_Attributes(f"data[{node_type!r}]", items))
            self._nodes[node_type] = _Nodes(stores[-1])
        for ends, items in data.edge_items():
            where = f"data[{', '.join(map(repr, ends))}]"
            edge_type = "__".join(ends)
            _check_type_name(edge_type, where)
            if edge_type in self._edges:
                raise SourceError(f"{where}: there are edges called {edge_type} already; rename one of the types")
            stores.append(_Attributes(where, items))
            source, _, destination = ends
            self._edges[edge_type] = _Edges(stores[-1], source, destination, None)
            for node_type in (source, destination):
                if node_type not in self._nodes:
                    _check_type_name(node_type, where)
                    self._nodes[node_type] = _Nodes(_Attributes(f"data[{node_type!r}]", {}))
        if not self._edges:
            raise SourceError("data: has no edges; give it an edge type with edge_index")
        return stores

    def _count(self, node_type: str) -> int:
        """What data tells; where it does not, the highest id + 1."""
        told = self._nodes[node_type].told
        if told is not None:
            return told
        ends = [
            each.pairs[end]
            for each in self._edges.values()
            for end, at_end in enumerate((each.source, each.destination))
            if at_end == node_type
        ]
        highest = max((int(ids.max()) for ids in ends if len(ids)), default=-1)
        if highest >= MOST_COUNT:
            raise SourceError(f"data: node {highest} is out of range: ids must be less than {MOST_COUNT}; mend it")
        return highest + 1


class _Attributes:
    """What an object has for one type, by name; what is taken is gone, and the rest is left out."""

    def __init__(self, where: str, items: Mapping[str, Any]) -> None:
        self.where = where
        self._values = {key: value for key, value in items.items() if value is not None}
        self._reasons: dict[str, str] = {}

    def place(self, key: str) -> str:
        """The attribute as Python has it."""
        return f"{self.where}.{key}"

    def take(self, key: str) -> Any:
        """The value, None where there is none."""
        return self._values.pop(key, None)

    def take_column(self, key: str) -> HeldValues | None:
        """The values as a column."""
        value = self.take(key)
        return None if value is None else HeldValues(value, self.place(key))

    def leave(self, key: str, value: Any, why: str = "") -> None:
        """Put back what was taken, since it cannot be used."""
        self._values[key] = value
        self._reasons[key] = why

    def left_out(self) -> list[str]:
        """What nobody took, and why, for people."""
        return [self.place(key) + self._reasons.get(key, "") for key in self._values]


class HeldValues:
    """See Column. An array or a tensor in memory; blocks are copied of what does not lie as NumPy has it."""

    def __init__(self, value: Any, where: str) -> None:
        self.where = where
        self.identity = f"array {secrets.token_hex(8)}"  # nobody can tell whether it is that of a process before
        self._value = _strided(value, where)
        self.is_bfloat16 = str(self._value.dtype) == "torch.bfloat16"
        # Of one row: bfloat16 is converted, and that should not be all of it.
        self.dtype: np.dtype[Any] = self._rows(0, 1).dtype if self._value.ndim else np.dtype(object)
        self.shape = tuple(self._value.shape)
        if self.dtype.kind not in "biuf":
            raise SourceError(
                f"{where}: must be an array of plain booleans, integers or floats, got shape {self.shape} of "
                f"{self._value.dtype}; convert it"
            )

    def array(self) -> NDArray[Any]:
        """All values, where they lie."""
        return self._rows(0, self.shape[0])

    def blocks(self) -> Iterator[NDArray[Any]]:
        """See Column."""
        row_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize
        for start, stop in row_ranges(self.shape[0], max(1, _BLOCK_BYTES // max(1, row_bytes))):
            yield np.ascontiguousarray(self._rows(start, stop))

    def _rows(self, start: int, stop: int) -> NDArray[Any]:
        rows = self._value[start:stop]
        if isinstance(rows, np.ndarray):
            return rows
        try:
            return np.asarray((rows.float() if self.is_bfloat16 else rows).numpy())
        except (TypeError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise SourceError(f"{self.where}: is no array: {reason}; convert it") from error


class _MaskedRows:
    """See Column. The nodes for which a mask (nodes), or one of several (nodes, splits), is true."""

    dtype: np.dtype[Any] = np.dtype(np.int64)

    def __init__(self, masks: HeldValues, number: int) -> None:
        self.where = masks.where
        self.identity = f"{masks.identity}, mask {number}"
        self.shape = masks.shape[:1]
        self._mask = masks.array() if len(masks.shape) == 1 else masks.array()[:, number]

    def blocks(self) -> Iterator[NDArray[Any]]:
        """See Column."""
        for start, stop in row_ranges(self.shape[0], _ROWS_OF_MASKS):
            yield np.flatnonzero(self._mask[start:stop]) + start


class _Nodes:
    """What is known of the nodes of one type. told: how many there are, None where nothing says."""

    def __init__(self, store: _Attributes) -> None:
        counts: dict[str, int] = {}
        num_nodes = store.take("num_nodes")
        if num_nodes is not None:
            counts["num_nodes"] = _whole_number(num_nodes, store.place("num_nodes"))
        self.features = store.take_column("x")
        if self.features is not None:
            check_features(self.features)
            counts["x"] = self.features.shape[0]
        self.labels = store.take_column("y")
        if self.labels is not None:
            count_tasks(self.labels)
            counts["y"] = self.labels.shape[0]
        masks = {key: column for key in _PARTS if (column := store.take_column(key)) is not None}
        for key, each in masks.items():
            if each.dtype.kind != "b" or len(each.shape) > 2 or each.shape[1:] == (0,):
                raise SourceError(
                    f"{each.where}: must be booleans of shape (nodes) or (nodes, splits), got shape {each.shape} of "
                    f"{each.dtype}; make a mask of it"
                )
            counts[key] = each.shape[0]
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{key} {count}" for key, count in counts.items())
            raise SourceError(f"{store.where}: its attributes differ in the number of nodes ({told}); make them agree")
        self.told = next(iter(counts.values()), None)
        # A mask for one split beside masks for several is that of each of them.
        num_splits = max((each.shape[1] for each in masks.values() if len(each.shape) == 2), default=1)
        self.splits: dict[str, list[Column]] = {
            _PARTS[key]: [
                _MaskedRows(each, number) for number in range(num_splits if len(each.shape) == 1 else each.shape[1])
            ]
            for key, each in masks.items()
        }


class _Edges:
    """What is known of the edges of one type. num_nodes: where their attributes lie with those of so many nodes."""

    def __init__(self, store: _Attributes, source: str, destination: str, num_nodes: int | None) -> None:
        self.source = source
        self.destination = destination
        self.where = store.place("edge_index")
        found = store.take_column("edge_index")
        if found is None:
            self._refuse_missing(store)
            raise SourceError(f"{store.where}: has no edge_index; give its edges as integers (2, edges)")
        empty = found.shape == (2, 0)  # which is float unless one takes care, and harmless
        if len(found.shape) != 2 or found.shape[0] != 2 or (found.dtype.kind not in "iu" and not empty):
            raise SourceError(
                f"{self.where}: must be integers of shape (2, edges), got shape {found.shape} of {found.dtype}; "
                "give sources, then destinations"
            )
        self.pairs = np.zeros((2, 0), np.int64) if empty else found.array()
        self.weights = self._find_weights(store)
        self.times = self._find_times(store, num_nodes)

    def _refuse_missing(self, store: _Attributes) -> None:
        for key in ("adj_t", "adj"):
            if store.take(key) is not None:
                call = f"torch_geometric.utils.to_edge_index({store.place(key)}{'.t()' if key == 'adj_t' else ''})"
                raise SourceError(
                    f"{store.place(key)}: is a sparse matrix, and edge_index is wanted; give {store.where}.edge_index, "
                    f"weights = {call}"
                )

    def _find_weights(self, store: _Attributes) -> Column | None:
        weights = store.take_column("edge_weight")
        if weights is not None:
            if not self._is_one_per_edge(weights.shape):
                raise SourceError(
                    f"{weights.where}: must be one number for each of {self.pairs.shape[1]} edges, got shape "
                    f"{weights.shape}; give as many"
                )
            return weights
        value = store.take("edge_attr")
        if value is None:
            return None
        shape = tuple(getattr(value, "shape", ()))
        if not self._is_one_per_edge(shape):
            store.leave("edge_attr", value, f" of shape {shape} (edges have one weight at most)")
            return None
        return HeldValues(value, store.place("edge_attr"))

    def _find_times(self, store: _Attributes, num_nodes: int | None) -> Column | None:
        times = store.take_column("edge_time")
        value = None if times is not None else store.take("time")
        if value is not None:
            shape = tuple(getattr(value, "shape", ()))
            if shape[:1] == (num_nodes,) or not self._is_one_per_edge(shape):
                store.leave("time", value, " (not one an edge, or one a node)")
                return None
            times = HeldValues(value, store.place("time"))
        if times is not None and (not self._is_one_per_edge(times.shape) or times.dtype.kind not in "iu"):
            raise SourceError(
                f"{times.where}: must be one whole number for each of {self.pairs.shape[1]} edges, got shape "
                f"{times.shape} of {times.dtype}; give as many integers"
            )
        return times

    def _is_one_per_edge(self, shape: tuple[int, ...]) -> bool:
        num_edges = self.pairs.shape[1]
        return shape in ((num_edges,), (num_edges, 1))


def _strided(value: Any, where: str) -> Any:
    """An array, or a tensor in this machine's memory without its history."""
    if isinstance(value, np.ndarray):
        return value
    if str(getattr(value, "layout", "")) == "torch.strided":
        if value.device.type != "cpu":
            raise SourceError(f"{where}: must be in memory, is on {value.device}; give data.cpu()")
        return value.detach()
    if hasattr(value, "to_dense") or hasattr(value, "todense"):
        dense = "to_dense" if hasattr(value, "to_dense") else "toarray"
        raise SourceError(f"{where}: is sparse; give {where}.{dense}()")
    raise SourceError(f"{where}: must be a tensor or a NumPy array, got {type(value).__name__}; convert it")


def _whole_number(value: Any, where: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number <= MOST_COUNT:
        raise SourceError(f"{where}: must be a whole number from 0 to {MOST_COUNT}, got {value!r}; mend it")
    return number


def _check_type_name(name: Any, where: str) -> None:
    if not isinstance(name, str) or not TYPE_NAME.fullmatch(name):
        raise SourceError(
            f"{where}: type name {name!r} must be letters, digits and _ . + = -, at most 100; rename the type"
        )
