"""Attributes of nodes and edges: values of any dtype and shape that a graph has by name, besides what diskhop reads.

An attribute has a file of its own, or it says how a column that the dataset has anyway is called in the source, and of
which dtype and shape it is there: labels that were `y` of shape (nodes, 1), weights that were called `edge_attr`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from diskhop.dataset.fields import Fields

# The dtype in which NumPy reads each dtype; bfloat16 has none of its own.
_STORED = {
    "bool": "?",
    "int8": "i1",
    "int16": "<i2",
    "int32": "<i4",
    "int64": "<i8",
    "uint8": "u1",
    "uint16": "<u2",
    "uint32": "<u4",
    "uint64": "<u8",
    "float16": "<f2",
    "bfloat16": "<u2",
    "float32": "<f4",
    "float64": "<f8",
}
ATTRIBUTE_DTYPES = tuple(_STORED)
# Short enough that the name of the file is as long as names may be.
ATTRIBUTE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=-]{0,95}")
MOST_DIMENSIONS = 16
_MOST_LENGTH = 1 << 24
_MOST_ROW_BYTES = 1 << 28


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeInfo:
    """An attribute of nodes or edges.

    dtype: one of ATTRIBUTE_DTYPES.
    shape: shape of the value of one node or edge; () for a number.
    stored_as: the column that has the values, 'features', 'labels', 'weights' or 'times'; '' for a file of its own.
    extra: unknown keys.
    """

    dtype: str
    shape: tuple[int, ...] = ()
    stored_as: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_values(self) -> int:
        """Values per node or edge."""
        return math.prod(self.shape)

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """Dtype in which NumPy reads values from a file of their own; those of bfloat16 are bits, uint16."""
        return np.dtype(_STORED[self.dtype])

    @property
    def row_bytes(self) -> int:
        """Bytes of the value of one node or edge."""
        return self.num_values * self.stored_dtype.itemsize

    def to_json(self) -> dict[str, Any]:
        """Return the JSON document of the manifest."""
        document = {**self.extra, "dtype": self.dtype, "shape": list(self.shape)}
        return document | ({"stored_as": self.stored_as} if self.stored_as else {})


def attribute_file(folder: str, name: str) -> str:
    """Return the path of an attribute's file. folder: that of the nodes or edges."""
    return f"{folder}/attributes/{name}.bin"


def attributes_json(attributes: Mapping[str, AttributeInfo]) -> dict[str, Any]:
    """Return the part of a manifest that lists attributes; none where there are none."""
    return {"attributes": {name: each.to_json() for name, each in attributes.items()}} if attributes else {}


def parse_attributes(fields: Fields) -> dict[str, AttributeInfo]:
    """Parse the attributes of a type of nodes or edges. Raises FormatError."""
    if not fields.has("attributes"):
        return {}
    attributes = {name: _parse(each) for name, each in fields.items("attributes", ATTRIBUTE_NAME)}
    if not attributes:
        raise fields.error("attributes", "must name at least one attribute, or be absent", {})
    return attributes


def require_columns(attributes: Mapping[str, AttributeInfo], columns: Mapping[str, int], fields: Fields) -> None:
    """Raise FormatError for an attribute stored as a column that is missing or has another number of values.

    columns: values per node or edge of each column.
    """
    for name, each in attributes.items():
        if each.stored_as and columns.get(each.stored_as) != each.num_values:
            rule = (
                f"has '{name}' stored as '{each.stored_as}', of which there are {columns.get(each.stored_as, 0)} values"
            )
            raise fields.error("attributes", rule, each.num_values)


def _parse(fields: Fields) -> AttributeInfo:
    dtype = fields.choice("dtype", ATTRIBUTE_DTYPES)
    shape = fields.lengths("shape", _MOST_LENGTH)
    stored_as = fields.text("stored_as") if fields.has("stored_as") else ""
    info = AttributeInfo(dtype=dtype, shape=shape, stored_as=stored_as, extra=fields.unread())
    if len(shape) > MOST_DIMENSIONS or info.row_bytes > _MOST_ROW_BYTES:
        rule = f"must have at most {MOST_DIMENSIONS} lengths, and {_MOST_ROW_BYTES} bytes in all"
        raise fields.error("shape", rule, list(shape))
    return info
