"""Columns of tables that are kept by their names, as attributes of nodes or edges: numbers of the column's own type."""

from __future__ import annotations

from collections.abc import Sequence

from diskhop.dataset.attribute_info import AttributeInfo
from diskhop.importing.source import SourceAttribute
from diskhop.importing.tables.files import TableColumn
from diskhop.importing.tables.rows import TableRows, TableValues
from diskhop.importing.tables.values import flag_value, number_value, time_value, whole_value
from diskhop.importing.tools import ImportTools

# Types of DuckDB that NumPy has too; of others, whole numbers are int64 and numbers float64.
_DTYPES = {
    "TINYINT": "int8",
    "SMALLINT": "int16",
    "INTEGER": "int32",
    "UTINYINT": "uint8",
    "USMALLINT": "uint16",
    "UINTEGER": "uint32",
    "UBIGINT": "uint64",
    "FLOAT": "float32",
}
_DTYPE_OF_KIND = {"integer": "int64", "time": "int64", "boolean": "bool", "number": "float64"}


def open_attributes(rows: TableRows, columns: Sequence[TableColumn], work: ImportTools) -> dict[str, SourceAttribute]:
    """Return the attributes of some columns, by name. Missing floats are NaN; other values must not be missing."""
    found = {}
    for column in columns:
        dtype = _DTYPES.get(column.stored, _DTYPE_OF_KIND[column.kind])
        values = TableValues(rows, _value_of(column), dtype, work, column=column)
        found[column.name] = SourceAttribute(info=AttributeInfo(dtype=dtype), values=values)
    return found


def _value_of(column: TableColumn) -> str:
    if column.kind == "time":
        return time_value(column)
    if column.kind == "boolean":
        return flag_value(column)
    return whole_value(column) if column.kind == "integer" else number_value(column)
