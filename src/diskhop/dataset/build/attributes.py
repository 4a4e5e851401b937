"""Writing attributes of nodes and edges: values as they are, of any dtype and shape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.attribute_info import ATTRIBUTE_NAME, AttributeInfo, attribute_file
from diskhop.dataset.build.files import DatasetFiles
from diskhop.errors import ConfigError, SourceError

NodesOrEdges = Literal["nodes", "edges"]


def write_attribute(
    files: DatasetFiles,
    folder: str,
    name: str,
    info: AttributeInfo,
    blocks: Iterable[NDArray[Any]],
    count: int,
    origin: str,
) -> None:
    """Write the values (count, *shape) of an attribute, unless it is stored as another column.

    folder: that of the nodes or edges. blocks: consecutive rows, in NumPy's dtype of the values; those of bfloat16 are
    bits, uint16. Raises ConfigError for a name that no file can have, SourceError for another number of rows.
    """
    if not ATTRIBUTE_NAME.fullmatch(name):
        raise ConfigError(f"attribute name {name!r} must be letters, digits and _ . + = -, at most 96; rename it")
    if info.stored_as:
        return
    written = files.write(attribute_file(folder, name), _as_stored(blocks, info))
    if written != count * info.row_bytes:
        found = written // info.row_bytes if info.row_bytes else 0
        raise SourceError(f"{origin}: has {found} values of '{name}' for {count} rows; give one for each")


def _as_stored(blocks: Iterable[NDArray[Any]], info: AttributeInfo) -> Iterator[NDArray[np.uint8]]:
    for block in blocks:
        yield np.ascontiguousarray(block, dtype=info.stored_dtype).reshape(-1).view(np.uint8)
