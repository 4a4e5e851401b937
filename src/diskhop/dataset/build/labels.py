"""Writing the labels of nodes: classes, or columns of tasks or values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

from diskhop.dataset.build.checks import checked_labels, checked_tasks, checked_values, count_classes
from diskhop.dataset.build.files import DatasetFiles
from diskhop.dataset.manifest import LabelInfo
from diskhop.errors import SourceError

Blocks = Iterable[NDArray[Any]]


def write_classes(
    files: DatasetFiles, node_type: str, blocks: Blocks, num_classes: int | None, origin: str
) -> tuple[int, LabelInfo]:
    """Write classes (rows), -1 for none, and return the number of rows. num_classes: None: the highest + 1."""
    used = set[int]()
    written = files.write(_path(node_type), checked_labels(blocks, num_classes, used, origin))
    found = count_classes(used, origin) if num_classes is None else num_classes
    return written // 8, LabelInfo(num_classes=found, num_tasks=0)


def write_tasks(
    files: DatasetFiles, node_type: str, blocks: Blocks, num_tasks: int, origin: str
) -> tuple[int, LabelInfo]:
    """Write columns of 0 and 1, NaN for none, and return the number of rows."""
    return _write_columns(files, node_type, checked_tasks(blocks, origin), num_tasks, origin, are_values=False)


def write_values(
    files: DatasetFiles, node_type: str, blocks: Blocks, num_columns: int, origin: str
) -> tuple[int, LabelInfo]:
    """Write columns of any finite numbers, NaN for none, and return the number of rows."""
    return _write_columns(files, node_type, checked_values(blocks, origin), num_columns, origin, are_values=True)


def _write_columns(
    files: DatasetFiles, node_type: str, blocks: Blocks, num_columns: int, origin: str, *, are_values: bool
) -> tuple[int, LabelInfo]:
    if num_columns < 1:
        raise SourceError(f"{origin}: labels have {num_columns} columns; give at least one")
    written = files.write(_path(node_type), blocks)
    return written // (4 * num_columns), LabelInfo(num_classes=0, num_tasks=num_columns, are_values=are_values)


def _path(node_type: str) -> str:
    return f"nodes/{node_type}/labels.bin"
