"""Making of merged lists (merged.py): the files of all edge types in one pass each, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edge_set import TopologyFiles, destinations_of
from diskhop.dataset.files import check_length, map_array
from diskhop.dataset.merged import (
    INDICES,
    INDPTR,
    REVERSED,
    VERSION,
    MergedSpec,
    file_sizes,
    index_dtype,
    merged_spec,
    merged_types,
    open_merged,
    position_dtype,
)
from diskhop.dataset.sort.csc import sorted_lists
from diskhop.dataset.sort.external_sort import Sorting
from diskhop.dataset.sort.keys import EdgeShape
from diskhop.dataset.sort.lists import BLOCK_VALUES
from diskhop.dataset.sort.plan import limits_within
from diskhop.dataset.summed_files import FILES, sum_files
from diskhop.dataset.type_map import MergedEdges, TypeMap
from diskhop.derived.clean import MERGED_FILE
from diskhop.derived.make import make_derived, make_once
from diskhop.errors import FormatError, SourceError
from diskhop.io.atomic import Injector, require_free_space, sync_file, write_file
from diskhop.io.manifests import encode_manifest
from diskhop.io.streams import TRANSFER_BYTES, SequentialWriter, read_in_order
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import TaskTools, WorkFolder

_WRITER_BYTES = 1 << 20
# Two buffers of reads and of each of three writers, a part that was read with two copies of up to twice its bytes, and
# a block of sorted lists.
MERGING_BYTES = 2 * TRANSFER_BYTES + 6 * _WRITER_BYTES + 4 * TRANSFER_BYTES + 64 * BLOCK_VALUES
_STAGE = "sort"
_PROGRESS = "merging edge types"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTools:
    """Resources for making merged lists.

    scratch: folder for derived files.
    engine: reads and writes.
    budget: memory to reserve from, while lists are made.
    threads: most threads that sort edges of reverse types.
    progress: receives progress.
    injector: fault injector; None for no faults.
    """

    scratch: Path
    engine: Engine
    budget: Budget
    threads: int = 1
    progress: Progress = silent
    injector: Injector | None = None


def merged_lists(dataset: Dataset, tools: MergeTools, reversed_types: Iterable[str] = ()) -> TopologyFiles:
    """Return the merged lists of a dataset, which are made if they are not there yet.

    The lists of a dataset with one type of nodes and of edges are the dataset's own, unless that is reversed.
    reversed_types: names of edge types, whose opposites are added as 'rev_' types.
    Raises ConfigError for unknown types, BudgetError, DestinationError, ReadError, and FormatError for damaged lists.
    """
    spec = merged_spec(dataset, reversed_types)
    types = merged_types(dataset, spec)
    if types.is_single:
        return replace(dataset.topology, types=types)
    folder = spec.folder(tools.scratch)
    make_once(folder, lambda: make_merged(dataset, spec, tools), tools.progress)
    return open_merged(folder, spec, types)


def make_merged(dataset: Dataset, spec: MergedSpec, tools: MergeTools) -> None:
    """Make merged lists in the folder of the spec. Raises as merged_lists() does."""
    types = merged_types(dataset, spec)

    def build(made: Path, work: WorkFolder) -> None:
        sizes = file_sizes(types)
        require_free_space(made, sum(sizes.values()), "merged lists")
        for name in sizes:
            (made / name).unlink(missing_ok=True)
        with tools.budget.reserve("merging edge types", MERGING_BYTES):
            _Merging(dataset, types, tools).write(made, work)
        for name in sizes:
            sync_file(made / name, tools.injector)
        content = {"of": spec.key, FILES: sum_files(made, sizes)}
        write_file(made / MERGED_FILE, encode_manifest(content, VERSION), tools.injector)

    make_derived(spec.folder(tools.scratch), spec.key, build, tools.injector)


class _Merging:
    """One pass over the lists of each edge type, in their order."""

    def __init__(self, dataset: Dataset, types: TypeMap, tools: MergeTools) -> None:
        self._dataset = dataset
        self._types = types
        self._tools = tools
        self._pool = BufferPool(2 * TRANSFER_BYTES)
        self._num_done = 0

    def write(self, folder: Path, work: WorkFolder) -> None:
        """Write all files."""
        with ExitStack() as stack:
            names = [INDPTR, INDICES, *([REVERSED] if any(edges.is_reverse for edges in self._types.edges) else [])]
            files = [stack.enter_context(self._open(folder / name)) for name in names]
            for number, edges in enumerate(self._types.edges):
                if edges.is_reverse:
                    self._add_reverse(number, edges, work, *files)
                else:
                    self._add_lists(number, edges, *files[:2])
            files[0].append(_bytes_of(self._types.edge_starts[-1:]))

    @contextmanager
    def _open(self, path: Path) -> Iterator[SequentialWriter]:
        with SequentialWriter(path, self._tools.engine, BufferPool(0), buffer_bytes=_WRITER_BYTES) as writer:
            yield writer
            writer.finish()

    def _add_lists(self, number: int, edges: MergedEdges, indptr: SequentialWriter, indices: SequentialWriter) -> None:
        """Add the lists of an edge type of the dataset."""
        files, first_edge = self._dataset.edges[edges.name].topology, self._types.edge_starts[number]
        num_left = files.num_nodes
        for starts in self._read(files.indptr_path, np.dtype("<i8"), files.num_nodes + 1):
            # The last one is the start of the next type.
            indptr.append(_bytes_of(starts[:num_left] + first_edge))
            num_left -= min(num_left, len(starts))
        first_row, num_sources = self._sources(edges)
        dtype = index_dtype(self._types)
        for ids in self._read(files.indices_path, files.index_dtype, files.num_edges):
            if int(ids.max()) >= num_sources or int(ids.min()) < 0:
                raise FormatError(f"{files.indices_path}: is damaged: has ids above {num_sources - 1}; {_VERIFY}")
            indices.append(_bytes_of(ids.astype(dtype) + dtype.type(first_row)))
            self._advance(len(ids))

    def _add_reverse(
        self,
        number: int,
        edges: MergedEdges,
        work: WorkFolder,
        indptr: SequentialWriter,
        indices: SequentialWriter,
        reverse: SequentialWriter,
    ) -> None:
        """Add the lists of the opposite of an edge type, and the positions of its edges."""
        files, first_edge = self._dataset.edges[edges.name].topology, self._types.edge_starts[number]
        first_row, num_sources = self._sources(edges)
        num_lists = self._types.num_nodes[edges.destination]
        shape = EdgeShape(
            num_sources=num_sources,
            num_destinations=num_lists,
            num_edges=edges.num_edges,
            is_numbered=True,
            origin=str(files.indices_path),
        )
        dtype, stored = index_dtype(self._types), position_dtype(self._types)
        num_left = num_lists
        opposite = _Opposite(files, f"{self._dataset.hash} {edges.name} reversed")
        try:
            with sorted_lists(opposite, shape, self._sorting(work, number)) as blocks:
                for block in blocks:
                    assert block.numbers is not None
                    indptr.append(_bytes_of(block.starts[:num_left] + first_edge))
                    num_left -= min(num_left, len(block.starts))
                    indices.append(_bytes_of(block.indices.astype(dtype) + dtype.type(first_row)))
                    reverse.append(_bytes_of(block.numbers.astype(stored)))
                    self._advance(len(block.numbers))
        except SourceError as error:
            raise FormatError(f"{error}; {_VERIFY}") from error

    def _sorting(self, work: WorkFolder, number: int) -> Sorting:
        tools = self._tools
        return Sorting(
            work=work,
            stage=f"{_STAGE}-{number}",
            budget=tools.budget,
            threads=tools.threads,
            tools=TaskTools(tools.engine, tools.injector),
            progress=silent,
            limits=limits_within(tools.budget.available_bytes),
        )

    def _sources(self, edges: MergedEdges) -> tuple[int, int]:
        """Return the first merged row and the number of the source nodes."""
        return self._types.first_row(edges.source), self._types.num_nodes[edges.source]

    def _read(self, path: Path, dtype: np.dtype[Any], count: int) -> Iterator[NDArray[Any]]:
        check_length(path, dtype.itemsize * count)
        if count:
            for part in read_in_order(File(str(path), "read"), dtype.itemsize * count, self._tools.engine, self._pool):
                yield part.view(dtype)

    def _advance(self, num_edges: int) -> None:
        self._num_done += num_edges
        self._tools.progress(_PROGRESS, self._num_done, self._types.num_edges)


_VERIFY = "run 'diskhop verify', then import the graph again"


class _Opposite:
    """The edges of lists in the other direction, numbered by position."""

    def __init__(self, files: TopologyFiles, identity: str) -> None:
        self._indptr = map_array(files.indptr_path, np.int64, files.num_nodes + 1)
        self._indices = map_array(files.indices_path, files.index_dtype, files.num_edges)
        self.identity = identity

    @property
    def num_edges(self) -> int:
        """See EdgeSource."""
        return len(self._indices)

    def read(self, first: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """See EdgeSource."""
        ids = self._indices[first : first + count]
        # Ids of both ends have one dtype.
        dtype = ids.dtype if len(self._indptr) <= 2**32 else np.dtype(np.int64)
        return destinations_of(self._indptr, first, first + count, dtype), ids.astype(dtype, copy=False)


def _bytes_of(values: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(values).view(np.uint8)
