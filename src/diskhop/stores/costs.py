"""Seconds of an epoch, from what a batch takes of the disk and of the cores, which hide each other. No I/O here.

*Together*: batches that are on their way at once, whose rows one scan brings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.batches.short_trace import ListsRead, ShortTrace
from diskhop.disk.model import DiskModel
from diskhop.plans import Prediction, SampledPlan
from diskhop.policies.coalesce import plan_reads
from diskhop.protocols import NodeIds, Table
from diskhop.stores.scanning import BYTES_PER_ROW_IN_FLIGHT
from diskhop.system.memory import buffer_bytes

_MOST_TOGETHER = 16  # whatever the memory, see batch_stream.py
_TOGETHER = (1, 2, 3, 4, 6, 8, 12, 16)
# Share of the cores' time that the disk may take before more batches join the scan.
_KEEPS_UP = 0.6
# Groups of batches that are simulated, spread over the trace.
_MOST_GROUPS = 4
# Two things that hide each other take a little more than the longer one, the more alike they are: x and y together
# (x^p + y^p)^(1/p).
_HIDING = 6.0
# A step in a run takes longer than by itself: its batch comes from other memory, and is given back.
_IN_A_RUN = 1.03
# Of any batch, however small: threads that hand it on, and what keeps count.
_BATCH_SECONDS = 1.5e-3
# What other threads take of the cores holds the model up by more than its share of them: threads that share a product
# wait for the last one. Measured on two cores: by the work over 2^0.3, not over 2.
_INTERFERENCE = 0.3
# To copy what a device has just written to memory takes longer than what a core has.
_FROM_DEVICE = 1.3
# Of one core, measured: to find a row among those held, if any are; to sort it among those that are read; of a read.
_FIND_SECONDS, _JOIN_SECONDS, _READ_SECONDS = 25e-9, 15e-9, 4e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What this machine does, measured.

    step_seconds: of the model for a batch, by all threads; 0 where there is none. copy_seconds: of one core, for a row
    of the table from anywhere to its place.
    """

    device: DiskModel
    threads: int
    step_seconds: float
    copy_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scenario:
    """A store's plan on a trace. pinned: the rows that are held, of stores that pin; None: the first ones.

    num_batches: of an epoch. is_only: it is the only one of a run and begins with nothing held; else one in the middle.
    is_reused: all epochs have the same batches. counting_bytes: of lists that are read to choose those to be pinned.
    page_cache_bytes: for pages of a map. lists: what sampling reads; None: all lists are in memory.
    """

    trace: ShortTrace
    table: Table
    table_alignment: int
    plan: SampledPlan
    machine: Machine
    num_batches: int
    is_only: bool
    is_reused: bool
    pinned: NodeIds | None
    counting_bytes: int
    page_cache_bytes: int
    lists: ListsRead | None

    @property
    def is_lent(self) -> bool:
        """Whether the model reads rows where the store has them."""
        return self.plan.bytes_assembled == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCost:
    """A batch, on the mean. cores_seconds: of one core. together: see the module."""

    hit_rate: float = 0.0
    reads: float = 0.0
    bytes_read: float = 0.0
    io_seconds: float = 0.0
    cores_seconds: float = 0.0
    together: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SuperbatchCost:
    """What is done for a superbatch before its first batch is fetched: a part for each batch and one for all of it."""

    lengths: Sequence[int]
    io_seconds_per_batch: float = 0.0
    io_seconds: float = 0.0
    cores_seconds_per_batch: float = 0.0
    bytes_written_per_batch: float = 0.0
    wait_seconds_per_batch: float = 0.0

    def io_of(self, num_batches: int) -> float:
        """The disk's seconds for a superbatch of so many batches; none for none."""
        return self.io_seconds_per_batch * num_batches + (self.io_seconds if num_batches else 0)


def predict_epoch(
    case: Scenario, fetching: BatchCost, open_seconds: float = 0.0, ahead: SuperbatchCost | None = None
) -> Prediction:
    """An epoch of such batches. What is not hidden: the first batches' way, and the last ones' through the model."""
    machine, plan, count = case.machine, case.plan, case.num_batches
    lists_seconds, sample_seconds = 0.0, case.trace.sample_seconds
    if case.lists is not None and case.lists.reads:
        mean_bytes = round(case.lists.bytes_read / case.lists.reads)
        one_seconds = case.lists.reads * machine.device.predict_seconds(mean_bytes, plan.engine_depth)
        # Measured: threads that sample at the same time share what they read, by the root of their number.
        lists_seconds = one_seconds / plan.sampling_threads**0.5
        sample_seconds = case.lists.cores_seconds
    io_seconds = fetching.io_seconds + lists_seconds
    shared_by = machine.threads**_INTERFERENCE
    cores_seconds = busy_seconds(case, fetching)
    together = min(fetching.together, count)
    lead_seconds = sample_seconds + lists_seconds
    seconds = 0.0
    written = 0.0
    if ahead is None:
        # Of the first ones the rows must come before the model can begin, of the last ones no others are on their way.
        seconds = together * (fetching.io_seconds + cores_seconds)
        seconds += hide((count - together) * io_seconds, (count - together) * cores_seconds)
    else:
        written = ahead.bytes_written_per_batch * count
        first = ahead.lengths[0]
        # One thread does all of it, while batches are sampled and what it reads and writes is on its way.
        one_seconds = max(
            sample_seconds / plan.sampling_threads, ahead.cores_seconds_per_batch + ahead.wait_seconds_per_batch
        )
        lead_seconds += hide(ahead.io_of(first), first * one_seconds) + fetching.io_seconds
        for length, following in zip(ahead.lengths, [*ahead.lengths[1:], 0], strict=True):
            beside = hide(
                length * io_seconds + ahead.io_of(following),
                length * cores_seconds + following * ahead.cores_seconds_per_batch / shared_by,
            )
            seconds += max(beside, hide(ahead.io_of(following), following * one_seconds))
    return Prediction(
        epoch_seconds=lead_seconds + seconds,
        io_seconds=count * io_seconds + (0 if ahead is None else sum(map(ahead.io_of, ahead.lengths))),
        compute_seconds=count * _IN_A_RUN * machine.step_seconds,
        cores_seconds=count * cores_seconds,
        open_seconds=open_seconds,
        preparation_seconds=0.0,
        hit_rate=fetching.hit_rate,
        reads=int(count * fetching.reads),
        bytes_read=int(count * fetching.bytes_read),
        bytes_written=int(written),
        disk_bytes=0,
    )


def busy_seconds(case: Scenario, fetching: BatchCost) -> float:
    """That all cores are busy for a batch: with the model, and with what goes on beside it."""
    sample_seconds = case.trace.sample_seconds if case.lists is None else case.lists.cores_seconds
    beside_seconds = sample_seconds + fetching.cores_seconds
    shared_by: float = case.machine.threads**_INTERFERENCE
    return _BATCH_SECONDS + _IN_A_RUN * case.machine.step_seconds + beside_seconds / shared_by


def hide(x: float, y: float) -> float:
    """Seconds of two things at once."""
    longer, shorter = max(x, y), min(x, y)
    return longer * (1 + (shorter / longer) ** _HIDING) ** (1 / _HIDING) if longer > 0 else 0.0


def scan(case: Scenario, misses: Sequence[NDArray[Any]], looked_up_seconds: float = 0.0) -> BatchCost:
    """Rows that one scan brings for all batches that are on their way together.

    Where the cores set the pace no more batches are in the scan than it takes to keep up with them (Little's law): its
    round takes as long as so many batches.
    """
    num_rows, num_missed = case.trace.num_rows, sum(map(len, misses)) / len(misses)
    most = min(_most_together(case, num_missed), len(misses))
    copy_seconds = case.machine.copy_seconds
    row_seconds = num_rows * (looked_up_seconds or (_FIND_SECONDS if case.plan.cache_rows else 0))
    row_seconds += num_missed * (_JOIN_SECONDS + _FROM_DEVICE * copy_seconds)
    if case.plan.bytes_assembled:
        row_seconds += num_rows * copy_seconds
    fetching = BatchCost()
    # A buffer that batches share begins with several, which then are done together.
    fewest = min(2, most) if case.plan.extractors else 1
    for together in (count for count in _TOGETHER if fewest <= count <= most):
        room = len(misses) - together
        starts = dict.fromkeys(int(room * (group + 0.5) / _MOST_GROUPS) for group in range(_MOST_GROUPS))
        read = reads_of(case, [misses[start : start + together] for start in starts])
        fetching = replace(
            read,
            hit_rate=1 - num_missed / num_rows,
            cores_seconds=row_seconds + read.reads * _READ_SECONDS,
            together=together,
        )
        if fetching.io_seconds <= _KEEPS_UP * busy_seconds(case, fetching):
            break
    return fetching


def reads_of(case: Scenario, groups: Iterable[Any]) -> BatchCost:
    """Of a batch, on the mean: each group is a batch's rows, or several batches', read together."""
    table, plan = case.table, case.plan
    is_wanted = np.zeros(table.num_rows, np.bool_)
    num_batches = num_reads = num_bytes = 0
    for group in groups:
        batches = group if isinstance(group, list | tuple) else [group]
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
            alignment=case.table_alignment,
            max_read_bytes=plan.max_read_bytes,
        )
        num_reads += reads.num_reads
        num_bytes += reads.total_bytes
    if num_reads == 0:
        return BatchCost()
    seconds = num_reads * case.machine.device.predict_seconds(num_bytes // num_reads, plan.engine_depth)
    count = max(1, num_batches)
    return BatchCost(reads=num_reads / count, bytes_read=num_bytes / count, io_seconds=seconds / count)


def _most_together(case: Scenario, num_missed: float) -> int:
    """Batches for which there is memory while their rows are on their way."""
    plan, row_bytes = case.plan, case.table.row_bytes
    block_bytes = buffer_bytes(int(case.trace.block_bytes))
    one_bytes = block_bytes + case.trace.num_rows * BYTES_PER_ROW_IN_FLIGHT
    if not plan.buffer_rows:
        one_bytes += buffer_bytes(int(num_missed * row_bytes))
    count = int(plan.bytes_on_their_way // max(1, one_bytes))
    if plan.bytes_assembled == 0 and not plan.holds_while_waiting:
        count -= 1  # the model's is among them
    if plan.most_extracting:
        count = min(count, plan.most_extracting, int(plan.buffer_rows // max(1.0, num_missed)))
    return max(1, min(count, _MOST_TOGETHER))
