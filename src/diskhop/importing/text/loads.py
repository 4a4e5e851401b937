"""Sizes of an import from text, estimated from the files before they are read."""

from __future__ import annotations

from collections.abc import Sequence

from diskhop.importing.estimate import EDGES_PER_NODE, Load
from diskhop.importing.text.layout import RowLayout, TextFile
from diskhop.importing.text.streams import row_bytes, texts_bytes

_PAIR_BYTES = 8


def load_of_texts(files: Sequence[TextFile], layout: RowLayout) -> Load:
    """Estimate the load of texts of edges; unpacked text, rows of names and pairs stay in the work folder."""
    text, unpacked = texts_bytes(files)
    num_edges = int(text / row_bytes(files[0].path, files[0].rows_begin))
    load = Load(
        source_bytes=sum(file.num_bytes for file in files),
        inflated_bytes=unpacked,
        kept_bytes=unpacked + _PAIR_BYTES * num_edges,
        num_nodes=num_edges // EDGES_PER_NODE,
        num_edges=num_edges,
    )
    if layout.ids == "integer":
        return load + Load(pair_text_bytes=text)
    # As Parquet, rows and the list of names take from 0.3 to 1.5 times the bytes of the text.
    return load + Load(name_text_bytes=text, kept_bytes=text, name_bytes=text // (2 * EDGES_PER_NODE))
