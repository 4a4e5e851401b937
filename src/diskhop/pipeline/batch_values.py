"""Values of nodes and edges that batches have in addition to features: attributes, labels, masks, numbers of edges.

values = BatchValues(dataset, memory_bytes)    # chooses what is in memory; `reserved` and `added` are for the plan
opened = values.open(engine, max_gap_bytes)
opened.of_nodes(rows), opened.of_edges(positions)
opened.of_nodes(rows, of="paper"), opened.of_edges(positions, of="cites")    # of a graph with types
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine
from diskhop.dataset.attribute_info import AttributeInfo
from diskhop.dataset.attribute_set import MASKS, SPLITS, StoredColumn, features_dtype
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edge_set import EdgeSet
from diskhop.dataset.node_set import NodeSet
from diskhop.pipeline.columns import (
    READ_BYTES,
    READING_BYTES,
    Column,
    DiskColumn,
    EmptyColumn,
    HeldColumn,
    MaskColumn,
    mask_bytes,
    tensor_of,
)
from diskhop.plans import PreparedBytes
from diskhop.system.resident import OwnMemory, ResidentMemory

# Smaller columns come first; those beyond this share of the memory are read from the disk for every batch.
_HELD_SHARE = 4
E_ID = "e_id"
_ATTRIBUTES = "attributes"

ValuesByName = Mapping[str, tuple[AttributeInfo, Column]]


@dataclass(frozen=True, slots=True, eq=False)
class _Values:
    """One kind of value. of: its node type or edge type. column: None for a mask."""

    of: str
    name: str
    info: AttributeInfo
    column: StoredColumn | None
    held_bytes: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one value in a batch, and of what it is converted from."""
        num_bytes = self.info.row_bytes
        if self.column is not None and (self.info.stored_as or self.column.dtype != self.info.stored_dtype):
            num_bytes += self.column.table.row_bytes
        return num_bytes


class BatchValues:
    """The values that batches have, and where they are read.

    memory_bytes: a share of it is for values that are held; 0: none are, unless they are few.
    without: names of attributes that batches do not have.
    num_processes: processes of the machine that open the values together.
    reserved: bytes that open() holds, by name.
    shared: names of those of which the processes have one copy.
    added: bytes that they add to a batch.
    """

    shared = frozenset({_ATTRIBUTES})

    def __init__(
        self, dataset: Dataset, memory_bytes: int, without: Collection[str] = (), num_processes: int = 1
    ) -> None:
        self._dataset = dataset
        self._nodes = {name: _of_nodes(nodes, without) for name, nodes in dataset.nodes.items()}
        self._edges = {name: _of_edges(edges, without) for name, edges in dataset.edges.items()}
        self._held: set[_Values] = set()
        held_bytes = 0
        every = [each for of in (self._nodes, self._edges) for values in of.values() for each in values]
        # Reading takes memory, too: what takes less altogether is held whatever the budget.
        most_bytes = max(
            memory_bytes // _HELD_SHARE, READ_BYTES if sum(each.held_bytes for each in every) <= READ_BYTES else 0
        )
        for each in sorted(every, key=lambda values: values.held_bytes):
            if each.column is None or held_bytes + each.held_bytes <= most_bytes:
                held_bytes += each.held_bytes
                self._held.add(each)
        self.reserved: dict[str, int] = {}
        if held_bytes:
            # Masks are there once per process, however many share the rest.
            masks_bytes = sum(each.held_bytes for each in self._held if each.column is None)
            self.reserved[_ATTRIBUTES] = held_bytes + (num_processes - 1) * masks_bytes
        if len(self._held) < len(every):
            self.reserved["reading attributes"] = READ_BYTES
        # A batch of a graph with types may have nodes and edges of any of them.
        self.added = PreparedBytes(
            per_node=max(
                _converted_bytes(dataset.nodes[name]) + sum(each.row_bytes for each in values)
                for name, values in self._nodes.items()
            ),
            per_edge=max((sum(each.row_bytes for each in values) for values in self._edges.values()), default=0),
        )

    def open(self, engine: Engine, max_gap_bytes: int, memory: ResidentMemory | None = None) -> OpenValues:
        """Load what is in memory, and open the rest. The caller has reserved `reserved`.

        memory: of what processes share; None: memory of this process alone.
        """
        resident = memory or OwnMemory()
        pool, turn = BufferPool(READING_BYTES), threading.Lock()

        def open_column(values: _Values, read: Callable[[StoredColumn], NDArray[Any]]) -> Column:
            column = values.column
            assert column is not None
            if column.table.row_bytes == 0:
                return EmptyColumn(column)
            return (
                HeldColumn(resident.keep(lambda: read(column)))
                if values in self._held
                else DiskColumn(column, engine, pool, turn, max_gap_bytes)
            )

        nodes: dict[str, ValuesByName] = {}
        for name, every in self._nodes.items():
            own = self._dataset.nodes[name]
            nodes[name] = {
                each.name: (
                    each.info,
                    _mask(own, each) if each.column is None else open_column(each, partial(_read_of_nodes, own)),
                )
                for each in every
            }
        edges: dict[str, ValuesByName] = {
            name: {each.name: (each.info, open_column(each, self._dataset.edges[name].read)) for each in every}
            for name, every in self._edges.items()
        }
        return OpenValues(nodes, edges)


def _converted_bytes(nodes: NodeSet) -> int:
    """Bytes of a row of features that the source had in another dtype."""
    of_features = (each for each in nodes.attributes.values() if each.stored_as == "features")
    return sum(each.row_bytes for each in of_features if each.dtype != features_dtype(nodes.feature_dtype))


def _of_nodes(nodes: NodeSet, without: Collection[str]) -> list[_Values]:
    found = []
    for name, info in nodes.attributes.items():
        if name in without or info.stored_as == "features":
            continue
        column = nodes.column(name)
        num_bytes = max(1, info.num_values) * mask_bytes(nodes.num_nodes) if column is None else column.num_bytes
        found.append(_Values(nodes.name, name, info, column, num_bytes))
    return found


def _of_edges(edges: EdgeSet, without: Collection[str]) -> list[_Values]:
    found = []
    for name, info in edges.attributes.items():
        column = edges.column(name)
        if name not in without and column is not None:
            found.append(_Values(edges.name, name, info, column, column.num_bytes))
    numbers = edges.edge_id_column()
    if numbers is not None and E_ID not in edges.attributes and E_ID not in without:
        found.append(_Values(edges.name, E_ID, numbers.info, numbers, numbers.num_bytes))
    return found


def _read_of_nodes(nodes: NodeSet, column: StoredColumn) -> NDArray[Any]:
    labels = nodes.label_rows() if column.info.stored_as == "labels" else None
    return nodes.read(column) if labels is None else column.shaped(labels)


def _mask(nodes: NodeSet, values: _Values) -> MaskColumn:
    assert values.info.stored_as == SPLITS
    rows = (nodes.split_rows(MASKS[values.name], number) for number in range(nodes.num_splits))
    splits = [np.empty(0, np.int64) if each is None else each for each in rows]
    return MaskColumn(splits, nodes.num_nodes, values.info.shape)


class OpenValues:
    """Values of nodes by row, and of edges by position in the lists. Any thread may call it.

    of: a node type or an edge type, as the dataset names it; '' for the only one.
    """

    def __init__(self, nodes: Mapping[str, ValuesByName], edges: Mapping[str, ValuesByName]) -> None:
        self._nodes = nodes
        self._edges = edges

    def of_nodes(
        self, rows: NDArray[np.int64], names: Collection[str] | None = None, of: str = ""
    ) -> dict[str, torch.Tensor]:
        """Return the values of nodes by name, (rows, *shape) each. names: of those to return; default: all."""
        return {
            name: tensor_of(column.rows(rows), info)
            for name, (info, column) in _of(self._nodes, of).items()
            if names is None or name in names
        }

    def edge_ids(self, positions: NDArray[np.int64], of: str = "") -> torch.Tensor | None:
        """Return the source's numbers of edges, int64 (positions); None if the dataset does not keep them."""
        edges = _of(self._edges, of)
        if E_ID not in edges:
            return None
        info, column = edges[E_ID]
        return tensor_of(column.rows(positions), info)

    def of_edges(self, positions: NDArray[np.int64], of: str = "") -> dict[str, torch.Tensor]:
        """Return the values of edges by name, (positions, *shape) each; `e_id` if the dataset has it."""
        return {name: tensor_of(column.rows(positions), info) for name, (info, column) in _of(self._edges, of).items()}


def _of(by_type: Mapping[str, ValuesByName], of: str) -> ValuesByName:
    if of:
        return by_type[of]
    (only,) = by_type.values()
    return only
