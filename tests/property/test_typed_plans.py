"""Plans of passes over relations: within the budget, never slower with more memory, no smaller than need be."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskhop.disk.model import assumed_disk_model
from diskhop.errors import BudgetError
from diskhop.planning.predict_sizes import GraphCounts, Sizes
from diskhop.planning.predict_typed import RowsStep, SumsStep, TypedPassesPlan, TypedWork, plan_typed_passes
from tests.examples import examples

DISK = assumed_disk_model("threads", "plans alone")


def work_of(num_nodes: int, degree: int, tiles: int) -> TypedWork:
    """One layer of a graph with a large and a small type."""
    counts = GraphCounts(
        num_nodes=num_nodes,
        num_edges=num_nodes * degree,
        index_bytes=4,
        num_sources=num_nodes,
        feature_row_bytes=0,
        feature_dim=0,
    )
    dim = 4 * tiles
    return TypedWork(
        steps=(
            RowsStep(
                name="features",
                num_rows=num_nodes,
                feature_row_bytes=2 * dim,
                feature_dim=dim,
                out_tiles=tiles,
                widest=dim,
                flops=2.0 * dim * dim,
            ),
            SumsStep(name="large", num_sources=num_nodes, num_tiles=tiles, relations=(counts, counts)),
            SumsStep(name="small", num_sources=7, num_tiles=tiles, relations=(replace(counts, num_edges=num_nodes),)),
            RowsStep(
                name="rows",
                num_rows=num_nodes,
                read_tiles=4 * tiles,
                out_tiles=tiles,
                widest=4 * dim,
                flops=8.0 * dim * dim,
            ),
        ),
        wanted_tiles=tiles,
        work_bytes=10**9,
        result_bytes=10**8,
    )


def plan(work: TypedWork, memory_bytes: int, threads: int, blocks: tuple[tuple[int, ...], ...] = ()) -> TypedPassesPlan:
    return plan_typed_passes(
        work, memory_bytes=memory_bytes, threads=threads, engine="threads", disk=DISK, blocks=blocks
    )


def smallest_memory(work: TypedWork, threads: int) -> int:
    with pytest.raises(BudgetError, match="the smallest that works") as refused:
        plan(work, 1, threads)
    assert refused.value.smallest_bytes is not None
    return refused.value.smallest_bytes


@examples(10)
@given(
    work=st.builds(
        work_of, st.sampled_from([1, 300, 4200, 2_000_000]), st.integers(0, 20), st.sampled_from([1, 2, 32])
    ),
    threads=st.sampled_from([1, 2, 3]),
    shares=st.lists(st.floats(0, 8), min_size=2, max_size=4),
)
def test_plans_fit_and_more_memory_is_never_slower(work: TypedWork, threads: int, shares: list[float]) -> None:
    smallest_bytes = smallest_memory(work, threads)
    memory = sorted(int(smallest_bytes * (1 + share)) for share in shares)
    plans = [plan(work, memory_bytes, threads) for memory_bytes in [smallest_bytes, *memory]]
    for less, more in pairwise(plans):
        assert more.seconds <= less.seconds * (1 + 1e-9)
    for memory_bytes, each in zip([smallest_bytes, *memory], plans, strict=True):
        sizes = Sizes(each.part_rows, each.product_rows, each.stretch_edges, each.workers, each.summed_rows)
        phases = [step.memory(sizes) for step in work.rows]
        for step, blocks in zip(work.sums, each.blocks, strict=True):
            assert sum(blocks) == step.num_tiles
            phases += [step.memory(tiles, sizes) for tiles in blocks]
        assert max(sum(phase.values()) for phase in phases) <= sum(each.reserved.values()) <= memory_bytes
        assert len({each.product_rows for each in plans}) == 1
    with pytest.raises(BudgetError):
        plan(work, smallest_bytes - 1, threads)


def test_blocks_of_an_interrupted_run_are_kept_or_refused() -> None:
    work = work_of(100_000, 10, 32)
    narrow = plan(work, 2 * smallest_memory(work, 2), 2)
    assert len(narrow.blocks[0]) > 1 == len(narrow.blocks[1])
    assert plan(work, 10**9, 2, narrow.blocks).blocks == narrow.blocks
    assert plan(work, 10**9, 2).blocks == ((32,), (32,))
    with pytest.raises(BudgetError):
        plan(work, smallest_memory(work, 2), 2, narrow.blocks)
