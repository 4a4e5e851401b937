"""Writing attributes of edges, which a source has by edge number, in the order of the sorted lists.

While the lists are written, the edge number of each entry goes to a file of the work folder. Then the values of one
attribute after the other are gathered by these numbers: from memory where they fit, else from a copy on disk. From
disk, the values of as many entries as memory allows are read at once, in the order of the copy, in long reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, File, RowReader
from diskhop.budget import Budget
from diskhop.dataset.attribute_info import AttributeInfo
from diskhop.dataset.build.builder import DatasetBuilder
from diskhop.dataset.build.edge_lists import NUMBERS_FILE
from diskhop.dataset.build.files import DatasetFiles
from diskhop.importing.source import Column, SourceAttribute, SourceEdges
from diskhop.importing.tools import ImportTools
from diskhop.io.streams import SequentialWriter
from diskhop.io.values import read_values
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.progress import tracked

_RESERVED = "edge attributes"
_BLOCK_BYTES = 4 << 20
_STAGING_BYTES = 4 << 20
_MOST_READ_BYTES = 1 << 20
# Reads closer than this are merged: far less than a read takes on any disk.
_GAP_BYTES = 32 << 10
# Per entry: its number, the distinct numbers and where each is among them, and the working memory of reading.
_BYTES_PER_ENTRY = 8 * 6 + 56
_LEAST_BYTES = 1 << 20
_ROWS_PER_READ = 1 << 16

# Values, uint8 (numbers, row bytes), of edges by number.
_Gather = Callable[[NDArray[np.int64]], NDArray[np.uint8]]


class EdgeAttributeWriter:
    """Writes the attributes of the edges of one type.

    numbers: where the builder must write the numbers of the edges; None if no attribute needs them.
    """

    def __init__(self, edge_type: str, edges: SourceEdges, builder: DatasetBuilder, work: ImportTools) -> None:
        self._type = edge_type
        self._edges = edges
        self._builder = builder
        self._work = work
        self._folder: Path | None = None
        self.numbers: DatasetFiles | None = None
        if any(each.values is not None for each in edges.attributes.values()):
            self._folder = work.stage(f"attributes-{edge_type}", edges.edges.identity)
            (self._folder / NUMBERS_FILE).unlink(missing_ok=True)
            self.numbers = DatasetFiles(self._folder, work.tools.engine, work.tools.injector)

    def write(self) -> None:
        """Write all attributes. Raises BudgetError, and SourceError for a wrong number of values."""
        for name, attribute in self._edges.attributes.items():
            if attribute.values is None or attribute.info.row_bytes == 0:
                self._builder.add_attribute("edges", self._type, name, attribute.info)
                continue
            with ExitStack() as held, self._builder.naming(attribute.values.where):
                blocks = self._blocks(attribute.values, attribute, held)
                counted = tracked(blocks, self._work.progress, "attributes", self._num_entries)
                self._builder.add_attribute("edges", self._type, name, attribute.info, counted)
        if self._folder is not None:
            (self._folder / NUMBERS_FILE).unlink(missing_ok=True)

    @property
    def _num_entries(self) -> int:
        assert self._folder is not None
        return (self._folder / NUMBERS_FILE).stat().st_size // 8

    def _blocks(self, values: Column, attribute: SourceAttribute, held: ExitStack) -> Iterator[NDArray[Any]]:
        """Return the values in the order of the lists, in blocks. Memory is reserved until `held` closes."""
        budget, row_bytes = self._work.budget, attribute.info.row_bytes
        num_values = values.shape[0]
        entries = max(1, _BLOCK_BYTES // row_bytes)
        gather = _from_memory(values, attribute.info)
        if gather is None and num_values * row_bytes <= budget.available_bytes // 2:
            held.enter_context(budget.reserve(_RESERVED, num_values * row_bytes))
            gather = _from_rows(_load(values, attribute.info))
        elif gather is None:
            gather = self._open_copy(values, attribute.info, held)
            entries = _entries_that_fit(budget, row_bytes)
        entries = min(entries, max(1, self._num_entries))
        held.enter_context(budget.reserve(_RESERVED, entries * (2 * row_bytes + _BYTES_PER_ENTRY)))
        return (
            gather(numbers).reshape(-1).view(attribute.info.stored_dtype).reshape(-1, *attribute.info.shape)
            for numbers in self._numbers(entries)
        )

    def _numbers(self, at_once: int) -> Iterator[NDArray[np.int64]]:
        assert self._folder is not None
        for start, stop in row_ranges(self._num_entries, at_once):
            yield read_values(self._folder / NUMBERS_FILE, "<i8", stop - start, offset=8 * start)

    def _open_copy(self, values: Column, info: AttributeInfo, held: ExitStack) -> _Gather:
        """Write the values to a file that rows can be read from."""
        assert self._folder is not None
        row_bytes = info.row_bytes
        path, engine = self._folder / "values.bin", self._work.tools.engine
        path.unlink(missing_ok=True)
        held.callback(lambda: path.unlink(missing_ok=True))
        held.enter_context(self._work.budget.reserve(_RESERVED, _STAGING_BYTES))
        pool = BufferPool(_STAGING_BYTES)
        with SequentialWriter(path, engine, pool, buffer_bytes=_STAGING_BYTES // 2) as writer:
            for block in values.blocks():
                writer.append(_as_bytes(block, info))
            writer.finish()
        file, num_rows = File(str(path), "read"), values.shape[0]
        reader = RowReader(
            engine, file, num_rows, row_bytes, row_bytes, _GAP_BYTES, _MOST_READ_BYTES, _STAGING_BYTES, pool
        )

        def gather(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
            distinct, places = np.unique(numbers, return_inverse=True)
            rows = np.empty((len(distinct), row_bytes), np.uint8)
            for start, stop in row_ranges(len(distinct), _ROWS_PER_READ):
                reader.read(distinct[start:stop], rows[start:stop])
            return rows[places]

        return gather


def _entries_that_fit(budget: Budget, row_bytes: int) -> int:
    left_bytes = budget.available_bytes - _STAGING_BYTES
    return max(1, max(_LEAST_BYTES, left_bytes) // (2 * row_bytes + _BYTES_PER_ENTRY))


def _from_memory(values: Column, info: AttributeInfo) -> _Gather | None:
    """Gather values that are in the memory of the caller; None: they are not."""
    array = getattr(values, "resident", None)
    if array is None:
        return None
    resident: NDArray[Any] = array
    return lambda numbers: _as_bytes(resident[numbers], info).reshape(len(numbers), info.row_bytes)


def _from_rows(rows: NDArray[np.uint8]) -> _Gather:
    return lambda numbers: rows[numbers]


def _load(values: Column, info: AttributeInfo) -> NDArray[np.uint8]:
    rows = np.empty((values.shape[0], info.row_bytes), np.uint8)
    filled = 0
    for block in values.blocks():
        rows[filled : filled + len(block)] = _as_bytes(block, info).reshape(len(block), info.row_bytes)
        filled += len(block)
    return rows


def _as_bytes(block: NDArray[Any], info: AttributeInfo) -> NDArray[np.uint8]:
    return np.ascontiguousarray(block, dtype=info.stored_dtype).reshape(-1).view(np.uint8)
