"""Writes predictions as a Parquet dataset: parts with a range of the nodes each, in the dataset's order.

Ids are delta encoded, names compressed, classes encoded by a dictionary. Floats are stored plain: to compress them
takes more time than to write what it saves (docs/log.md).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from diskhop.predicting.arrow import single_type, single_values
from diskhop.predicting.columns import Column
from diskhop.predicting.files import ByteSink, PredictionFile, part_files
from diskhop.predicting.table import ID, Group, PredictionTable
from diskhop.runtime.arrow import plain_values
from diskhop.runtime.work_tools import WorkTools

# Values that PyArrow encodes at a time: its default of 1024 takes a tenth longer for lists.
_BATCH_VALUES = 1 << 14


class ParquetParts:
    """The format (see Format)."""

    most_threads = None

    def __init__(self, table: PredictionTable, work: WorkTools) -> None:
        self._table = table
        self._schema = _schema(table)
        self.files = part_files(table, ".parquet")

    def write(self, file: PredictionFile, sink: ByteSink, threads: int) -> None:
        """Write a part, with a row group for each group of the table (see Format)."""
        table = self._table
        with pq.ParquetWriter(
            sink,
            self._schema,
            compression=self._compression(),
            use_dictionary=["class"] if "class" in file.words else False,
            column_encoding=None if table.ids.are_names else {ID: "DELTA_BINARY_PACKED"},
            # No query skips lists by their smallest value, and finding it takes time.
            write_statistics=[ID, *(column.name for column in table.columns if not column.width)],
            write_batch_size=_BATCH_VALUES,
        ) as writer:
            for group in table.groups(file.first, file.stop, file.words, threads):
                arrays = [single_values(table, ID, group[ID]), *(self._column(each, group) for each in table.columns)]
                writer.write_table(
                    pa.Table.from_arrays(arrays, schema=self._schema), row_group_size=table.sizes.group_rows
                )

    def _compression(self) -> dict[str, str]:
        """Return the compression of each column, by its path in the file."""
        paths = [f"{column.name}.list.element" if column.width else column.name for column in self._table.columns]
        return {ID: "zstd" if self._table.ids.are_names else "none", **dict.fromkeys(paths, "none")}

    def _column(self, column: Column, group: Group) -> pa.Array:
        values = group[column.name]
        if not column.width:
            return single_values(self._table, column.name, values)
        return pa.FixedSizeListArray.from_arrays(plain_values(values.reshape(-1)), column.width)


def _schema(table: PredictionTable) -> pa.Schema:
    fields = [pa.field(ID, single_type(table, ID))]
    for column in table.columns:
        if column.width:
            dtype = pa.list_(pa.from_numpy_dtype(np.dtype(column.dtype)), column.width)
        else:
            dtype = single_type(table, column.name)
        fields.append(pa.field(column.name, dtype))
    return pa.schema(fields)
