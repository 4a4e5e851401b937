"""Graphs that PyTorch-BigGraph's importers made: entities by type and partition, edges in one HDF5 file per bucket.

h5py is an extra: `pip install diskhop[pbg]`. Only whole numbers in the file itself are read: no links to other files,
and no filters for which HDF5 would load a library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.dataset.manifest import MOST_COUNT, NODE
from diskhop.errors import ConfigError, SourceError
from diskhop.importing.estimate import Load
from diskhop.importing.evidence.decisions import Decision
from diskhop.importing.options import ImportOptions
from diskhop.importing.pbg.folder import EntityType, PbgFolder, find_pbg_files, is_pbg
from diskhop.importing.source import SourceGraph, SourceKind, SourceNodes, SourceTriples
from diskhop.importing.source_file import SourceFile, source_errors
from diskhop.importing.tools import ImportLimits, ImportTools
from diskhop.runtime.blocks import row_ranges

_UNPACKING = "unpacking HDF5"
_FORMAT_VERSION = 1
_DATASETS = ("lhs", "rel", "rhs")
_EDGES_PER_BLOCK = 128 << 10
_TRIPLE_BYTES = 24


class Pbg:
    """Source in a folder of PBG. All files of edges are opened and checked, but not read."""

    decisions: Sequence[Decision] = ()

    def __init__(self, source: Path, options: ImportOptions) -> None:
        _require_h5py(source)
        self._folder = find_pbg_files(source)
        self._buckets = {
            part: [_Bucket(path, self._folder, *pair) for pair, path in buckets.items()]
            for part, buckets in self._folder.buckets.items()
        }

    @property
    def name(self) -> str:
        """See Source."""
        return self._folder.name

    def least_memory(self, limits: ImportLimits) -> Mapping[str, int]:
        """See Source."""
        return {_UNPACKING: max(bucket.unpacked_bytes for buckets in self._buckets.values() for bucket in buckets)}

    @property
    def load(self) -> Load:
        """See Source."""
        buckets = [bucket for part in self._buckets.values() for bucket in part]
        triple_bytes = sum(_TRIPLE_BYTES * bucket.num_edges for bucket in buckets)
        return Load(
            source_bytes=sum(bucket.stored_bytes for bucket in buckets),
            inflated_bytes=sum(_TRIPLE_BYTES * bucket.num_edges for bucket in buckets if bucket.unpacked_bytes),
            triple_bytes=triple_bytes,
        )

    def read(self, work: ImportTools) -> SourceGraph:
        """See Source."""
        parts = {part: _BucketTriples(buckets, work.budget) for part, buckets in self._buckets.items()}
        return SourceGraph(
            nodes={NODE: SourceNodes(count=sum(each.count for each in self._folder.types))},
            triples=SourceTriples(parts=parts, num_relations=self._folder.num_relations),
            names=self._folder.names,
            facts={"entity_types": {each.name: [each.first_id, each.count] for each in self._folder.types}},
        )


def _require_h5py(source: Path) -> None:
    """Raise ConfigError where h5py is not installed."""
    try:
        import h5py  # noqa: F401
    except ImportError:
        raise ConfigError(
            f"{source}: has edges in HDF5, which requires h5py; install it with: pip install diskhop[pbg]"
        ) from None


class _Bucket:
    """Edges of a bucket, as triples of ids that are numbered over all types and partitions.

    num_edges: number of edges.
    unpacked_bytes: memory for reading edges that are stored compressed; 0 for others.
    """

    def __init__(self, path: Path, folder: PbgFolder, left: int, right: int) -> None:
        self.path = path
        self._folder = folder
        self._partitions = (left, right)
        self._file = SourceFile.of(path)
        with _OpenBucket(path) as opened:
            self.num_edges = opened.num_edges
            self._chunk_bytes = opened.chunk_bytes
        # A chunk of each dataset, before and after.
        self.unpacked_bytes = 2 * len(_DATASETS) * self._chunk_bytes

    @property
    def identity(self) -> str:
        """See Column."""
        return self._file.identity

    @property
    def stored_bytes(self) -> int:
        """Bytes of the file."""
        return self._file.num_bytes

    def blocks(self) -> Iterator[NDArray[np.int64]]:
        """Yield triples (edges, 3) in order, a few MiB at a time."""
        left = _Ids("lhs", [left for left, _ in self._folder.sides], self._partitions[0])
        right = _Ids("rhs", [right for _, right in self._folder.sides], self._partitions[1])
        limit = MOST_COUNT if self._folder.num_relations is None else self._folder.num_relations
        with _OpenBucket(self.path, self._chunk_bytes) as opened:
            self._file.require_unchanged()
            for start, stop in row_ranges(self.num_edges, _EDGES_PER_BLOCK):
                sources, relations, destinations = opened.read(start, stop)
                _require_below(relations, np.int64(limit), "rel", self.path, start)
                triples = np.empty((stop - start, 3), np.int64)
                triples[:, 1] = relations
                triples[:, 0] = left.numbered(sources, triples[:, 1], self.path, start)
                triples[:, 2] = right.numbered(destinations, triples[:, 1], self.path, start)
                yield triples
        self._file.require_unchanged()


class _BucketTriples:
    """Column of the edges of all buckets of a part."""

    dtype: np.dtype[Any] = np.dtype(np.int64)

    def __init__(self, buckets: list[_Bucket], budget: Budget) -> None:
        self.where = str(buckets[0].path.parent)
        self.shape = (sum(bucket.num_edges for bucket in buckets), 3)
        self._buckets = buckets
        self._budget = budget

    @property
    def identity(self) -> str:
        """See Column."""
        return "\n".join(bucket.identity for bucket in self._buckets)

    def blocks(self) -> Iterator[NDArray[np.int64]]:
        """See Column."""
        for bucket in self._buckets:
            with self._budget.reserve(_UNPACKING, bucket.unpacked_bytes):
                yield from bucket.blocks()


class _Ids:
    """Ids of one side of a bucket. With several types, an edge's relation determines the type."""

    def __init__(self, side: str, types: list[EntityType], partition: int) -> None:
        self._side = side
        firsts, counts = zip(*(each.in_bucket(partition) for each in types), strict=True)
        self._firsts = np.array(firsts, np.int64)
        self._counts = np.array(counts, np.int64)

    def numbered(
        self, ids: NDArray[Any], relations: NDArray[np.int64], path: Path, first_edge: int
    ) -> NDArray[np.int64]:
        """Convert ids within a partition to ids over all. Raises SourceError for the first that is out of range."""
        by_relation = relations if len(self._counts) > 1 else 0
        _require_below(ids, self._counts[by_relation], self._side, path, first_edge)
        numbered: NDArray[np.int64] = ids.astype(np.int64) + self._firsts[by_relation]
        return numbered


class _OpenBucket:
    """Datasets of a file of edges; a context manager that closes it.

    num_edges: number of edges.
    chunk_bytes: longest chunk that is stored compressed. HDF5 unpacks it whole, and caches it if cache_bytes allow.
    """

    def __init__(self, path: Path, cache_bytes: int = 0) -> None:
        import h5py

        self._path = path
        with _hdf5_errors(path), ExitStack() as opened:
            file = opened.enter_context(h5py.File(path, "r", locking=False, rdcc_nbytes=cache_bytes))
            self._require_version(file)
            self._datasets = [self._dataset(file, name) for name in _DATASETS]
            lengths = [len(dataset) for dataset in self._datasets]
            if len(set(lengths)) > 1:
                lengths_by_name = ", ".join(f"{name} {length}" for name, length in zip(_DATASETS, lengths, strict=True))
                raise SourceError(f"{path}: its datasets must have one length, got {lengths_by_name}; write it again")
            self.num_edges = lengths[0]
            self.chunk_bytes = max(
                dataset.chunks[0] * dataset.dtype.itemsize if dataset.id.get_create_plist().get_nfilters() else 0
                for dataset in self._datasets
            )
            self._opened = opened.pop_all()

    def read(self, start: int, stop: int) -> list[NDArray[Any]]:
        """Read lhs, rel and rhs of some edges."""
        with _hdf5_errors(self._path):
            return [dataset[start:stop] for dataset in self._datasets]

    def __enter__(self) -> _OpenBucket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def _require_version(self, file: Any) -> None:
        version = None
        if "format_version" in file.attrs:
            attribute = file.attrs.get_id("format_version")
            # Another type of attribute is not read: it could be arbitrarily long.
            is_number = attribute.shape == () and attribute.dtype.kind in "iu"
            version = file.attrs["format_version"] if is_number else "no whole number"
        if version != _FORMAT_VERSION:
            found = "none" if version is None else version
            raise SourceError(
                f"{self._path}: its attribute format_version must be {_FORMAT_VERSION}, got {found}; "
                "give edges that PBG's importer wrote"
            )

    def _dataset(self, file: Any, name: str) -> Any:
        import h5py

        where = f"{self._path}: {name}"
        link = file.get(name, getlink=True)
        if link is None:
            raise SourceError(f"{where} is missing; give edges with {', '.join(_DATASETS)}, as PBG writes them")
        dataset = file[name] if isinstance(link, h5py.HardLink) else None
        if not isinstance(dataset, h5py.Dataset) or dataset.is_virtual or dataset.external:
            raise SourceError(f"{where} must be a dataset in the file itself; write it again with PBG's importer")
        if len(dataset.shape or ()) != 1 or dataset.dtype.kind not in "iu":
            raise SourceError(
                f"{where} must be whole numbers in one dimension, got shape {dataset.shape} of {dataset.dtype}; "
                "write it again with PBG's importer"
            )
        stored = dataset.id.get_create_plist()
        known = (h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_LZF, h5py.h5z.FILTER_SHUFFLE)
        filters = [stored.get_filter(number)[0] for number in range(stored.get_nfilters())]
        if any(each not in known for each in filters):
            raise SourceError(
                f"{where} must be stored plain, or with gzip, lzf or shuffle, got HDF5's filters {filters}; "
                "write it without filters"
            )
        return dataset


@contextmanager
def _hdf5_errors(path: Path) -> Iterator[None]:
    """Turn any exception of reading damaged HDF5 into SourceError; h5py raises TypeError for types unknown to NumPy."""
    with source_errors(str(path)):
        try:
            yield
        except TypeError as error:
            raise ValueError(str(error)) from error


def _require_below(ids: NDArray[Any], limits: Any, what: str, path: Path, first_edge: int) -> None:
    """Raise SourceError for the first value of an edge that is not in [0, limit)."""
    bad = np.flatnonzero((ids < 0) | (ids >= limits))
    if len(bad):
        limit = np.broadcast_to(limits, ids.shape)[bad[0]]
        raise SourceError(
            f"{path}: {what} of edge {first_edge + int(bad[0])} is {ids[bad[0]]}, and there are {limit}, numbered from "
            "0; give edges and counts of one import of PBG"
        )


PBG = SourceKind(
    name="pbg",
    looks_like="a folder of PyTorch-BigGraph with entity_count_TYPE_PARTITION.txt and edges_LHS_RHS.h5",
    takes=(),
    detect=is_pbg,
    open=Pbg,
)
