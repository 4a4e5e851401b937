"""Claims about lists that are held in part: the same batches as in memory, whatever is held; errors name the place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, FaultInjector, FaultRule, keyed_permutation, why_no_uring
from diskhop.budget import Budget
from diskhop.dataset.edge_set import TopologyFiles
from diskhop.errors import BudgetError, FormatError, ReadError
from diskhop.protocols import Purpose, SampledBatch, Sampler, neighbor_spec
from diskhop.sampling.cached_topology import (
    STAGING_BYTES,
    CachedTopology,
    NeighborCacheOptions,
    cached_topology_bytes,
    open_cached_topology,
    room_for_lists,
)
from diskhop.sampling.samplers import open_sampler
from diskhop.sampling.topology import Topology, open_topology
from tests.examples import examples
from tests.graphs import memory_folder
from tests.unit.sampling_oracle import assert_same_batch

ENGINES = ["threads"] if why_no_uring() else ["uring", "threads"]


def write_files(folder: Path, degrees: NDArray[Any], indices: NDArray[Any]) -> TopologyFiles:
    np.cumsum([0, *degrees], dtype=np.int64).tofile(folder / "indptr.bin")
    indices.tofile(folder / "indices.bin")
    return TopologyFiles(
        indptr_path=folder / "indptr.bin",
        indices_path=folder / "indices.bin",
        index_dtype=indices.dtype,
        num_nodes=len(degrees),
        num_edges=len(indices),
    )


def write_skewed(folder: Path, dtype: type[np.generic] = np.uint32, num_nodes: int = 20_000) -> TopologyFiles:
    """Half of the edges are node 7's, a third of the nodes have none, and low ids are neighbours more often."""
    rng = np.random.default_rng(3)
    degrees = rng.integers(0, 9, num_nodes) * (rng.random(num_nodes) < 2 / 3)
    degrees[7] = degrees.sum()
    indices = (rng.random(int(degrees.sum())) ** 3 * num_nodes).astype(dtype)
    return write_files(folder, degrees, indices)


@contextmanager
def open_cached(
    files: TopologyFiles, cache_bytes: int, engine: Engine, *, max_gap_bytes: int = 4096
) -> Iterator[CachedTopology]:
    options = NeighborCacheOptions(cache_bytes=cache_bytes, max_gap_bytes=max_gap_bytes)
    budget = Budget(1 << 30)
    with open_cached_topology(files, options, engine, budget, BufferPool(STAGING_BYTES)) as topology:
        yield topology
    assert budget.available_bytes == budget.total_bytes
    assert budget.table() == {"topology": cached_topology_bytes(files, cache_bytes)}


def sample(
    topology: Topology | CachedTopology, seeds: list[int] | NDArray[np.int64], fanouts: list[int], number: int = 0
) -> SampledBatch:
    sampler = open_sampler(topology, neighbor_spec(fanouts), seed=5)
    return sampler.sample(np.array(seeds, np.int64), purpose=Purpose.TRAIN, epoch=1, number=number)


def held_bytes(files: TopologyFiles) -> int:
    return np.dtype(files.index_dtype).itemsize * files.num_edges


@st.composite
def graphs(draw: st.DrawFn) -> tuple[NDArray[Any], NDArray[Any]]:
    """Degrees and neighbours; some nodes without any, maybe a hub with half of the edges."""
    num_nodes = draw(st.integers(1, 70))
    degrees = np.array(draw(st.lists(st.integers(0, 12), min_size=num_nodes, max_size=num_nodes)))
    if draw(st.booleans()):
        degrees[draw(st.integers(0, num_nodes - 1))] = draw(st.integers(200, 900))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    indices = rng.integers(0, num_nodes, int(degrees.sum())) // draw(st.integers(1, 3))
    return degrees, indices.astype(draw(st.sampled_from([np.uint32, np.int64])))


@pytest.mark.parametrize("engine_name", ENGINES)
@examples(60)
@given(
    graph=graphs(),
    share=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
    fanouts=st.lists(st.sampled_from([-1, 1, 3, 10, 20]), min_size=1, max_size=3),
    max_gap_bytes=st.sampled_from([0, 500, 40_000]),
    data=st.data(),
)
def test_batches_are_those_of_lists_in_memory(
    engine_name: str,
    graph: tuple[NDArray[Any], NDArray[Any]],
    share: float,
    fanouts: list[int],
    max_gap_bytes: int,
    data: st.DataObject,
) -> None:
    degrees, indices = graph
    seeds = data.draw(st.lists(st.integers(0, len(degrees) - 1), unique=True, max_size=8))
    engine = Engine(engine_name, 8)
    with memory_folder(Path(os.curdir)) as folder:
        files = write_files(folder, degrees, indices)
        with open_topology(files, "memory", engine, Budget(1 << 30)) as topology:
            expected = sample(topology, seeds, fanouts)
        cache_bytes = int(share * held_bytes(files))
        with open_cached(files, cache_bytes, engine, max_gap_bytes=max_gap_bytes) as topology:
            actual = sample(topology, seeds, fanouts)
    assert_same_batch(actual, expected)
    if share == 1:
        assert actual.topology_reads == 0


@pytest.mark.fast(4)
@pytest.mark.parametrize("engine_name", ENGINES)
@pytest.mark.parametrize("dtype", [np.uint32, np.int64])
@pytest.mark.parametrize("share", [0, 0.3, 1])
def test_threads_and_files_on_a_disk_change_nothing(
    tmp_path: Path, engine_name: str, dtype: type[np.generic], share: float
) -> None:
    files = write_skewed(tmp_path, dtype)
    engine = Engine(engine_name, 8)
    seeds = keyed_permutation(files.num_nodes, 0, 0, 0)
    for fanouts in ([10, 10, 10], [-1, 4]):
        with open_topology(files, "memory", engine, Budget(1 << 30)) as topology:
            expected = [sample(topology, [7, *seeds[n * 100 :][: 100 + n]], fanouts, n) for n in range(8)]
        with open_cached(files, int(share * held_bytes(files)), engine) as cached:
            sampler = open_sampler(cached, neighbor_spec(fanouts), seed=5)

            def draw(number: int, sampler: Sampler = sampler) -> SampledBatch:
                part = np.array([7, *seeds[number * 100 :][: 100 + number]])
                return sampler.sample(part, purpose=Purpose.TRAIN, epoch=1, number=number)

            with ThreadPoolExecutor(4) as threads:
                for _ in range(2):  # the second time in workspaces that were used
                    for ours, theirs in zip(threads.map(draw, range(8)), expected, strict=True):
                        assert_same_batch(ours, theirs)


def test_what_is_held_is_not_read_and_more_of_it_saves_reads(tmp_path: Path) -> None:
    files = write_skewed(tmp_path, num_nodes=200_000)
    seeds = np.union1d(keyed_permutation(files.num_nodes, 0, 0, 0)[:200], [7])
    reads = []
    for share in (0, 0.25, 0.5, 1):
        with open_cached(files, int(share * held_bytes(files)), Engine("threads", 8), max_gap_bytes=0) as topology:
            assert len(topology.lists) <= max(1, share * files.num_edges)
            # At a half all lists but the hub's fit: they are half of the edges but for rounding.
            assert len(topology.lists) >= 0.99 * share * files.num_edges
            reads.append(sample(topology, seeds, [10, 10]).topology_reads)
    assert reads[0] > reads[1] > reads[2] > reads[3] == 0


def test_of_a_hub_that_is_not_held_only_sectors_with_draws_are_read(tmp_path: Path) -> None:
    degrees = np.array([1_000_000, 0, 0])
    files = write_files(tmp_path, degrees, np.zeros(1_000_000, np.uint32))
    with open_cached(files, 0, Engine("threads", 8), max_gap_bytes=0) as topology:
        batch = sample(topology, [0], [10])
    assert batch.topology_reads <= 10
    assert 10 * 4 <= batch.topology_bytes_read <= 10 * 4096


def test_the_budget_is_asked_before_anything_is_held(tmp_path: Path) -> None:
    files = write_skewed(tmp_path)
    needed = cached_topology_bytes(files, 1000)
    options = NeighborCacheOptions(cache_bytes=1000, max_gap_bytes=0)
    with (
        pytest.raises(BudgetError),
        open_cached_topology(files, options, Engine("threads", 4), Budget(needed - 1), BufferPool(0)),
    ):
        pass
    assert cached_topology_bytes(files, held_bytes(files)) == cached_topology_bytes(files, 1 << 40)


def test_the_guide_says_what_a_cache_of_lists_takes() -> None:
    text = " ".join((Path(__file__).parents[2] / "docs/guides/stores.md").read_text().split())

    def bytes_of(num_nodes: int, cache_bytes: int) -> int:
        lists = {"indptr_path": Path("indptr"), "indices_path": Path("indices"), "index_dtype": np.dtype(np.uint32)}
        files = TopologyFiles(num_nodes=num_nodes, num_edges=15 * num_nodes, **lists)  # type: ignore[arg-type]
        return cached_topology_bytes(files, cache_bytes)

    large = 5 * 10**8  # more than counts take
    per_node = (bytes_of(10**8, large) - bytes_of(10**7, large)) / (10**8 - 10**7)
    million, thousand = bytes_of(10**6, 20 * 10**6), bytes_of(1000, 0)
    assert f"next to {per_node:.1f} bytes per node for what finds a list and {thousand / 1e6:.0f} MB of buffers" in text
    assert f"{million / 1e6:.0f} MB for a million nodes and a cache of 20 MB, {thousand / 1e6:.0f} MB for" in text


def test_lists_take_all_the_room_that_there_is(tmp_path: Path) -> None:
    files = replace(write_skewed(tmp_path), num_nodes=10_000_000, num_edges=1 << 30)
    smallest = cached_topology_bytes(files, 0)
    assert room_for_lists(files, smallest - 1) < 0
    for num_bytes in (smallest, smallest + 12_345_678, smallest + 100_000_000):
        cache_bytes = room_for_lists(files, num_bytes)
        assert cache_bytes >= 0
        assert cached_topology_bytes(files, cache_bytes) <= num_bytes
        assert cached_topology_bytes(files, cache_bytes + (2 << 20)) > num_bytes


@pytest.mark.parametrize("engine_name", ENGINES)
@pytest.mark.parametrize("kind", ["io_error", "truncated"])
def test_a_read_that_fails_is_one_error_with_file_and_offset(tmp_path: Path, engine_name: str, kind: str) -> None:
    files = write_skewed(tmp_path)
    counter = FaultInjector([])
    with open_cached(files, held_bytes(files) // 4, Engine(engine_name, 8, counter)) as topology:
        num_opening = counter.count("reads")
        sample(topology, list(range(100)), [5, 5])
        num_reads = counter.count("reads")
    assert 1 < num_opening < num_reads
    # The first is of indptr: those after it are of the counting, of loading and of sampling.
    for nth in {2, num_opening, num_opening + 1, num_reads}:
        injector = FaultInjector([FaultRule(kind, "reads", nth)])
        engine = Engine(engine_name, 8, injector)
        with (
            pytest.raises(ReadError, match=r"indices\.bin: .*(offset|byte) [0-9]+"),
            open_cached(files, held_bytes(files) // 4, engine) as topology,
        ):
            sample(topology, list(range(100)), [5, 5])


def test_a_sampler_is_fit_for_use_after_a_read_failed(tmp_path: Path) -> None:
    files = write_skewed(tmp_path)
    with open_cached(files, 0, Engine("threads", 8)) as topology:
        expected = sample(topology, list(range(50)), [5, 5])
    counter = FaultInjector([])
    with open_cached(files, 0, Engine("threads", 8, counter)):
        num_opening = counter.count("reads")
    engine = Engine("threads", 8, FaultInjector([FaultRule("io_error", "reads", num_opening + 1)]))
    with open_cached(files, 0, engine) as topology:
        sampler = open_sampler(topology, neighbor_spec([5, 5]), seed=5)
        with pytest.raises(ReadError):
            sampler.sample(np.arange(50), purpose=Purpose.TRAIN, epoch=1, number=0)
        again = sampler.sample(np.arange(50), purpose=Purpose.TRAIN, epoch=1, number=0)
    assert_same_batch(again, expected)


@pytest.mark.parametrize("value", [20_000, 2**31])
def test_a_damaged_neighbor_is_refused_when_opened_and_when_read(tmp_path: Path, value: int) -> None:
    files = write_skewed(tmp_path)
    engine = Engine("threads", 8)
    indices = np.fromfile(files.indices_path, np.uint32)
    sound, indices[11] = indices[11], value
    damaged = f"indices.bin: .*indices.11. is {value}, the graph has 20000 nodes"
    with open_cached(files, 0, engine) as topology:
        node = int(np.searchsorted(topology.indptr, 11, "right")) - 1
        indices.tofile(files.indices_path)
        with pytest.raises(FormatError, match=damaged):
            sample(topology, [node], [-1])
    # Lists to cache are chosen by reading all of them.
    with pytest.raises(FormatError, match=damaged), open_cached(files, 40_000, engine):
        pass
    indices[11] = sound
    indices.tofile(files.indices_path)
    files.indices_path.write_bytes(files.indices_path.read_bytes()[:-4])
    with pytest.raises(FormatError, match=r"indices\.bin: is [0-9]+ bytes"), open_cached(files, 0, engine):
        pass


def test_a_graph_without_edges_opens(tmp_path: Path) -> None:
    files = write_files(tmp_path, np.zeros(3, np.int64), np.empty(0, np.uint32))
    with open_cached(files, 100, Engine("threads", 4)) as topology:
        batch = sample(topology, [2, 0], [5, 5])
    assert batch.node_ids.tolist() == [2, 0]
    assert (batch.num_sampled_nodes, batch.num_sampled_edges) == ((2, 0, 0), (0, 0))
