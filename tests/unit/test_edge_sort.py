"""Sorting edges into buckets: the order of the input in each, whoever sorts which range, and however often."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from diskhop._native import CrashError
from diskhop.dataset.dataset import Dataset
from diskhop.embedding.graph_edges import embedded_nodes, read_edge_parts
from diskhop.embedding.partitions import sort
from diskhop.embedding.partitions.columns import MemoryColumn
from diskhop.embedding.partitions.edges import Block, EdgeBuckets
from diskhop.embedding.partitions.layout import PartitionLayout
from diskhop.embedding.partitions.sort import SortJob, counts_bytes, num_ranges, sort_edges
from diskhop.planning.embeddings.partitions import permutation_of
from diskhop.runtime.jobs import Job, Share
from diskhop.runtime.plain import decode_job, encode_job
from diskhop.runtime.tasks import TaskTools
from tests.embedding import embed_config, small_triples
from tests.executing import Copies
from tests.graphs import threads_engine
from tests.runs import small_graph

LAYOUT = PartitionLayout(num_nodes=50, num_partitions=3, dim=1, state_dim=1)


class Edges(NamedTuple):
    """Edges by places, with their numbers as relations; a third of the input is left out."""

    ends: NDArray[np.int64]

    @property
    def num_edges(self) -> int:
        return len(self._kept(0, self.num_input))

    @property
    def num_input(self) -> int:
        return len(self.ends)

    def blocks(self, start: int, stop: int) -> Iterator[Block]:
        for first in range(start, stop, 7):
            numbers = self._kept(first, min(first + 7, stop))
            yield self.ends[numbers, 0], numbers, self.ends[numbers, 1]

    def _kept(self, start: int, stop: int) -> NDArray[np.int64]:
        return np.array([number for number in range(start, stop) if number % 3], np.int64)


EDGES = Edges(np.random.default_rng(0).integers(0, 50, (1000, 2)))


def sort_in(folder: Path | None, tools: TaskTools, *, in_memory: bool = True) -> EdgeBuckets:
    if folder is not None:
        folder.mkdir()
    return sort_edges(
        LAYOUT,
        EDGES,
        has_relations=True,
        folder=folder,
        in_memory=in_memory,
        tools=tools,
        progress=lambda done, total: None,
    )


def triples_of(buckets: EdgeBuckets) -> list[list[list[int]]]:
    """Return places of sources, numbers and places of destinations of each bucket."""
    found = []
    for bucket in [(i, j) for i in range(3) for j in range(3)]:
        rows = buckets.rows([bucket], LAYOUT.start)
        assert rows.relations is not None
        found.append(np.stack([rows.sources, rows.relations, rows.destinations]).tolist())
    return found


def expected() -> list[list[list[int]]]:
    partitions = np.searchsorted([LAYOUT.start(1), LAYOUT.start(2)], EDGES.ends, side="right")
    found = []
    for bucket in [(i, j) for i in range(3) for j in range(3)]:
        numbers = np.flatnonzero((partitions == bucket).all(1) & (np.arange(1000) % 3 > 0))
        found.append([EDGES.ends[numbers, 0].tolist(), numbers.tolist(), EDGES.ends[numbers, 1].tolist()])
    return found


@pytest.fixture(autouse=True)
def short_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort, "LEAST_RANGE_EDGES", 100)


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_bucket_has_its_edges_in_the_order_of_the_input(tmp_path: Path, count: int, in_memory: bool) -> None:
    executor = Copies(count)
    tools = TaskTools(threads_engine(), executor=executor)
    found = sort_in(tmp_path / "edges", tools, in_memory=in_memory)
    assert triples_of(found) == expected()
    if count > 1:  # each range was counted twice, then placed twice
        assert sorted(number for _, number in executor.parts) == sorted(2 * list(range(10)))
    assert triples_of(sort_in(None, TaskTools(threads_engine()))) == expected()


class _Half(NamedTuple):
    """Edges whose reader is killed after two blocks."""

    whole: Edges
    num_edges: int
    num_input: int

    def blocks(self, start: int, stop: int) -> Iterator[Block]:
        yield from islice(self.whole.blocks(start, stop), 2)
        raise CrashError("killed")


class Killed(Copies):
    """Leaves every part half done, then repeats it."""

    def run(self, job: Job, number: int, count: Callable[[int], None]) -> None:
        assert isinstance(job, SortJob)
        with pytest.raises(CrashError):
            replace(job, edges=_Half(EDGES, EDGES.num_edges, EDGES.num_input)).run(number, count)
        super().run(job, number, count)


def test_ranges_whose_process_was_killed_are_repeated_into_the_same_places(tmp_path: Path) -> None:
    found = sort_in(tmp_path / "edges", TaskTools(threads_engine(), executor=Killed(2)), in_memory=False)
    assert triples_of(found) == expected()


@pytest.mark.parametrize("make", [small_triples, small_graph])
@pytest.mark.parametrize("num_shares", [1, 3])
def test_a_share_is_the_same_however_its_input_is_divided(
    tmp_path: Path, make: Callable[[Path], Dataset], num_shares: int
) -> None:
    dataset, config = make(tmp_path), embed_config(valid_share=0.2, test_share=0.1)
    parts = read_edge_parts(dataset, config, permutation_of(config, embedded_nodes(dataset).num_nodes))
    found = []
    for number in range(num_shares):
        # As an index of an array job has it.
        job = SortJob(
            layout=LAYOUT, edges=parts.train_share(1, number, num_shares), num_parts=1, counts=MemoryColumn(np.zeros(9))
        )
        copy = decode_job(encode_job(job, Share(2, tmp_path)), threads_engine())
        assert isinstance(copy, SortJob)
        share = copy.edges
        cuts = [0, 1, 1, share.num_input // 3, share.num_input]
        divided = [edge for cut in pairwise(cuts) for edge in _ends(share.blocks(*cut))]
        assert divided == _ends(share.blocks(0, share.num_input))
        assert len(divided) == share.num_edges
        found += divided
    assert sorted(found) == sorted(_ends(parts.train()))
    assert len(found) == parts.num_train


def _ends(blocks: Iterator[Block]) -> list[tuple[int, int]]:
    return [edge for block in blocks for edge in zip(block[0].tolist(), block[2].tolist(), strict=True)]


def test_counts_of_many_partitions_are_few() -> None:
    assert num_ranges(0, 1) == num_ranges(3, 4) == 1
    assert num_ranges(10**9, 8) == 64
    assert num_ranges(10**9, 256) == 16
    assert counts_bytes(10**9, 256) == 4 * (8 << 20)
