"""The plan that is used where the user leaves choices open: `direct` reads, topology in memory where it fits.

Batches in flight are reserved by the measured size of a few real batches, with headroom, not by the worst case of the
fan-outs, which would eat any budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from diskhop.budget import Budget, format_bytes
from diskhop.config import require_known
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.features import STORES
from diskhop.io.device_model import DeviceModel, assumed_device_model
from diskhop.io.engine import DEFAULT_DEPTH, choose_engine, open_engine
from diskhop.io.memory import buffer_bytes, default_threads
from diskhop.io.probe import probe
from diskhop.pipeline import SAMPLED_AHEAD, bytes_a_row
from diskhop.plan import Plan
from diskhop.protocols import NodeIds, Purpose
from diskhop.sampling.cached_topology import cached_topology_bytes, hop_read_bytes
from diskhop.sampling.neighbor import NeighborSampler
from diskhop.sampling.topology import open_topology, topology_bytes

DEFAULT_STORE = "direct"
_MAX_READ_BYTES = 1 << 20
# Depth 32 of the largest reads is where this kind of disk reaches its bandwidth; below 4 MiB it cannot.
_STAGING_BYTES = 32 << 20
# Lists lie in huge pages.
_PAGE_BYTES = 2 << 20
_SMALLEST_STAGING_BYTES = 4 << 20
# One with the model, one on its way.
_FEWEST_IN_FLIGHT = 2
_MOST_IN_FLIGHT = 4
# Of the core's row reader: a sorted id with its place, and a planned read.
_SORTING_BYTES_A_ROW = 56
_MOST_READING_THREADS = 2
_MEASURED_BATCHES = 3
_HEADROOM = 1.25
# Below this a whole table is read in a fraction of the seconds that measuring takes.
_WORTH_MEASURING_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SeedSet:
    """Batches that a run will ask for: which seeds, how many a batch, how many neighbours a hop (-1: all)."""

    purpose: Purpose
    seeds: NodeIds
    batch_size: int
    fanouts: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workload:
    """What the choice depends on. None leaves it open.

    also_held: bytes of graph data that the caller keeps besides, by name (labels).
    """

    seed_sets: tuple[SeedSet, ...]
    seed: int
    store: str | None = None
    engine: str | None = None
    threads: int | None = None
    also_held: Mapping[str, int] = field(default_factory=dict)


def device_model(dataset: Dataset, engine: str) -> DeviceModel:
    """The cost of reads from the disk that the features lie on: measured once per device, where it matters."""
    table = dataset.features()
    if table is None or table.num_rows * table.row_stride < _WORTH_MEASURING_BYTES:
        return assumed_device_model(engine, "the feature table is small")
    return probe(dataset.path, engine=engine, existing_file=table.path)


@dataclass(frozen=True, slots=True)
class BatchSizes:
    """The largest of some sampled batches.

    hop_read_bytes: what a sampling thread takes to read a hop of lists that are on the disk. workspace_bytes: what it
    works in besides; sorting_bytes: what a reading thread takes to sort and plan a batch's reads.
    """

    block_bytes: int
    hop_read_bytes: int
    row_bytes: int
    workspace_bytes: int
    sorting_bytes: int


def measure_batches(dataset: Dataset, workload: Workload) -> BatchSizes:
    """Sample a few batches of every seed set and see how large they are."""
    most_block_bytes = most_nodes = most_hop_bytes = workspace_bytes = 0
    # Mapped, since nothing is reserved yet; the pages it touches are the kernel's to keep.
    engine = open_engine("threads", 1).engine
    with open_topology(dataset.topology, "mapped", engine, Budget(1)) as topology:
        for seed_set in workload.seed_sets:
            sampler = NeighborSampler(topology, seed_set.fanouts, workload.seed)
            num_batches = -(-len(seed_set.seeds) // seed_set.batch_size)
            # Spread over the seeds: those at the front may be of one kind.
            for number in range(0, num_batches, max(1, num_batches // _MEASURED_BATCHES)):
                seeds = seed_set.seeds[number * seed_set.batch_size :][: seed_set.batch_size]
                batch = sampler.sample(seeds, purpose=seed_set.purpose, epoch=0, number=number)
                most_block_bytes = max(most_block_bytes, batch.num_bytes)
                most_nodes = max(most_nodes, batch.num_nodes)
                hops = zip(batch.num_sampled_nodes[:-1], batch.num_sampled_edges, strict=True)
                most_hop_bytes = max(most_hop_bytes, *(hop_read_bytes(*hop) for hop in hops))
            workspace_bytes = max(workspace_bytes, sampler.workspace_bytes)
    return BatchSizes(
        block_bytes=most_block_bytes,
        hop_read_bytes=most_hop_bytes,
        row_bytes=most_nodes * bytes_a_row(dataset),
        workspace_bytes=workspace_bytes,
        sorting_bytes=most_nodes * _SORTING_BYTES_A_ROW,
    )


def choose_plan(dataset: Dataset, workload: Workload, budget: Budget, device: DeviceModel | None = None) -> Plan:
    """Fill in a plan. device: default: what is measured of the disk that the features lie on.

    Raises ConfigError for an unknown store or engine, BudgetError, naming the smallest budget that would do, before
    anything is opened or measured.
    """
    store = workload.store or DEFAULT_STORE
    require_known("store", store, STORES)
    engine, reason = choose_engine(workload.engine or "auto")
    reasons = [] if workload.engine else [f"engine {engine}: {reason}"]
    if workload.store is None:
        reasons.append(f"store {store}: reads only what a batch needs, keeps nothing")
    threads = default_threads() if workload.threads is None else workload.threads
    if threads < 1:
        raise ConfigError(f"threads must be at least 1, got {threads}")
    sampling_threads = max(1, threads // 2)

    sizes = measure_batches(dataset, workload)
    block_bytes = buffer_bytes(int(sizes.block_bytes * _HEADROOM))
    batch_bytes = block_bytes + buffer_bytes(int(sizes.row_bytes * _HEADROOM))
    fixed = dict(workload.also_held)
    # Finished blocks: in the channel, with each sampling thread that waits for room there, and before the gate.
    num_blocks = 2 * sampling_threads + SAMPLED_AHEAD + 1
    fixed["sampled ahead"] = num_blocks * block_bytes
    fixed["sampling"] = int(sampling_threads * sizes.workspace_bytes * _HEADROOM)
    fixed["sorting ids"] = int(_MOST_READING_THREADS * sizes.sorting_bytes * _HEADROOM)
    table = dataset.features()
    if store == "memory" and table is not None:
        fixed["feature table"] = buffer_bytes(table.num_rows * table.row_bytes)
    in_memory_bytes = topology_bytes(dataset.topology, "memory")

    smallest = {
        **fixed,
        "mini-batches in flight": _FEWEST_IN_FLIGHT * batch_bytes,
        "staging": _SMALLEST_STAGING_BYTES,
    }
    budget.require(smallest)
    left_bytes = budget.available_bytes - sum(smallest.values())
    # In this order: every batch draws from the topology, wide staging keeps the disk busy, more batches only smooth.
    topology: Literal["memory", "cached", "mapped"] = "mapped"
    topology_cache_bytes = 0
    # A neighbour cache takes what is left, but for wide staging: the last lists it holds are the least worth.
    reading_bytes = int(sampling_threads * sizes.hop_read_bytes * _HEADROOM)
    uncached_bytes = cached_topology_bytes(dataset.topology, 0, sampling_threads) + reading_bytes
    wider_bytes = min(left_bytes, _STAGING_BYTES - _SMALLEST_STAGING_BYTES)
    if in_memory_bytes <= left_bytes:
        topology = "memory"
        fixed["topology"] = in_memory_bytes
        left_bytes -= in_memory_bytes
        reasons.append(f"topology in memory: {format_bytes(in_memory_bytes)} fit")
    elif uncached_bytes <= left_bytes - wider_bytes:
        topology = "cached"
        topology_cache_bytes = (left_bytes - wider_bytes - uncached_bytes) & ~(_PAGE_BYTES - 1)
        fixed["sampling"] += reading_bytes
        fixed["topology"] = cached_topology_bytes(dataset.topology, topology_cache_bytes, sampling_threads)
        left_bytes -= fixed["topology"] + reading_bytes
        reasons.append(
            f"topology cached: {format_bytes(in_memory_bytes)} do not fit beside two batches; "
            f"{format_bytes(topology_cache_bytes)} hold the lists most worth it"
        )
    else:
        reasons.append(f"topology mapped: {format_bytes(in_memory_bytes)} do not fit beside two batches")
    staging_bytes = min(_STAGING_BYTES, _SMALLEST_STAGING_BYTES + left_bytes) & ~(_SMALLEST_STAGING_BYTES - 1)
    left_bytes -= staging_bytes - _SMALLEST_STAGING_BYTES
    more_batches = min(left_bytes // batch_bytes, _MOST_IN_FLIGHT - _FEWEST_IN_FLIGHT)
    batches_in_flight = _FEWEST_IN_FLIGHT + more_batches
    size = f"{format_bytes(batch_bytes)} each, measured with {_HEADROOM - 1:.0%} headroom"
    reasons.append(f"{batches_in_flight} batches in flight: {size}")
    device = device or device_model(dataset, engine)
    max_gap_bytes = device.break_even_gap_bytes
    reasons.append(f"gaps up to {format_bytes(max_gap_bytes)} are read over: {device.source} cost of one more read")
    is_roomy = batches_in_flight > _FEWEST_IN_FLIGHT and staging_bytes == _STAGING_BYTES
    reserved = {**fixed, "mini-batches in flight": batches_in_flight * batch_bytes, "staging": staging_bytes}
    return Plan(
        store=store,
        engine=engine,
        engine_depth=DEFAULT_DEPTH,
        topology=topology,
        topology_cache_bytes=topology_cache_bytes,
        memory_bytes=budget.total_bytes,
        batches_in_flight=batches_in_flight,
        batch_bytes=batch_bytes,
        reading_threads=_MOST_READING_THREADS if is_roomy else 1,
        sampling_threads=sampling_threads,
        threads=threads,
        max_gap_bytes=max_gap_bytes,
        max_read_bytes=_MAX_READ_BYTES,
        staging_bytes=staging_bytes,
        reserved=reserved,
        reasons=tuple(reasons),
    )
