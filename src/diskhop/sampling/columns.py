"""Weights and times that samplers draw by: found by name, and open in memory, mapped or read by a scan.

A column is where the neighbour lists are. In memory and mapped, it is one array. For lists that exceed memory, columns
of edges stay on the disk, and a shared scan reads the numbers of whole lists; columns of nodes are in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Column, Engine, File, SharedScan
from diskhop.budget import Budget
from diskhop.dataset.attribute_set import StoredColumn
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edge_set import ColumnFile, EdgeSet
from diskhop.dataset.node_set import NodeSet
from diskhop.errors import ConfigError
from diskhop.runtime.process import keep_after_fork
from diskhop.sampling.whole_files import check_length, open_bytes
from diskhop.system.memory import buffer_bytes
from diskhop.system.resident import ResidentMemory

WEIGHTS, TIMES = "weights", "times"
# Buffer of reads. Measured: four times as much makes no difference, a quarter leaves the disk idle.
SCAN_BYTES = 4 << 20
MAX_READ_BYTES = 512 << 10
# Every plan has room for it before batches are in flight.
_CHECK_BYTES = 1 << 20

ColumnMode = Literal["memory", "mapped", "cached"]
_IMPORT = {WEIGHTS: "--weight COLUMN", TIMES: "--time COLUMN"}
# Kinds of NumPy's dtypes.
_KINDS = {WEIGHTS: "iuf", TIMES: "iu"}
_READ_DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float32", "float64")


class ColumnUse(NamedTuple):
    """The use of a column to a sampler, WEIGHTS or TIMES, and the column's name."""

    use: str
    name: str


class OpenColumn(NamedTuple):
    """A column and where it comes from."""

    file: ColumnFile
    numbers: Column


# By use; a sampler has at most one column of each.
Columns = Mapping[str, OpenColumn]


def find_column(dataset: Dataset, wanted: ColumnUse) -> ColumnFile:
    """Locate a column by the name that a user gave. Raises ConfigError, naming the columns that could be meant.

    All names of weights and times are resolved here: attributes of the source, and 'weights' and 'times' for what the
    dataset stores as such. Weights are of edges, times of nodes or edges.
    """
    if dataset.types is not None:
        return _merged_column(dataset, wanted)
    # Both raise ConfigError for a graph of several types.
    counts = {"edges": dataset.topology.num_edges, "nodes": dataset.num_nodes}
    (edges,), (nodes,) = dataset.edges.values(), dataset.nodes.values()
    of_sets: dict[str, EdgeSet | NodeSet] = {"edges": edges}
    if wanted.use == TIMES:
        of_sets["nodes"] = nodes
    found = {of: column for of, each in of_sets.items() if (column := number_column(each, wanted)) is not None}
    if len(found) > 1:
        raise ConfigError(
            f"{dataset.path}: '{wanted.name}' is an attribute of nodes and of edges, and times are of one of them; "
            "import the graph without the other"
        )
    if not found:
        known = _readable_names(of_sets, wanted.use)
        if not known:
            raise ConfigError(
                f"{dataset.path}: has no {wanted.use} to sample by, and '{wanted.name}' is wanted; "
                f"import the graph with {_IMPORT[wanted.use]}"
            )
        raise ConfigError(
            f"{dataset.path}: has no {wanted.use} '{wanted.name}' of one number each; it has {', '.join(known)}"
        )
    ((of, column),) = found.items()
    if not is_readable(column, wanted.use):
        kind = "numbers" if wanted.use == WEIGHTS else "whole numbers"
        raise ConfigError(
            f"{dataset.path}: {wanted.use} must be {kind} of up to 8 bytes, '{wanted.name}' is {column.dtype.name}; "
            "convert the attribute and import the graph again"
        )
    return ColumnFile(
        use=wanted.use,
        name=wanted.name,
        of=of,
        path=column.table.path,
        dtype=column.dtype,
        num_values=counts[of],
        edge_ids=dataset.edge_ids() if of == "edges" else None,
    )


def _merged_column(dataset: Dataset, wanted: ColumnUse) -> ColumnFile:
    """Return a column of merged lists, which has been made with them (sampling/typed_columns.py)."""
    for column in dataset.topology.columns:
        if (column.use, column.name) == wanted:
            return column
    raise ConfigError(f"{dataset.path}: the lists of its types were merged without the {wanted.use} '{wanted.name}'")


def number_column(of: EdgeSet | NodeSet, wanted: ColumnUse) -> StoredColumn | None:
    """Return the attribute with the wanted name, or the column that is stored as its use; None without numbers."""
    name = wanted.name
    if name == wanted.use and name not in of.attributes:
        stored = [own for own, info in of.attributes.items() if info.stored_as == name]
        name = stored[0] if stored else name
    column = of.column(name)
    if column is None or column.info.num_values != 1 or column.info.dtype in ("bool", "bfloat16"):
        return None
    return column


def is_readable(column: StoredColumn, use: str) -> bool:
    """Return whether a sampler can draw by the numbers of a column."""
    return column.dtype.kind in _KINDS[use] and column.dtype.name in _READ_DTYPES


def _readable_names(of_sets: Mapping[str, EdgeSet | NodeSet], use: str) -> list[str]:
    """List the attributes that can be read, as "'time' of nodes"."""
    return [
        f"'{name}' of {of}"
        for of, each in of_sets.items()
        for name in each.attributes
        if (column := number_column(each, ColumnUse(use, name))) is not None and is_readable(column, use)
    ]


def columns_bytes(files: Iterable[ColumnFile], mode: ColumnMode) -> dict[str, int]:
    """Bytes that open_columns() reserves, by name."""
    return {file.label: num_bytes for file in files if (num_bytes := _bytes_of(file, mode)) > 0}


def _bytes_of(file: ColumnFile, mode: ColumnMode) -> int:
    if mode == "mapped":
        return 0
    return buffer_bytes(file.num_bytes) if _is_whole(file, mode) else buffer_bytes(SCAN_BYTES)


def _is_whole(file: ColumnFile, mode: ColumnMode) -> bool:
    """Check whether a column is one array, which a scan of no rows cannot be."""
    return mode != "cached" or file.of == "nodes" or file.num_values == 0


@contextmanager
def open_columns(
    files: Iterable[ColumnFile],
    mode: ColumnMode,
    engine: Engine,
    budget: Budget,
    pool: BufferPool | None = None,
    max_gap_bytes: int = 0,
    memory: ResidentMemory | None = None,
) -> Iterator[Columns]:
    """Open columns next to the lists that are open in the same mode; memory is reserved until the context ends.

    pool, max_gap_bytes: of scans. memory: of columns that are read whole with all lists, see open_topology().

    Raises BudgetError, ReadError, and FormatError for a file of another length.
    """
    with ExitStack() as opened:
        columns: dict[str, OpenColumn] = {}
        for file in files:
            opened.enter_context(budget.reserve(file.label, _bytes_of(file, mode), is_shared=memory is not None))
            dtype = file.dtype.name
            if _is_whole(file, mode):
                whole_mode: Literal["memory", "mapped"] = "mapped" if mode == "mapped" else "memory"
                numbers = Column(open_bytes(file.path, file.num_bytes, whole_mode, engine, memory), dtype)
            else:
                check_length(file.path, file.num_bytes)
                scan = _open_scan(file, engine, pool or BufferPool(0), max_gap_bytes)
                opened.callback(scan.close)
                numbers = Column(scan, dtype)
            columns[file.use] = OpenColumn(file, numbers)
        yield columns


def _open_scan(file: ColumnFile, engine: Engine, pool: BufferPool, max_gap_bytes: int) -> SharedScan:
    width = file.dtype.itemsize
    scan = SharedScan(
        engine,
        File(str(file.path), "read"),
        file.num_values,
        width,
        width,
        max_gap_bytes,
        MAX_READ_BYTES,
        SCAN_BYTES,
        pool,
    )
    return keep_after_fork(scan)


def check_weights(files: Iterable[ColumnFile], engine: Engine, budget: Budget) -> None:
    """Read weights from front to back once. Raises ConfigError for one that cannot be a probability."""
    for file in files:
        if file.use == WEIGHTS:
            with budget.reserve("checking weights", _CHECK_BYTES):
                refuse_weights(file, _blocks_of(file, engine))


def _blocks_of(file: ColumnFile, engine: Engine) -> Iterator[NDArray[np.uint8]]:
    """Read a column from front to back; a block is valid until the next is requested."""
    opened = File(str(file.path), "read")
    buffer = BufferPool(0).take(_CHECK_BYTES)
    for start in range(0, file.num_bytes, _CHECK_BYTES):
        num_bytes = min(file.num_bytes - start, _CHECK_BYTES)
        aligned = -(-num_bytes // opened.offset_alignment) * opened.offset_alignment
        places = (np.array([place], np.uint64) for place in (start, aligned, 0, num_bytes))
        offset, length, target, required = places
        engine.wait(engine.submit_read(opened, offset, length, buffer, target, required))
        yield buffer[:num_bytes]


def refuse_weights(file: ColumnFile, parts: Iterable[NDArray[np.uint8]]) -> None:
    """Raise ConfigError for the first weight that is negative or not finite. parts: of the file, in order."""
    first = 0
    for part in parts:
        weights = part.view(file.dtype)
        # Not a number is neither.
        bad = np.flatnonzero(~((weights >= 0) & (weights < np.inf)))
        if len(bad):
            position = first + int(bad[0])
            edge = position if file.edge_ids is None else file.edge_ids[position]
            raise ConfigError(
                f"{file.path}: {file.use} '{file.name}' must be at least 0 and finite to sample by, got "
                f"{weights[bad[0]]:g} at edge {edge}; sample without them, or import others, as their absolute values"
            )
        first += len(weights)
