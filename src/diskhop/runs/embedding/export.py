"""Exporting embeddings of nodes to one file, by the ids and names of the source.

Nodes come in the ascending order of the source's ids, as exported graphs have them. `.npy`: float32 (nodes, dim).
`.parquet`: columns id, name (where nodes have names) and embedding, a list of dim floats. `.tsv`: a line per node with
its name, or its id, and its values; names with tabs, line breaks or quotes are quoted, as Python's csv module reads
them. `.faiss` and `.usearch`: an index (index.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from diskhop.budget import parse_sizes
from diskhop.dataset.names import Names, as_field
from diskhop.errors import ConfigError
from diskhop.io.atomic import require_free_space, require_parent
from diskhop.io.destinations import new_file, require_new_file
from diskhop.runs.embedding.index import (
    COSINE,
    INDEXES,
    NAMES_SUFFIX,
    Block,
    IndexOptions,
    require_index,
    write_index,
    write_names,
)
from diskhop.runs.embedding.opened import OpenRun
from diskhop.runs.embedding.places import Places

# Memory per byte of rows: the request, the rows, their copy and their text.
_ROOM = 4
# Maximum bytes of a value as text, with the separator.
_TEXT_BYTES = 16


@dataclass(frozen=True, slots=True, eq=False)
class NodeVectors:
    """Embeddings of nodes, by their ranks (see Places).

    names: of the nodes.
    dim: columns.
    memory_bytes: the memory of the run that they are from.
    gather: reads those of some ranks, float32 (ranks, dim).
    """

    names: Names
    dim: int
    memory_bytes: int
    gather: Callable[[NDArray[np.int64]], NDArray[np.float32]]


def vectors_of(run: OpenRun) -> NodeVectors:
    """Return the embeddings of a run's last commit. Every call of gather reads the partitions once."""
    places = Places(run.dataset, run.permutation)

    def gather(ranks: NDArray[np.int64]) -> NDArray[np.float32]:
        values: NDArray[np.float32] = run.reader.gather(places.of(ranks)).numpy()
        return values

    return NodeVectors(places.names(), run.reader.layout.dim, run.config.memory_bytes, gather)


def write_vectors(
    vectors: NodeVectors,
    path: Path,
    progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    overwrite: bool = False,
    by: str | None = None,
    ann: bool = False,
    memory: int | str | None = None,
    threads: int | None = None,
) -> Path:
    """Write embeddings as export_embeddings() does. The path has been accepted by require_new_export()."""
    num_nodes, dim = len(vectors.names), vectors.dim
    memory_bytes = parse_sizes(memory=memory).get("memory_bytes", vectors.memory_bytes)
    options = IndexOptions(by=by or COSINE, is_approximate=ann, memory_bytes=memory_bytes, threads=threads)
    names_path = path.with_name(path.name + NAMES_SUFFIX)
    graph_bytes = 0
    if path.suffix in INDEXES:
        graph_bytes = require_index(path, num_nodes, dim, options)
        if vectors.names.are_given:
            require_new_file(names_path, overwrite=overwrite)
    value_bytes = _TEXT_BYTES if path.suffix == ".tsv" else 4
    require_free_space(require_parent(path), value_bytes * num_nodes * dim, "the embeddings")

    def blocks() -> Iterator[Block]:
        for block in _blocks(vectors, memory_bytes - graph_bytes):
            yield block
            progress(block.start + len(block.values), num_nodes)

    with new_file(path, overwrite=overwrite) as partial:
        if path.suffix in EXPORTS:
            EXPORTS[path.suffix](partial, vectors.names, dim, blocks())
        else:
            write_index(partial, path.suffix, vectors.names, dim, blocks(), options)
            if vectors.names.are_given:
                with new_file(names_path, overwrite=overwrite) as partial_names:
                    write_names(partial_names, vectors.names)
    return path


def require_new_export(path: Path, *, overwrite: bool, by: str | None = None, ann: bool = False) -> None:
    """Refuse a path that embeddings cannot be written to. Raises as export_embeddings()."""
    _require_suffix(path, by=by, ann=ann)
    require_new_file(path, overwrite=overwrite)


def _require_suffix(path: Path, *, by: str | None, ann: bool) -> None:
    if path.suffix not in (*EXPORTS, *INDEXES):
        raise ConfigError(f"{path}: embeddings are exported to {', '.join((*EXPORTS, *INDEXES))}; use {path.stem}.npy")
    if path.suffix in EXPORTS and (by is not None or ann):
        option = "--ann" if by is None else "--by"
        raise ConfigError(f"{path}: {option} is an option of an index; remove it, or use {path.stem}.faiss")


def _blocks(vectors: NodeVectors, memory_bytes: int) -> Iterator[Block]:
    num_nodes = len(vectors.names)
    step = max(1024, memory_bytes // (_ROOM * 4 * vectors.dim))
    for start in range(0, num_nodes, step):
        yield Block(start, vectors.gather(np.arange(start, min(start + step, num_nodes))))


def _write_npy(path: Path, names: Names, dim: int, blocks: Iterator[Block]) -> None:
    out = np.lib.format.open_memmap(path, "w+", np.float32, (len(names), dim))
    for start, values in blocks:
        out[start : start + len(values)] = values
    out.flush()


def _write_parquet(path: Path, names: Names, dim: int, blocks: Iterator[Block]) -> None:
    schema = pa.schema(
        [("id", pa.int64())] + [("name", pa.string())] * names.are_given + [("embedding", pa.list_(pa.float32(), dim))]
    )
    with ExitStack() as stack:
        writer = stack.enter_context(pq.ParquetWriter(path, schema))
        ids, named = names.ids(), iter(names)
        for start, values in blocks:
            columns = [pa.array(ids[start : start + len(values)])]
            if names.are_given:
                columns.append(pa.array(list(islice(named, len(values)))))
            columns.append(pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), dim))
            writer.write_table(pa.table(columns, schema=schema))


def _write_tsv(path: Path, names: Names, dim: int, blocks: Iterator[Block]) -> None:
    fields = map(as_field, names)
    with path.open("w", encoding="utf-8", newline="") as out:
        for _, values in blocks:
            for field, row in zip(islice(fields, len(values)), values.tolist(), strict=True):
                out.write("\t".join([field, *(f"{value:.9g}" for value in row)]) + "\n")


EXPORTS: dict[str, Callable[[Path, Names, int, Iterator[Block]], None]] = {
    ".npy": _write_npy,
    ".parquet": _write_parquet,
    ".tsv": _write_tsv,
}
