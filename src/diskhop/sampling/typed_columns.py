"""Weights and times of graphs with types: one column of all nodes or edges in merged order (dataset/type_map.py).

A column has a number for every node or edge. Types that lack it are filled: edges without a weight weigh 1, and nodes
or edges without a time are earlier than any seed, as in PyG. The file is derived from the dataset, in one pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from diskhop.dataset.attribute_set import StoredColumn
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edge_set import ColumnFile, TopologyFiles
from diskhop.dataset.merge import MergeTools
from diskhop.dataset.merged import VERSION
from diskhop.dataset.summed_files import FILES, check_files, sum_files
from diskhop.dataset.type_map import TypeMap
from diskhop.derived.clean import MERGED_FILE
from diskhop.derived.make import make_derived, make_once
from diskhop.errors import ConfigError, FormatError
from diskhop.io.atomic import require_free_space, syncing, write_file
from diskhop.io.locks import keep_directory
from diskhop.io.manifests import encode_manifest, read_manifest
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.tasks import WorkFolder
from diskhop.sampling.columns import TIMES, WEIGHTS, ColumnUse, is_readable, number_column

_VALUES = "values.bin"
_REMEDY = "remove the folder, and it is made again"
_BLOCK = 1 << 18
# Positions of edges, and numbers as stored and as converted.
_BLOCK_BYTES = 40 * _BLOCK
_FILLED = {WEIGHTS: 1, TIMES: np.iinfo(np.int64).min}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Merged:
    """A column by type, in the order of the numbers.

    of: 'nodes' or 'edges'.
    parts: the column of each type; None for a type without it.
    dtype: dtype of the merged numbers.
    """

    of: str
    parts: tuple[StoredColumn | None, ...]
    dtype: np.dtype[Any]


def find_merged_column(dataset: Dataset, files: TopologyFiles, wanted: ColumnUse, tools: MergeTools) -> ColumnFile:
    """Locate a column of merged lists by the name that a user gave; it is made if it is not there yet.

    Raises ConfigError for a name that no type has, or that nodes and edges have, and for numbers that cannot be read.
    """
    types = files.types
    assert types is not None
    merged = _find(dataset, types, wanted)
    key = json.dumps({"lists": str(files.indices_path.parent.name), "dataset": dataset.hash, **wanted._asdict()})
    folder = tools.scratch / f"merged-{xxhash.xxh3_64_intdigest(key.encode()):016x}"
    num_values = types.num_edges if merged.of == "edges" else types.total_nodes
    num_bytes = merged.dtype.itemsize * num_values

    def build(made: Path, _work: WorkFolder) -> None:
        require_free_space(made, num_bytes, f"merged {wanted.use}")
        path = made / _VALUES
        write_file(path, b"", tools.injector)
        with (
            tools.budget.reserve(f"merging {wanted.use}", _BLOCK_BYTES),
            syncing(path, tools.injector),
            path.open("wb") as file,
        ):
            for block in _blocks(merged, files, types, _FILLED[wanted.use]):
                file.write(block.tobytes())
        content = {"of": key, FILES: sum_files(made, (_VALUES,))}
        write_file(made / MERGED_FILE, encode_manifest(content, VERSION), tools.injector)

    make_once(folder, lambda: make_derived(folder, key, build, tools.injector), tools.progress)
    lock = keep_directory(folder)
    content = read_manifest(folder / MERGED_FILE, VERSION, f"merged {wanted.use}", _REMEDY)
    if content.get("of") != key:
        raise FormatError(f"{folder}: has another column than its name says; {_REMEDY}")
    check_files(folder / MERGED_FILE, content, _REMEDY)
    return ColumnFile(
        use=wanted.use,
        name=wanted.name,
        of=merged.of,
        path=folder / _VALUES,
        dtype=merged.dtype,
        num_values=num_values,
        lock=lock,
    )


def _find(dataset: Dataset, types: TypeMap, wanted: ColumnUse) -> _Merged:
    edges = {name: number_column(each, wanted) for name, each in dataset.edges.items()}
    nodes = {name: number_column(each, wanted) if wanted.use == TIMES else None for name, each in dataset.nodes.items()}
    found = {of: columns for of, columns in (("edges", edges), ("nodes", nodes)) if any(columns.values())}
    if len(found) > 1:
        raise ConfigError(
            f"{dataset.path}: '{wanted.name}' is an attribute of nodes and of edges, and times are of one of them; "
            "import the graph without the other"
        )
    if not found:
        raise ConfigError(
            f"{dataset.path}: no type has {wanted.use} '{wanted.name}' of one number each; see the attributes with: "
            "diskhop inspect"
        )
    ((of, columns),) = found.items()
    _require_readable(dataset, columns, wanted)
    dtypes = {column.dtype for column in columns.values() if column is not None}
    dtype = np.dtype(np.int64) if wanted.use == TIMES else np.result_type(*dtypes)
    names = [each.name for each in types.edges] if of == "edges" else list(types.node_types)
    return _Merged(of=of, parts=tuple(columns[name] for name in names), dtype=dtype)


def _require_readable(dataset: Dataset, columns: Mapping[str, StoredColumn | None], wanted: ColumnUse) -> None:
    for name, column in columns.items():
        if column is not None and not is_readable(column, wanted.use):
            kind = "numbers" if wanted.use == WEIGHTS else "whole numbers"
            raise ConfigError(
                f"{dataset.path}: {wanted.use} must be {kind} of up to 8 bytes, '{wanted.name}' of {name} is "
                f"{column.dtype.name}; convert the attribute and import the graph again"
            )


def _blocks(merged: _Merged, files: TopologyFiles, types: TypeMap, filled: int) -> Iterator[NDArray[Any]]:
    """Yield the numbers of all types, one type after the other."""
    starts = types.edge_starts if merged.of == "edges" else types.node_starts
    for number, column in enumerate(merged.parts):
        values = None if column is None else column.map().reshape(-1)
        for first, end in row_ranges(int(starts[number + 1] - starts[number]), _BLOCK):
            if values is None:
                yield np.full(end - first, filled, merged.dtype)
            elif merged.of == "edges" and types.edges[number].is_reverse:
                assert files.reverse is not None
                yield values[files.reverse.positions(types, number, np.arange(first, end))].astype(merged.dtype)
            else:
                yield values[first:end].astype(merged.dtype)
