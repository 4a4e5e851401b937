"""Sizes of predictions layer by layer: within the budget, never slower with more memory, no smaller than need be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from diskhop.disk.model import assumed_disk_model
from diskhop.errors import BudgetError
from diskhop.planning.predict import StreamedPlan, plan_streamed
from diskhop.planning.predict_choice import Room, Search, choose_sizes
from diskhop.planning.predict_sizes import (
    GraphCounts,
    StreamedWork,
    first_rows_memory,
    products_memory,
    reading_outputs_bytes,
    sums_memory,
)
from diskhop.predicting.streamed.layers import num_tiles, streamed_layers
from tests.examples import examples
from tests.streamed_networks import build_network

DISK = assumed_disk_model("threads", "sizes alone")
MB = 1_000_000


def work_of(model: str, num_nodes: int, degree: int, dim: int, hidden: int) -> StreamedWork:
    layers = streamed_layers(build_network(model, dim, 40, hidden=hidden, heads=1))
    return StreamedWork(
        layers=tuple(layer.shape() for layer in layers),
        output_tiles=num_tiles(40),
        kept_tiles=(0,) * len(layers),
        wanted_tiles=num_tiles(40),
        graph=GraphCounts(
            num_nodes=num_nodes,
            num_edges=num_nodes * degree,
            index_bytes=4,
            num_sources=num_nodes,
            feature_row_bytes=4 * dim,
            feature_dim=dim,
            num_stored=num_nodes - num_nodes // 4,
        ),
        takes_features=True,
    )


def plan(
    work: StreamedWork,
    memory_bytes: int,
    threads: int,
    later_bytes: int = 0,
    *,
    cores: int = 2,
    blocks: Sequence[Sequence[int]] = (),
) -> StreamedPlan:
    return plan_streamed(
        work,
        memory_bytes=memory_bytes,
        threads=threads,
        cores=cores,
        engine="threads",
        disk=DISK,
        later={"later": later_bytes},
        blocks=blocks,
    )


def smallest_memory(work: StreamedWork, threads: int) -> int:
    with pytest.raises(BudgetError) as refused:
        plan(work, 1, threads)
    assert refused.value.smallest_bytes is not None
    return refused.value.smallest_bytes


@st.composite
def works(draw: Any) -> StreamedWork:
    num_nodes = draw(st.sampled_from([1, 300, 4200, 100_000, 4_000_000]))
    sizes = draw(st.sampled_from([(6, 6), (30, 512), (128, 256)]))
    return work_of(draw(st.sampled_from(["sage", "gcn", "gat"])), num_nodes, draw(st.integers(0, 20)), *sizes)


@examples(12)
@given(work=works(), threads=st.sampled_from([1, 2, 3, 4]), shares=st.lists(st.floats(0, 8), min_size=2, max_size=6))
def test_more_memory_is_never_predicted_to_be_slower(work: StreamedWork, threads: int, shares: list[float]) -> None:
    smallest_bytes = smallest_memory(work, threads)
    plans = [plan(work, int(smallest_bytes * (1 + share)), threads) for share in sorted(shares)]
    for less, more in pairwise(plans):
        assert more.seconds <= less.seconds * (1 + 1e-9)
        # Parts may be smaller only where wider blocks or another worker save more than larger parts do.
        passes = [sum(layer.num_blocks for layer in each.layers) for each in (less, more)]
        rows_in_parts = [each.part_rows * each.workers for each in (less, more)]
        assert rows_in_parts[1] >= rows_in_parts[0] or passes[1] < passes[0] or more.workers > less.workers


@examples(12)
@given(work=works(), threads=st.sampled_from([1, 2, 3, 4]), share=st.floats(0, 8), later_share=st.floats(0, 1))
def test_every_step_is_within_the_budget(work: StreamedWork, threads: int, share: float, later_share: float) -> None:
    memory_bytes = int(smallest_memory(work, threads) * (1 + share))
    later_bytes = int(share * later_share * memory_bytes / (1 + share) / 2)
    try:
        planned = plan(work, memory_bytes, threads, later_bytes)
    except BudgetError:
        event("refused")
        assert later_bytes > 0
        return
    sizes = choose_sizes(
        work, Room(memory_bytes=memory_bytes, later_bytes=later_bytes, threads=threads, cores=2, disk=DISK)
    ).sizes
    phases = [first_rows_memory(work, sizes)]
    for number, layer in enumerate(planned.layers):
        *others, last = layer.blocks
        phases.append(products_memory(work, number, last, sizes))
        phases += [sums_memory(work, number, tiles, sizes) for tiles in others]
        assert sum(layer.blocks) == work.layers[number].summed_tiles
    assert max(sum(phase.values()) for phase in phases) <= sum(planned.reserved.values()) <= memory_bytes
    assert reading_outputs_bytes(work.wanted_tiles, planned.part_rows, threads) + later_bytes <= memory_bytes
    assert planned.workers == threads + 1 or threads == planned.workers * planned.threads_per_worker
    assert planned.part_rows % planned.product_rows == 0


@examples(8)
@given(work=works(), threads=st.sampled_from([1, 2]), share=st.floats(0, 8))
def test_the_fastest_of_all_that_fit_is_taken(work: StreamedWork, threads: int, share: float) -> None:
    """So that no other part is both larger and as fast."""
    room = Room(
        memory_bytes=int(smallest_memory(work, threads) * (1 + share)),
        later_bytes=0,
        threads=threads,
        cores=2,
        disk=DISK,
    )
    chosen = choose_sizes(work, room)
    for other in Search(work, room, chosen.sizes.stretch_edges).choices():
        assert chosen.seconds <= other.seconds
        assert chosen.seconds < other.seconds or other.sizes.part_rows <= chosen.sizes.part_rows


@pytest.mark.parametrize("model", ["sage", "gcn", "gat"])
def test_the_smallest_budget_that_is_named_works(model: str) -> None:
    work = work_of(model, 100_000, 15, 128, 256)
    smallest_bytes = smallest_memory(work, 2)
    assert plan(work, smallest_bytes, 2).workers == 1
    with pytest.raises(BudgetError):
        plan(work, smallest_bytes - 1, 2)


@pytest.mark.parametrize(
    ("work", "memory_bytes", "least_rows", "workers"),
    [
        (work_of("sage", 4_000_000, 15, 128, 256), 410 * MB, 2048, 3),
        (work_of("sage", 100_000, 15, 128, 256), 40 * MB, 1024, 3),
        (work_of("sage", 4200, 2, 6, 6), 430_000, 64, 1),
    ],
    ids=["large", "small", "tiny"],
)
def test_parts_have_many_rows_of_a_small_budget(
    work: StreamedWork, memory_bytes: int, least_rows: int, workers: int
) -> None:
    """More than a product has: each call costs as much as the products of many rows."""
    planned = plan(work, memory_bytes, 2)
    assert planned.part_rows >= least_rows > planned.product_rows
    assert planned.workers == workers


def test_more_workers_than_threads_take_no_core_that_was_not_given() -> None:
    work = work_of("sage", 100_000, 15, 128, 256)
    assert plan(work, 80 * MB, 2, cores=2).workers == 3
    assert plan(work, 80 * MB, 2, cores=4).workers == 2


@pytest.mark.parametrize("step", [15, pytest.param(5, marks=pytest.mark.slow)])
def test_the_features_fill_the_first_block_if_both_fit(step: int) -> None:
    work = work_of("sage", 100_000, 15, 128, 256)
    found = set()
    for memory_bytes in range(5 * MB, 100 * MB, step * MB):
        room = Room(memory_bytes=memory_bytes, later_bytes=0, threads=2, cores=2, disk=DISK)
        sizes = choose_sizes(work, room).sizes
        planned = plan(work, memory_bytes, 2)
        *others, last = planned.layers[0].blocks
        passing = sums_memory(work, 0, max(others), sizes) if others else products_memory(work, 0, last, sizes)
        both = sum(first_rows_memory(work, sizes).values()) + passing["column block"]
        assert planned.fills_first_block == (both <= memory_bytes)
        assert not planned.fills_first_block or both <= sum(planned.reserved.values())
        found.add(planned.fills_first_block)
    assert found == {False, True}
    assert not plan(work_of("gat", 100_000, 15, 128, 256), 200 * MB, 2).fills_first_block


@pytest.mark.parametrize("takes_features", [True, False])
def test_rows_that_nobody_reads_again_are_not_moved(takes_features: bool) -> None:
    """Neither sums of rows without edges, nor rows of table 0 that are in no block, nor the first block."""
    work = work_of("sage", 4_000_000, 15, 128, 256)
    graph = replace(work.graph, num_sources=3_000_000)
    planned = plan(replace(work, graph=graph, takes_features=takes_features), 430 * MB, 2)
    blocks, tile_bytes, lists_bytes = planned.layers[0].blocks, 16, graph.lists_bytes
    assert (planned.fills_first_block, planned.layers[0].sums_lack_rows) == (True, True)
    assert planned.stores_first_block != takes_features
    first, second, *_ = planned.steps
    table_rows, not_moved = (4_000_000, 0) if not takes_features else (3_000_000, blocks[0] * 3_000_000 * tile_bytes)
    assert first.bytes_read == table_rows * 512
    groups = -(-table_rows // 4096)
    assert first.bytes_written == groups * 4096 * 32 * tile_bytes - not_moved
    read = sum(blocks[:-1]) * 3_000_000 * tile_bytes - not_moved
    assert second.bytes_read == read + (len(blocks) - 1) * lists_bytes
    assert second.bytes_written == sum(blocks[:-1]) * 3_000_000 * tile_bytes  # a quarter has no edges


def test_blocks_of_an_interrupted_run_are_kept_or_refused() -> None:
    work = work_of("sage", 100_000, 15, 128, 256)
    planned = plan(work, 20 * MB, 2)
    blocks = [layer.blocks for layer in planned.layers]

    def again(memory_bytes: int) -> StreamedPlan:
        return plan(work, memory_bytes, 2, blocks=blocks)

    assert [layer.blocks for layer in again(200 * MB).layers] == blocks
    assert again(200 * MB).part_rows >= planned.part_rows
    with pytest.raises(BudgetError, match="the smallest that works"):
        again(10 * MB)
    assert again(20 * MB).steps == planned.steps
