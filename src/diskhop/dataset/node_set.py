"""The nodes of one type of a dataset: labels and splits, read on request, and what their ids are.

Methods whose names end on `_rows` are for inner code; all others speak of ids and orders of the source (id_map.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.attribute_info import AttributeInfo
from diskhop.dataset.attribute_set import SPLITS, StoredColumn, node_attributes, stored_column
from diskhop.dataset.feature_rows import FeatureRows
from diskhop.dataset.files import StoredArrays
from diskhop.dataset.id_map import IdMap, positions_of_ids
from diskhop.dataset.manifest import SPLIT_NAMES, NodeType, split_file
from diskhop.dataset.type_map import TypeMap
from diskhop.errors import ConfigError
from diskhop.protocols import NodeRows, SourceIds, Table, TableGroup, TablePart


class NodeSet:
    """Nodes of one type."""

    def __init__(self, arrays: StoredArrays, name: str, info: NodeType) -> None:
        self._arrays = arrays
        self._folder = f"nodes/{name}"
        self._path = arrays.path / "nodes" / name
        self._info = info
        self._rows: tuple[Table, int] | None = None
        self._lookup: IdMap | None = None
        self.name = name

    def with_rows(self, table: Table, dim: int) -> NodeSet:
        """Return the same nodes with other features; see Dataset."""
        other = copy(self)
        other._rows = table, dim
        return other

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self._info.count

    @property
    def order(self) -> str:
        """Order of the nodes: original or hot (dataset/sort/hot_order.py)."""
        return self._info.order

    @property
    def states_count(self) -> bool:
        """Whether the source has the number of nodes as a value of its own, as batches then have."""
        return self._info.states_count

    @property
    def has_labels(self) -> bool:
        """Whether the nodes have labels."""
        return self._info.labels is not None

    @property
    def label_path(self) -> Path | None:
        """File of the labels by row, as label_rows() returns them; None without labels."""
        return self._path / "labels.bin" if self.has_labels else None

    @property
    def label_kind(self) -> str:
        """Kind of labels: classes, tasks (columns of 0 and 1) or values (columns of numbers); '' without labels."""
        return self._info.labels.kind if self._info.labels else ""

    @property
    def num_outputs(self) -> int:
        """Number of classes, or of columns of tasks or values; 0 without labels."""
        return self.num_tasks or self.num_classes

    @property
    def num_classes(self) -> int:
        """Number of classes; 0 without labels, and for tasks and values."""
        return self._info.labels.num_classes if self._info.labels else 0

    @property
    def num_tasks(self) -> int:
        """Number of columns of tasks or values; 0 without them."""
        return self._info.labels.num_tasks if self._info.labels else 0

    @property
    def feature_dim(self) -> int:
        """Number of values per feature row; 0 without features."""
        if self._rows is not None:
            return self._rows[1]
        return self._info.features.dim if self._info.features else 0

    @property
    def feature_dtype(self) -> str:
        """Dtype of features: float32, float16, bfloat16 or int8; '' without features."""
        if self._rows is not None:
            return "float32"
        return self._info.features.dtype if self._info.features else ""

    @property
    def num_splits(self) -> int:
        """Number of splits into train, valid and test."""
        return len(self._info.splits)

    @property
    def split_sizes(self) -> Sequence[Mapping[str, int]]:
        """Number of nodes of each part (train, valid, test), by split."""
        return [{part: split[part] for part in SPLIT_NAMES if part in split} for split in self._info.splits]

    def without_features(self) -> NodeSet:
        """Return the same nodes without features."""
        other = copy(self)
        other._rows, other._info = None, replace(self._info, features=None)
        return other

    def feature_table(self) -> Table | None:
        """Return the location of the feature rows, None without features."""
        if self._rows is not None:
            return self._rows[0]
        info = self._info.features
        if info is None:
            return None
        return Table(
            path=self._path / "features.bin",
            num_rows=self.num_nodes,
            row_bytes=info.row_bytes,
            row_stride=info.row_stride,
        )

    @property
    def attributes(self) -> Mapping[str, AttributeInfo]:
        """Everything that the nodes have, by the name that it has in the source (attribute_set.py)."""
        info = self._info
        if self._rows is not None:
            others = {key: each for key, each in info.attributes.items() if key != "x" and each.stored_as != "features"}
            info = replace(info, attributes=others)
        return node_attributes(info, self.feature_dtype, self.feature_dim)

    def column(self, name: str) -> StoredColumn | None:
        """Return the place of an attribute, by row; None without one of that name, and for features and masks."""
        info = self.attributes.get(name)
        if info is None or info.stored_as in ("features", SPLITS):
            return None
        label_dtype = np.dtype("<f4" if self.num_tasks else "<i8")
        return stored_column(self._arrays.path, self._folder, name, info, self.num_nodes, label_dtype)

    def attribute(self, name: str) -> NDArray[Any] | None:
        """Map an attribute by row, (nodes, *shape); None without one of that name, and for features and masks.

        Values of bfloat16 are bits, uint16. Labels have the dtype in which they are stored, int64 or float32.
        """
        column = self.column(name)
        return None if column is None else column.map()

    def read(self, column: StoredColumn) -> NDArray[Any]:
        """Read a column of these nodes, checked against its checksum."""
        return column.shaped(self._arrays.read(column.relative, np.uint8))

    def label_rows(self) -> NDArray[Any] | None:
        """Read labels by row.

        Classes are int64 (nodes), -1 for none; tasks and values are float32 (nodes, columns), NaN for none.
        """
        if self._info.labels is None:
            return None
        if self.num_tasks:
            return self._arrays.read(f"{self._folder}/labels.bin", np.float32).reshape(-1, self.num_tasks)
        return self._arrays.read_numbers(f"{self._folder}/labels.bin", -1, self.num_classes, "class")

    def split_rows(self, name: str, number: int | None = None) -> NodeRows | None:
        """Read a part of a split like Dataset.split(), as rows."""
        if name not in SPLIT_NAMES:
            raise ConfigError(f"split '{name}' is unknown; choose one of {', '.join(SPLIT_NAMES)}")
        if number is None:
            if self.num_splits > 1:
                raise ConfigError(
                    f"{self._arrays.path}: has {self.num_splits} splits; choose one from 0 to {self.num_splits - 1}"
                )
            number = 0
        elif not 0 <= number < max(1, self.num_splits):
            known = f"the last is {self.num_splits - 1}" if self.num_splits else "it has no splits"
            raise ConfigError(f"{self._arrays.path}: has no split {number}; {known}")
        if not self._info.splits or name not in self._info.splits[number]:
            return None
        relative = split_file(self.name, name, number, self.num_splits)
        return NodeRows(self._arrays.read_numbers(relative, 0, self.num_nodes, "node"))

    def original_ids(self) -> NDArray[np.int64] | None:
        """Read the source id of each row; None if ids are rows. IdMap converts with them."""
        if not self._info.original_ids:
            return None
        return self._arrays.read(f"{self._folder}/original_ids.bin", np.int64)

    @property
    def has_original_ids(self) -> bool:
        """Whether ids are stored, since they are not the rows."""
        return self._info.original_ids

    def id_map(self) -> IdMap:
        """Read what converts between source ids, positions in the source, and rows."""
        id_of_row = self.original_ids()

        def positions() -> NDArray[np.int64] | None:
            if self._info.positions:
                return self._arrays.read_numbers(f"{self._folder}/positions.bin", 0, self.num_nodes, "position")
            return None if self.order != "hot" or id_of_row is None else positions_of_ids(id_of_row)

        return IdMap(self._arrays.path, self.num_nodes, id_of_row, positions)

    def lookup(self) -> IdMap:
        """Return the id map that stays in memory, for ids that users ask for one after the other."""
        if self._lookup is None:
            self._lookup = self.id_map()
        return self._lookup

    def node_ids(self) -> SourceIds:
        """Return the source ids of all nodes, in the order of the source's arrays, rows of its table, or ids."""
        return self.id_map().all_ids()

    @property
    def features(self) -> FeatureRows | None:
        """Features by ids of the source, read from disk when they are indexed; None without features."""
        table = self.feature_table()
        return None if table is None else FeatureRows(table, self.feature_dtype, self.feature_dim, self.lookup)

    @property
    def labels(self) -> NDArray[Any] | None:
        """Labels in the order of node_ids(), read at each access; see label_rows()."""
        by_row = self.label_rows()
        return by_row if by_row is None or self.order != "hot" else self.id_map().in_source_order(by_row)

    @property
    def splits(self) -> Mapping[str, SourceIds]:
        """Source ids of each part of the only split, read at each access. Raises ConfigError for several: split()."""
        return {part: ids for part in SPLIT_NAMES if (ids := self.split(part)) is not None}

    def split(self, name: str, number: int | None = None) -> SourceIds | None:
        """Read the source ids of a part (train, valid, test) of a split, in its order; None if missing.

        number: index of the split, required if there are several.
        """
        rows = self.split_rows(name, number)
        return None if rows is None else self.id_map().ids(rows)


def group_of(nodes: Mapping[str, NodeSet], types: TypeMap) -> TableGroup | None:
    """Return the feature tables of all node types as one; None if no type has features."""
    parts = []
    for name in types.node_types:
        table = nodes[name].feature_table()
        if table is not None and table.num_rows:
            kind = nodes[name].feature_dtype, nodes[name].feature_dim
            parts.append(TablePart(name=name, first_row=types.first_row(name), table=table, dtype=kind[0], dim=kind[1]))
    if not parts:
        return None
    largest = max((part.table for part in parts), key=lambda table: table.num_rows * table.row_bytes)
    return TableGroup(
        path=largest.path,
        num_rows=types.total_nodes,
        row_bytes=largest.row_bytes,
        row_stride=largest.row_stride,
        parts=tuple(parts),
    )
