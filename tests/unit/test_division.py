"""Memory is divided between neighbour lists and rows by predicted seconds, from what a batch would read of lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from diskhop._native import BufferPool
from diskhop.budget import Budget
from diskhop.dataset.edge_set import TopologyFiles
from diskhop.io.engine import open_engine
from diskhop.io.streams import TRANSFER_BYTES
from diskhop.policies.division import fewest_seconds
from diskhop.policies.list_reads import ListCurve, list_curve
from diskhop.protocols import Purpose, neighbor_spec
from diskhop.sampling.cached_topology import NeighborCacheOptions, count_neighbors, open_cached_topology
from diskhop.sampling.samplers import open_sampler
from tests.unit.test_cached_topology import write_skewed

GAP_BYTES, ALIGNMENT, READ_BYTES = 8192, 512, 1 << 20


def test_lists_keep_what_they_need_and_rows_get_the_rest() -> None:
    asked: list[int] = []

    def seconds_of(lists_bytes: int) -> float:
        asked.append(lists_bytes)
        return abs(lists_bytes - 260) / 100 + 1.0

    assert fewest_seconds(1000, seconds_of(1000), seconds_of) == 250
    assert asked == [1000, 500, 250, 125]
    # Half a percent is not worth another division, and what cannot work ends the search.
    assert fewest_seconds(1000, 10.0, lambda _: 9.95) == 1000
    assert fewest_seconds(1000, 10.0, lambda lists_bytes: 5.0 if lists_bytes == 500 else None) == 500
    # Never less than an eighth, however good.
    assert fewest_seconds(1024, 10.0, lambda lists_bytes: lists_bytes / 1000) == 128


def curve_and_reads(folder: Path, cache_bytes: int) -> tuple[ListCurve, tuple[int, int]]:
    """The curve of a batch, and what sampling it reads with a cache of this size."""
    files = write_skewed(folder)
    indptr, indices = np.fromfile(files.indptr_path, np.int64), np.fromfile(files.indices_path, np.uint32)
    options = NeighborCacheOptions(cache_bytes=cache_bytes, max_gap_bytes=GAP_BYTES)
    engine = open_engine().engine
    with open_cached_topology(files, options, engine, Budget(200_000_000), BufferPool(0)) as lists:
        sampler = open_sampler(lists, neighbor_spec((5, 4)), 1)
        batch = sampler.sample(np.arange(100, 900, 4), purpose=Purpose.TRAIN, epoch=0, number=0)
    out_degrees = np.bincount(indices, minlength=files.num_nodes)
    curve = list_curve(indptr, out_degrees, batch.edge_positions, batch.num_sampled_edges, 4)
    return curve, (batch.topology_reads, batch.topology_bytes_read)


@pytest.mark.parametrize("cache_bytes", [0, 40_000, 160_000, 300_000])
def test_the_curve_says_what_sampling_reads(tmp_path: Path, cache_bytes: int) -> None:
    curve, (reads, num_bytes) = curve_and_reads(tmp_path, cache_bytes)
    found = curve.reads(cache_bytes, max_gap_bytes=GAP_BYTES, alignment=ALIGNMENT, max_read_bytes=READ_BYTES)
    # The class of lists at the limit is cached in part, which the curve does not count.
    assert reads <= found.reads <= reads + 2
    assert num_bytes <= found.num_bytes <= 1.1 * num_bytes


@pytest.mark.parametrize("counts", ["none", "equal"])
def test_equally_useful_lists_are_cached_in_part(counts: str) -> None:
    """All lists of an undirected graph are one class, of which a cache has a part."""
    num_edges = 100_000
    indptr = np.arange(0, num_edges + 1, 100)
    positions = np.arange(0, num_edges, 7)
    # As many out-edges as in-edges.
    out_degrees = None if counts == "none" else np.diff(indptr)
    curve = list_curve(indptr, out_degrees, positions, [len(positions)], 4)
    found = [
        curve.reads(4 * num_edges * part // 4, max_gap_bytes=0, alignment=1, max_read_bytes=4) for part in range(5)
    ]
    shares = [each.draws / len(positions) for each in found]
    assert shares == pytest.approx([1, 0.75, 0.5, 0.25, 0], abs=0.05)


def test_a_sample_of_the_lists_ranks_nodes_as_all_of_them_do(tmp_path: Path) -> None:
    num_edges = 4 * TRANSFER_BYTES
    indices = (np.random.default_rng(0).random(num_edges) ** 4 * 1000).astype(np.uint32)
    (tmp_path / "indptr.bin").write_bytes(np.array([0, num_edges]).tobytes())
    indices.tofile(tmp_path / "indices.bin")
    files = TopologyFiles(
        indptr_path=tmp_path / "indptr.bin",
        indices_path=tmp_path / "indices.bin",
        index_dtype=np.dtype(np.uint32),
        num_nodes=1000,
        num_edges=num_edges,
    )
    engine = open_engine().engine
    whole = count_neighbors(files, engine, BufferPool(0))
    assert whole.tolist() == np.bincount(indices, minlength=1000).tolist()
    part = count_neighbors(files, engine, BufferPool(0), num_edges)
    assert part.sum() == num_edges // 4, "every fourth byte is read"
    assert np.corrcoef(whole, part)[0, 1] > 0.99
    # A file that is small enough is read whole.
    assert count_neighbors(files, engine, BufferPool(0), 4 * num_edges).tolist() == whole.tolist()


def test_a_larger_cache_never_reads_more(tmp_path: Path) -> None:
    curve, _ = curve_and_reads(tmp_path, 0)
    sizes = np.linspace(0, 4 * curve.num_edges, 20).astype(int).tolist()
    draws = [curve.reads(size, max_gap_bytes=0, alignment=1, max_read_bytes=READ_BYTES).draws for size in sizes]
    assert draws == sorted(draws, reverse=True)
    assert draws[0] == sum(map(len, curve.positions))
    assert draws[-1] == 0
