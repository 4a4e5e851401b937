"""Columns of nodes with rows changed and added: features, labels, splits, attributes, ids and names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.attribute_info import AttributeInfo, attribute_file
from diskhop.dataset.build.checks import checked_labels, checked_tasks, checked_values, encoded_rows
from diskhop.dataset.files import read_blocks
from diskhop.dataset.id_map import positions_of_ids
from diskhop.dataset.manifest import (
    CLASSES,
    SPLIT_NAMES,
    VALUES,
    FeatureInfo,
    FileEntry,
    LabelInfo,
    NodeType,
    split_file,
)
from diskhop.dataset.name_lines import to_lines
from diskhop.errors import SourceError
from diskhop.importing.source import Column
from diskhop.importing.tables.labels import CLASS_NAMES
from diskhop.importing.tables.source import NAMES
from diskhop.importing.tools import ImportTools
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.progress import tracked
from diskhop.updating.delta import DeltaNodes
from diskhop.updating.generation import NewGeneration
from diskhop.updating.splice import as_rows, stored_rows
from diskhop.updating.tables import converted

_RESERVED = "changed nodes"
# Of a node: its position, and what finds it. Of a node in a part: its row and position, and what sorts them.
_POSITION_BYTES, _PART_BYTES = 24, 64
_IDS_PER_BLOCK = 1 << 16


class NodeUpdate:
    """Writes the nodes of the next generation."""

    def __init__(self, new: NewGeneration, nodes: DeltaNodes, work: ImportTools) -> None:
        self._new, self._delta, self._work = new, nodes, work
        self._old = new.dataset.only_nodes
        self._type = self._old.name
        self._folder = f"nodes/{self._type}"
        info = new.dataset.manifest.node_types[self._type]
        self.info: NodeType = replace(info, count=info.count + nodes.num_new)
        self.num_names = dict(new.dataset.manifest.names)

    def write(self) -> NodeType:
        """Write all columns, and return what the manifest says of them. Raises SourceError for an invalid value."""
        info = self.info
        if info.features is not None:
            self._write_features(info.features)
        if info.labels is not None:
            self._write_labels(info.labels)
        with self._work.budget.reserve(_RESERVED, self._order_bytes()):
            self._write_splits()
        for name, attribute in info.attributes.items():
            if not attribute.stored_as:
                self._write_attribute(name, attribute)
        with self._work.budget.reserve(_RESERVED, self._order_bytes()):
            self._write_ids()
        return self.info

    def _order_bytes(self) -> int:
        """Return the memory of splits, and of positions, which only nodes in hot order have."""
        parts = (count for split in self.info.splits for count in split.values())
        of_parts = max(parts, default=0) + len(self._delta) if self._delta.splits is not None else 0
        has_positions = self._old.order == "hot" and len(self._delta)
        return _PART_BYTES * of_parts + (_POSITION_BYTES * self._old.num_nodes if has_positions else 0)

    def _write_features(self, info: FeatureInfo) -> None:
        relative, features = f"{self._folder}/features.bin", self._delta.features
        if features is None:
            self._new.share(relative)
            return
        is_new = self._delta.are_new
        num_changed = len(is_new) - int(is_new.sum())

        def encoded(wanted: NDArray[np.bool_]) -> Iterator[NDArray[np.uint8]]:
            first = 0
            blocks = tracked(features.blocks(), self._work.progress, "features", len(is_new))
            for block in encoded_rows(blocks, info.dtype, info.row_stride, features.where):
                yield block[wanted[first : first + len(block)]]
                first += len(block)

        if not num_changed:
            self._new.append(relative, encoded(is_new))
            return
        with self._work.budget.reserve(_RESERVED, 2 * num_changed * info.row_stride):
            values = np.concatenate(list(encoded(~is_new)))
            self._new.files.write(relative, chain(self._changed(relative, values), encoded(is_new)))

    def _write_labels(self, info: LabelInfo) -> None:
        relative, labels = f"{self._folder}/labels.bin", self._delta.labels
        num_new = self._delta.num_new
        if labels is None and not num_new:
            self._new.share(relative)
            return
        shape = (-1,) if info.kind == CLASSES else (-1, info.num_tasks)
        dtype, nothing = ("<i8", -1) if info.kind == CLASSES else ("<f4", np.nan)
        none = np.full((num_new, info.num_tasks or 1), nothing, dtype)
        if labels is None:
            self._new.files.write(
                relative, chain(stored_rows(self._path(relative), self._entry(relative), info.row_bytes), [none])
            )
            return
        with self._work.budget.reserve(_RESERVED, 3 * len(self._delta) * info.row_bytes):
            given = (block.reshape(shape) for block in labels.blocks())
            if info.kind != CLASSES and labels.shape[1] != info.num_tasks:
                raise SourceError(
                    f"{labels.where}: has {labels.shape[1]} columns of labels, and the nodes of "
                    f"{self._new.dataset.path} have {info.num_tasks}; give as many"
                )
            used = set[int]()
            if info.kind == CLASSES:
                values = np.concatenate(list(checked_labels(given, None, used, labels.where)))
                self._count_classes(info, used, labels)
            else:
                check = checked_values if info.kind == VALUES else checked_tasks
                values = np.concatenate(list(check(given, labels.where)))
            self._write_column(relative, values.astype(dtype), info.row_bytes)

    def _count_classes(self, info: LabelInfo, used: set[int], labels: Column) -> None:
        """Raise the number of classes to that of the labels; a label far beyond is a mistake, as in an import."""
        num_classes = max(info.num_classes, max(used, default=-1) + 1)
        names = self._new.dataset.names(CLASS_NAMES)
        if names is not None and num_classes > len(names):
            raise SourceError(
                f"{labels.where}: label {num_classes - 1} has no name, and the {len(names)} classes of the graph have; "
                "give a name, or import the whole graph again, which numbers classes by name"
            )
        if num_classes > 2 * (info.num_classes + len(used)):
            raise SourceError(
                f"{labels.where}: label {num_classes - 1} is out of range: the graph has {info.num_classes} classes; "
                "number classes from 0 without gaps"
            )
        self.info = replace(self.info, labels=replace(info, num_classes=num_classes))

    def _write_attribute(self, name: str, info: AttributeInfo) -> None:
        relative = attribute_file(self._folder, name)
        attribute = self._delta.attributes.get(name)
        if attribute is None or attribute.values is None:
            self._new.share(relative)
            return
        with self._work.budget.reserve(_RESERVED, 3 * len(self._delta) * info.row_bytes):
            blocks = [np.asarray(block) for block in attribute.values.blocks()]
            values = converted(np.concatenate(blocks), info.stored_dtype, attribute.values.where)
            self._write_column(relative, values, info.row_bytes)

    def _write_column(self, relative: str, values: NDArray[Any], row_bytes: int) -> None:
        """Write a column with the values of all nodes of the delta."""
        rows = as_rows(values, row_bytes)
        is_new = self._delta.are_new
        self._new.files.write(relative, chain(self._changed(relative, rows[~is_new]), [rows[is_new]]))

    def _changed(self, relative: str, values: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
        """Yield the old rows of a column, with the values of those that change. values: (changed nodes, row bytes)."""
        rows = self._delta.rows[~self._delta.are_new]
        order = np.argsort(rows)
        rows, first = rows[order], 0
        for block in stored_rows(self._path(relative), self._entry(relative), values.shape[1]):
            begin, stop = np.searchsorted(rows, [first, first + len(block)])
            block[rows[begin:stop] - first] = values[order[begin:stop]]
            yield block
            first += len(block)

    def _write_splits(self) -> None:
        """Write the parts of all splits: nodes of the delta leave their parts, and those that are in one are added.

        A part whose nodes are in the order of the source, as those of tables are, stays so.
        """
        if self._delta.splits is None:
            for number, split in enumerate(self.info.splits):
                for part in split:
                    self._new.share(self._split_file(part, number))
            return
        positions = None if self._old.order != "hot" else self._old.id_map().positions()
        num_old = self._old.num_nodes
        splits = []
        for number in range(len(self.info.splits)):
            counts = {}
            for part in SPLIT_NAMES:
                old = self._old.split_rows(part, number)
                kept = np.empty(0, np.int64) if old is None else old[~np.isin(old, self._delta.rows)]
                given = self._delta.splits.get(part)
                if given is None:
                    rows = np.asarray(kept)
                else:
                    places = np.concatenate(
                        [np.asarray(block, np.int64) for block in given[number].blocks()] or [kept[:0]]
                    )
                    rows = np.concatenate([kept, self._delta.rows[places]])
                    if old is None or _ascend(_positions(old, positions, num_old)):
                        rows = rows[np.argsort(_positions(rows, positions, num_old), kind="stable")]
                if len(rows):
                    counts[part] = len(rows)
                    self._new.files.write(self._split_file(part, number), [rows.astype("<i8")])
                elif old is not None:
                    raise SourceError(
                        f"{self._new.dataset.path}: no node would be left in split '{part}'; keep one in it"
                    )
            splits.append(counts)
        self.info = replace(self.info, splits=tuple(splits))

    def _write_ids(self) -> None:
        """Write ids and names: those of new nodes follow."""
        num_old, num_new = self._old.num_nodes, self._delta.num_new
        ids = self._old.original_ids()
        new_ids = self._delta.ids
        if new_ids is None:  # named nodes are numbered on
            first = num_old if ids is None else int(ids.max(initial=-1)) + 1
            new_ids = first + np.arange(num_new)
        if num_new and (ids is not None or not np.array_equal(new_ids, num_old + np.arange(num_new))):
            old_ids = (
                np.arange(start, stop) if ids is None else ids[start:stop]
                for start, stop in row_ranges(num_old, _IDS_PER_BLOCK)
            )
            self._new.files.write(f"{self._folder}/original_ids.bin", chain(old_ids, [new_ids.astype("<i8")]))
            self.info = replace(self.info, original_ids=True)
            self._write_positions(ids, new_ids)
        elif ids is not None:
            self._new.share(f"{self._folder}/original_ids.bin")
            if self.info.positions:
                self._new.share(f"{self._folder}/positions.bin")
        for what in self._new.dataset.manifest.names:
            relative = f"names/{what}.txt"
            if what == NAMES and num_new:
                assert self._delta.names is not None
                old = read_blocks(self._path(relative))
                self._new.files.write(relative, chain(old, [to_lines(self._delta.names)]))
                self.num_names[what] += num_new
            else:
                self._new.share(relative)

    def _write_positions(self, ids: NDArray[np.int64] | None, new_ids: NDArray[np.int64]) -> None:
        """Write the positions of nodes in hot order, where their ids do not tell: new nodes come last."""
        if self._old.order != "hot":
            return
        assert ids is not None, "nodes in hot order have original ids"
        ascend = _ascend(new_ids) and int(new_ids[0]) > int(ids.max(initial=-1))
        if not self.info.positions and ascend:
            return
        positions = self._old.id_map().positions()
        old = positions_of_ids(ids) if positions is None else positions
        new = len(ids) + np.arange(len(new_ids))
        self._new.files.write(f"{self._folder}/positions.bin", [old, new])
        self.info = replace(self.info, positions=True)

    def _split_file(self, part: str, number: int) -> str:
        return split_file(self._type, part, number, len(self.info.splits))

    def _path(self, relative: str) -> Path:
        return self._new.dataset.content / relative

    def _entry(self, relative: str) -> FileEntry:
        return self._new.dataset.manifest.files[relative]


def _ascend(values: NDArray[np.int64]) -> bool:
    return bool((np.diff(values) > 0).all())


def _positions(rows: NDArray[np.int64], of_row: NDArray[np.int64] | None, num_old: int) -> NDArray[np.int64]:
    """Return the positions of rows in the source; new nodes come last."""
    if of_row is None:
        return rows
    return np.where(rows < num_old, of_row[np.minimum(rows, num_old - 1)], rows)
