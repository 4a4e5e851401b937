"""Several processes on one machine share memory that counts once, and a disk that each has a part of."""

from __future__ import annotations

import pytest

from diskhop.budget import Budget
from diskhop.disk.model import GRID_BYTES, GRID_DEPTHS, assumed_disk_model
from diskhop.errors import BudgetError, ConfigError
from diskhop.planning.options import waiting_for_disk
from diskhop.plans import HopPlan, Prediction
from diskhop.system.resident import Part


def test_shared_bytes_count_once_and_others_for_each_process() -> None:
    budget = Budget(100, 2)
    with budget.reserve("table", 40, is_shared=True), budget.reserve("staging", 20):
        assert budget.left_after({}) == 20
        assert budget.available_bytes == 10
        budget.require({"batches": 10})
        budget.require({"labels": 20}, shared=("labels",))
        with pytest.raises(BudgetError) as caught:
            budget.require({"batches": 11})
    assert caught.value.smallest_bytes == 102
    assert (
        "for 2 processes on one machine: it needs shared table 40 B; for each process staging 20 B, batches 11 B"
        in str(caught.value)
    )
    assert budget.table() == {"table": 40, "staging": 20}
    assert budget.peak_bytes == 60
    assert budget.available_bytes == 50


def test_a_budget_in_use_is_not_divided_again() -> None:
    budget = Budget(100)
    with budget.reserve("staging", 20), pytest.raises(ConfigError, match="in use for 1 processes, got 2"):
        budget.divide_among(2)
    budget.divide_among(2)
    assert budget.available_bytes == 50


def test_processes_that_read_at_once_share_the_rate_of_the_disk() -> None:
    disk = assumed_disk_model()
    assert disk.shared_by(1) is disk
    each = disk.shared_by(2)
    assert each.sequential_read_bytes_per_second == disk.sequential_read_bytes_per_second / 2
    assert each.break_even_gap_bytes == disk.break_even_gap_bytes
    for num_bytes in GRID_BYTES:
        for depth in GRID_DEPTHS[:-1]:
            # Both together have twice the depth, and each gets every second read.
            both = disk.predict_seconds(num_bytes, 2 * depth)
            assert each.predict_seconds(num_bytes, depth) == pytest.approx(2 * both)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_parts_are_the_whole(count: int) -> None:
    parts = [Part(index, count).of(10) for index in range(count)]
    assert [item for part in parts for item in range(10)[part]] == list(range(10))
    assert [Part(index, count).is_first for index in range(count)] == [True] + [False] * (count - 1)


def test_only_processes_that_wait_for_the_disk_are_said_to() -> None:
    def plan_of(num_processes: int) -> HopPlan:
        return HopPlan(
            engine="threads",
            threads=1,
            memory_bytes=100,
            reserved={"a": 30, "b": 10},
            reasons=(),
            num_processes=num_processes,
            shared=("a",) if num_processes > 1 else (),
            tables="",
            num_tables=1,
            num_rows=1,
            table_bytes=1,
            placement="disk",
            shuffle="rows",
            chunk_rows=1,
        )

    def predicted(io_seconds: float) -> Prediction:
        return Prediction(epoch_seconds=10, io_seconds=io_seconds, cores_seconds=5, compute_seconds=4)

    assert waiting_for_disk(plan_of(2), predicted(9)) == (
        "2 processes wait for the disk: it is busy for 9 s per epoch, the CPU of each process for 5 s; more processes "
        "would only wait longer",
    )
    assert waiting_for_disk(plan_of(2), predicted(4)) == ()
    assert waiting_for_disk(plan_of(1), predicted(9)) == ()
    assert plan_of(2).reserved_bytes == 30 + 2 * 10
    assert "shared" not in plan_of(1).to_dict()
    assert plan_of(2).to_dict()["num_processes"] == 2
