"""Several processes on one machine share memory that counts once, and a disk that each has a part of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from diskhop.budget import Budget
from diskhop.config.hop import HopConfig
from diskhop.disk.model import GRID_BYTES, GRID_DEPTHS, assumed_disk_model
from diskhop.errors import BudgetError, ConfigError
from diskhop.hops.read.placement import place_tables
from diskhop.hops.tables import TableShape
from diskhop.planning.embeddings.costs import predict_embedding
from diskhop.planning.embeddings.partitions import config_of_rank, numbers_of_partitions, plan_embedding
from diskhop.planning.embeddings.size import EmbedSize
from diskhop.planning.hops.costs import predict_hops
from diskhop.planning.hops.place import place_hops
from diskhop.planning.options import describe_division, waiting_for_disk
from diskhop.plans import HopPlan, Prediction
from diskhop.protocols import NodeRows
from diskhop.runtime.ranks import ONE, Ranks
from diskhop.sampling.seeds import SplitSeeds
from diskhop.system.resident import Part
from tests.embedding import embed_config

STEP_SECONDS = 10.0
HOPS = HopConfig(
    model="sign", batch_size=100, chunk_rows=50, threads=1, lr=0.1, loss="cross-entropy", layers=1, hidden=4,
    norm="none", dropout=0.0, epochs=1, task="classification", metric="accuracy", memory_bytes=1, engine="threads",
    hops=2, operators=("sgc",), direction="in", dtype="float32", shuffle="auto", placement="auto",
)  # fmt: skip


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


def hops_of(num_processes: int, place: Any, **options: Any) -> Prediction:
    """An epoch of 7 batches of 100 rows, in each of 3 tables."""
    shape = TableShape(num_rows=1000, dim=16, dtype="float32", tile_columns=16)
    config = replace(HOPS, **options)
    placement = place_tables(num_bytes=1, memory_bytes=1, place=place)
    budget = Budget(100_000_000, num_processes)
    return predict_hops(config, shape, 3, placement, 650, STEP_SECONDS, assumed_disk_model(), budget)


def test_processes_share_the_batches_of_hop_tables_and_the_disk() -> None:
    alone, both, most = (hops_of(number, "disk") for number in (1, 2, 7))
    assert [each.compute_seconds for each in (alone, both, most)] == [7 * STEP_SECONDS, 4 * STEP_SECONDS, STEP_SECONDS]
    # Together they read every row once, which keeps the disk as busy as one process does.
    assert alone.bytes_read == both.bytes_read == most.bytes_read == 3 * 650 * 64
    assert alone.io_seconds == both.io_seconds == most.io_seconds > 0
    assert alone.reads == both.reads == 3 * 13
    assert hops_of(2, "disk", max_batches=2).compute_seconds == STEP_SECONDS
    # Tables in memory are there once, and loaded once.
    assert hops_of(2, "memory").open_seconds == hops_of(1, "memory").open_seconds


def test_tables_in_memory_count_once_for_all_processes() -> None:
    shape = TableShape(num_rows=1_000_000, dim=16, dtype="float32", tile_columns=16)
    seeds = SplitSeeds(train=NodeRows(np.arange(650)), valid=None, test=None)
    tables_bytes = 3 * shape.num_bytes
    for memory_bytes, place in ((2 * tables_bytes - 1, "memory"), (tables_bytes, "disk")):
        budget = Budget(memory_bytes, 2)
        reserved, placement = place_hops(HOPS, seeds, shape, 3, 0, budget)
        assert placement.place == place
        assert budget.left_after(reserved, ("hop tables",)) >= 0
    # Memory of a training step is each process's own.
    assert place_hops(HOPS, seeds, shape, 3, tables_bytes // 2, Budget(2 * tables_bytes - 1, 2))[1].place == "disk"


def ranks_of(count: int) -> Ranks:
    return Ranks(rank=0, count=count, local_rank=0, local_count=count)


def test_processes_divide_the_memory_and_the_edges_of_embeddings() -> None:
    size = EmbedSize(num_nodes=100_000, num_edges=1_000_000, num_relations=7, block_bytes=1, measure_bytes=1)
    whole = embed_config(partitions=8, dim=32, memory_bytes=60_000_000)
    config = config_of_rank(whole, ranks_of(2))
    plan = plan_embedding(config, size, Budget(whole.memory_bytes, 2), ranks_of(2))
    assert plan.num_processes == 2
    assert plan.reserved_bytes == 2 * sum(plan.reserved.values()) <= whole.memory_bytes == plan.memory_bytes
    predicted = [predict_embedding(plan, config, size.num_edges, rate, assumed_disk_model()) for rate in (1e6, 1e3)]
    # Every partition and every edge, wherever it is read; and together twice the edges of one.
    assert predicted[0].bytes_read == plan.loads * plan.partition_bytes + 12 * size.num_edges
    assert [each.compute_seconds for each in predicted] == [1, 1000]
    assert not waiting_for_disk(plan, predicted[1])
    slow = assumed_disk_model().shared_by(1000)
    assert waiting_for_disk(plan, predict_embedding(plan, config, size.num_edges, 1e6, slow))
    with pytest.raises(BudgetError, match=r"for 2 processes on one machine.*or use --partitions 12, which fits"):
        plan_embedding(replace(config, memory_bytes=10_000_000), size, Budget(20_000_000, 2), ranks_of(2))


def test_every_process_gets_two_groups_of_partitions() -> None:
    assert numbers_of_partitions(60, ONE)[:3] == [1, 4, 6]
    assert numbers_of_partitions(3, ONE) == [1]
    for count in (2, 3, 4):
        numbers = numbers_of_partitions(60, ranks_of(count))
        assert all(number % (2 * count) == 0 and number <= 60 for number in numbers)
    with pytest.raises(ConfigError, match="40 processes need at least 80 partitions, got 60 nodes"):
        numbers_of_partitions(60, ranks_of(40))


def test_shared_bytes_are_told_apart() -> None:
    assert describe_division({"a": 2, "b": 3, "c": 0}, ("b", "c"), 2) == (
        "Memory of 2 processes: 3 B shared (b), 2 B for each process"
    )
    assert describe_division({"a": 2}, (), 3) == "Memory of 3 processes: 2 B for each process"
