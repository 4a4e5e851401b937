"""Rows in a new order are those of the old one, whatever memory and blocks they came by."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.dataset.sort.moved_rows import RowMover, plan_move
from diskhop.errors import BudgetError
from diskhop.runtime.progress import silent
from diskhop.runtime.tasks import TaskTools, WorkFolder
from tests.examples import examples
from tests.graphs import threads_engine

MIB = 1 << 20


def moved(
    folder: Path, rows: NDArray[np.uint8], new_ids: NDArray[np.int64], block_rows: int, memory_bytes: int
) -> NDArray[np.uint8]:
    def blocks() -> Iterator[NDArray[np.uint8]]:
        for start in range(0, len(rows), block_rows):
            yield rows[start : start + block_rows]

    with WorkFolder(folder / "graph") as work:
        mover = RowMover(
            new_ids,
            np.argsort(new_ids),
            work=work,
            budget=Budget(memory_bytes),
            tools=TaskTools(threads_engine()),
            progress=silent,
        )
        parts = [block.copy() for block in mover.move(blocks, rows.shape[1], stage="rows", key="")]
        work.remove()
    return np.concatenate(parts)


@examples(25)
@given(
    num_rows=st.integers(1, 30_000),
    row_bytes=st.sampled_from([1, 8, 100, 512, 1000]),
    block_rows=st.sampled_from([1000, 4096, 50_000]),
    seed=st.integers(0, 1000),
)
def test_rows_lie_where_they_should(
    tmp_path_factory: pytest.TempPathFactory, num_rows: int, row_bytes: int, block_rows: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    rows = generator.integers(0, 256, (num_rows, row_bytes)).astype(np.uint8)
    new_ids = generator.permutation(num_rows)
    expected = np.empty_like(rows)
    expected[new_ids] = rows
    folder = tmp_path_factory.mktemp("rows")
    np.testing.assert_array_equal(moved(folder, rows, new_ids, block_rows, 1 << 40), expected)
    smallest = plan_smallest(num_rows, row_bytes)
    for memory_bytes in (smallest, smallest + MIB):
        np.testing.assert_array_equal(moved(folder, rows, new_ids, block_rows, memory_bytes), expected)


def plan_smallest(num_rows: int, row_bytes: int) -> int:
    with pytest.raises(BudgetError) as caught:
        plan_move(num_rows, row_bytes, 1)
    assert caught.value.smallest_bytes is not None
    return caught.value.smallest_bytes


@given(
    num_rows=st.integers(1, 1 << 36),
    row_bytes=st.integers(1, 10_000),
    memory_mib=st.integers(17, 100_000),
)
def test_a_plan_keeps_to_the_memory(num_rows: int, row_bytes: int, memory_mib: int) -> None:
    memory_bytes = max(memory_mib * MIB, plan_smallest(num_rows, row_bytes))
    plan = plan_move(num_rows, row_bytes, memory_bytes)
    assert max(plan.partitioning_bytes, plan.reordering_bytes) <= memory_bytes
    assert plan.num_parts * plan.part_rows >= num_rows
    assert plan.region_bytes >= plan.part_rows * plan.row_bytes
