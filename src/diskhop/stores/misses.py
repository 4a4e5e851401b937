"""What each store costs on a short trace: rows that miss, and what is done for them. No I/O here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop.plans import Prediction
from diskhop.policies.belady import belady_misses
from diskhop.policies.lru import lru_misses
from diskhop.policies.superbatches import superbatch_lengths
from diskhop.protocols import NodeIds, Table
from diskhop.stores.belady import BeladyStore
from diskhop.stores.costs import BatchCost, Scenario, SuperbatchCost, busy_seconds, hide, predict_epoch, reads_of, scan
from diskhop.stores.mapped import THREADS_PER_CORE
from diskhop.stores.packed.store import PackedStore

_PAGE_BYTES = 4096
# Where the model reads rows where they lie, so much of what copying them would take.
_LENT_SHARE = 0.5
# Of small rows in blocks that follow each other, those that are one request: where rows share blocks few are.
_MERGED_SHARE = 0.3
# Of one core, measured: to bring a row on its own, beside copying it; to look one up in a buffer that is shared; to
# look it over ahead; of a byte, to write it to a trace and read it back; of a page that a fault brings, beside what its
# thread waits longer than for a read; of a row that is packed.
_ROW_SECONDS, _SHARE_SECONDS, _LOOK_AHEAD_SECONDS, _TRACE_SECONDS_PER_BYTE = 4e-6, 60e-9, 60e-9, 0.4e-9
_FAULT_SECONDS, _FAULT_WAIT_SECONDS, _PACK_SECONDS = 8e-6, 1.5e-6, 30e-9
# Of a batch that is looked ahead, spent waiting for the disk: one after the other.
_LOOK_AHEAD_WAIT_SECONDS = 5e-3


def simulate(store: str, case: Scenario) -> Prediction:
    """What an epoch by this plan takes."""
    return SIMULATIONS[store](case)


def _simulate_memory(case: Scenario) -> Prediction:
    table = case.table
    copied_seconds = 0 if case.is_lent else case.trace.num_rows * case.machine.copy_seconds
    cores_seconds = copied_seconds + _lent_seconds(case)
    open_seconds = table.num_rows * table.row_stride / case.machine.device.sequential_read_bytes_per_second
    return predict_epoch(case, BatchCost(hit_rate=1.0, cores_seconds=cores_seconds), open_seconds)


def _simulate_mapped(case: Scenario) -> Prediction:
    pages = [_pages(ids, case.table) for ids in case.trace.node_ids]
    num_pages = -(-case.table.num_rows * case.table.row_stride // _PAGE_BYTES)
    misses = _least_recently_used(case, pages, num_pages, case.page_cache_bytes // _PAGE_BYTES)
    faults = [len(missed) for missed in misses]
    threads = THREADS_PER_CORE * case.machine.threads
    fault_seconds = case.machine.device.predict_seconds(_PAGE_BYTES, threads) + _FAULT_WAIT_SECONDS
    mean_faults = sum(faults) / len(faults)
    fetching = BatchCost(
        hit_rate=1 - mean_faults / max(1.0, sum(map(len, pages)) / len(pages)),
        reads=mean_faults,
        bytes_read=mean_faults * _PAGE_BYTES,
        io_seconds=mean_faults * fault_seconds,
        cores_seconds=mean_faults * _FAULT_SECONDS + case.trace.num_rows * case.machine.copy_seconds,
    )
    # The first batches find no page in memory: nothing hides what they wait for.
    cores_seconds = busy_seconds(case, fetching)
    arrived = done = case.trace.sample_seconds
    for count in faults:
        arrived += count * fault_seconds
        done = max(done, arrived) + cores_seconds
    return replace(predict_epoch(case, fetching), epoch_seconds=done)


def _simulate_pread(case: Scenario) -> Prediction:
    table, num_rows, alignment = case.table, case.trace.num_rows, case.table_alignment
    read_bytes = -(-table.row_bytes // alignment) * alignment
    # Rows come in order: what lies in the block of the one before is there, what follows it at once is one request.
    starts = [ids.astype(np.int64) * table.row_stride // alignment for ids in case.trace.node_ids]
    blocks_per_row = -(-table.row_stride // alignment)
    merged = 1.0 if table.row_stride >= alignment else _MERGED_SHARE
    distances = [np.diff(blocks) for blocks in starts]
    requests = sum(
        1 + np.count_nonzero(each) - merged * np.count_nonzero(each == blocks_per_row) for each in distances
    ) / len(starts)
    fetching = BatchCost(
        reads=num_rows,
        bytes_read=num_rows * read_bytes,
        io_seconds=requests * case.machine.device.predict_seconds(read_bytes, case.plan.engine_depth),
        cores_seconds=num_rows * (_ROW_SECONDS + case.machine.copy_seconds),
    )
    return predict_epoch(case, fetching)


def _simulate_direct(case: Scenario) -> Prediction:
    return predict_epoch(case, scan(case, case.trace.node_ids))


def _simulate_static(case: Scenario) -> Prediction:
    misses = list(_not_pinned(case))
    return predict_epoch(case, scan(case, misses), _pinning_seconds(case))


def _simulate_belady(case: Scenario) -> Prediction:
    plan, trace = case.plan, case.trace.node_ids[: case.num_batches]
    lengths = superbatch_lengths(case.num_batches, plan.superbatch, BeladyStore.growth)
    # The short superbatch at the start, and what is left of the trace as one of the later ones.
    spans = [length for length in (min(lengths[0], len(trace)), len(trace) - lengths[0]) if length > 0]
    spanned = list(belady_misses(trace, case.table.num_rows, plan.cache_rows, spans=spans))
    fills = [filled for filled, _ in spanned]
    fetching = scan(case, spanned[-1][1])
    fill_seconds = reads_of(case, [fills[0]]).io_seconds
    num_kept = min(plan.cache_rows, case.trace.num_rows * (1 - fetching.hit_rate))
    ahead = SuperbatchCost(
        lengths=lengths,
        io_seconds=reads_of(case, fills[1:]).io_seconds if len(fills) > 1 else 0.0,
        io_seconds_per_batch=2 * case.trace.record_bytes / _sequential_rate(case),
        cores_seconds_per_batch=case.trace.num_rows * _LOOK_AHEAD_SECONDS
        + case.trace.record_bytes * _TRACE_SECONDS_PER_BYTE,
        wait_seconds_per_batch=_LOOK_AHEAD_WAIT_SECONDS,
    )
    fetching = replace(fetching, cores_seconds=fetching.cores_seconds + num_kept * case.machine.copy_seconds)
    predicted = predict_epoch(case, fetching, ahead=ahead)
    return replace(predicted, epoch_seconds=predicted.epoch_seconds + fill_seconds)


def _simulate_shared(case: Scenario) -> Prediction:
    plan, trace = case.plan, case.trace.node_ids
    # Rows that a batch has stay, and so many that none has any more. Of the batches that there may be about half are.
    num_used = len(np.unique(np.concatenate(trace[: 1 + plan.most_extracting // 2])))
    capacity = min(plan.buffer_rows, num_used + plan.cache_rows)
    missed = _least_recently_used(case, trace, case.table.num_rows, capacity)
    fetching = scan(case, missed, looked_up_seconds=_SHARE_SECONDS)
    fetching = replace(fetching, cores_seconds=fetching.cores_seconds + _lent_seconds(case))
    return predict_epoch(case, fetching)


class _Chunks(NamedTuple):
    """Of a packed batch, on the mean. fetching: its way back; cores_seconds: of one core, to pack it."""

    fetching: BatchCost
    num_bytes: float
    cores_seconds: float


def _chunks(case: Scenario) -> _Chunks:
    device, num_rows = case.machine.device, case.trace.num_rows
    misses = list(_not_pinned(case))
    num_packed = sum(map(len, misses)) / len(misses)
    body_bytes = 4 * num_rows + case.trace.record_bytes
    num_bytes = num_packed * case.table.row_bytes + body_bytes
    fetching = BatchCost(
        hit_rate=1 - num_packed / num_rows,
        reads=2.0,
        bytes_read=num_bytes,
        io_seconds=num_bytes / device.sequential_read_bytes_per_second,
        cores_seconds=body_bytes * _TRACE_SECONDS_PER_BYTE + _lent_seconds(case),
    )
    return _Chunks(fetching, num_bytes, num_rows * _PACK_SECONDS + num_packed * 2 * case.machine.copy_seconds)


def _simulate_packed(case: Scenario) -> Prediction:
    chunks, device = _chunks(case), case.machine.device
    num_read = case.table.num_rows - len(_held(case))
    ahead = SuperbatchCost(
        lengths=superbatch_lengths(case.num_batches, case.plan.superbatch, PackedStore.growth),
        io_seconds=num_read * case.table.row_stride / device.sequential_read_bytes_per_second,
        io_seconds_per_batch=chunks.num_bytes / device.sequential_write_bytes_per_second,
        cores_seconds_per_batch=chunks.cores_seconds,
        wait_seconds_per_batch=_LOOK_AHEAD_WAIT_SECONDS,
        bytes_written_per_batch=chunks.num_bytes,
    )
    return predict_epoch(case, chunks.fetching, _pinning_seconds(case), ahead=ahead)


def predict_packed_ahead(case: Scenario, epochs: int) -> Prediction:
    """`packed` with so many epochs packed before the first."""
    chunks, device, count = _chunks(case), case.machine.device, case.num_batches
    table_seconds = case.table.num_rows * case.table.row_stride / device.sequential_read_bytes_per_second
    disk_seconds = table_seconds + count * chunks.num_bytes / device.sequential_write_bytes_per_second
    sampling_seconds = count * case.trace.sample_seconds / case.plan.sampling_threads
    no_sampling = replace(case, trace=replace(case.trace, sample_seconds=0.0))
    return replace(
        predict_epoch(no_sampling, chunks.fetching, _pinning_seconds(case)),
        preparation_seconds=epochs * (sampling_seconds + hide(disk_seconds, count * chunks.cores_seconds)),
        disk_bytes=int(epochs * count * chunks.num_bytes),
    )


SIMULATIONS: dict[str, Callable[[Scenario], Prediction]] = {
    "memory": _simulate_memory,
    "mapped": _simulate_mapped,
    "pread": _simulate_pread,
    "direct": _simulate_direct,
    "static": _simulate_static,
    "belady": _simulate_belady,
    "shared": _simulate_shared,
    "packed": _simulate_packed,
}


def _least_recently_used(
    case: Scenario, trace: Sequence[NDArray[Any]], num_rows: int, capacity: int
) -> list[NDArray[Any]]:
    """Of each batch of an epoch what misses, where what was used last is held: nothing before the only epoch."""
    count = case.num_batches
    if case.is_reused:
        trace = [*trace, *trace]
    misses = list(lru_misses(trace, num_rows, capacity))
    # A longer epoch than the trace, and one after others, is like the trace's second half.
    steady = misses[len(misses) // 2 :]
    first = misses[:count] if case.is_only else []
    return [*first, *(steady[number % len(steady)] for number in range(count - len(first)))]


def _held(case: Scenario) -> NodeIds:
    if case.pinned is not None:
        return case.pinned[: case.plan.cache_rows]
    return np.arange(min(case.plan.cache_rows, case.table.num_rows), dtype=np.int64)


def _lent_seconds(case: Scenario) -> float:
    """Of one core, for a batch whose rows the model reads where they lie; 0 where they are put together."""
    return _LENT_SHARE * case.trace.num_rows * case.machine.copy_seconds if case.is_lent else 0.0


def _not_pinned(case: Scenario) -> Iterator[NDArray[Any]]:
    """Of each batch the rows that are not among those pinned."""
    if case.pinned is None:
        for ids in case.trace.node_ids:
            yield ids[np.searchsorted(ids, case.plan.cache_rows) :]
        return
    is_pinned = np.zeros(case.table.num_rows, np.bool_)
    is_pinned[case.pinned] = True
    for ids in case.trace.node_ids:
        yield ids[~is_pinned[ids]]


def _pinning_seconds(case: Scenario) -> float:
    """To find the rows that are pinned, and to read them."""
    num_bytes = case.counting_bytes + len(_held(case)) * case.table.row_stride
    return num_bytes / _sequential_rate(case)


def _sequential_rate(case: Scenario) -> float:
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
