"""Predictions of stores that look ahead, against the events of passes that follow each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from diskhop.batches.short_trace import ShortTrace
from diskhop.disk.model import assumed_disk_model
from diskhop.plans import SampledPlan, StoreShare
from diskhop.policies.superbatches import FIRST_LENGTHS, SUPERBATCHES_ON_DISK, lengths_of_passes
from diskhop.protocols import Table
from diskhop.stores.costs import BatchCost, CoreSeconds, Machine, Scenario, SuperbatchCost, predict_epoch

STEP_SECONDS, GROWTH = 1.0, 1.5


def scenario(*, first: int, is_only: bool, num_batches: int = 37) -> Scenario:
    """Batches that cost nothing but their training step."""
    plan = SampledPlan(
        engine="threads",
        threads=1,
        memory_bytes=1 << 30,
        reserved={},
        reasons=(),
        store="packed",
        engine_depth=32,
        topology="memory",
        topology_cache_bytes=0,
        batch_bytes=0,
        bytes_in_flight=1,
        bytes_assembled=1,
        holds_while_waiting=False,
        sampling_threads=1,
        max_gap_bytes=0,
        max_read_bytes=1 << 20,
        staging_bytes=1 << 20,
        batch_rows=1,
        share=StoreShare(superbatch=1000, first_superbatch=first),
    )
    trace = ShortTrace(
        node_ids=(np.arange(1),), block_bytes=0.0, record_bytes=0.0, sample_seconds=0.0, middle=cast(Any, None)
    )
    machine = Machine(
        disk=assumed_disk_model("threads", "costs alone"),
        threads=1,
        # Within a run a step takes a little longer.
        step_seconds=STEP_SECONDS / 1.03,
        copy_seconds=0.0,
    )
    return Scenario(
        trace=trace,
        table=Table(path=Path("features.bin"), num_rows=1, row_bytes=1, row_stride=1),
        table_alignment=1,
        plan=plan,
        machine=machine,
        num_batches=num_batches,
        is_only=is_only,
        is_reused=False,
        pinned=None,
        counting_bytes=0,
        page_cache_bytes=0,
        lists=None,
        cores=CoreSeconds(batch=0.0),
    )


def run_events(lengths: list[int], seconds_per_batch: float) -> list[float]:
    """Return when training on each superbatch ends: one thread makes them in order, as many as the disk takes."""
    made = 0.0
    trained: list[float] = []
    for number, length in enumerate(lengths):
        freed = trained[number - SUPERBATCHES_ON_DISK] if number >= SUPERBATCHES_ON_DISK else 0.0
        made = max(made, freed) + length * seconds_per_batch
        trained.append(max(made, trained[-1] if trained else 0.0) + length * STEP_SECONDS)
    return trained


@pytest.mark.parametrize("seconds_per_batch", [0.1, 0.5, 0.9, 1.4])
@pytest.mark.parametrize("first", FIRST_LENGTHS)
@pytest.mark.parametrize("epochs", [1, 2, 3, 6])
def test_a_run_takes_as_long_as_its_events(epochs: int, first: int, seconds_per_batch: float) -> None:
    given = scenario(first=first, is_only=epochs == 1)
    passes = given.superbatch_passes(GROWTH)
    ahead = SuperbatchCost(passes=passes, wait_seconds_per_batch=seconds_per_batch)
    predicted = predict_epoch(given, BatchCost(), ahead=ahead)
    *of_run, after = lengths_of_passes(37, 1000, GROWTH, first, num_passes=epochs + 1)
    ended = run_events([length for lengths in of_run for length in lengths], seconds_per_batch)[-1]
    # An epoch in the middle prepares the one after it, which a run's last epoch does not.
    unneeded = 0.0 if epochs == 1 else max(0.0, after[0] * seconds_per_batch - of_run[-1][-1] * STEP_SECONDS)
    assert predicted.run_seconds(epochs) == pytest.approx(ended + unneeded)


def test_an_epoch_in_the_middle_does_not_wait_for_an_empty_pipeline() -> None:
    ahead = SuperbatchCost(passes=lengths_of_passes(37, 1000, GROWTH), wait_seconds_per_batch=0.5)
    predicted = predict_epoch(scenario(first=16, is_only=False), BatchCost(), ahead=ahead)
    assert predicted.epoch_seconds == pytest.approx(37 * STEP_SECONDS)
    assert predicted.start_seconds == pytest.approx(16 * 0.5)
    only = predict_epoch(
        scenario(first=16, is_only=True),
        BatchCost(),
        ahead=SuperbatchCost(passes=ahead.passes[:1], wait_seconds_per_batch=0.5),
    )
    assert only.epoch_seconds == pytest.approx(37 * STEP_SECONDS + 16 * 0.5)
    assert only.start_seconds == 0


def test_another_trace_has_results_of_its_own() -> None:
    """A part of a trace, as of one node type, may be simulated by an equal plan."""
    ids = np.arange(1)
    trace = ShortTrace(
        node_ids=(ids, ids), block_bytes=0.0, record_bytes=0.0, sample_seconds=0.0, middle=cast(Any, None)
    )
    part = replace(trace, node_ids=(ids,))
    assert trace.simulated("plan", lambda: "whole") == "whole"
    assert trace.simulated("plan", lambda: "again") == "whole"
    assert part.simulated("plan", lambda: "part") == "part"
    assert trace.simulated("another plan", lambda: "other") == "other"
