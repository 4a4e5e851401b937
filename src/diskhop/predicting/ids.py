"""Ids of nodes as the source has them: numbers, or names, found by the nodes' rows in bounded memory.

Names are in a file, one per line (see dataset/name_lines.py), in the order of the ids. They are looked up through the
places of the lines, which a task finds once and keeps on disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from diskhop.dataset.dataset import Dataset
from diskhop.dataset.files import map_array, read_blocks
from diskhop.dataset.id_map import positions_of_ids
from diskhop.dataset.name_lines import damaged_names, name_of
from diskhop.dataset.names import as_shown
from diskhop.errors import FormatError
from diskhop.io.values import read_values
from diskhop.predicting.sizes import ID_BYTES, RANKING_BYTES
from diskhop.protocols import NodeRows
from diskhop.runtime.tasks import TaskTools, run_tasks
from diskhop.runtime.work_tools import WorkTools

# Bytes of names that are copied at a time; each takes a place of 8 bytes and more.
_COPIED_BYTES = 1 << 20
# Bytes that are read for each wanted byte of names, at most.
_MOST_READ = 4
_PLACES_NAME = "lines"
_LINE_FEED = ord("\n")


class NodeIds:
    """The ids of a dataset's nodes. Thread-safe. Its memory stays reserved until work.held closes.

    are_names: whether nodes have names, which then are their ids.
    """

    def __init__(self, dataset: Dataset, work: WorkTools) -> None:
        names_file = dataset.names_file("nodes")
        self.are_names = names_file is not None
        num_nodes = dataset.num_nodes
        if dataset.has_original_ids:
            ranking_bytes = RANKING_BYTES if self.are_names else 0
            work.held.enter_context(work.budget.reserve("source ids", (ID_BYTES + ranking_bytes) * num_nodes))
        # The number of a name is the rank of the node's id.
        of_row = dataset.original_ids()
        self._of_row = positions_of_ids(of_row) if of_row is not None and self.are_names else of_row
        self._names: _Names | None = None
        if names_file is not None:
            self._names = _Names(dataset.content / names_file, num_nodes, dataset.hash, work)

    def of(self, rows: NodeRows) -> NDArray[np.int64] | pa.Array:
        """Return the ids of rows, in their order: int64, or a large_string array of names. Raises FormatError."""
        ids = rows if self._of_row is None else self._of_row[rows]
        return ids if self._names is None else self._names.of(ids)

    def shown(self, row: int) -> str:
        """Return the id of a row for a message."""
        ids = self.of(NodeRows(np.array([row])))
        return f"'{as_shown(ids[0].as_py())}'" if self.are_names else str(ids[0])


class _Names:
    """The names in a file by their numbers."""

    def __init__(self, path: Path, count: int, dataset_hash: str, work: WorkTools) -> None:
        self._path = path
        folder = work.stage("names", dataset_hash)
        run_tasks([_FindLines(_PLACES_NAME, path, count)], folder, work.tools, threads=1)
        self._starts = map_array(folder / _PLACES_NAME, np.int64, count + 1)
        self._content = map_array(path, np.uint8, int(self._starts[-1]))

    def of(self, numbers: NDArray[np.int64]) -> pa.Array:
        # In the order of the file, each of its pages is read at most once.
        order = np.argsort(numbers, kind="stable")
        in_file = numbers[order]
        starts = self._starts[in_file]
        lengths = self._starts[in_file + 1] - 1 - starts
        names = self._copied(starts, lengths)
        try:
            names.validate(full=True)
        except pa.ArrowInvalid:
            raise damaged_names(self._path) from None
        names = self._unescaped(names)
        if (np.diff(order) > 0).all():
            return names
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return names.take(pa.array(back))

    def _unescaped(self, lines: pa.Array) -> pa.Array:
        """Return the names on lines."""
        is_escaped = pc.match_substring(lines, "\\")
        if not pc.any(is_escaped).as_py():
            return lines
        try:
            names = list(map(name_of, lines.filter(is_escaped).to_pylist()))
        except ValueError:
            raise damaged_names(self._path) from None
        return pc.replace_with_mask(lines, is_escaped, pa.array(names, lines.type))

    def _copied(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> pa.Array:
        offsets = np.zeros(len(starts) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        content = np.empty(offsets[-1], np.uint8)
        first = 0
        while first < len(starts):
            # At least one name, however long.
            last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + _COPIED_BYTES, side="right")) - 1)
            begin, end = int(starts[first]), int(starts[last - 1] + lengths[last - 1])
            span = self._read(begin, end, int(offsets[last] - offsets[first]))
            if last == first + 1:
                content[offsets[first] : offsets[last]] = span
            else:
                shifts = starts[first:last] - begin - offsets[first:last]
                places = np.arange(offsets[first], offsets[last]) + np.repeat(shifts, lengths[first:last])
                content[offsets[first] : offsets[last]] = span[places]
            first = last
        return pa.LargeStringArray.from_buffers(len(starts), pa.py_buffer(offsets), pa.py_buffer(content))

    def _read(self, begin: int, end: int, wanted_bytes: int) -> NDArray[np.uint8]:
        """Return a range of the file: read if most of it is wanted, else mapped, so that only its pages are read."""
        if end - begin <= _MOST_READ * max(1, wanted_bytes):
            return read_values(self._path, np.uint8, end - begin, offset=begin)
        return self._content[begin:end]


@dataclass(frozen=True, slots=True)
class _FindLines:
    """Writes where each line of a file begins, and where the file ends: int64 (count + 1).

    name: name of the output.
    names: the file.
    count: number of its lines.
    """

    name: str
    names: Path
    count: int

    def write(self, path: Path, tools: TaskTools) -> None:
        """See Task. Raises FormatError for another number of lines."""
        begin = num_lines = 0
        with path.open("wb") as file:
            np.zeros(1, np.int64).tofile(file)
            for block in read_blocks(self.names):
                ends = np.flatnonzero(block == _LINE_FEED) + 1 + begin
                ends.astype(np.int64).tofile(file)
                begin += len(block)
                num_lines += len(ends)
        if num_lines != self.count:
            raise FormatError(
                f"{self.names}: has {num_lines:,} lines for {self.count:,} nodes; copy or import the dataset again"
            )
