"""Writes what nodes have: features, labels, splits and original ids, in the order given or in hot order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.build.builder import DatasetBuilder
from diskhop.dataset.build.checks import checked_labels, checked_tasks, checked_values, encoded_rows
from diskhop.dataset.build.feature_ranges import FEATURES
from diskhop.dataset.encoding import row_bytes
from diskhop.dataset.manifest import VALUES
from diskhop.dataset.sort.hot_order import HotOrder
from diskhop.dataset.sort.moved_rows import RowMover
from diskhop.importing.columns import count_tasks, label_kind_of, stored_dtype
from diskhop.importing.options import ImportOptions
from diskhop.importing.source import Column, OriginalNames, SourceNodes
from diskhop.importing.tools import ImportTools
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.progress import tracked

_NODES_PER_BLOCK = 1 << 16


class MovedNodes:
    """Nodes that a hot order renumbered, and the mover of their rows. Its memory is reserved until `held` closes."""

    def __init__(self, order: HotOrder, identity: str, held: ExitStack, work: ImportTools) -> None:
        held.enter_context(work.budget.reserve("original ids", order.new_ids.nbytes))
        self.identity = identity
        self.new_ids = order.new_ids
        self.original_ids = order.original_ids()
        self.rows = RowMover(
            self.new_ids,
            self.original_ids,
            work=work.folder,
            budget=work.budget,
            tools=work.tools,
            progress=work.progress,
        )


class NodeWriter:
    """Writes the nodes of one type. moved: their new order; None: they stay in the source's order."""

    def __init__(
        self,
        node_type: str,
        nodes: SourceNodes,
        builder: DatasetBuilder,
        options: ImportOptions,
        moved: MovedNodes | None,
        work: ImportTools,
    ) -> None:
        self._type = node_type
        self._nodes = nodes
        self._builder = builder
        self._options = options
        self._moved = moved
        self._work = work

    def write_features(self) -> None:
        """Encode and write the features, if there are any."""
        features = self._nodes.features
        if features is None:
            return
        dtype, dim = stored_dtype(self._nodes, self._options), features.shape[1]
        if self._moved is None:
            with self._builder.naming(features.where):
                self._builder.add_feature_column(self._type, features, dtype=dtype)
            return

        def blocks() -> Iterator[NDArray[Any]]:
            return tracked(features.blocks(), self._work.progress, FEATURES, self._nodes.count)

        num_bytes = row_bytes(dtype, dim)
        key = f"{features.identity}\n{dtype}\n{self._moved.identity}"
        rows = self._moved.rows.move(
            lambda: encoded_rows(blocks(), dtype, num_bytes, features.where), num_bytes, stage=FEATURES, key=key
        )
        self._builder.add_encoded_features(self._type, rows, dim=dim, dtype=dtype)

    def write_labels(self) -> None:
        """Write the labels, of any kind, if there are any."""
        labels = self._nodes.labels
        if labels is None:
            return
        num_tasks, kind = count_tasks(labels), label_kind_of(labels)

        def given() -> Iterator[NDArray[Any]]:
            blocks = tracked(labels.blocks(), self._work.progress, "labels", self._nodes.count)
            # Labels are compared with -1, which NumPy refuses for booleans.
            numbers = (block.view(np.uint8) if block.dtype == np.bool_ else block for block in blocks)
            return numbers if num_tasks else (block.reshape(-1) for block in numbers)

        def checked() -> Iterator[NDArray[Any]]:
            if num_tasks:
                return (checked_values if kind == VALUES else checked_tasks)(given(), labels.where)
            return checked_labels(given(), self._nodes.num_classes, set(), labels.where)

        # The builder checks labels too, but only here is a node's number still the source's.
        blocks = given() if self._moved is None else self._moved_labels(labels, checked, num_tasks)
        with self._builder.naming(labels.where):
            if kind == VALUES:
                self._builder.add_values(self._type, blocks, num_tasks)
            elif num_tasks:
                self._builder.add_tasks(self._type, blocks, num_tasks)
            else:
                self._builder.add_labels(self._type, blocks, self._nodes.num_classes)

    def write_splits(self) -> None:
        """Write the ids of each split, in the order given."""
        new_ids = None if self._moved is None else self._moved.new_ids
        for part, splits in self._nodes.splits.items():
            for number, ids in enumerate(splits):
                with self._builder.naming(ids.where):
                    self._builder.add_split(self._type, part, ids.blocks(), number, len(splits), new_ids=new_ids)

    def write_attributes(self) -> None:
        """Write the attributes. A dtype that the user chose for features is that of `x` in batches, too."""
        for name, attribute in self._nodes.attributes.items():
            if name == "x" and self._options.dtype is not None:
                continue
            values = attribute.values
            if values is None:
                self._builder.add_attribute("nodes", self._type, name, attribute.info)
                continue
            with self._builder.naming(values.where):
                blocks = self._moved_values(values, attribute.info.row_bytes)
                self._builder.add_attribute("nodes", self._type, name, attribute.info, blocks)

    def write_original_ids(self) -> None:
        """Write the original id of each node, if the source or the hot order renumbered them."""
        if self._nodes.original is None and self._moved is None:
            return
        with ExitStack() as held:
            original = None if self._nodes.original is None else held.enter_context(self._nodes.original)
            order = "original" if self._moved is None else "hot"
            blocks = tracked(self._original_blocks(original), self._work.progress, "original ids", self._nodes.count)
            self._builder.add_original_ids(self._type, blocks, order=order)
        if self._moved is not None and self._nodes.original is not None and not self._nodes.original.ascend:
            positions = self._moved.original_ids
            blocks = (positions[start:stop] for start, stop in row_ranges(self._nodes.count, _NODES_PER_BLOCK))
            self._builder.add_positions(self._type, blocks)

    def _original_blocks(self, original: OriginalNames | None) -> Iterator[NDArray[Any]]:
        for start, stop in row_ranges(self._nodes.count, _NODES_PER_BLOCK):
            if self._moved is None:
                assert original is not None
                yield original.range(start, stop)
            else:
                numbers = self._moved.original_ids[start:stop]
                yield numbers if original is None else original.select(numbers)

    def _moved_labels(
        self, labels: Column, checked: Callable[[], Iterator[NDArray[Any]]], num_tasks: int
    ) -> Iterator[NDArray[Any]]:
        assert self._moved is not None
        dtype, shape = (np.float32, (-1, num_tasks)) if num_tasks else (np.int64, (-1,))
        num_bytes = np.dtype(dtype).itemsize * (num_tasks or 1)
        rows = self._moved.rows.move(
            lambda: (block.view(np.uint8).reshape(-1, num_bytes) for block in checked()),
            num_bytes,
            stage="labels",
            key=f"{labels.identity}\n{self._moved.identity}",
        )
        return (np.ascontiguousarray(block).view(dtype).reshape(shape) for block in rows)

    def _moved_values(self, values: Column, row_bytes: int) -> Iterator[NDArray[Any]]:
        """Yield an attribute in the order of the rows."""
        if self._moved is None or row_bytes == 0:
            return tracked(values.blocks(), self._work.progress, "attributes", self._nodes.count)
        rows = self._moved.rows.move(
            lambda: (
                np.ascontiguousarray(block, dtype=values.dtype).view(np.uint8).reshape(-1, row_bytes)
                for block in values.blocks()
            ),
            row_bytes,
            stage="attributes",
            key=f"{values.identity}\n{self._moved.identity}",
        )
        return (block.reshape(-1).view(values.dtype) for block in rows)
