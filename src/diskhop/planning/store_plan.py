"""How a store divides the budget: topology in memory where it fits, batches on their way, rows that are kept.

Batches in flight are reserved by the measured size of a few real batches, with headroom, not by the worst case of the
fan-outs, which would eat any budget.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from diskhop.batches.trace import reader_bytes, writer_bytes
from diskhop.budget import Budget, format_bytes
from diskhop.config.train import PINNED
from diskhop.dataset.dataset import Dataset
from diskhop.derived.scratch import free_bytes, scratch_path
from diskhop.disk.model import DiskModel
from diskhop.errors import ConfigError
from diskhop.io.engine import DEFAULT_DEPTH, choose_engine
from diskhop.pipeline.batch import SAMPLED_AHEAD
from diskhop.pipeline.pinned import counts_accesses
from diskhop.planning.batch_sizes import HEADROOM, BatchSizes, measure_batches
from diskhop.planning.in_flight import FEW_IN_FLIGHT, LEAST_EXTRACTORS, MOST_IN_FLIGHT, BatchesInFlight
from diskhop.planning.measure import disk_model
from diskhop.planning.workload import Workload
from diskhop.plans import SampledPlan
from diskhop.policies.superbatches import SUPERBATCHES_ON_DISK
from diskhop.protocols import Table
from diskhop.sampling.accesses import COUNTING_BYTES_PER_NODE
from diskhop.sampling.cached_topology import cached_topology_bytes, list_bytes, room_for_lists
from diskhop.sampling.topology import topology_bytes
from diskhop.stores.packed.layout import Layout
from diskhop.stores.packed.packer import packing_bytes
from diskhop.stores.packed.sizes import chunk_bytes, head_bytes, own_rows, packed_batch_bytes, require_packable
from diskhop.stores.scanning import BYTES_PER_ROW_TO_JOIN
from diskhop.stores.stores import STORES, StoreKind
from diskhop.system.memory import buffer_bytes, default_threads

_MAX_READ_BYTES = 1 << 20
# In eighths: enough reads on their way, small enough to be in the caches when rows are copied from there (32 MiB is a
# quarter slower; see docs/log.md).
STAGING_BYTES = 8 << 20
SMALLEST_STAGING_BYTES = 4 << 20
# Of a batch on the disk beside its record: when its rows are used next (4 bytes a row) and which come and go (16), each
# from a whole block on.
_PLANNED_BYTES_PER_ROW, _PLANNED_BYTES_PER_BATCH = 4 + 16, 4 * 4096
# Of the table, read at once for packing: what a batch takes of that is written in large pieces.
_PARTITION_BYTES, _SMALLEST_PARTITION_BYTES = 64 << 20, 8 << 20
# The model's batch, two that are there, one on its way (DiskGNN, section 6).
_MOST_PACKED, _LEAST_PACKED = 4, 2
# Where batches share rows on the disk, what several ask for is read once.
_MOST_SHARING_SCAN = 8
# Threads that sample from lists on the disk: they wait for it most of the time, however few cores there are.
_MOST_SHARING_READS = 12
# Batches extracted at the same time, where the budget has room: their reads are shared, ever less is saved.
_MOST_EXTRACTORS = 8
# In the room of one that shares nothing.
_MOST_SHARING_ROWS = 2


class BudgetSplit:
    """A plan in the making: bytes reserved by name, those left of the budget, and why it was so chosen."""

    def __init__(self, budget: Budget, reserved: Mapping[str, int], reasons: list[str]) -> None:
        budget.require(reserved)
        self.reserved = dict(reserved)
        self.left_bytes = budget.available_bytes - sum(reserved.values())
        self.reasons = reasons

    def take(self, name: str, num_bytes: int) -> None:
        """Reserve bytes that are left, beside those of this name so far."""
        self.reserved[name] = self.reserved.get(name, 0) + num_bytes
        self.left_bytes -= num_bytes


def plan_store(
    dataset: Dataset,
    workload: Workload,
    store: str,
    budget: Budget,
    device: DiskModel | None = None,
    sizes: BatchSizes | None = None,
    most_on_their_way: int | None = None,
) -> SampledPlan:
    """Fill in a plan for a store. The workload's options are of use with it.

    device, sizes: default: what is measured of the disk that the features lie on, and of a few batches.
    most_on_their_way: batches that get memory for that before rows that are kept do; default: few, if both want it.

    Raises ConfigError for an unknown engine, BudgetError, naming the smallest budget that would do, before anything is
    opened or measured.
    """
    kind = STORES[store]
    engine, reason = choose_engine(workload.engine or "auto")
    reasons = [] if workload.engine else [f"engine {engine}: {reason}"]
    threads = default_threads() if workload.threads is None else workload.threads
    if threads < 1:
        raise ConfigError(f"threads must be at least 1, got {threads}")
    table = dataset.features()
    if kind.packs and table is not None:
        require_packable(table)
    ordered = workload.ordered or not kind.extracts or table is None
    # As they come, a batch that is slow to sample must not be in the way of the others.
    sampling_threads = max(1 if ordered else 2, threads // 2)

    sizes = sizes or measure_batches(dataset, workload.seed_sets, workload.seed)
    block_bytes = buffer_bytes(sizes.block_bytes)
    in_flight = BatchesInFlight.choose(
        dataset,
        kind,
        sizes.block_bytes,
        sizes.num_nodes,
        head_bytes(sizes.num_nodes, sizes.record_bytes if workload.layout is not None else 0),
        reads_lent_rows=workload.reads_lent_rows,
        holds_while_waiting=workload.holds_while_waiting,
    )
    # Finished blocks: in the channel, with each sampling thread that waits for room there, and before the gate. Those
    # of a superbatch are on the disk, but for two on their way there.
    num_blocks = 2 * sampling_threads + (2 if kind.looks_ahead else SAMPLED_AHEAD) + 1
    tracing_bytes = writer_bytes(sizes.record_bytes) + reader_bytes(sizes.record_bytes) if kind.looks_ahead else 0
    wanted_rows = 0 if table is None else min((workload.cache_bytes or 0) // table.row_bytes, table.num_rows)
    layout = workload.layout
    if layout is not None:
        wanted_rows = layout.num_held
    held_rows = wanted_rows
    if kind.extracts and table is not None:
        held_rows = _rows_of_extractors(LEAST_EXTRACTORS, in_flight, table, sizes.num_nodes)
    smallest = {
        **workload.also_held,
        "sampled ahead": num_blocks * block_bytes + tracing_bytes,
        "sampling": sampling_threads * sizes.workspace_bytes,
        "sorting ids": sizes.num_nodes * BYTES_PER_ROW_TO_JOIN,
        **({} if table is None else kind.reserves(table, held_rows, sizes.num_nodes)),
        "mini-batches in flight": in_flight.num_bytes,
        "staging": SMALLEST_STAGING_BYTES,
    }
    pinned = workload.pinned or PINNED[0]
    batch_own_rows = 0
    if kind.packs and table is not None:
        counts = counts_accesses(dataset, store, pinned)
        num_misses = sizes.num_nodes if counts else sizes.num_misses(wanted_rows)
        batch_own_rows = own_rows(table, num_misses, 0)
        if layout is not None:
            batch_own_rows = max(batch_own_rows, layout.most_own_rows)
        smallest["packed rows"] = _LEAST_PACKED * batch_own_rows * table.row_bytes
        smallest["packing"] = packing_bytes(table, _SMALLEST_PARTITION_BYTES) + packed_batch_bytes(sizes.num_nodes)
    draft = BudgetSplit(budget, smallest, reasons)
    # In this order: every batch draws from the topology, wide staging keeps the disk busy, more batches only smooth.
    topology, topology_cache_bytes, sampling_threads = _choose_topology(draft, dataset, sizes, sampling_threads)
    more_bytes = min(STAGING_BYTES - SMALLEST_STAGING_BYTES, draft.left_bytes)
    draft.take("staging", more_bytes & ~(SMALLEST_STAGING_BYTES - 1))
    extractors = most_extracting = buffer_rows = partition_bytes = 0
    if kind.extracts and table is not None:
        extractors = _choose_extractors(draft, kind, table, sizes.num_nodes, in_flight)
        most_extracting = min(_MOST_SHARING_ROWS * extractors, _MOST_EXTRACTORS)
        held_rows = _rows_of_extractors(extractors, in_flight, table, sizes.num_nodes)
        draft.reasons.append(
            f"{sampling_threads} samplers: {threads} threads are shared with the model, lists are in {topology}; "
            f"{extractors} extractors: as many batches fit, of up to {sizes.num_nodes} rows each, and up to "
            f"{most_extracting} while they share rows"
        )
        how = "in their order, as asked" if ordered else "as they are finished, which changes the course of training"
        draft.reasons.append(f"batches are delivered {how}")
        more_in_flight = in_flight.grow(draft.left_bytes, most_extracting + in_flight.is_lent)
    else:
        if most_on_their_way is None:
            most_on_their_way = FEW_IN_FLIGHT if divides_memory(workload, store) else MOST_IN_FLIGHT
        more_in_flight = in_flight.grow(draft.left_bytes, most_on_their_way)
    draft.take("mini-batches in flight", more_in_flight.num_bytes - in_flight.num_bytes)
    in_flight = more_in_flight
    if kind.packs and table is not None:
        buffer_rows, partition_bytes = _choose_packing(draft, table, batch_own_rows, layout)
    if layout is None and counts_accesses(dataset, store, pinned):
        # Before all else but the lists is held.
        counting_bytes = (
            COUNTING_BYTES_PER_NODE * dataset.num_nodes + draft.reserved["sampling"] + in_flight.batch_bytes
        )
        topology_now_bytes = draft.reserved.get("topology", 0)
        budget.require({**workload.also_held, "topology": topology_now_bytes, "counting accesses": counting_bytes})
    cache_rows = wanted_rows
    if kind.extracts and table is not None:
        cache_rows, buffer_rows = _choose_buffer(draft, workload, kind, table, held_rows)
    elif kind.keeps_rows and table is not None:
        if layout is not None:
            epochs = f"{len(layout.epochs)} epochs" if len(layout.epochs) > 1 else "1 epoch"
            reasons.append(f"{epochs} packed ahead in {layout.path}, and {layout.num_held} rows to stay in memory")
        else:
            cache_rows = _choose_cache(draft, workload, kind, table, wanted_rows, sizes.num_nodes)
    superbatch, scratch = 0, ""
    if kind.looks_ahead:
        scratch = str(scratch_path(dataset.path, workload.scratch))
        planned_bytes = sizes.num_nodes * _PLANNED_BYTES_PER_ROW + _PLANNED_BYTES_PER_BATCH
        if kind.packs and table is not None:
            planned_bytes = chunk_bytes(table, sizes.num_nodes, batch_own_rows)
        bytes_per_batch = sizes.record_bytes + planned_bytes
        superbatch = _choose_superbatch(draft, workload, scratch, bytes_per_batch)
    measured = f"measured with {HEADROOM - 1:.0%} headroom"
    reasons.append(f"{in_flight.describe()}, {measured}")
    device = device or disk_model(dataset, engine)
    max_gap_bytes = device.break_even_gap_bytes
    reasons.append(f"gaps up to {format_bytes(max_gap_bytes)} are read over: {device.source} cost of one more read")
    return SampledPlan(
        store=store,
        engine=engine,
        engine_depth=DEFAULT_DEPTH,
        topology=topology,
        topology_cache_bytes=topology_cache_bytes,
        memory_bytes=budget.total_bytes,
        batch_bytes=in_flight.batch_bytes,
        bytes_on_their_way=in_flight.bytes_on_their_way,
        bytes_assembled=in_flight.bytes_assembled,
        holds_while_waiting=workload.holds_while_waiting,
        sampling_threads=sampling_threads,
        threads=threads,
        max_gap_bytes=max_gap_bytes,
        max_read_bytes=_MAX_READ_BYTES,
        staging_bytes=draft.reserved["staging"],
        batch_rows=sizes.num_nodes,
        cache_rows=cache_rows,
        buffer_rows=buffer_rows,
        partition_bytes=partition_bytes,
        extractors=extractors,
        most_extracting=most_extracting,
        ordered=ordered,
        pinned=pinned,
        superbatch=superbatch,
        scratch=scratch,
        layout="" if layout is None else str(layout.path),
        reserved=draft.reserved,
        reasons=tuple(reasons),
    )


def divides_memory(workload: Workload, store: str) -> bool:
    """Whether batches on their way and rows that are kept want the same memory."""
    return STORES[store].keeps_rows and workload.cache_bytes is None and workload.layout is None


def _choose_topology(
    draft: BudgetSplit, dataset: Dataset, sizes: BatchSizes, sampling_threads: int
) -> tuple[Literal["memory", "cached", "mapped"], int, int]:
    """Where the lists are, the bytes of a neighbour cache, and how many threads sample: so many, or more."""
    files = dataset.topology
    in_memory_bytes = topology_bytes(files, "memory")
    if in_memory_bytes <= draft.left_bytes:
        draft.take("topology", in_memory_bytes)
        draft.reasons.append(f"topology in memory: {format_bytes(in_memory_bytes)} fit")
        return "memory", 0, sampling_threads
    # A neighbour cache takes what is left, but for wide staging: the last lists it holds are the least worth.
    room_bytes = draft.left_bytes - (STAGING_BYTES - SMALLEST_STAGING_BYTES)
    block_bytes = 2 * buffer_bytes(sizes.block_bytes)  # of a thread: in the channel, and before it
    best = None
    for num_threads in range(sampling_threads, max(sampling_threads, _MOST_SHARING_READS) + 1):
        working_bytes = num_threads * sizes.hop_read_bytes
        working_bytes += (num_threads - sampling_threads) * (sizes.workspace_bytes + block_bytes)
        cache_bytes = room_for_lists(files, room_bytes - working_bytes)
        if cache_bytes < 0:
            break
        # Measured: threads that sample at the same time, and share reads, read less each by the root of their number.
        bytes_read = max(0, list_bytes(files) - cache_bytes) / math.sqrt(num_threads)
        if best is None or bytes_read < best[0]:
            best = bytes_read, cache_bytes, num_threads
    if best is None:
        draft.reasons.append(f"topology mapped: {format_bytes(in_memory_bytes)} do not fit beside two batches")
        return "mapped", 0, sampling_threads
    _, cache_bytes, num_threads = best
    more_threads = num_threads - sampling_threads
    draft.take("topology", cached_topology_bytes(files, cache_bytes))
    draft.take("sampling", num_threads * sizes.hop_read_bytes + more_threads * sizes.workspace_bytes)
    draft.take("sampled ahead", more_threads * block_bytes)
    share = f"; {num_threads} threads sample, and share what they read" if num_threads > 1 else ""
    draft.reasons.append(
        f"topology cached: {format_bytes(in_memory_bytes)} do not fit beside two batches; "
        f"{format_bytes(cache_bytes)} hold the lists most worth it{share}"
    )
    return "cached", cache_bytes, num_threads


def _slot_bytes(kind: StoreKind, table: Table) -> int:
    """That a row more takes which the store keeps."""
    return sum(kind.reserves(table, 1, 1).values()) - sum(kind.reserves(table, 0, 1).values())


def _rows_of_extractors(extractors: int, in_flight: BatchesInFlight, table: Table, batch_rows: int) -> int:
    """Of a buffer with room for so many large batches that share no row, beside the model's if it reads them there."""
    return min((extractors + in_flight.is_lent) * batch_rows, table.num_rows)


def _choose_extractors(
    draft: BudgetSplit, kind: StoreKind, table: Table, batch_rows: int, in_flight: BatchesInFlight
) -> int:
    """As many as fit (GNNDrive, section 4.2), at most _MOST_EXTRACTORS."""
    slot_bytes = _slot_bytes(kind, table)
    least_rows = _rows_of_extractors(LEAST_EXTRACTORS, in_flight, table, batch_rows)
    extractors, num_bytes = LEAST_EXTRACTORS, 0
    while extractors < _MOST_EXTRACTORS:
        more_rows = _rows_of_extractors(extractors + 1, in_flight, table, batch_rows) - least_rows
        blocks = _MOST_SHARING_ROWS * (extractors + 1 - LEAST_EXTRACTORS)
        if more_rows * slot_bytes + blocks * in_flight.bytes_on_its_way > draft.left_bytes:
            break
        extractors, num_bytes = extractors + 1, more_rows * slot_bytes
    draft.take("feature buffer", num_bytes)
    return extractors


def _choose_buffer(
    draft: BudgetSplit, workload: Workload, kind: StoreKind, table: Table, held_rows: int
) -> tuple[int, int]:
    """Rows that are kept although no batch uses them, and rows of the whole buffer. held_rows: reserved already."""
    wanted_rows, whose = table.num_rows, "all that batches leave free"
    if workload.cache_bytes is not None:
        wanted_rows, whose = workload.cache_bytes // table.row_bytes, "as asked"
    slot_bytes = _slot_bytes(kind, table)
    more_rows = min(held_rows + wanted_rows, table.num_rows) - held_rows
    more_rows = min(more_rows, draft.left_bytes // slot_bytes)
    draft.take("feature buffer", more_rows * slot_bytes)
    buffer_rows = held_rows + more_rows
    kept_rows = min(wanted_rows, buffer_rows)
    share = f"{buffer_rows / max(table.num_rows, 1):.1%} of {table.num_rows}"
    draft.reasons.append(
        f"a buffer of {buffer_rows} rows, {share}, for the batches in it together; of those that none uses, up to "
        f"{kept_rows} are kept: {whose}"
    )
    return kept_rows, buffer_rows


def _choose_packing(draft: BudgetSplit, table: Table, batch_own_rows: int, layout: Layout | None) -> tuple[int, int]:
    """Rows of the buffer for batches on their way, and bytes of the table that are read at once to be packed."""
    batch_bytes = batch_own_rows * table.row_bytes
    wanted_batches = _MOST_PACKED if layout is None or not layout.has_shared_rows else _MOST_SHARING_SCAN
    most_batches = min(wanted_batches, _LEAST_PACKED + draft.left_bytes // max(batch_bytes, 1))
    draft.take("packed rows", (most_batches - _LEAST_PACKED) * batch_bytes)
    smallest_bytes = packing_bytes(table, _SMALLEST_PARTITION_BYTES)
    partition_bytes = _SMALLEST_PARTITION_BYTES
    if layout is None:
        partition_bytes = min(_PARTITION_BYTES, partition_bytes + draft.left_bytes // 2)
    draft.take("packing", packing_bytes(table, partition_bytes) - smallest_bytes)
    draft.reasons.append(
        f"room for {most_batches} batches of up to {batch_own_rows} rows of their own; packed by partitions of "
        f"{format_bytes(partition_bytes)}"
    )
    return most_batches * batch_own_rows, partition_bytes


def _choose_cache(
    draft: BudgetSplit, workload: Workload, kind: StoreKind, table: Table, wanted_rows: int, batch_rows: int
) -> int:
    """How many rows are kept: those asked for, which are reserved already, or what is left."""
    rows, whose = wanted_rows, "as asked"
    if workload.cache_bytes is None:
        empty = kind.reserves(table, 0, batch_rows)
        rows = min(draft.left_bytes // _slot_bytes(kind, table), table.num_rows)
        for name, num_bytes in kind.reserves(table, rows, batch_rows).items():
            draft.take(name, num_bytes - empty[name])
        whose = "what is left"
    share = f"{rows / max(table.num_rows, 1):.1%} of {table.num_rows}"
    draft.reasons.append(f"{rows} rows kept between batches, {share}: {whose}")
    return rows


def _choose_superbatch(draft: BudgetSplit, workload: Workload, scratch: str, bytes_per_batch: int) -> int:
    """Batches sampled ahead together: two superbatches share the disk (Ginex, section 3.5)."""
    disk_bytes, whose = workload.disk_bytes, ""
    if disk_bytes is None:
        disk_bytes, whose = free_bytes(Path(scratch)) // 2, f" (half of what is free at {scratch})"
    superbatch = disk_bytes // (SUPERBATCHES_ON_DISK * bytes_per_batch)
    if superbatch < 1:
        raise ConfigError(
            f"--disk {format_bytes(disk_bytes)}{whose} is too small to sample ahead: two superbatches of one batch "
            f"take {format_bytes(SUPERBATCHES_ON_DISK * bytes_per_batch)}; give it more, or --scratch another folder"
        )
    of_disk = f"{format_bytes(disk_bytes)} of disk{whose or ', as asked'}"
    draft.reasons.append(f"up to {superbatch} batches sampled ahead together: two such superbatches in {of_disk}")
    return superbatch
