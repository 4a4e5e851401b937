"""Values of nodes and edges that batches have in addition to features: attributes, labels, masks, numbers of edges.

values = BatchValues(dataset, memory_bytes)    # chooses what is in memory; `reserved` and `added` are for the plan
opened = values.open(engine, max_gap_bytes)
opened.of_nodes(rows), opened.of_edges(positions)
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine
from diskhop.dataset.attribute_info import AttributeInfo
from diskhop.dataset.attribute_set import MASKS, SPLITS, StoredColumn, features_dtype
from diskhop.dataset.dataset import Dataset
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

# Smaller columns come first; those beyond this share of the memory are read from the disk for every batch.
_HELD_SHARE = 4
E_ID = "e_id"


@dataclass(frozen=True, slots=True)
class _Values:
    """One kind of value. column: None for a mask."""

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
    """The values that batches have of a graph of one type, and where they are read.

    memory_bytes: a share of it is for values that are held; 0: none are, unless they are few.
    without: names of attributes that batches do not have.
    reserved: bytes that open() holds, by name.
    added: bytes that they add to a batch.
    """

    def __init__(self, dataset: Dataset, memory_bytes: int, without: Collection[str] = ()) -> None:
        self._dataset = dataset
        self._nodes = self._of_nodes(without)
        self._edges = self._of_edges(without)
        self._held: set[str] = set()
        held_bytes = 0
        keyed = [(f"nodes/{each.name}", each) for each in self._nodes]
        keyed += [(f"edges/{each.name}", each) for each in self._edges]
        # Reading takes memory, too: what takes less altogether is held whatever the budget.
        most_bytes = max(
            memory_bytes // _HELD_SHARE, READ_BYTES if sum(each.held_bytes for _, each in keyed) <= READ_BYTES else 0
        )
        for key, each in sorted(keyed, key=lambda pair: pair[1].held_bytes):
            if each.column is None or held_bytes + each.held_bytes <= most_bytes:
                held_bytes += each.held_bytes
                self._held.add(key)
        self.reserved: dict[str, int] = {}
        if held_bytes:
            self.reserved["attributes"] = held_bytes
        if len(self._held) < len(keyed):
            self.reserved["reading attributes"] = READ_BYTES
        self.added = PreparedBytes(
            per_node=self._converted_bytes() + sum(each.row_bytes for each in self._nodes),
            per_edge=sum(each.row_bytes for each in self._edges),
        )

    def _converted_bytes(self) -> int:
        """Bytes of a row of features that the source had in another dtype."""
        nodes = self._dataset.only_nodes
        of_features = (each for each in nodes.attributes.values() if each.stored_as == "features")
        return sum(each.row_bytes for each in of_features if each.dtype != features_dtype(nodes.feature_dtype))

    def _of_nodes(self, without: Collection[str]) -> list[_Values]:
        found = []
        nodes = self._dataset.only_nodes
        for name, info in nodes.attributes.items():
            if name in without or info.stored_as == "features":
                continue
            column = nodes.column(name)
            num_bytes = max(1, info.num_values) * mask_bytes(nodes.num_nodes) if column is None else column.num_bytes
            found.append(_Values(name, info, column, num_bytes))
        return found

    def _of_edges(self, without: Collection[str]) -> list[_Values]:
        found = []
        edges = self._dataset.only_edges
        for name, info in edges.attributes.items():
            column = edges.column(name)
            if name not in without and column is not None:
                found.append(_Values(name, info, column, column.num_bytes))
        numbers = edges.edge_id_column()
        if numbers is not None and E_ID not in edges.attributes and E_ID not in without:
            found.append(_Values(E_ID, numbers.info, numbers, numbers.num_bytes))
        return found

    def open(self, engine: Engine, max_gap_bytes: int) -> OpenValues:
        """Load what is in memory, and open the rest. The caller has reserved `reserved`."""
        pool, turn = BufferPool(READING_BYTES), threading.Lock()

        def open_column(values: _Values, kind: str) -> Column:
            column = values.column
            if column is None:
                return self._mask(values)
            if column.table.row_bytes == 0:
                return EmptyColumn(column)
            if f"{kind}/{values.name}" in self._held:
                return HeldColumn(self._read(column, kind))
            return DiskColumn(column, engine, pool, turn, max_gap_bytes)

        return OpenValues(
            {each.name: (each.info, open_column(each, "nodes")) for each in self._nodes},
            {each.name: (each.info, open_column(each, "edges")) for each in self._edges},
        )

    def _read(self, column: StoredColumn, kind: str) -> NDArray[Any]:
        if kind == "edges":
            return self._dataset.only_edges.read(column)
        labels = self._dataset.label_rows() if column.info.stored_as == "labels" else None
        return self._dataset.only_nodes.read(column) if labels is None else column.shaped(labels)

    def _mask(self, values: _Values) -> MaskColumn:
        assert values.info.stored_as == SPLITS
        nodes = self._dataset.only_nodes
        rows = (nodes.split_rows(MASKS[values.name], number) for number in range(nodes.num_splits))
        splits = [np.empty(0, np.int64) if each is None else each for each in rows]
        return MaskColumn(splits, nodes.num_nodes, values.info.shape)


class OpenValues:
    """Values of nodes by row, and of edges by position in the lists. Any thread may call it."""

    def __init__(
        self,
        nodes: Mapping[str, tuple[AttributeInfo, Column]],
        edges: Mapping[str, tuple[AttributeInfo, Column]],
    ) -> None:
        self._nodes = nodes
        self._edges = edges

    def of_nodes(self, rows: NDArray[np.int64], names: Collection[str] | None = None) -> dict[str, torch.Tensor]:
        """Return the values of nodes by name, (rows, *shape) each. names: of those to return; default: all."""
        return {
            name: tensor_of(column.rows(rows), info)
            for name, (info, column) in self._nodes.items()
            if names is None or name in names
        }

    def edge_ids(self, positions: NDArray[np.int64]) -> torch.Tensor | None:
        """Return the source's numbers of edges, int64 (positions); None if the dataset does not keep them."""
        if E_ID not in self._edges:
            return None
        info, column = self._edges[E_ID]
        return tensor_of(column.rows(positions), info)

    def of_edges(self, positions: NDArray[np.int64]) -> dict[str, torch.Tensor]:
        """Return the values of edges by name, (positions, *shape) each; `e_id` if the dataset has it."""
        return {name: tensor_of(column.rows(positions), info) for name, (info, column) in self._edges.items()}
