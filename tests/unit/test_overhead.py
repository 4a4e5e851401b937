"""Claims about the memory of a whole process: what is predicted, what fits, and what is refused."""

from __future__ import annotations

import pytest

from diskhop.errors import BudgetError
from diskhop.planning.overhead import (
    PREDICTION_ERROR,
    MeasuredMemory,
    MemoryWish,
    Overhead,
    OverheadError,
    choose_budget,
    predict_overhead,
)
from diskhop.system.limits import MemoryLimit

MB = 10**6
MEASURED = MeasuredMemory(program=300 * MB, shared=100 * MB, parameters=1 * MB, step=200 * MB)
OVERHEAD = Overhead(program=300 * MB, step=220 * MB, copies=80 * MB)
LIMIT = MemoryLimit(2000 * MB, "memory.max of /a")
NOTHING = MemoryWish()


def test_a_prediction_has_the_program_a_step_with_headroom_and_copies_of_the_model() -> None:
    overhead = predict_overhead(MEASURED, threads=0)
    assert overhead == Overhead(300 * MB, 260 * MB, 8 * MB)
    assert overhead.num_bytes == 568 * MB
    assert predict_overhead(MEASURED, threads=2).num_bytes > overhead.num_bytes


def test_processes_have_libraries_in_one_copy_and_all_else_each() -> None:
    one, three = (predict_overhead(MEASURED, threads=6, num_processes=count) for count in (1, 3))
    assert three.step == 3 * one.step
    assert three.copies == 3 * one.copies
    assert three.program - one.program == 2 * (300 - 100) * MB


def test_a_named_total_leaves_the_budget() -> None:
    assert choose_budget(OVERHEAD, LIMIT, 1, MemoryWish(total=1500 * MB)) == 900 * MB
    assert choose_budget(OVERHEAD, LIMIT, 1, MemoryWish(memory=800 * MB, total=1500 * MB)) == 800 * MB


def test_a_default_fits_with_the_error_of_the_prediction() -> None:
    assert choose_budget(OVERHEAD, LIMIT, 500 * MB, NOTHING) == 500 * MB
    chosen = choose_budget(OVERHEAD, LIMIT, 5000 * MB, NOTHING)
    assert chosen + OVERHEAD.num_bytes <= (1 - PREDICTION_ERROR) * LIMIT.num_bytes
    # Where that leaves little, a half of what is left.
    assert choose_budget(OVERHEAD, MemoryLimit(700 * MB, "ulimit -v"), 5000 * MB, NOTHING) == 50 * MB


def test_a_named_budget_that_cannot_fit_is_refused_with_the_one_that_does() -> None:
    fits = LIMIT.num_bytes - OVERHEAD.num_bytes
    assert choose_budget(OVERHEAD, LIMIT, 1, MemoryWish(memory=fits)) == fits
    # The prediction may be that much too high.
    assert choose_budget(OVERHEAD, LIMIT, 1, MemoryWish(memory=fits + 100 * MB)) == fits + 100 * MB
    with pytest.raises(
        BudgetError, match=r"1\.9 GB and predicted .* are 2\.5 GB, more than the 2 GB .*--memory 1400MB"
    ):
        choose_budget(OVERHEAD, LIMIT, 1, MemoryWish(memory=1900 * MB))


def test_a_named_total_bounds_a_named_budget() -> None:
    with pytest.raises(BudgetError, match=r"more than --total-memory 1 GB: use --memory 400MB"):
        choose_budget(OVERHEAD, LIMIT, 1, MemoryWish(memory=601 * MB, total=1000 * MB))
    with pytest.raises(BudgetError, match=r"2\.1 GB is more than the 2 GB .*\(memory\.max of /a\).*2000MB$"):
        choose_budget(OVERHEAD, LIMIT, 1, MemoryWish(total=2100 * MB))


@pytest.mark.parametrize("wish", [MemoryWish(total=600 * MB), MemoryWish(memory=1 * MB)])
def test_overhead_that_leaves_nothing_is_refused_apart(wish: MemoryWish) -> None:
    with pytest.raises(OverheadError, match=r"600 MB \(Python and libraries 300 MB, .* leaves nothing for graph data"):
        choose_budget(OVERHEAD, LIMIT._replace(num_bytes=600 * MB), 1, wish)
