"""Writing the edges of one type: sorted into lists, with edge numbers, weights and times in *columns* of that order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.build.files import SIDE_WRITER_BYTES, DatasetFiles
from diskhop.dataset.edges import EdgeSource
from diskhop.dataset.sort.csc import sorted_lists
from diskhop.dataset.sort.external_sort import Sorting
from diskhop.dataset.sort.keys import EdgeShape
from diskhop.dataset.sort.lists import BLOCK_VALUES, ListBlock
from diskhop.dataset.sort.tidy import EdgeCounts, Tidying, TidyLists
from diskhop.errors import SourceError

# Name of the reservation of lists_bytes() while edges are sorted and written.
WRITING_LISTS = "writing lists"
# The source's edge of each entry of the lists. No file of the dataset.
NUMBERS_FILE = "numbers.bin"
# A value of each column as read and as written, and the masks for edges to leave out.
_LIST_BYTES_PER_VALUE = 64

Column = Callable[[NDArray[np.int64]], NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EdgeColumns:
    """Columns of the edges of one type.

    edge_id_dtype: dtype in which to store the source's numbers of edges; "" for not.
    weights: weights by edge number; None without weights.
    times: times by edge number; None without times.
    ways: 2 if numbers 2 e and 2 e + 1 are the two directions of edge e, else 1.
    edge_ids: number to store for each edge, from 0; None: its own.
    """

    edge_id_dtype: str
    weights: NDArray[Any] | None
    times: NDArray[Any] | None
    ways: int
    edge_ids: NDArray[Any] | None = None

    @property
    def are_empty(self) -> bool:
        """Whether there are no columns, so that edges need no numbers."""
        return not self.edge_id_dtype and self.weights is None and self.times is None

    @property
    def _id_dtype(self) -> np.dtype[Any]:
        return np.dtype(self.edge_id_dtype).newbyteorder("<")

    def check(self, num_edges: int, origin: str) -> None:
        """Raise SourceError unless weights are finite, times and ids are whole, and all have one value per edge."""
        num_edges //= self.ways
        if self.weights is not None:
            _check_weights(self.weights, num_edges, origin)
        if self.times is not None:
            _check_whole(self.times, "times", num_edges, origin)
        if self.edge_ids is not None:
            _check_whole(self.edge_ids, "edge ids", num_edges, origin)
            if num_edges and int(self.edge_ids.min()) < 0:
                edge = int(np.argmin(self.edge_ids))
                raise SourceError(
                    f"{origin}: edge id of edge {edge} is {self.edge_ids[edge]}; ids must be 0 or more: correct it, or "
                    "remove edge_ids"
                )

    def edge_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the edges of the source that sorted edges are, by their numbers."""
        return numbers if self.ways == 1 else numbers // self.ways  # division is slow

    def by_name(self) -> dict[str, Column]:
        """Return functions from edge numbers to values, by the name of the column."""
        edge_ids, weights, times, edge_of = self.edge_ids, self.weights, self.times, self.edge_of
        columns: dict[str, Column] = {}
        if self.edge_id_dtype and edge_ids is None:
            columns["edge_ids"] = lambda numbers: edge_of(numbers).astype(self._id_dtype)
        elif edge_ids is not None:
            columns["edge_ids"] = lambda numbers: edge_ids[edge_of(numbers)].astype(self._id_dtype)
        if weights is not None:
            columns["weights"] = lambda numbers: weights[edge_of(numbers)].astype("<f4")
        if times is not None:
            columns["times"] = lambda numbers: times[edge_of(numbers)].astype("<i8")
        return columns


def lists_bytes(shape: EdgeShape, num_columns: int) -> int:
    """Return the memory of writing lists with num_columns columns, besides that of sorting."""
    num_values = min(BLOCK_VALUES, shape.num_edges + shape.num_destinations + 1)
    return num_values * _LIST_BYTES_PER_VALUE + (1 + num_columns) * SIDE_WRITER_BYTES


def write_edge_lists(
    files: DatasetFiles,
    folder: str,
    edges: EdgeSource,
    shape: EdgeShape,
    columns: EdgeColumns,
    tidying: Tidying | None,
    sorting: Sorting,
    numbers: DatasetFiles | None = None,
) -> tuple[int, EdgeCounts]:
    """Sort edges and write their lists and columns below a folder of the dataset.

    numbers: where to write NUMBERS_FILE too: int64 (edges), the source's edge of each entry of the lists.
    Returns the number of edges written, and the counts of loops and duplicates (zeros without tidying).
    """
    wanted = [(files, f"{folder}/{name}.bin", values_of) for name, values_of in columns.by_name().items()]
    if numbers is not None:
        wanted.append((numbers, NUMBERS_FILE, columns.edge_of))
    with (
        sorting.budget.reserve(WRITING_LISTS, lists_bytes(shape, len(wanted))),
        sorted_lists(edges, shape, sorting) as blocks,
    ):
        tidy = None if tidying is None else TidyLists(blocks, tidying)
        count = _write_files(files, folder, blocks if tidy is None else tidy.blocks(), shape, wanted)
    return count, EdgeCounts() if tidy is None else tidy.counts


def _write_files(
    files: DatasetFiles,
    folder: str,
    blocks: Iterator[ListBlock],
    shape: EdgeShape,
    columns: Sequence[tuple[DatasetFiles, str, Column]],
) -> int:
    """Write all files of the lists in one pass. Returns the number of edges."""
    with ExitStack() as stack:
        indices = stack.enter_context(files.open(f"{folder}/indices.bin"))
        indptr = stack.enter_context(files.open(f"{folder}/indptr.bin", SIDE_WRITER_BYTES))
        opened = [
            (stack.enter_context(place.open(relative, SIDE_WRITER_BYTES)), values_of)
            for place, relative, values_of in columns
        ]
        for block in blocks:
            indices.append(block.indices)
            indptr.append(block.starts)
            for file, values_of in opened:
                assert block.numbers is not None
                file.append(values_of(block.numbers))
    assert indptr.num_bytes == 8 * (shape.num_destinations + 1), "one entry per node and one more"
    return indices.num_bytes // shape.index_dtype.itemsize


def _check_weights(weights: NDArray[Any], num_edges: int, origin: str) -> None:
    if weights.shape != (num_edges,):
        raise SourceError(f"{origin}: has weights of shape {weights.shape} for {num_edges} edges; give one per edge")
    bad = np.flatnonzero(~np.isfinite(weights))
    if len(bad):
        raise SourceError(
            f"{origin}: weight of edge {bad[0]} is {weights[bad[0]]}; weights must be finite: "
            "correct it, then import again"
        )


def _check_whole(values: NDArray[Any], what: str, num_edges: int, origin: str) -> None:
    if values.shape != (num_edges,) or values.dtype.kind not in "iu":
        raise SourceError(
            f"{origin}: has {what} of shape {values.shape} and {values.dtype} for {num_edges} edges; "
            "give one whole number per edge"
        )
