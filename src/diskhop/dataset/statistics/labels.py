"""Balance of labels, streamed: nodes by class, or ranges of the columns of tasks and values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.files import read_rows
from diskhop.dataset.node_set import NodeSet
from diskhop.dataset.statistics.columns import ColumnRanges
from diskhop.errors import FormatError
from diskhop.runtime.progress import Progress, silent, tracked

LABELS = "labels"


@dataclass(frozen=True, slots=True)
class LabelBalance:
    """Labels of nodes.

    kind: classes, tasks or values.
    num_labelled: nodes with a class, or labels that are not missing in all columns.
    by_class: nodes of each class; empty for tasks and values.
    ranges: of the columns of tasks and values; None for classes.
    """

    kind: str
    num_labelled: int
    by_class: NDArray[np.int64]
    ranges: ColumnRanges | None


def count_labels(nodes: NodeSet, progress: Progress = silent) -> LabelBalance | None:
    """Count the labels of nodes, in blocks; None without labels. Raises FormatError for a class out of range."""
    path = nodes.label_path
    if path is None:
        return None
    if nodes.num_tasks:
        ranges = ColumnRanges(nodes.num_tasks)
        rows = read_rows(path, 4 * nodes.num_tasks, nodes.num_nodes)
        for block in tracked(rows, progress, LABELS, nodes.num_nodes):
            ranges.add(block.view(np.float32))
        return LabelBalance(nodes.label_kind, int(ranges.num_finite.sum()), np.zeros(0, np.int64), ranges)
    by_class = np.zeros(nodes.num_classes, np.int64)
    for block in tracked(read_rows(path, 8, nodes.num_nodes), progress, LABELS, nodes.num_nodes):
        classes = block.view(np.int64).reshape(-1)
        for wrong in (int(classes.min(initial=-1)), int(classes.max(initial=-1))):
            if not -1 <= wrong < nodes.num_classes:
                raise FormatError(
                    f"{path}: has class {wrong}, must be from -1 to {nodes.num_classes - 1}; import the graph again"
                )
        known, counts = np.unique(classes[classes >= 0], return_counts=True)
        by_class[known] += counts
    return LabelBalance(nodes.label_kind, int(by_class.sum()), by_class, None)
