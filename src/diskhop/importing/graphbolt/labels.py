"""Labels of the sets of GraphBolt tasks, brought to their nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.manifest import MOST_CLASSES
from diskhop.errors import SourceError
from diskhop.importing.arrays.npy import StoredArray
from diskhop.importing.columns import count_tasks
from diskhop.runtime.blocks import in_blocks, row_ranges

_SEEDS_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True)
class LabelledSeeds:
    """Seeds, and a label for each."""

    seeds: StoredArray
    labels: StoredArray

    def blocks(self) -> Iterator[tuple[int, NDArray[Any], NDArray[Any]]]:
        """Yield blocks: the number of the first seed, the seeds, and their labels (rows, columns)."""
        columns = self.labels.num_items // max(1, self.labels.shape[0])
        at_once = max(1, _SEEDS_AT_ONCE // max(1, columns))
        with self.seeds.open() as seeds, self.labels.open() as labels:
            for start, stop in row_ranges(self.seeds.shape[0], at_once):
                yield start, seeds.take(stop - start), labels.take((stop - start) * columns).reshape(-1, columns)


class ScatteredLabels:
    """Column of the labels of sets by node, -1 or NaN for other nodes. The caller has reserved its memory.

    labelled: seeds and labels of the sets.
    everywhere: labels of all nodes, if given too.
    num_nodes: number of nodes.
    """

    def __init__(self, labelled: Sequence[LabelledSeeds], everywhere: StoredArray | None, num_nodes: int) -> None:
        first = labelled[0].labels
        num_tasks = count_tasks(first)
        self.where = first.where
        arrays = [array for each in labelled for array in (each.seeds, each.labels)]
        self.identity = "\n".join(array.identity for array in arrays + ([] if everywhere is None else [everywhere]))
        if num_tasks:
            self._table: NDArray[Any] = np.full((num_nodes, num_tasks), np.nan, np.float32)
        else:
            self._table = np.full((num_nodes, 1), -1, np.int64)
        self.shape: tuple[int, ...] = self._table.shape
        self.dtype = self._table.dtype
        if everywhere is not None:
            first_node = 0
            for block in everywhere.blocks():
                nodes = np.arange(first_node, first_node + len(block))
                self._put(nodes, block.reshape(len(block), -1), everywhere.where)
                first_node += len(block)
        for each in labelled:
            for number, seeds, labels in each.blocks():
                bad = np.flatnonzero((seeds < 0) | (seeds >= num_nodes))
                if len(bad):
                    raise SourceError(
                        f"{each.seeds.where}: seed {number + int(bad[0])} is node {seeds[bad[0]]}, but nodes are "
                        f"numbered 0 to {num_nodes - 1}; correct the list"
                    )
                self._put(seeds.astype(np.int64), labels, each.labels.where)

    def blocks(self) -> Iterator[NDArray[Any]]:
        """See Column."""
        return in_blocks(self._table)

    def _put(self, nodes: NDArray[np.int64], labels: NDArray[Any], where: str) -> None:
        """Set the labels of nodes. Raises SourceError for a node that has another label already."""
        if labels.dtype == np.bool_:
            labels = labels.view(np.uint8)
        if self.dtype.kind == "i":
            # Labels out of range stay out of range, also those that int64 cannot represent.
            labels = np.clip(labels, -MOST_CLASSES if labels.dtype.kind == "i" else 0, MOST_CLASSES)
        values = labels.astype(self.dtype)
        is_known = ~self._is_missing(values)
        before = self._table[nodes]
        bad = np.argwhere(is_known & ~self._is_missing(before) & (before != values))
        if len(bad):
            row, column = bad[0]
            raise SourceError(
                f"{where}: says that node {nodes[row]} has label {values[row, column]}, another set says "
                f"{before[row, column]}; make them agree"
            )
        self._table[nodes] = np.where(is_known, values, before)

    def _is_missing(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        missing: NDArray[np.bool_] = np.isnan(values) if self.dtype.kind == "f" else values == -1
        return missing
