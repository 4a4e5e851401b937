"""Writes predictions as tab-separated text: parts with a header each, and a column per value.

Names are always in double quotes, with their own doubled, so that tabs and line breaks in them survive. Numbers are
written with as many digits as give the same float32 back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from diskhop.predict.arrow import single_type, single_values
from diskhop.predict.columns import Column
from diskhop.predict.files import ByteSink, PredictionFile, part_files
from diskhop.predict.table import ID, PredictionTable
from diskhop.runtime.work_tools import WorkTools

# Maximum bytes of a number as text, with the tab: a float32, and an int64.
_FLOAT_BYTES, _INTEGER_BYTES = 16, 21


class TsvParts:
    """The format (see Format). The columns of a list are its word and a number, such as logits_0."""

    # Values, and the same by column.
    group_copies = 2
    most_threads = None

    def __init__(self, table: PredictionTable, work: WorkTools) -> None:
        self._table = table
        self._schema = _schema(table)
        self.files = part_files(table, ".tsv")

    @property
    def num_bytes(self) -> int:
        """See Format. Doubled quotes in names are not counted."""
        row_bytes = max(_INTEGER_BYTES, self._table.ids.mean_bytes + 3)
        for column in self._table.columns:
            row_bytes += (column.width or 1) * (_INTEGER_BYTES if column.dtype == "int64" else _FLOAT_BYTES)
        return self._table.count * row_bytes

    def write(self, file: PredictionFile, sink: ByteSink, threads: int) -> None:
        """Write a part (see Format)."""
        options = pyarrow.csv.WriteOptions(delimiter="\t", quoting_style="needed", quoting_header="none")
        with pyarrow.csv.CSVWriter(sink, self._schema, write_options=options) as writer:
            for group in self._table.groups(file.first, file.stop, file.words, threads):
                arrays = [single_values(self._table, ID, group[ID])]
                for column in self._table.columns:
                    arrays += self._by_value(column, group[column.name])
                writer.write_table(pa.table(arrays, schema=self._schema))

    def _by_value(self, column: Column, values: NDArray[Any]) -> list[Any]:
        if not column.width:
            return [single_values(self._table, column.name, values)]
        # Arrow writes no text of float16; every float16 is a float32.
        return list(np.ascontiguousarray(values.T.astype(np.float32, copy=False)))


def _schema(table: PredictionTable) -> pa.Schema:
    fields = [pa.field(ID, single_type(table, ID))]
    for column in table.columns:
        if column.width:
            fields += [pa.field(f"{column.name}_{number}", pa.float32()) for number in range(column.width)]
        else:
            fields.append(pa.field(column.name, single_type(table, column.name)))
    return pa.schema(fields)
