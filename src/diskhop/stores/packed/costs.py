"""Predicted cost of the store `packed`: as it trains, or with epochs that are packed ahead."""

from __future__ import annotations

from dataclasses import dataclass, replace

from diskhop.plans import Prediction
from diskhop.stores.costs import BatchCost, Scenario, SuperbatchCost, overlap, predict_epoch
from diskhop.stores.misses import lent_seconds, not_pinned, pinned_rows, pinning_seconds
from diskhop.stores.packed.store import PackedStore


@dataclass(frozen=True, slots=True)
class _ChunkCost:
    """Cost of a packed batch, on average.

    fetching: cost of reading its chunk.
    num_bytes: bytes of the chunk.
    cores_seconds: seconds of one core to pack it.
    """

    fetching: BatchCost
    num_bytes: float
    cores_seconds: float


def simulate(scenario: Scenario) -> Prediction:
    """Predict an epoch with superbatches that are packed during training, or with all batches packed ahead."""
    if scenario.epochs_prepared:
        return _predict_packed_ahead(scenario)
    chunks, disk = _chunk_cost(scenario), scenario.machine.disk
    num_read = scenario.table.num_rows - len(pinned_rows(scenario))
    ahead = SuperbatchCost(
        passes=scenario.superbatch_passes(PackedStore.growth),
        io_seconds=num_read * scenario.table.row_stride / scenario.sequential_rate,
        io_seconds_per_batch=chunks.num_bytes / disk.sequential_write_bytes_per_second,
        cores_seconds_per_batch=chunks.cores_seconds,
        wait_seconds_per_batch=scenario.cores.look_ahead_wait,
        bytes_written_per_batch=chunks.num_bytes,
    )
    return predict_epoch(scenario, chunks.fetching, pinning_seconds(scenario), ahead=ahead)


def _predict_packed_ahead(scenario: Scenario) -> Prediction:
    """Predict an epoch after all epochs were packed; packing them takes no time if an earlier run has done it."""
    chunks, disk, count = _chunk_cost(scenario), scenario.machine.disk, scenario.num_batches
    epochs, share = scenario.epochs_prepared, scenario.plan.share
    table_seconds = scenario.table.num_rows * scenario.table.row_stride / scenario.sequential_rate
    disk_seconds = table_seconds + count * chunks.num_bytes / disk.sequential_write_bytes_per_second
    sampling_seconds = count * scenario.trace.sample_seconds / scenario.plan.sampling_threads
    packing_seconds = epochs * (sampling_seconds + overlap(disk_seconds, count * chunks.cores_seconds))
    no_sampling = replace(scenario, trace=replace(scenario.trace, sample_seconds=0.0))
    return replace(
        predict_epoch(no_sampling, chunks.fetching, pinning_seconds(scenario)),
        preparation_seconds=0.0 if share.layout else packing_seconds,
        disk_bytes=int(epochs * count * chunks.num_bytes),
    )


def _chunk_cost(scenario: Scenario) -> _ChunkCost:
    num_rows, copy_seconds, cores = scenario.trace.num_rows, scenario.machine.copy_seconds, scenario.cores
    misses = list(not_pinned(scenario))
    num_packed = sum(map(len, misses)) / len(misses)
    body_bytes = 4 * num_rows + scenario.trace.record_bytes
    num_bytes = num_packed * scenario.table.row_bytes + body_bytes
    fetching = BatchCost(
        # None is left where all rows lie on a device.
        hit_rate=1 - num_packed / max(1.0, num_rows),
        reads=2.0,
        bytes_read=num_bytes,
        io_seconds=num_bytes / scenario.sequential_rate,
        cores_seconds=body_bytes * cores.trace_byte + lent_seconds(scenario),
    )
    return _ChunkCost(fetching, num_bytes, num_rows * cores.pack_row + num_packed * 2 * copy_seconds)
