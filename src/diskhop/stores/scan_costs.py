"""Predicted cost of reads that a shared scan merges for all batches in flight. No I/O here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.policies.coalesce import plan_reads
from diskhop.stores.costs import BatchCost, Scenario, busy_seconds
from diskhop.stores.scanning import BYTES_PER_ROW_IN_FLIGHT
from diskhop.system.memory import buffer_bytes

# The pipeline has no more batches in flight, whatever the memory.
_MOST_TOGETHER = 128
_TRIED_TOGETHER = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
# Share of the cores' time that the disk may take before more batches join the scan.
_KEEPS_UP = 0.6
# Groups of batches that are simulated, spread over the trace.
_MOST_GROUPS = 4
# Copying rows that the disk has just written to memory takes longer than copying rows that a core wrote.
_FROM_DISK = 1.3


def scan(
    scenario: Scenario,
    misses: Sequence[NDArray[Any]],
    *,
    find_seconds: float,
    fewest_together: int = 1,
    most_together: int | None = None,
) -> BatchCost:
    """Return the cost of a batch if one scan fetches the missing rows of all batches in flight.

    If the cores are slower than the disk, no more batches join the scan than are needed to keep up with them
    (Little's law). One round of the scan then takes as long as the cores need for its batches.

    misses: rows that each batch must read.
    find_seconds: seconds of one core to look up a row.
    fewest_together, most_together: batches in the scan at least and at most; default: from 1 to what memory has room
        for.
    """
    num_rows, num_missed = scenario.trace.num_rows, sum(map(len, misses)) / len(misses)
    if most_together is None:
        row_bytes = buffer_bytes(int(num_missed * scenario.table.row_bytes))
        most_together = batches_in_flight(scenario, row_bytes)
    most = min(most_together, len(misses))
    copy_seconds = scenario.machine.copy_seconds
    row_seconds = num_rows * find_seconds
    row_seconds += num_missed * (scenario.cores.join_row + _FROM_DISK * copy_seconds)
    if scenario.plan.bytes_assembled:
        row_seconds += num_rows * copy_seconds
    fetching = BatchCost()
    fewest = min(fewest_together, most)
    for together in (count for count in _TRIED_TOGETHER if fewest <= count <= most):
        room = len(misses) - together
        starts = dict.fromkeys(int(room * (group + 0.5) / _MOST_GROUPS) for group in range(_MOST_GROUPS))
        read = reads_of(scenario, [misses[start : start + together] for start in starts])
        fetching = replace(
            read,
            # None is left where all rows lie on a device.
            hit_rate=1 - num_missed / max(1.0, num_rows),
            cores_seconds=row_seconds + read.reads * scenario.cores.read,
            together=together,
        )
        if fetching.io_seconds <= _KEEPS_UP * busy_seconds(scenario, fetching):
            break
    return fetching


def batches_in_flight(scenario: Scenario, row_bytes: int) -> int:
    """Return how many batches memory has room for in flight. row_bytes: memory for the missing rows of each."""
    plan, trace = scenario.plan, scenario.trace
    bytes_each = buffer_bytes(int(trace.block_bytes)) + trace.num_rows * BYTES_PER_ROW_IN_FLIGHT + row_bytes
    num_batches = int(plan.bytes_in_flight // max(1, bytes_each))
    if plan.bytes_assembled == 0 and not plan.holds_while_waiting:
        num_batches -= 1  # the model's batch is among them
    return max(1, min(num_batches, _MOST_TOGETHER))


def reads_of(scenario: Scenario, groups: Iterable[Sequence[NDArray[Any]]]) -> BatchCost:
    """Return the average cost of a batch's reads. groups: rows of batches that are read together."""
    table, plan = scenario.table, scenario.plan
    is_wanted = np.zeros(table.num_rows, np.bool_)
    num_batches = num_reads = num_bytes = 0
    for batches in groups:
        for ids in batches:
            is_wanted[ids] = True
        ids = np.flatnonzero(is_wanted)
        is_wanted[ids] = False
        num_batches += len(batches)
        if len(ids) == 0:
            continue
        reads = plan_reads(
            ids,
            num_rows=table.num_rows,
            row_bytes=table.row_bytes,
            row_stride=table.row_stride,
            max_gap_bytes=plan.max_gap_bytes,
            alignment=scenario.table_alignment,
            max_read_bytes=plan.max_read_bytes,
        )
        num_reads += reads.num_reads
        num_bytes += reads.total_bytes
    if num_reads == 0:
        return BatchCost()
    seconds = num_reads * scenario.machine.disk.predict_seconds(num_bytes // num_reads, plan.engine_depth)
    count = max(1, num_batches)
    return BatchCost(reads=num_reads / count, bytes_read=num_bytes / count, io_seconds=seconds / count)
