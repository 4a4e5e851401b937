"""Exports embeddings as an index for nearest-neighbour search, which has the source's ids as keys.

`.faiss`: an IndexIDMap over an IndexFlat, which is exact, or over an IndexHNSWFlat. `.usearch`: an HNSW index. The
exact one is streamed to the disk in faiss's format. The others are graphs in memory until they are saved.

Keys are 64-bit integers, so names of nodes stand in a file next to the index: a line per node with its id and name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.dataset.names import Names, as_field
from diskhop.errors import ConfigError, DestinationError
from diskhop.system.memory import default_threads

COSINE, DOT, L2 = NEARNESS = ("cosine", "dot", "l2")
# Suffix of the names' file, after that of the index.
NAMES_SUFFIX = ".names.tsv"

# Links per node of the graphs. faiss and usearch have twice as many in the lowest layer.
_LINKS = 16
# Bytes per node: links of all layers, the key and its place in a hash map. Tables grow by doubling, so that of the
# vectors is there twice.
_BYTES_PER_NODE, _VECTOR_COPIES = 200, 2
_LEAST_BYTES = 64 << 20
# Constants of faiss's format: a reserved number, and the metrics of inner products and of squared distances.
_RESERVED, _INNER, _SQUARED = 1 << 20, 0, 1


class Block(NamedTuple):
    """Embeddings of nodes by their ranks (see Places), from rank `start` on, float32 (nodes, dim)."""

    start: int
    values: NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOptions:
    """Options of an index.

    by: nearness: cosine, dot or l2.
    is_approximate: whether a .faiss is an HNSW graph; .usearch always is.
    memory_bytes: memory that building a graph may take.
    threads: threads that build it; with one, equal embeddings give equal bytes.
    """

    by: str = COSINE
    is_approximate: bool = False
    memory_bytes: int
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class IndexKind:
    """A kind of index.

    package: name of its package, and of that to install.
    write: writes an index.
    """

    package: tuple[str, str]
    write: Callable[[Any, Path, Names, int, Iterator[Block], IndexOptions], None]


def open_package(path: Path) -> Any:
    """Import the package of an index by its file's suffix. Raises ConfigError if it is not installed."""
    module, package = INDEXES[path.suffix].package
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{path}: an index needs the package {package}, which cannot be imported ({error}); install it with: "
            "pip install 'diskhop[index]'"
        ) from error


def require_index(path: Path, num_nodes: int, dim: int, options: IndexOptions) -> int:
    """Return the bytes of memory of the graph of an approximate index, 0 of an exact one.

    Raises ConfigError for an unknown nearness or a missing package, BudgetError for a graph beyond the memory.
    """
    if options.by not in NEARNESS:
        raise ConfigError(f"unknown nearness '{options.by}'; use --by {' or --by '.join(NEARNESS)}")
    open_package(path)
    if path.suffix != ".usearch" and not options.is_approximate:
        return 0
    graph_bytes = _LEAST_BYTES + num_nodes * (_VECTOR_COPIES * 4 * dim + _BYTES_PER_NODE)
    Budget(options.memory_bytes).require({"search graph": graph_bytes})
    return graph_bytes


def write_index(
    path: Path, suffix: str, names: Names, dim: int, blocks: Iterator[Block], options: IndexOptions
) -> None:
    """Write an index to a file. suffix: kind of the index."""
    kind = INDEXES[suffix]
    kind.write(import_module(kind.package[0]), path, names, dim, blocks, options)


def write_names(path: Path, names: Names) -> None:
    """Write the id and the name of each node, by ascending id."""
    with path.open("w", encoding="utf-8", newline="") as out:
        out.write("id\tname\n")
        for number, name in zip(names.ids().tolist(), names, strict=True):
            out.write(f"{number}\t{as_field(name)}\n")


def _write_faiss(
    faiss: Any, path: Path, names: Names, dim: int, blocks: Iterator[Block], options: IndexOptions
) -> None:
    if options.is_approximate:
        _write_faiss_graph(faiss, path, names, dim, blocks, options)
        return
    metric = _SQUARED if options.by == L2 else _INNER
    ids, count = names.ids(), len(names)
    with path.open("wb") as out:
        out.write(_faiss_header(b"IxMp", dim, count, metric))
        out.write(_faiss_header(b"IxF2" if options.by == L2 else b"IxFI", dim, count, metric))
        out.write(struct.pack("<Q", count * dim))
        for _, values in blocks:
            out.write(np.ascontiguousarray(_scaled(values, options.by), "<f4").data)
        out.write(struct.pack("<Q", count))
        out.write(np.ascontiguousarray(ids, "<i8").data)
    # Mapped, so that the vectors stay on the disk.
    found = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    if (found.ntotal, found.d, found.metric_type) != (count, dim, metric):
        raise DestinationError(
            f"{path}: faiss {faiss.__version__} reads another format than it was written in; install faiss-cpu 1.11 to "
            "1.15, or export to .npy"
        )


def _faiss_header(kind: bytes, dim: int, count: int, metric: int) -> bytes:
    return struct.pack("<4siqqqBi", kind, dim, count, _RESERVED, _RESERVED, 1, metric)


def _write_faiss_graph(
    faiss: Any, path: Path, names: Names, dim: int, blocks: Iterator[Block], options: IndexOptions
) -> None:
    faiss.omp_set_num_threads(options.threads or default_threads())
    graph = faiss.IndexHNSWFlat(dim, _LINKS, faiss.METRIC_L2 if options.by == L2 else faiss.METRIC_INNER_PRODUCT)
    index, ids = faiss.IndexIDMap(graph), names.ids()
    for start, values in blocks:
        index.add_with_ids(_scaled(values, options.by), ids[start : start + len(values)])
    faiss.write_index(index, str(path))


def _write_usearch(
    usearch: Any, path: Path, names: Names, dim: int, blocks: Iterator[Block], options: IndexOptions
) -> None:
    metric = {COSINE: "cos", DOT: "ip", L2: "l2sq"}[options.by]
    index, ids = usearch.Index(ndim=dim, metric=metric, dtype="f32", connectivity=_LINKS), names.ids()
    for start, values in blocks:
        keys = ids[start : start + len(values)].astype(np.uint64)
        index.add(keys, values, threads=options.threads or default_threads())
    index.save(str(path))


def _scaled(values: NDArray[np.float32], by: str) -> NDArray[np.float32]:
    """Return rows as an index of inner products needs them: of length 1 for cosine."""
    if by != COSINE:
        return values
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    scaled: NDArray[np.float32] = np.divide(values, lengths, out=np.zeros_like(values), where=lengths > 0)
    return scaled


INDEXES = {
    ".faiss": IndexKind(("faiss", "faiss-cpu"), _write_faiss),
    ".usearch": IndexKind(("usearch.index", "usearch"), _write_usearch),
}
