"""Stores of a graph with types are simulated with the memory that they have together, not with all of it each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from diskhop.batches.short_trace import ShortTrace
from diskhop.disk.model import assumed_disk_model
from diskhop.plans import Prediction, SampledPlan, StoreShare
from diskhop.protocols import Table, TableGroup, TablePart
from diskhop.stores.costs import Machine, Scenario
from diskhop.stores.group_share import GroupShare, PartShare, simulate_group
from diskhop.stores.scan_costs import batches_in_flight
from diskhop.stores.scanning import BYTES_PER_ROW_IN_FLIGHT
from diskhop.stores.stores import STORES
from diskhop.system.memory import buffer_bytes

ROW_BYTES, NUM_ROWS, BLOCK_BYTES = 512, 10_000, 1 << 20
# Rows of each type that a batch reads.
BATCH_ROWS = {"author": 2000, "paper": 3000}


def scenario(folder: Path, bytes_in_flight: int) -> Scenario:
    parts = []
    for number, name in enumerate(BATCH_ROWS):
        path = folder / f"{name}.bin"
        path.write_bytes(bytes(ROW_BYTES))
        table = Table(path=path, num_rows=NUM_ROWS, row_bytes=ROW_BYTES, row_stride=ROW_BYTES)
        parts.append(TablePart(name=name, first_row=number * NUM_ROWS, table=table, dtype="float32", dim=128))
    group = TableGroup(
        path=folder, num_rows=2 * NUM_ROWS, row_bytes=ROW_BYTES, row_stride=ROW_BYTES, parts=tuple(parts)
    )
    ids = np.concatenate([np.arange(count) + n * NUM_ROWS for n, count in enumerate(BATCH_ROWS.values())])
    plan = SampledPlan(
        engine="threads",
        threads=1,
        memory_bytes=1 << 30,
        reserved={},
        reasons=(),
        store="direct",
        engine_depth=32,
        topology="memory",
        topology_cache_bytes=0,
        batch_bytes=0,
        bytes_in_flight=bytes_in_flight,
        bytes_assembled=1,
        holds_while_waiting=False,
        sampling_threads=1,
        max_gap_bytes=0,
        max_read_bytes=1 << 20,
        staging_bytes=1 << 20,
        batch_rows=len(ids),
        share=GroupShare(parts={name: PartShare(share=StoreShare(), staging_bytes=1 << 20) for name in BATCH_ROWS}),
    )
    return Scenario(
        trace=ShortTrace(
            node_ids=(ids,) * 4,
            block_bytes=BLOCK_BYTES,
            record_bytes=0.0,
            sample_seconds=0.0,
            middle=cast(Any, None),
        ),
        table=group,
        table_alignment=1,
        plan=plan,
        machine=Machine(
            disk=assumed_disk_model("threads", "costs alone"), threads=1, step_seconds=0.0, copy_seconds=0.0
        ),
        num_batches=4,
        is_only=True,
        is_reused=False,
        pinned=None,
        counting_bytes=0,
        page_cache_bytes=0,
        lists=None,
    )


@pytest.mark.parametrize("num_batches", [2, 5])
def test_each_type_is_simulated_with_its_part_of_the_batches_in_flight(tmp_path: Path, num_batches: int) -> None:
    each_bytes = BLOCK_BYTES + sum(BATCH_ROWS.values()) * (ROW_BYTES + BYTES_PER_ROW_IN_FLIGHT)
    given = scenario(tmp_path, int((num_batches + 0.5) * each_bytes))
    parts: list[Scenario] = []

    def simulate(part: Scenario) -> Prediction:
        parts.append(part)
        return Prediction(epoch_seconds=0.0, io_seconds=0.0, cores_seconds=0.0, compute_seconds=0.0)

    simulate_group(replace(STORES["direct"], simulate=simulate), given)
    assert sum(part.plan.bytes_in_flight for part in parts) <= given.plan.bytes_in_flight
    for part in parts:
        row_bytes = buffer_bytes(int(part.trace.num_rows * ROW_BYTES))
        assert batches_in_flight(part, row_bytes) in (num_batches - 1, num_batches)
