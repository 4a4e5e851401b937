"""What a store costs on a short trace, by its plan and the device model: misses, reads, bytes, seconds. No I/O here.

Seconds are of two things that hide each other: the disk's, and the cores', which the model, sampling and copying
share. *Together*: batches that are on their way at once, whose rows one scan brings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.features.belady import BeladyStore
from diskhop.features.mapped import THREADS_PER_CORE
from diskhop.features.packed.store import PackedStore
from diskhop.features.scanning import BYTES_A_ROW_ON_ITS_WAY
from diskhop.io.device_model import DeviceModel
from diskhop.io.memory import buffer_bytes
from diskhop.plan import Plan, Prediction
from diskhop.planning.short_trace import ListsRead, ShortTrace
from diskhop.policies.belady import belady_misses
from diskhop.policies.coalesce import plan_reads
from diskhop.policies.lru import lru_misses
from diskhop.protocols import NodeIds, Table
from diskhop.sampling.superbatch import superbatch_lengths

_PAGE_BYTES = 4096
_MOST_TOGETHER = 16  # whatever the memory, see batch_stream.py
# Share of the cores' time that the disk may take before more batches join the scan.
_KEEPS_UP = 0.85
_TOGETHER = (1, 2, 3, 4, 6, 8, 12, 16)
# Groups of batches that are simulated, spread over the trace.
_MOST_GROUPS = 4
# Two things that hide each other take a little more than the longer one, the more alike they are: x and y together
# (x^p + y^p)^(1/p).
_HIDING = 6.0
# A step in a run takes longer than by itself: its batch comes from other memory, and is given back; and where the model
# reads rows where they lie, so much of what copying them would take.
_IN_A_RUN, _LENT_SHARE = 1.03, 0.5
# What other threads take of the cores holds the model up by more than its share of them: threads that share a product
# wait for the last one. Measured on two cores: by the work over 2^0.3, not over 2.
_INTERFERENCE = 0.3
# Of one core, measured: to find a row among those held; to sort it among those that are read; to look it up in a buffer
# that is shared; to look it over ahead; of a byte, to write it to a trace and read it back; of a read; of a page that a
# fault brings, beside what its thread waits longer than for a read; of a row that is packed.
_FIND_SECONDS, _JOIN_SECONDS, _SHARE_SECONDS = 8e-9, 40e-9, 60e-9
_LOOK_AHEAD_SECONDS, _TRACE_SECONDS_A_BYTE = 60e-9, 0.4e-9
_READ_SECONDS, _FAULT_SECONDS, _FAULT_WAIT_SECONDS = 4e-6, 8e-6, 4e-6
_PACK_SECONDS = 50e-9
# Of a batch that is looked ahead, spent waiting for the disk: one after the other.
_LOOK_AHEAD_WAIT_SECONDS = 6e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What this machine does, measured.

    step_seconds: of the model for a batch, by all threads; 0 where there is none. copy_seconds: of one core, for a row
    of the table from anywhere to its place.
    """

    device: DeviceModel
    threads: int
    step_seconds: float
    copy_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """A store's plan on a trace. pinned: the rows that are held, of stores that pin; None: the first ones.

    num_batches: of an epoch. counting_bytes: of lists that are read to choose those to be pinned. page_cache_bytes: for
    pages of a map. lists: what sampling reads; None: all lists are in memory.
    """

    trace: ShortTrace
    table: Table
    table_alignment: int
    plan: Plan
    machine: Machine
    num_batches: int
    pinned: NodeIds | None
    counting_bytes: int
    page_cache_bytes: int
    lists: ListsRead | None

    @property
    def is_lent(self) -> bool:
        """Whether the model reads rows where the store has them."""
        return self.plan.bytes_assembled == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fetching:
    """A batch, on the mean. cores_seconds: of one core. together: see the module."""

    hit_rate: float = 0.0
    reads: float = 0.0
    bytes_read: float = 0.0
    io_seconds: float = 0.0
    cores_seconds: float = 0.0
    together: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ahead:
    """What is done for a superbatch before its first batch is fetched: a part for each batch and one for all of it."""

    lengths: Sequence[int]
    io_seconds_a_batch: float = 0.0
    io_seconds: float = 0.0
    cores_seconds_a_batch: float = 0.0
    bytes_written_a_batch: float = 0.0
    wait_seconds_a_batch: float = 0.0

    def io_of(self, num_batches: int) -> float:
        return self.io_seconds_a_batch * num_batches + (self.io_seconds if num_batches else 0)


def simulate(store: str, case: Case) -> Prediction:
    """What an epoch by this plan takes."""
    return SIMULATIONS[store](case)


def _simulate_memory(case: Case) -> Prediction:
    table = case.table
    cores_seconds = case.trace.num_rows * case.machine.copy_seconds * (_LENT_SHARE if case.is_lent else 1)
    open_seconds = table.num_rows * table.row_stride / case.machine.device.sequential_read_bytes_per_second
    return _epoch(case, _Fetching(hit_rate=1.0, cores_seconds=cores_seconds), open_seconds)


def _simulate_mapped(case: Case) -> Prediction:
    pages = [_pages(ids, case.table) for ids in case.trace.node_ids]
    num_pages = -(-case.table.num_rows * case.table.row_stride // _PAGE_BYTES)
    misses = lru_misses(pages, num_pages, case.page_cache_bytes // _PAGE_BYTES)
    faults = [len(missed) for missed in misses][: case.num_batches]
    threads = THREADS_PER_CORE * case.machine.threads
    fault_seconds = case.machine.device.predict_seconds(_PAGE_BYTES, threads) + _FAULT_WAIT_SECONDS
    later = faults[len(faults) // 2 :]
    faults += [sum(later) // len(later)] * (case.num_batches - len(faults))
    mean_faults = sum(faults) / len(faults)
    fetching = _Fetching(
        hit_rate=1 - mean_faults / max(1.0, sum(map(len, pages)) / len(pages)),
        reads=mean_faults,
        bytes_read=mean_faults * _PAGE_BYTES,
        io_seconds=mean_faults * fault_seconds,
        cores_seconds=mean_faults * _FAULT_SECONDS + case.trace.num_rows * case.machine.copy_seconds,
    )
    # The first batches find no page in memory: nothing hides what they wait for.
    cores_seconds = _cores_seconds(case, fetching)
    arrived = done = case.trace.sample_seconds
    for count in faults:
        arrived += count * fault_seconds
        done = max(done, arrived) + cores_seconds
    return replace(_epoch(case, fetching), epoch_seconds=done)


def _simulate_pread(case: Case) -> Prediction:
    table, num_rows, alignment = case.table, case.trace.num_rows, case.table_alignment
    read_bytes = -(-table.row_bytes // alignment) * alignment
    # Rows come in order: what lies in the block of the one before is there, what follows it at once is one request.
    starts = [ids.astype(np.int64) * table.row_stride // alignment for ids in case.trace.node_ids]
    steps = 1 if table.row_stride < alignment else -(-table.row_stride // alignment) + 1
    requests = sum(1 + int(np.count_nonzero(np.diff(blocks) >= steps)) for blocks in starts) / len(starts)
    fetching = _Fetching(
        reads=num_rows,
        bytes_read=num_rows * read_bytes,
        io_seconds=requests * case.machine.device.predict_seconds(read_bytes, case.plan.engine_depth),
        cores_seconds=num_rows * (_READ_SECONDS + _JOIN_SECONDS + case.machine.copy_seconds),
    )
    return _epoch(case, fetching)


def _simulate_direct(case: Case) -> Prediction:
    return _epoch(case, _scan(case, case.trace.node_ids))


def _simulate_static(case: Case) -> Prediction:
    misses = list(_not_pinned(case))
    return _epoch(case, _scan(case, misses), _pinning_seconds(case))


def _simulate_belady(case: Case) -> Prediction:
    plan, trace = case.plan, case.trace.node_ids
    lengths = superbatch_lengths(case.num_batches, plan.superbatch, BeladyStore.growth)
    # The short superbatch at the start, and what is left of the trace as one of the later ones.
    spans = [length for length in (min(lengths[0], len(trace)), len(trace) - lengths[0]) if length > 0]
    spanned = list(belady_misses(trace, case.table.num_rows, plan.cache_rows, spans=spans))
    fills = [filled for filled, _ in spanned]
    fetching = _scan(case, spanned[-1][1])
    fill_seconds = _reads_of(case, [fills[0]]).io_seconds
    num_kept = min(plan.cache_rows, case.trace.num_rows * (1 - fetching.hit_rate))
    ahead = _Ahead(
        lengths=lengths,
        io_seconds=_reads_of(case, fills[1:]).io_seconds if len(fills) > 1 else 0.0,
        io_seconds_a_batch=2 * case.trace.record_bytes / _sequential(case),
        cores_seconds_a_batch=case.trace.num_rows * _LOOK_AHEAD_SECONDS
        + case.trace.record_bytes * _TRACE_SECONDS_A_BYTE,
        wait_seconds_a_batch=_LOOK_AHEAD_WAIT_SECONDS,
    )
    fetching = replace(fetching, cores_seconds=fetching.cores_seconds + num_kept * case.machine.copy_seconds)
    predicted = _epoch(case, fetching, ahead=ahead)
    return replace(predicted, epoch_seconds=predicted.epoch_seconds + fill_seconds)


def _simulate_shared(case: Case) -> Prediction:
    plan, trace = case.plan, case.trace.node_ids
    # Rows that a batch has stay, and so many that none has any more. Of the batches that there may be about half are.
    num_used = len(np.unique(np.concatenate(trace[: 1 + plan.most_extracting // 2])))
    misses = list(lru_misses(trace, case.table.num_rows, min(plan.buffer_rows, num_used + plan.cache_rows)))
    # Of a buffer that was empty at first.
    steady = misses[len(misses) // 2 :]
    fetching = _scan(case, steady, looked_up_seconds=_SHARE_SECONDS)
    if case.is_lent:
        lent_seconds = _LENT_SHARE * case.trace.num_rows * case.machine.copy_seconds
        fetching = replace(fetching, cores_seconds=fetching.cores_seconds + lent_seconds)
    return _epoch(case, fetching)


def _simulate_packed(case: Case) -> Prediction:
    table, plan, device = case.table, case.plan, case.machine.device
    misses = list(_not_pinned(case))
    num_packed = sum(map(len, misses)) / len(misses)
    body_bytes = 4 * case.trace.num_rows + case.trace.record_bytes
    chunk_bytes = num_packed * table.row_bytes + 4 * case.trace.num_rows
    fetching = _Fetching(
        hit_rate=1 - num_packed / case.trace.num_rows,
        reads=2.0,
        bytes_read=chunk_bytes + case.trace.record_bytes,
        io_seconds=(chunk_bytes + case.trace.record_bytes) / device.sequential_read_bytes_per_second,
        cores_seconds=body_bytes * _TRACE_SECONDS_A_BYTE,
        together=1,
    )
    lengths = superbatch_lengths(case.num_batches, plan.superbatch, PackedStore.growth)
    pack_cores_seconds = case.trace.num_rows * _PACK_SECONDS + num_packed * 2 * case.machine.copy_seconds
    table_seconds = (table.num_rows - len(_held(case))) * table.row_stride / device.sequential_read_bytes_per_second
    ahead = _Ahead(
        lengths=lengths,
        io_seconds=table_seconds,
        io_seconds_a_batch=(chunk_bytes + case.trace.record_bytes) / device.sequential_write_bytes_per_second,
        cores_seconds_a_batch=pack_cores_seconds,
        wait_seconds_a_batch=_LOOK_AHEAD_WAIT_SECONDS,
        bytes_written_a_batch=chunk_bytes + case.trace.record_bytes,
    )
    return _epoch(case, fetching, _pinning_seconds(case), ahead=ahead)


def predict_packed_ahead(case: Case, epochs: int) -> Prediction:
    """`packed` with so many epochs packed before the first."""
    table, device, machine = case.table, case.machine.device, case.machine
    as_it_trains = _simulate_packed(case)
    misses = list(_not_pinned(case))
    num_packed = sum(map(len, misses)) / len(misses)
    chunk_bytes = num_packed * table.row_bytes + 4 * case.trace.num_rows + case.trace.record_bytes
    fetching = _Fetching(
        hit_rate=as_it_trains.hit_rate,
        reads=2.0,
        bytes_read=chunk_bytes,
        io_seconds=chunk_bytes / device.sequential_read_bytes_per_second,
        cores_seconds=(4 * case.trace.num_rows + case.trace.record_bytes) * _TRACE_SECONDS_A_BYTE,
    )
    table_seconds = table.num_rows * table.row_stride / device.sequential_read_bytes_per_second
    cores_seconds = case.trace.num_rows * _PACK_SECONDS + num_packed * 2 * machine.copy_seconds
    io_seconds = chunk_bytes / device.sequential_write_bytes_per_second
    pack_seconds = epochs * (
        case.num_batches * case.trace.sample_seconds / case.plan.sampling_threads
        + _hide(table_seconds + case.num_batches * io_seconds, case.num_batches * cores_seconds)
    )
    no_sampling = replace(case, trace=replace(case.trace, sample_seconds=0.0))
    predicted = _epoch(no_sampling, fetching, _pinning_seconds(case))
    return replace(
        predicted,
        preparation_seconds=pack_seconds,
        disk_bytes=int(epochs * case.num_batches * chunk_bytes),
        bytes_written=int(epochs * case.num_batches * chunk_bytes),
    )


SIMULATIONS: dict[str, Callable[[Case], Prediction]] = {
    "memory": _simulate_memory,
    "mapped": _simulate_mapped,
    "pread": _simulate_pread,
    "direct": _simulate_direct,
    "static": _simulate_static,
    "belady": _simulate_belady,
    "shared": _simulate_shared,
    "packed": _simulate_packed,
}


def _epoch(case: Case, fetching: _Fetching, open_seconds: float = 0.0, ahead: _Ahead | None = None) -> Prediction:
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
    cores_seconds = _cores_seconds(case, fetching)
    together = min(fetching.together, count)
    lead_seconds = sample_seconds + lists_seconds
    seconds = 0.0
    written = 0.0
    if ahead is None:
        # Of the first ones the rows must come before the model can begin, of the last ones no others are on their way.
        seconds = together * (fetching.io_seconds + cores_seconds)
        seconds += _hide((count - together) * io_seconds, (count - together) * cores_seconds)
    else:
        written = ahead.bytes_written_a_batch * count
        first = ahead.lengths[0]
        # One thread does all of it, and what it reads and writes with it.
        one_seconds = sample_seconds / plan.sampling_threads + ahead.cores_seconds_a_batch + ahead.wait_seconds_a_batch
        lead_seconds += ahead.io_of(first) + first * one_seconds + fetching.io_seconds
        for length, following in zip(ahead.lengths, [*ahead.lengths[1:], 0], strict=True):
            beside = _hide(
                length * io_seconds + ahead.io_of(following),
                length * cores_seconds + following * ahead.cores_seconds_a_batch / shared_by,
            )
            seconds += max(beside, ahead.io_of(following) + following * one_seconds)
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


def _cores_seconds(case: Case, fetching: _Fetching) -> float:
    """That all cores are busy for a batch: with the model, and with what goes on beside it."""
    sample_seconds = case.trace.sample_seconds if case.lists is None else case.lists.cores_seconds
    beside_seconds = sample_seconds + fetching.cores_seconds
    shared_by: float = case.machine.threads**_INTERFERENCE
    return _IN_A_RUN * case.machine.step_seconds + beside_seconds / shared_by


def _hide(x: float, y: float) -> float:
    """Seconds of two things at once."""
    longer, shorter = max(x, y), min(x, y)
    return longer * (1 + (shorter / longer) ** _HIDING) ** (1 / _HIDING) if longer > 0 else 0.0


def _scan(case: Case, misses: Sequence[NDArray[Any]], looked_up_seconds: float = 0.0) -> _Fetching:
    """Rows that one scan brings for all batches that are on their way together.

    Where the cores set the pace no more batches are in the scan than it takes to keep up with them (Little's law): its
    round takes as long as so many batches.
    """
    num_rows, num_missed = case.trace.num_rows, sum(map(len, misses)) / len(misses)
    most = min(_most_together(case, num_missed), len(misses))
    copy_seconds = case.machine.copy_seconds
    row_seconds = num_rows * (looked_up_seconds or _FIND_SECONDS) + num_missed * (_JOIN_SECONDS + copy_seconds)
    if case.plan.bytes_assembled:
        row_seconds += num_rows * copy_seconds
    fetching = _Fetching()
    for together in (count for count in _TOGETHER if count <= most):
        starts = np.linspace(0, len(misses) - together, _MOST_GROUPS).astype(int)
        read = _reads_of(case, [misses[start : start + together] for start in dict.fromkeys(starts.tolist())])
        fetching = replace(
            read,
            hit_rate=1 - num_missed / num_rows,
            cores_seconds=row_seconds + read.reads * _READ_SECONDS,
            together=together,
        )
        if fetching.io_seconds <= _KEEPS_UP * _cores_seconds(case, fetching):
            break
    return fetching


def _reads_of(case: Case, groups: Iterable[Any]) -> _Fetching:
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
        return _Fetching()
    seconds = num_reads * case.machine.device.predict_seconds(num_bytes // num_reads, plan.engine_depth)
    count = max(1, num_batches)
    return _Fetching(reads=num_reads / count, bytes_read=num_bytes / count, io_seconds=seconds / count)


def _most_together(case: Case, num_missed: float) -> int:
    """Batches for which there is memory while their rows are on their way."""
    plan, row_bytes = case.plan, case.table.row_bytes
    block_bytes = buffer_bytes(int(case.trace.block_bytes))
    one_bytes = block_bytes + case.trace.num_rows * BYTES_A_ROW_ON_ITS_WAY
    if not plan.buffer_rows:
        one_bytes += buffer_bytes(int(num_missed * row_bytes))
    count = int(plan.bytes_on_their_way // max(1, one_bytes))
    if plan.bytes_assembled == 0 and not plan.holds_while_waiting:
        count -= 1  # the model's is among them
    if plan.most_extracting:
        count = min(count, plan.most_extracting, int(plan.buffer_rows // max(1.0, num_missed)))
    return max(1, min(count, _MOST_TOGETHER))


def _held(case: Case) -> NodeIds:
    if case.pinned is not None:
        return case.pinned[: case.plan.cache_rows]
    return np.arange(min(case.plan.cache_rows, case.table.num_rows), dtype=np.int64)


def _not_pinned(case: Case) -> Iterator[NDArray[Any]]:
    """Of each batch the rows that are not among those pinned."""
    if case.pinned is None:
        for ids in case.trace.node_ids:
            yield ids[np.searchsorted(ids, case.plan.cache_rows) :]
        return
    is_pinned = np.zeros(case.table.num_rows, np.bool_)
    is_pinned[case.pinned] = True
    for ids in case.trace.node_ids:
        yield ids[~is_pinned[ids]]


def _pinning_seconds(case: Case) -> float:
    """To find the rows that are pinned, and to read them."""
    num_bytes = case.counting_bytes + len(_held(case)) * case.table.row_stride
    return num_bytes / _sequential(case)


def _sequential(case: Case) -> float:
    return case.machine.device.sequential_read_bytes_per_second


def _pages(ids: NDArray[Any], table: Table) -> NDArray[np.int64]:
    """The pages that rows lie in, ascending."""
    first = ids.astype(np.int64) * table.row_stride
    last = (first + table.row_bytes - 1) // _PAGE_BYTES
    first //= _PAGE_BYTES
    if int((last - first).max(initial=0)) == 0:
        return np.unique(first)
    widths = last - first + 1
    starts = np.repeat(first, widths)
    steps = np.arange(len(starts)) - np.repeat(np.cumsum(widths) - widths, widths)
    return np.unique(starts + steps)
