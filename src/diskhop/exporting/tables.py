"""Exports datasets as a Parquet table per type, with the schema.toml that `diskhop import` reads.

Tables are written by PyArrow in row groups of some MiB, because DuckDB writes no float16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, tee
from typing import TYPE_CHECKING, Any

import numpy as np
import tomli_w
from numpy.typing import NDArray

from diskhop.dataset.attribute_info import AttributeInfo
from diskhop.dataset.build.files import DatasetFiles
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.files import damaged
from diskhop.dataset.manifest import SPLIT_NAMES
from diskhop.dataset.names import read_names
from diskhop.errors import ConfigError
from diskhop.exporting.columns import EdgeColumns, NodeColumns
from diskhop.exporting.split_codes import split_codes
from diskhop.importing.tables.typed.schema import SCHEMA_NAME, split_ends
from diskhop.io.atomic import announce, destination_errors, sync_file
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.work_tools import WorkTools

if TYPE_CHECKING:
    import pyarrow as pa

_GROUP_BYTES = 4 << 20
_MOST_GROUP_ROWS = 1 << 17
# A row group as read, as Arrow has it and as it is encoded, and blocks of each column.
_WRITING_BYTES = 96 << 20
_ROLES = ("id", "name", "feature", "label", "split", "source", "destination", "weight")
_ATTRIBUTE_DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_FLOATS = ("float32", "float64")
_MASKS = dict(zip(SPLIT_NAMES, ("train_mask", "val_mask", "test_mask"), strict=True))

Section = dict[str, Any]


def is_exported(name: str, info: AttributeInfo) -> bool:
    """Return whether a table has a column for an attribute: it is one number, and no role has its name."""
    return info.shape == () and info.dtype in (*_ATTRIBUTE_DTYPES, *_FLOATS) and name not in _ROLES


def export_tables(dataset: Dataset, files: DatasetFiles, work: WorkTools) -> None:
    """See export_dataset."""
    if dataset.manifest.triples is not None or not dataset.edges:
        raise ConfigError(
            f"{dataset.path}: has triples or no edges, and format 'tables' cannot store that; use --format numpy"
        )
    nodes = {name: NodeColumns(dataset, name, work) for name in dataset.nodes}
    schema: dict[str, dict[str, Section]] = {"nodes": {}, "edges": {}}
    with work.budget.reserve("writing Parquet", _WRITING_BYTES):
        for name, columns in nodes.items():
            with work.budget.reserve("nodes of splits", columns.nodes.num_splits * columns.count):
                schema["nodes"][name] = _write_nodes(dataset, columns, files, work)
        for name, edge_set in dataset.edges.items():
            edges = EdgeColumns(dataset, name, nodes[edge_set.source], nodes[edge_set.destination], work)
            key, section = _edge_section(name, edge_set.source, edge_set.destination)
            ends = (nodes[edge_set.source], nodes[edge_set.destination])
            schema["edges"][key] = section | _write_edges(edges, key, ends, files, work)
    content = tomli_w.dumps(schema).encode()
    files.write(SCHEMA_NAME, [np.frombuffer(content, np.uint8)])


def _edge_section(name: str, source: str, destination: str) -> tuple[str, Section]:
    """Return the name of the section of an edge type, and the types that the name does not say."""
    ends = split_ends(name)
    if ends is not None and (ends[0], ends[2]) == (source, destination):
        return "__".join(ends), {}
    relation = name if "__" not in name else name.replace("__", "_")
    return relation, {"source_type": source, "destination_type": destination}


class _Column:
    """A column of a table: blocks of values, which are taken in pieces of other lengths.

    kind: "list", "label" (-1: none) or "text"; "": numbers. convert: makes the values to write of those that are read.
    """

    def __init__(self, name: str, blocks: Iterable[NDArray[Any]], kind: str = "") -> None:
        self.convert: Callable[[NDArray[Any]], NDArray[Any]] = lambda values: values
        self.name = name
        self.kind = kind
        self._blocks = iter(blocks)
        self._rest: NDArray[Any] | None = None

    def take(self, count: int) -> NDArray[Any]:
        """Return the next `count` rows."""
        block = next(self._blocks) if self._rest is None else self._rest
        parts: list[NDArray[Any]] = []
        while len(block) < count - sum(map(len, parts)):
            parts.append(block)
            block = next(self._blocks)
        # What is left is part of one block alone, not of all that were taken.
        missing = count - sum(map(len, parts))
        parts.append(block[:missing])
        self._rest = block[missing:]
        return self.convert(parts[0] if len(parts) == 1 else np.concatenate(parts))

    def row_bytes(self) -> int:
        """Return the bytes of a row, estimated for text."""
        if self._rest is None:
            self._rest = next(self._blocks)
        return 32 if self.kind == "text" else self._rest.itemsize * max(1, self._rest[:1].size)


def _write_nodes(dataset: Dataset, nodes: NodeColumns, files: DatasetFiles, work: WorkTools) -> Section:
    section: Section = {}
    columns: list[_Column] = []
    info = nodes.nodes
    names_key = _names_key(dataset, "nodes", nodes)
    if names_key in dataset.manifest.names:
        columns.append(_Column("name", _name_blocks(dataset, names_key, nodes.count), "text"))
        section["name"] = "name"
    if info.feature_dim:
        columns.append(_Column("feature", nodes.features(), "list"))
        if info.feature_dtype != "float32":
            section["dtype"] = info.feature_dtype
    section["features"] = "feature" if info.feature_dim else []
    if info.has_labels:
        class_names = dataset.names(_names_key(dataset, "classes", nodes))
        kind = "list" if info.num_tasks else "label"
        labels = nodes.labels() if class_names is None else _class_texts(nodes.labels(), class_names)
        columns.append(_Column("label", labels, kind if class_names is None else "text"))
        section |= {"label": "label", "label_kind": info.label_kind}
        if info.num_classes and class_names is None:
            section["num_classes"] = info.num_classes
    columns += _split_columns(nodes, section)
    attributes = [name for name, each in nodes.attributes().items() if is_exported(name, each)]
    columns += [_Column(name, nodes.attribute(name)) for name in attributes]
    if attributes:
        section["attributes"] = attributes
    if not columns and nodes.original is None:
        return {"count": nodes.count}
    ids = _Column("id", nodes.original_blocks())
    _write_table(f"nodes/{nodes.name}.parquet", [ids, *columns], nodes.count, files, work)
    return {"id": "id", **section}


def _split_columns(nodes: NodeColumns, section: Section) -> list[_Column]:
    """Return the column of a split, or masks for several splits and for nodes in two parts."""
    num_splits = nodes.nodes.num_splits
    codes = [split_codes(nodes, number) for number in range(num_splits)]
    if num_splits == 1 and np.isin(codes[0], (0, 1, 2, 4)).all():
        section["split"] = "split"
        texts = np.array(["", "train", "valid", "", "test"], object)
        return [_Column("split", (texts[codes[0][start:stop]] for start, stop in _ranges(nodes.count)), "text")]
    columns = []
    for number, code in enumerate(codes):
        for bit, part in enumerate(SPLIT_NAMES):
            name = f"{_MASKS[part]}_{number}" if num_splits > 1 else _MASKS[part]
            if any(nodes.split_length(part, each) for each in range(num_splits)):
                columns.append(_Column(name, _mask_blocks(code, bit)))
    return columns


def _mask_blocks(codes: NDArray[np.uint8], bit: int) -> Iterator[NDArray[np.bool_]]:
    for start, stop in _ranges(len(codes)):
        yield (codes[start:stop] >> bit & 1).astype(np.bool_)


def _write_edges(
    edges: EdgeColumns, key: str, ends: tuple[NodeColumns, NodeColumns], files: DatasetFiles, work: WorkTools
) -> Section:
    section: Section = {"source": "source", "destination": "destination"}
    values = [name for name in ("weight", "time") if name in edges.dtypes]
    section |= {name: name for name in values}
    names = ["source", "destination", *values]
    # Columns are taken in step, so that tee keeps a block at most.
    blocks = tee(edges.blocks(names), len(names))
    columns = [
        _Column(name, _column_of(each, place)) for place, (name, each) in enumerate(zip(names, blocks, strict=True))
    ]
    for column, nodes in zip(columns, ends, strict=False):
        column.convert = nodes.original_ids
    attributes = [name for name, each in edges.attributes().items() if is_exported(name, each) and name != "time"]
    columns += [_Column(name, edges.attribute(name)) for name in attributes]
    if attributes:
        section["attributes"] = attributes
    _write_table(f"edges/{key}.parquet", columns, edges.count, files, work)
    return section


def _column_of(blocks: Iterator[list[NDArray[Any]]], place: int) -> Iterator[NDArray[Any]]:
    return (block[place] for block in blocks)


def _names_key(dataset: Dataset, what: str, nodes: NodeColumns) -> str:
    """Return what a dataset calls names of these nodes, or of their classes."""
    return f"{what}.{nodes.name}" if dataset.is_typed else what


def _name_blocks(dataset: Dataset, key: str, count: int) -> Iterator[NDArray[Any]]:
    path = dataset.content / f"names/{key}.txt"
    names = read_names(path)
    for start, stop in _ranges(count):
        block = np.array([*islice(names, stop - start), None], object)[:-1]
        if len(block) < stop - start:
            raise damaged(path)
        yield block


def _class_texts(labels: Iterator[NDArray[Any]], names: list[str]) -> Iterator[NDArray[Any]]:
    texts = np.array([*names, ""], object)
    return (texts[block] for block in labels)


def _ranges(count: int) -> Iterator[tuple[int, int]]:
    return row_ranges(count, _MOST_GROUP_ROWS)


def _write_table(relative: str, columns: list[_Column], num_rows: int, files: DatasetFiles, work: WorkTools) -> None:
    """Write columns as the rows of a Parquet file. Raises DestinationError."""
    import pyarrow.parquet  # takes half a second and 30 MB, so only tables pay for it

    path = files.folder / relative
    path.parent.mkdir(exist_ok=True)
    injector = work.tools.injector
    with destination_errors(path):
        announce(injector, "write", path)
        row_bytes = sum(column.row_bytes() for column in columns)
        group_rows = max(1, min(_MOST_GROUP_ROWS, _GROUP_BYTES // row_bytes))
        # Dictionaries of numbers that hardly repeat take three times as long.
        texts: Any = [column.name for column in columns if column.kind == "text"]
        schema = _batch(columns, 0).schema
        with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd", use_dictionary=texts) as writer:
            for start, stop in row_ranges(num_rows, group_rows):
                writer.write_batch(_batch(columns, stop - start))
                work.progress(relative, stop, num_rows)
        sync_file(path, injector)


def _batch(columns: list[_Column], count: int) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = {}
    for column in columns:
        values = column.take(count)
        if column.kind == "list":
            flat = pa.array(np.ascontiguousarray(values).reshape(-1))
            arrays[column.name] = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
        elif column.kind == "label":
            arrays[column.name] = pa.array(values, mask=values < 0)
        elif column.kind == "text":
            arrays[column.name] = pa.array(values, pa.string())
        else:
            arrays[column.name] = pa.array(values)
    return pa.record_batch(arrays)
