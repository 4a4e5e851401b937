"""Sorted in-neighbour lists against SciPy's: in memory and by way of the disk, at sizes that force every path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import coo_array

from diskhop.budget import Budget
from diskhop.dataset.edges import ArrayEdges, highest_ids
from diskhop.dataset.sort import external_sort
from diskhop.dataset.sort.csc import highest_id_to_sort, sorted_lists
from diskhop.dataset.sort.external_sort import Sorting
from diskhop.dataset.sort.keys import EdgeShape
from diskhop.dataset.sort.lists import ListBlock
from diskhop.dataset.sort.plan import SortLimits, bytes_in_memory, plan_spills, split_threads
from diskhop.errors import BudgetError, SourceError
from diskhop.runtime.progress import silent
from diskhop.runtime.tasks import TaskTools, WorkFolder
from tests.examples import examples
from tests.graphs import SlowEdges, memory_folder, threads_engine

# Blocks of a page and buckets of a few edges: many spills, buckets and blocks for graphs that tests can afford.
TINY = SortLimits(
    least_block_bytes=4096,
    most_block_bytes=4096,
    bucket_keys=40,
    thread_bytes=1,
    read_edges=13,
    in_memory_bytes=0,
)


READ_EDGES = 1000
READ_BYTES = bytes_in_memory(0, 1, 1, SortLimits(read_edges=READ_EDGES))


class Lists(NamedTuple):
    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    edge_ids: NDArray[np.int64] | None


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with memory_folder(tmp_path) as found:
        yield found


def sorting_in(work: WorkFolder, budget: Budget, *, threads: int, limits: SortLimits) -> Sorting:
    return Sorting(
        work=work,
        stage="sort",
        budget=budget,
        threads=threads,
        tools=TaskTools(threads_engine()),
        progress=silent,
        limits=limits,
    )


def lists_of(
    folder: Path,
    pairs: NDArray[Any],
    num_sources: int,
    num_destinations: int,
    *,
    limits: SortLimits,
    is_numbered: bool = False,
    threads: int = 1,
    memory_bytes: int = 1 << 30,
) -> Lists:
    shape = EdgeShape(
        num_sources=num_sources,
        num_destinations=num_destinations,
        num_edges=pairs.shape[1],
        is_numbered=is_numbered,
        origin="graph.npz",
    )
    budget = Budget(memory_bytes)
    with WorkFolder(folder / "graph") as work:
        lists = sorted_lists(ArrayEdges(pairs), shape, sorting_in(work, budget, threads=threads, limits=limits))
        with lists as found:
            blocks = list(found)
        by_disk = limits.in_memory_bytes == 0 and pairs.shape[1] > 0
        assert work.path.exists() == by_disk, "only what goes by way of the disk leaves work"
        work.remove()
    assert budget.available_bytes == memory_bytes, "all that was reserved was given back"
    return joined(blocks, is_numbered=is_numbered)


def joined(blocks: list[ListBlock], *, is_numbered: bool) -> Lists:
    first = 0
    for block in blocks:
        assert block.first == first
        assert ((block.starts >= block.first) & (block.starts <= block.end)).all()
        assert (block.numbers is not None) == is_numbered
        first = block.end
    return Lists(
        np.concatenate([block.starts for block in blocks]),
        np.concatenate([block.indices for block in blocks]),
        np.concatenate([block.numbers for block in blocks if block.numbers is not None]) if is_numbered else None,
    )


def expected_lists(pairs: NDArray[Any], num_destinations: int) -> Lists:
    """Build lists with NumPy's stable sort."""
    order = np.lexsort((pairs[0], pairs[1]))
    indptr = np.searchsorted(pairs[1][order], np.arange(num_destinations + 1))
    return Lists(indptr, pairs[0][order], order)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[NDArray[np.int64], int, int]:
    """Pairs with repeats and loops, nodes without edges, and sometimes a hub that half of the edges lead to."""
    # The large counts make a key wider than 64 bits.
    num_sources = draw(st.sampled_from([1, 2, 7, 300, 2**31, 2**32 - 1, 2**32, 2**48]))
    num_destinations = draw(st.sampled_from([1, 3, 50, 70_000]))
    num_edges = draw(st.sampled_from([0, 1, 2, 30, 600, 3000]))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    few = draw(st.integers(1, 40))
    sources = generator.integers(0, num_sources, num_edges)
    destinations = generator.integers(0, num_destinations, num_edges)
    shape = draw(st.sampled_from(["random", "hub", "repeats", "one pair"]))
    if shape == "hub":
        destinations[generator.random(num_edges) < 0.5] = num_destinations - 1
    elif shape == "repeats":
        sources, destinations = np.resize(sources[:few], num_edges), np.resize(destinations[:few], num_edges)
    elif shape == "one pair":
        sources[:], destinations[:] = num_sources - 1, num_destinations - 1
    return np.stack([sources, destinations]), num_sources, num_destinations


def assert_same(found: Lists, expected: Lists, *, is_numbered: bool) -> None:
    np.testing.assert_array_equal(found.indptr, expected.indptr)
    np.testing.assert_array_equal(found.indices, expected.indices)
    if is_numbered:
        np.testing.assert_array_equal(found.edge_ids, expected.edge_ids)


@pytest.mark.parametrize("way", ["memory", "disk"])
@examples(40)
@given(
    graph=graphs(), is_numbered=st.booleans(), threads=st.integers(1, 2), sorted_keys=st.sampled_from([3, 70, 2**40])
)
def test_lists_are_the_sources_of_each_destination_sorted(
    way: str, graph: tuple[NDArray[np.int64], int, int], is_numbered: bool, threads: int, sorted_keys: int
) -> None:
    pairs, num_sources, num_destinations = graph
    limits = SortLimits() if way == "memory" else replace(TINY, sorted_keys=sorted_keys)
    with memory_folder(Path()) as folder:
        found = lists_of(
            folder, pairs, num_sources, num_destinations, limits=limits, is_numbered=is_numbered, threads=threads
        )
    assert found.indices.dtype == (np.uint32 if num_sources < 2**32 else np.int64)
    assert_same(found, expected_lists(pairs, num_destinations), is_numbered=is_numbered)


@examples(20)
@given(seed=st.integers(0, 2**32), way=st.sampled_from([SortLimits(), TINY]), hub=st.booleans())
def test_lists_are_those_of_scipy(seed: int, way: SortLimits, hub: bool) -> None:
    generator = np.random.default_rng(seed)
    num_nodes = int(generator.integers(1, 300))
    pairs = generator.integers(0, num_nodes, (2, 2000))
    if hub:
        pairs[1, ::2] = num_nodes // 2
    # SciPy adds up what is in one place: the values are how often a pair occurs.
    matrix = coo_array((np.ones(2000, np.int64), (pairs[0], pairs[1])), shape=(num_nodes, num_nodes)).tocsc()
    matrix.sum_duplicates()
    columns = np.repeat(np.arange(num_nodes), np.diff(matrix.indptr))
    with memory_folder(Path()) as folder:
        found = lists_of(folder, pairs, num_nodes, num_nodes, limits=way)
    np.testing.assert_array_equal(found.indices, np.repeat(matrix.indices, matrix.data))
    np.testing.assert_array_equal(np.diff(found.indptr), np.bincount(columns, matrix.data, num_nodes))


@pytest.mark.parametrize("dtype", ["i1", "u1", "<i2", ">i2", "<i4", "<u4", ">u4", "<i8", "<u8", ">i8", ">u8"])
@pytest.mark.parametrize("limits", [SortLimits(), TINY])
def test_ids_of_any_integer_dtype_give_the_same_lists(folder: Path, dtype: str, limits: SortLimits) -> None:
    pairs = np.random.default_rng(0).integers(0, 100, (2, 500))
    found = lists_of(folder, pairs.astype(dtype), 100, 100, limits=limits)
    assert_same(found, expected_lists(pairs, 100), is_numbered=False)
    transposed = np.ascontiguousarray(pairs.T.astype(dtype)).T
    assert_same(lists_of(folder, transposed, 100, 100, limits=limits), found, is_numbered=False)


@pytest.mark.parametrize("limits", [SortLimits(), TINY])
@pytest.mark.parametrize("bad", [-1, 5, 2**40])
@pytest.mark.parametrize("end", ["source", "destination"])
def test_the_first_id_out_of_range_is_named(folder: Path, limits: SortLimits, end: str, bad: int) -> None:
    pairs = np.zeros((2, 100), np.int64)
    pairs[0 if end == "source" else 1, [58, 71]] = bad
    rule = "must be 0 or more" if bad < 0 else ".* 0 to 4"
    with pytest.raises(SourceError, match=rf"graph.npz: edge 58 has {end} {bad}, {rule}"):
        lists_of(folder, pairs, 5, 5, limits=limits)
    assert [path.name for path in folder.iterdir()] == ([".graph.work"] if limits is TINY else [])


def test_ids_beyond_int64_are_refused_not_wrapped(folder: Path) -> None:
    pairs = np.array([[2**64 - 1], [0]], np.uint64)
    with pytest.raises(SourceError, match=str(2**64 - 1)):
        lists_of(folder, pairs, 5, 5, limits=SortLimits())


@given(
    st.integers(1, 10**11), st.sampled_from([8, 16]), st.integers(1, 8), st.integers(1 << 20, 1 << 40), st.booleans()
)
@example(7_033_118_720, 8, 1, 48_145_234, False)  # the most spills, and a budget that has room for the least keys only
def test_the_smallest_memory_that_is_named_sorts_in_few_passes(
    num_edges: int, key_bytes: int, threads: int, memory_bytes: int, is_just_enough: bool
) -> None:
    """A bucket is read as often as it takes: what fits into memory at once must be worth it."""
    limits = SortLimits()
    try:
        spills = plan_spills(num_edges, key_bytes, memory_bytes, threads, limits)
        split = split_threads(spills, num_edges, key_bytes, memory_bytes, threads, limits)
    except BudgetError as error:
        smallest_bytes = error.smallest_bytes
        assert smallest_bytes is not None
        assert smallest_bytes > memory_bytes
        if not is_just_enough:
            return
        spills = plan_spills(num_edges, key_bytes, smallest_bytes, threads, limits)
        try:
            split = split_threads(spills, num_edges, key_bytes, smallest_bytes, threads, limits)
        except BudgetError:  # more memory, more buckets: the second time it is enough
            return
        memory_bytes = smallest_bytes
    assert max(split.spill_bytes, split.sort_bytes) <= memory_bytes
    bucket_keys = -(-num_edges // spills.num_buckets)
    # A huge page, of which each spill's part may leave one page unused, and the end of all of them another.
    page_keys = ((2 << 20) - (limits.most_spills + 1) * 4096) // key_bytes
    assert split.sorted_keys >= min(bucket_keys, page_keys)


@pytest.mark.parametrize("spare_bytes", [0, 2 * READ_BYTES, 1 << 30])
def test_what_is_read_at_once_in_memory_is_reserved(folder: Path, spare_bytes: int) -> None:
    """Threads read as far as the budget has room for them; with one, nothing is spilled to disk."""
    limits = SortLimits(read_edges=READ_EDGES)
    edges = SlowEdges(8 * READ_EDGES)
    shape = EdgeShape(num_sources=1, num_destinations=1, num_edges=edges.num_edges, is_numbered=False, origin="x")
    smallest_bytes = bytes_in_memory(edges.num_edges, shape.layout().key_bytes, 1, limits)
    budget = Budget(smallest_bytes + spare_bytes)
    with (
        WorkFolder(folder / "graph") as work,
        sorted_lists(edges, shape, sorting_in(work, budget, threads=6, limits=limits)),
    ):
        pass
    num_readers = 1 + min(5, spare_bytes // READ_BYTES)
    assert budget.table() == {"sorting edges": smallest_bytes + (num_readers - 1) * READ_BYTES}
    assert edges.most_at_once <= num_readers * READ_EDGES


def test_the_highest_id_is_found_by_as_many_threads_as_the_budget_has_room_for() -> None:
    for memory_bytes in (7_000_000, 14_000_000, 1 << 30):
        edges = SlowEdges(2_000_000)
        budget = Budget(memory_bytes)
        assert highest_ids(edges, budget, threads=6) == (0, 0)
        assert 16 * edges.most_at_once <= budget.peak_bytes


class CountedEdges(ArrayEdges):
    """How many edges were read."""

    identity = "the same in every run"

    def __init__(self, pairs: NDArray[Any]) -> None:
        super().__init__(pairs)
        self.num_read = 0

    def read(self, first: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        sources, destinations = super().read(first, count)
        self.num_read += len(sources)
        return sources, destinations


@examples(30)
@given(graph=graphs(), is_numbered=st.booleans(), limits=st.sampled_from([SortLimits(), TINY]), few=st.booleans())
def test_nodes_are_counted_while_edges_go_to_the_disk(
    graph: tuple[NDArray[np.int64], int, int], is_numbered: bool, limits: SortLimits, few: bool
) -> None:
    """few: a sample that may not show the highest id, which is then looked for once more."""
    pairs, _, _ = graph
    with pytest.MonkeyPatch.context() as patch, memory_folder(Path()) as folder, WorkFolder(folder / "graph") as work:
        if few:
            patch.setattr(external_sort, "_SAMPLED_PLACES", 1)
            patch.setattr(external_sort, "_SAMPLED_EDGES_PER_PLACE", 1)
        edges = CountedEdges(pairs)
        sorting = sorting_in(work, Budget(1 << 30), threads=2, limits=limits)
        highest = highest_id_to_sort(edges, is_numbered, "graph", sorting)
        assert highest == pairs.max(initial=-1)
        edges.num_read = 0
        shape = EdgeShape(
            num_sources=highest + 1 or 1,
            num_destinations=highest + 1 or 1,
            num_edges=edges.num_edges,
            is_numbered=is_numbered,
            counts_are_found=True,
            origin="graph",
        )
        if highest > 1 << 20:  # as many lists, nearly all empty
            return
        with sorted_lists(edges, shape, sorting) as found:
            lists = joined(list(found), is_numbered=is_numbered)
        assert_same(lists, expected_lists(pairs, shape.num_destinations), is_numbered=is_numbered)
        if limits is TINY and not few:
            assert edges.num_read == 0, "what was spilled to count nodes is not read again"
        work.remove()


def test_spills_that_counted_no_nodes_are_not_taken_for_told_counts(folder: Path) -> None:
    pairs = np.array([[0, 1, 6, 4], [1, 2, 0, 3]])
    with WorkFolder(folder / "graph") as work:
        sorting = sorting_in(work, Budget(1 << 30), threads=1, limits=TINY)
        assert highest_id_to_sort(CountedEdges(pairs), False, "graph", sorting) == 6
        # As many bits, but node 6 is none.
        shape = EdgeShape(num_sources=6, num_destinations=6, num_edges=4, is_numbered=False, origin="graph")
        lists = sorted_lists(CountedEdges(pairs), shape, sorting)
        with pytest.raises(SourceError, match="graph: edge 2 has source 6, but nodes are numbered 0 to 5"), lists:
            pass
        work.remove()
