"""Sorting of edges into in-neighbour lists (CSC): in memory if they fit, else on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from diskhop._native import EdgeTable, SortedEdges
from diskhop.dataset.edges import EdgeSource, highest_ids
from diskhop.dataset.sort.external_sort import EdgeSample, ExternalSort, Sorting, sample_bytes, shape_of_sample
from diskhop.dataset.sort.keys import EdgeShape, add_edges
from diskhop.dataset.sort.lists import ListBlock, list_blocks
from diskhop.dataset.sort.plan import bytes_in_memory
from diskhop.errors import SourceError
from diskhop.runtime.blocks import map_in_order, row_ranges, threads_that_fit


@contextmanager
def sorted_lists(edges: EdgeSource, shape: EdgeShape, sorting: Sorting) -> Iterator[Iterator[ListBlock]]:
    """Sort edges by destination, then source, then number. The lists can be iterated once, within the context.

    Edges that do not fit into the budget go to a stage of the work folder. Raises SourceError for the first id out of
    range, BudgetError, and DestinationError if the disk is too small.
    """
    if _fits_memory(shape, sorting):
        readers = threads_that_fit(sorting.threads, _most_bytes(sorting), partial(_bytes_in_memory, shape, sorting))
        with sorting.budget.reserve("sorting edges", _bytes_in_memory(shape, sorting, readers)):
            table = _sort_in_memory(edges, shape, sorting, readers)
            yield list_blocks(iter([table] if shape.num_edges else []), shape, sorting.progress)
        return
    sorter = ExternalSort(edges, shape, sorting)
    sorter.spill()
    with sorter.sort() as pieces:
        yield list_blocks(pieces, shape, sorting.progress)


def highest_id_to_sort(edges: EdgeSource, is_numbered: bool, origin: str, sorting: Sorting) -> int:
    """Return the highest id at either end of edges that sorted_lists() will sort; -1 without edges.

    Edges that are sorted on disk are spilled on the way, so that a large source is read only once.
    """
    with sorting.budget.reserve("sampling edges", sample_bytes(edges)):
        sample = EdgeSample.of(edges)
    shape = shape_of_sample(sample, edges.num_edges, is_numbered, origin)
    if not _fits_memory(shape, sorting):
        sorter = ExternalSort(edges, shape, sorting, sample)
        del sample
        try:
            sorter.spill()
            return sorter.highest_id()
        except SourceError:
            pass  # an id above the sampled range, or an invalid one: the caller decides when all ids are known
    return max(highest_ids(edges, sorting.budget, sorting.threads, sorting.progress))


def _fits_memory(shape: EdgeShape, sorting: Sorting) -> bool:
    return shape.num_edges == 0 or _bytes_in_memory(shape, sorting, 1) <= _most_bytes(sorting)


def _most_bytes(sorting: Sorting) -> int:
    return min(sorting.budget.available_bytes, sorting.limits.in_memory_bytes)


def _bytes_in_memory(shape: EdgeShape, sorting: Sorting, readers: int) -> int:
    return bytes_in_memory(shape.num_edges, shape.layout().key_bytes, readers, sorting.limits)


def _sort_in_memory(edges: EdgeSource, shape: EdgeShape, sorting: Sorting, readers: int) -> SortedEdges:
    table = EdgeTable(shape.layout(), shape.num_edges)

    def read_block(block: tuple[int, int]) -> int:
        start, stop = block
        add_edges(table, shape, start, *edges.read(start, stop - start))
        return stop

    for done in map_in_order(read_block, row_ranges(shape.num_edges, sorting.limits.read_edges), readers):
        sorting.progress("reading edges", done, shape.num_edges)
    return table.sort(sorting.threads)
