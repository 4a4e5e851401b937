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

from diskhop.predicting.arrow import single_type, single_values
from diskhop.predicting.columns import Column
from diskhop.predicting.files import ByteSink, PredictionFile, part_files
from diskhop.predicting.table import ID, PredictionTable
from diskhop.runtime.work_tools import WorkTools


class TsvParts:
    """The format (see Format). The columns of a list are its word and a number, such as logits_0."""

    most_threads = None

    def __init__(self, table: PredictionTable, work: WorkTools) -> None:
        self._table = table
        self._schema = _schema(table)
        self.files = part_files(table, ".tsv")

    def write(self, file: PredictionFile, sink: ByteSink, threads: int) -> None:
        """Write a part (see Format)."""
        options = pyarrow.csv.WriteOptions(delimiter="\t", quoting_style="needed", quoting_header="none")
        with pyarrow.csv.CSVWriter(sink, self._schema, write_options=options) as writer:
            for group in self._table.groups(file.first, file.stop, file.words, threads):
                arrays = [single_values(self._table, ID, group[ID])]
                for column in self._table.columns:
                    arrays += self._by_value(column, group[column.name])
                writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))

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
