"""Predicted seconds of an epoch, from what each batch takes of disk and cores, which overlap. No I/O here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from diskhop.batches.short_trace import ListsRead, ShortTrace
from diskhop.disk.model import DiskModel
from diskhop.plans import Prediction, SampledPlan
from diskhop.policies.superbatches import lengths_of_passes
from diskhop.protocols import NodeIds, Table

# Two things that overlap take a little more than the longer one, and the more alike they are the more: x and y
# together take (x^p + y^p)^(1/p).
_OVERLAP_EXPONENT = 6.0
# A training step takes longer within a run than alone: its batch comes from other memory and is released.
_STEP_IN_RUN = 1.03
# Other threads slow the model down by more than their share of the cores: threads that share a matrix product wait for
# the last one. Measured on two cores: the work divides by 2^0.3, not by 2.
_INTERFERENCE = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreSeconds:
    """Seconds of one core, measured.

    batch: fixed cost per batch: threads that pass it on, and bookkeeping.
    find_row: look up a row among the cached ones.
    join_row: sort a row into a shared scan.
    share_row: look up a row in a buffer that batches share.
    look_ahead_row: process a row while looking ahead.
    pack_row: pack a row.
    row: read a row on its own, without copying it.
    read: submit a read.
    trace_byte: write a byte to a trace and read it back.
    fault: bring a page through a page fault.
    fault_wait: time that a page fault waits longer than a read.
    look_ahead_wait: time per batch that looking ahead waits for the disk.
    """

    batch: float = 1.5e-3
    find_row: float = 25e-9
    join_row: float = 15e-9
    share_row: float = 60e-9
    look_ahead_row: float = 60e-9
    pack_row: float = 30e-9
    row: float = 4e-6
    read: float = 4e-6
    trace_byte: float = 0.4e-9
    fault: float = 8e-6
    fault_wait: float = 1.5e-6
    look_ahead_wait: float = 5e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Measured speed of this machine, as each of its processes has it.

    disk: cost of reads and writes.
    threads: cores that the process shares.
    step_seconds: seconds of one training step with all threads; 0 without a model.
    copy_seconds: seconds in which one core copies one row of the table.
    num_processes: processes that share the machine.
    """

    disk: DiskModel
    threads: int
    step_seconds: float
    copy_seconds: float
    num_processes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scenario:
    """A store's plan and the trace that it is simulated on.

    trace: a few sampled batches.
    table, table_alignment: the feature table, and the alignment of direct reads from it.
    plan: the plan to simulate.
    machine: measured speed of this machine.
    num_batches: batches per epoch.
    is_only: the epoch is the only one and starts with an empty cache; otherwise it is one in the middle.
    is_reused: all epochs have the same batches.
    pinned: ids of the pinned rows; None for the first rows of the table.
    counting_bytes: bytes of neighbour lists that are read to choose the pinned rows.
    page_cache_bytes: memory that the OS page cache can take.
    lists: what sampling reads from the disk; None if all neighbour lists are in memory.
    epochs_prepared: epochs with batches that are prepared before the first one, or were by an earlier run; 0 for none.
    cores: seconds of one core for each kind of work.
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
    epochs_prepared: int = 0
    cores: CoreSeconds = field(default_factory=CoreSeconds)

    @property
    def is_lent(self) -> bool:
        """Whether the model reads rows in the store's memory."""
        return self.plan.bytes_assembled == 0

    @property
    def sequential_rate(self) -> float:
        """Bytes per second of a sequential read."""
        return self.machine.disk.sequential_read_bytes_per_second

    @property
    def shared_rate(self) -> float:
        """Bytes per second of data that the processes of the machine share, and each read a part of."""
        return self.machine.num_processes * self.sequential_rate

    def superbatch_passes(self, growth: float) -> list[list[int]]:
        """Lengths of the superbatches of the first epochs of a run. growth: of the store."""
        share = self.plan.share
        passes = lengths_of_passes(self.num_batches, share.superbatch, growth, share.first_superbatch)
        return passes[:1] if self.is_only else passes


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCost:
    """Cost of fetching one batch, on average.

    hit_rate: share of rows that come from memory.
    reads, bytes_read, io_seconds: disk traffic.
    cores_seconds: seconds of one core.
    together: batches in flight that one scan fetches at once.
    """

    hit_rate: float = 0.0
    reads: float = 0.0
    bytes_read: float = 0.0
    io_seconds: float = 0.0
    cores_seconds: float = 0.0
    together: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SuperbatchCost:
    """Cost of preparing a superbatch before its first batch is fetched.

    passes: batches of each superbatch of the first epochs; later ones are like the last of these.
    io_seconds, io_seconds_per_batch: seconds of the disk, per superbatch and per batch.
    cores_seconds_per_batch: seconds of one core.
    bytes_written_per_batch: bytes written to the disk.
    wait_seconds_per_batch: seconds spent waiting for the disk.
    """

    passes: Sequence[Sequence[int]]
    io_seconds_per_batch: float = 0.0
    io_seconds: float = 0.0
    cores_seconds_per_batch: float = 0.0
    bytes_written_per_batch: float = 0.0
    wait_seconds_per_batch: float = 0.0

    def io_of(self, num_batches: int) -> float:
        """Seconds of the disk for a superbatch of n batches; 0 for none."""
        return self.io_seconds_per_batch * num_batches + (self.io_seconds if num_batches else 0)


def predict_epoch(
    scenario: Scenario, fetching: BatchCost, open_seconds: float = 0.0, ahead: SuperbatchCost | None = None
) -> Prediction:
    """Predict an epoch of batches with the same cost.

    ahead: cost of looking ahead, for a store that does. Its passes follow each other: only the first one begins with
        nothing prefetched. Fetching the first batch of a pass and training on the last one overlap with nothing.
    """
    machine, plan, count = scenario.machine, scenario.plan, scenario.num_batches
    lists_seconds, sample_seconds = _sampling_seconds(scenario)
    io_seconds = fetching.io_seconds + lists_seconds
    cores_seconds = busy_seconds(scenario, fetching)
    together = min(fetching.together, count)
    start_seconds, preparing_seconds = 0.0, 0.0
    if ahead is None:
        seconds = sample_seconds + lists_seconds + together * (fetching.io_seconds + cores_seconds)
        seconds += overlap((count - together) * io_seconds, (count - together) * cores_seconds)
    else:
        # One thread looks ahead, while others sample and its reads and writes are in flight.
        thread_seconds = max(
            sample_seconds / plan.sampling_threads, ahead.cores_seconds_per_batch + ahead.wait_seconds_per_batch
        )
        nexts = [each[0] for each in ahead.passes[1:]]
        # The only epoch prepares no other one.
        nexts.append(0 if scenario.is_only else ahead.passes[-1][0])
        of_passes = [
            fetching.io_seconds
            + _superbatch_seconds(scenario, ahead, [*lengths, following], io_seconds, cores_seconds, thread_seconds)
            for lengths, following in zip(ahead.passes, nexts, strict=True)
        ]
        first = ahead.passes[0][0]
        of_passes[0] += sample_seconds + lists_seconds + overlap(ahead.io_of(first), first * thread_seconds)
        seconds = of_passes[-1]
        start_seconds = sum(each - seconds for each in of_passes)
        preparing_seconds = sum(map(ahead.io_of, ahead.passes[-1]))
    return Prediction(
        epoch_seconds=seconds,
        start_seconds=start_seconds,
        io_seconds=count * io_seconds + preparing_seconds,
        compute_seconds=count * _STEP_IN_RUN * machine.step_seconds,
        cores_seconds=count * cores_seconds,
        open_seconds=open_seconds,
        hit_rate=fetching.hit_rate,
        reads=int(count * fetching.reads),
        bytes_read=int(count * fetching.bytes_read),
        bytes_written=0 if ahead is None else int(ahead.bytes_written_per_batch * count),
    )


def predict_in_turn(scenario: Scenario, fetching: BatchCost, ahead: SuperbatchCost) -> Prediction:
    """Predict an epoch whose lists and rows have the same memory in turn: sampling overlaps with no fetching.

    ahead: its io_seconds fill the cache.
    """
    machine, plan, count = scenario.machine, scenario.plan, scenario.num_batches
    lists_seconds, sample_seconds = _sampling_seconds(scenario)
    load_seconds = plan.share.lists_in_cache_bytes / scenario.sequential_rate
    train_seconds = busy_seconds(scenario, fetching, samples=False)
    thread_seconds = max(
        sample_seconds / min(plan.sampling_threads, machine.threads),
        ahead.cores_seconds_per_batch + ahead.wait_seconds_per_batch,
    )
    lengths = ahead.passes[-1]
    seconds = sum(
        load_seconds
        + overlap(length * (lists_seconds + ahead.io_seconds_per_batch), length * thread_seconds)
        + ahead.io_seconds
        + fetching.io_seconds
        + overlap(length * fetching.io_seconds, length * train_seconds)
        for length in lengths
    )
    loaded = len(lengths) * plan.share.lists_in_cache_bytes
    return Prediction(
        epoch_seconds=seconds,
        io_seconds=count * (fetching.io_seconds + lists_seconds)
        + sum(load_seconds + ahead.io_of(length) for length in lengths),
        compute_seconds=count * _STEP_IN_RUN * machine.step_seconds,
        cores_seconds=count * (train_seconds + thread_seconds),
        hit_rate=fetching.hit_rate,
        reads=int(count * fetching.reads),
        bytes_read=int(count * fetching.bytes_read) + loaded,
    )


def _sampling_seconds(scenario: Scenario) -> tuple[float, float]:
    """Seconds of sampling a batch: of the disk, which reads lists, and of one core."""
    plan, lists = scenario.plan, scenario.lists
    if lists is None or not lists.reads:
        return 0.0, scenario.trace.sample_seconds
    mean_bytes = round(lists.bytes_read / lists.reads)
    one_seconds = lists.reads * scenario.machine.disk.predict_seconds(mean_bytes, plan.engine_depth)
    # Measured: threads that sample at the same time share reads, and save by the root of their number.
    return one_seconds / plan.sampling_threads**0.5, lists.cores_seconds


def _superbatch_seconds(
    scenario: Scenario,
    ahead: SuperbatchCost,
    lengths: Sequence[int],
    io_seconds: float,
    cores_seconds: float,
    thread_seconds: float,
) -> float:
    """Seconds of training on each superbatch but the last, while the next one is prepared."""
    shared_by = scenario.machine.threads**_INTERFERENCE
    seconds = 0.0
    for length, following in pairwise(lengths):
        training_seconds = overlap(
            length * io_seconds + ahead.io_of(following),
            length * cores_seconds + following * ahead.cores_seconds_per_batch / shared_by,
        )
        seconds += max(training_seconds, overlap(ahead.io_of(following), following * thread_seconds))
    return seconds


def busy_seconds(scenario: Scenario, fetching: BatchCost, *, samples: bool = True) -> float:
    """Seconds per batch in which all cores are busy with the model and with everything next to it.

    samples: sampling is a part of that.
    """
    machine, lists = scenario.machine, scenario.lists
    sample_seconds = scenario.trace.sample_seconds if lists is None else lists.cores_seconds
    if not samples:
        sample_seconds = 0.0
    shared_by: float = machine.threads**_INTERFERENCE
    other_seconds = sample_seconds + fetching.cores_seconds
    return scenario.cores.batch + _STEP_IN_RUN * machine.step_seconds + other_seconds / shared_by


def overlap(x: float, y: float) -> float:
    """Seconds that two overlapping activities of x and y seconds take."""
    longer, shorter = max(x, y), min(x, y)
    return longer * (1 + (shorter / longer) ** _OVERLAP_EXPONENT) ** (1 / _OVERLAP_EXPONENT) if longer > 0 else 0.0
