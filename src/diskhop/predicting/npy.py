"""Writes predictions as arrays, one .npy file per column, with the nodes in the order of dataset.node_ids().

Ids that are names are ids.txt, one per line, and classes with names are class.txt: lines as in name_lines.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from diskhop.dataset.name_lines import to_lines
from diskhop.dataset.sort.moved_rows import RowMover
from diskhop.predicting.arrow import single_values
from diskhop.predicting.files import ByteSink, PredictionFile
from diskhop.predicting.table import ID, PredictionTable
from diskhop.protocols import NodeRows
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.work_tools import WorkTools


class Arrays:
    """The format (see Format).

    Where the dataset's order differs from the source's, the values of a column move through the disk if they do not fit
    in memory. Columns are then written one after another, because moving uses the memory that is left.
    """

    def __init__(self, table: PredictionTable, work: WorkTools) -> None:
        self._table = table
        self._work = work
        self._places = table.places(work)
        self.most_threads = None if self._places is None else 1
        named = {"ids" if table.ids.are_names else "", "class" if table.class_names is not None else ""}
        self.files = []
        for word in (ID, *(column.name for column in table.columns)):
            stem = "ids" if word == ID else word
            name = f"{stem}.txt" if stem in named else f"{stem}.npy"
            self.files.append(PredictionFile(name=name, first=0, stop=table.count, words=(word,)))

    def write(self, file: PredictionFile, sink: ByteSink, threads: int) -> None:
        """Write a column (see Format)."""
        (word,) = file.words
        if word == ID:
            self._write_ids(sink)
            return
        column = next(each for each in self._table.columns if each.name == word)
        if word == "class" and self._table.class_names is not None:
            for rows in self._in_order(word, column.row_bytes, threads):
                sink.write(to_lines(single_values(self._table, word, rows.reshape(-1).view("<i8")).to_pylist()))
            return
        shape = (self._table.count, column.width) if column.width else (self._table.count,)
        sink.write(_header(column.dtype, shape))
        for rows in self._in_order(word, column.row_bytes, threads):
            sink.write(rows)

    def _write_ids(self, sink: ByteSink) -> None:
        if not self._table.ids.are_names:
            sink.write(_header("int64", (self._table.count,)))
        for first, stop in row_ranges(self._table.count, self._table.sizes.group_rows):
            ids = self._table.ids.of(self._rows(first, stop))
            sink.write(to_lines(ids.to_pylist()) if isinstance(ids, pa.Array) else _bytes_of(ids))

    def _rows(self, first: int, stop: int) -> NodeRows:
        """Return the rows of the nodes at some places of the source's order."""
        if self._places is None:
            return self._table.rows(first, stop)
        return self._table.rows_at(self._places.numbers[first:stop])

    def _in_order(self, word: str, row_bytes: int, threads: int) -> Iterator[NDArray[np.uint8]]:
        """Yield the bytes of a column (rows, row_bytes) in the order of the source."""

        def blocks() -> Iterator[NDArray[np.uint8]]:
            for group in self._table.groups(0, self._table.count, (word,), threads):
                yield _bytes_of(group[word]).reshape(-1, row_bytes)

        if self._places is None:
            yield from blocks()
            return
        work, places = self._work, self._places
        mover = RowMover(
            places.of_number,
            places.numbers,
            work=work.folder,
            budget=work.budget,
            tools=work.tools,
            progress=work.progress,
        )
        yield from mover.move(blocks, row_bytes, stage=f"move-{word}", key=self._table.key)


def _header(dtype: str, shape: tuple[int, ...]) -> bytes:
    header = BytesIO()
    descr = np.lib.format.dtype_to_descr(np.dtype(dtype).newbyteorder("<"))
    np.lib.format.write_array_header_1_0(header, {"descr": descr, "fortran_order": False, "shape": shape})
    return header.getvalue()


def _bytes_of(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of values, little-endian."""
    return np.ascontiguousarray(values, values.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)
