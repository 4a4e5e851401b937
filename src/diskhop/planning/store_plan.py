"""Dividing the budget of a run on sampled neighbours: neighbour lists, batches in flight, and the feature store's rows.

Batches in flight are reserved by the measured size of a few real batches, with headroom. The worst case of the fan-outs
would exceed any budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from diskhop.batches.sizes import HEADROOM, BatchSizes
from diskhop.batches.trace import reader_bytes, writer_bytes
from diskhop.budget import Budget, format_bytes
from diskhop.config.options import AUTO
from diskhop.config.sampled import ACCESSES, PINNED
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import DiskModel
from diskhop.errors import ConfigError
from diskhop.io.engine import DEFAULT_DEPTH, choose_engine
from diskhop.pipeline.batch import SAMPLED_AHEAD
from diskhop.pipeline.pinned import counts_accesses
from diskhop.pipeline.sizes import rows_bytes
from diskhop.planning.batch_sizes import measure_batches
from diskhop.planning.device_rows import ADDED, address_bytes, describe, on_device, place_on
from diskhop.planning.lists import ListsPlan, lists_in_turn, named_lists, plan_lists
from diskhop.planning.measure import disk_model
from diskhop.planning.options import describe_division
from diskhop.planning.workload import Workload, store_wishes
from diskhop.plans import SampledPlan, StoreShare
from diskhop.policies.device_rows import PLACING_BYTES_PER_ROW
from diskhop.sampling.accesses import COUNTING_BYTES_PER_NODE
from diskhop.sampling.cached_topology import list_bytes
from diskhop.sampling.samplers import lists_of
from diskhop.stores.in_flight import MOST_IN_FLIGHT
from diskhop.stores.kind import StoreKind
from diskhop.stores.room import CHOOSING, NamedLists, StoreRoom
from diskhop.stores.scanning import BYTES_PER_ROW_TO_JOIN
from diskhop.stores.stores import store_kind
from diskhop.system.memory import buffer_bytes, default_threads

_MAX_READ_BYTES = 1 << 20
# Neighbour lists that have the memory of cached rows in turn.
_InTurn = Literal["none", "some", "all"]


def plan_store(
    dataset: Dataset,
    workload: Workload,
    store: str,
    budget: Budget,
    disk: DiskModel | None = None,
    sizes: BatchSizes | None = None,
    most_in_flight: int | None = None,
    lists_bytes: int | None = None,
    *,
    takes_turns: bool = False,
) -> SampledPlan:
    """Fill in a plan for one store; every option of the workload has an effect with it.

    disk: cost of reads; default: measured on the disk of the features.
    sizes: sizes of batches; default: those of the workload, else measured on a few batches.
    most_in_flight: batches in flight that get memory before cached rows do; default: the store's choice.
    lists_bytes: memory for neighbour lists at most; default: all that the smallest memory of the rest leaves.
    takes_turns: lists and cached rows have the same memory in turn; see may_take_turns().

    Raises ConfigError for an unknown engine, and BudgetError, naming the smallest budget that works. Both come before
    anything is opened or measured.
    """
    engine, reason = choose_engine(workload.engine or AUTO)
    reasons = [] if workload.engine else [f"engine {engine}: {reason}"]
    threads = own_threads(budget) if workload.threads is None else workload.threads
    if threads < 1:
        raise ConfigError(f"--threads must be at least 1, got {threads}; use --threads 1")
    sizes = sizes or workload.sizes or measure_batches(dataset, workload.seed_sets, workload.seed, budget.total_bytes)
    table = dataset.feature_table()
    kind = store_kind(store, table)
    device_rows = on_device(table, workload.device_bytes, sizes)
    if workload.prepared is not None:
        # Batches packed ahead lack the resident rows, no others.
        device_rows = {name: min(num_rows, workload.prepared.num_held) for name, num_rows in device_rows.items()}
    if device_rows:
        # Batches have addresses, and the rows to pin are found by counting.
        workload = replace(workload, values=workload.values.plus(ADDED), pinned=workload.pinned or ACCESSES)
    in_turn: _InTurn
    for in_turn in ("all", "some") if takes_turns else ("none",):
        planning = _StorePlanning(
            dataset, workload, kind, budget, sizes, list(reasons), threads, lists_bytes, device_rows, in_turn
        )
        share = planning.divide(most_in_flight)
        # Lists that are all there need less memory of their own than a neighbour cache.
        if share.lists_in_cache_bytes == list_bytes(planning.files):
            break
    reasons = planning.room.reasons
    room, in_flight = planning.room, planning.room.in_flight
    reasons.append(in_flight.describe(HEADROOM))
    disk = disk or disk_model(dataset, engine)
    places = place_on(table, kind, share, device_rows)
    if table is not None and places is not None:
        reasons += describe(places, table, store)
    if budget.num_processes > 1:
        reasons.append(describe_division(room.reserved, room.shared, room.num_processes))
    reasons.append(f"Reads closer than {format_bytes(disk.break_even_gap_bytes)} are merged ({disk.source} break-even)")
    return SampledPlan(
        store=store,
        engine=engine,
        engine_depth=DEFAULT_DEPTH,
        topology=planning.lists.topology,
        topology_cache_bytes=share.lists_in_cache_bytes if in_turn == "some" else planning.lists.cache_bytes,
        memory_bytes=budget.total_bytes,
        batch_bytes=in_flight.batch_bytes,
        bytes_in_flight=in_flight.bytes_in_flight,
        bytes_assembled=in_flight.bytes_assembled,
        holds_while_waiting=workload.holds_while_waiting,
        sampling_threads=room.sampling_threads,
        threads=threads,
        max_gap_bytes=disk.break_even_gap_bytes,
        max_read_bytes=_MAX_READ_BYTES,
        staging_bytes=room.reserved["staging"],
        batch_rows=sizes.num_rows,
        share=share,
        ordered=planning.ordered,
        pinned=workload.pinned or PINNED[0],
        values=workload.values,
        reserved=room.reserved,
        num_processes=budget.num_processes,
        shared=tuple(name for name in room.reserved if name in room.shared) if budget.num_processes > 1 else (),
        reasons=tuple(reasons),
        columns=tuple((column.use, column.name) for column in planning.files.columns),
        row_places=places,
    )


def may_take_turns(dataset: Dataset, workload: Workload, kind: StoreKind, budget: Budget) -> bool:
    """Whether lists and cached rows of a run can have the same memory in turn, and the user named the size of neither.

    Only this process may use that memory, and nothing but the sampling of superbatches may need lists.
    """
    return (
        kind.takes_turns
        and workload.may_take_turns
        and workload.cache_bytes is None
        and workload.neighbor_cache_bytes is None
        and not workload.device_bytes
        and not workload.is_given
        and budget.num_processes == 1
        and dataset.types is None
        and not lists_of(dataset, workload.samplers).columns
    )


def own_threads(budget: Budget) -> int:
    """Return the number of cores that a process may use, of those that share a budget."""
    return max(1, default_threads() // budget.num_processes)


class _StorePlanning:
    """The division of one budget for one store, step by step."""

    def __init__(
        self,
        dataset: Dataset,
        workload: Workload,
        kind: StoreKind,
        budget: Budget,
        sizes: BatchSizes,
        reasons: list[str],
        threads: int,
        lists_bytes: int | None,
        device_rows: Mapping[str, int],
        in_turn: _InTurn,
    ) -> None:
        self._lists_bytes = lists_bytes
        self._in_turn = in_turn
        self._dataset = dataset
        self._workload = workload
        self._kind = kind
        self._budget = budget
        self._sizes = sizes
        self._reasons = reasons
        self._table = dataset.feature_table()
        self._device_rows = device_rows
        self.files = lists_of(dataset, workload.samplers)
        self.ordered = workload.ordered or "ordered" not in kind.uses or self._table is None
        # Without an order, a batch that is slow to sample must not hold up the others.
        self._sampling_threads = max(1 if self.ordered else 2, threads // 2)
        if in_turn != "none":
            self._sampling_threads = threads  # while nothing is trained
        self.room: StoreRoom
        self.lists: ListsPlan

    def divide(self, most_in_flight: int | None) -> StoreShare:
        """Reserve everything; afterwards room and lists are set. Raises BudgetError."""
        in_turn_bytes = 0 if self._in_turn == "none" else list_bytes(self.files)
        wishes = store_wishes(self._dataset, self._workload, self._kind, most_in_flight, in_turn_bytes)
        wishes = replace(wishes, device_rows=sum(self._device_rows.values()))
        if wishes.cache_bytes is not None and "cache" not in self._kind.shares:
            wishes = replace(wishes, cache_bytes=wishes.cache_bytes // self._budget.num_processes)
        sizes, workload = self._sizes, self._workload
        smallest = self._smallest_of_sampling()
        counting_bytes = COUNTING_BYTES_PER_NODE * self._dataset.num_nodes + smallest["sampling"]
        choosing = {**workload.also_held, CHOOSING: counting_bytes} if self._chooses_rows else None
        room = self.room = StoreRoom(
            self._budget,
            sizes,
            wishes,
            self._reasons,
            rows_bytes=rows_bytes(self._dataset, sizes.node_ids, sizes.num_nodes),
            added_bytes=workload.values.of(sizes.num_nodes, sizes.most_edges),
            reserved=smallest,
            sampling_threads=self._sampling_threads,
            take_lists=self._take_lists,
            lists=self._named_lists(),
            choosing=choosing,
            shared=self._kind.shares | workload.held_once,
        )
        if self._table is None:
            room.require({})
            room.grow_in_flight(MOST_IN_FLIGHT)
            return StoreShare()
        share = self._kind.divide(self._table, room, wishes)
        if in_turn_bytes:
            room.reasons.append(
                f"Topology: {format_bytes(share.lists_in_cache_bytes)} of {format_bytes(in_turn_bytes)} in the memory "
                "of the cached rows while a superbatch is sampled (training waits meanwhile)"
            )
        if not self.ordered:
            room.reasons.append("Batches arrive out of order (results vary between runs; use --ordered to prevent it)")
        places = place_on(self._table, self._kind, share, self._device_rows)
        if places is not None:
            self._require_placing(places.num_rows)
        return share

    def _require_placing(self, num_rows: int) -> None:
        """Raise BudgetError if rows for a device cannot be chosen: how many it takes is known once a share is."""
        room, names = self.room, ("topology", *(column.label for column in self.files.columns))
        choosing_bytes = COUNTING_BYTES_PER_NODE * self._dataset.num_nodes + PLACING_BYTES_PER_ROW * num_rows
        choosing_bytes += room.reserved["sampling"] + room.in_flight.batch_bytes
        lists = {name: room.reserved.get(name, 0) for name in names}
        self._budget.require({**self._workload.also_held, **lists, CHOOSING: choosing_bytes}, room.shared)

    @property
    def _chooses_rows(self) -> bool:
        """Whether accesses are counted to choose rows to pin, when nothing but the lists is in memory."""
        if self._device_rows:
            return True
        if self._workload.prepared is not None or self._table is None:
            return False
        return counts_accesses(self._dataset, self._kind.name, self._workload.pinned or PINNED[0])

    def _smallest_of_sampling(self) -> dict[str, int]:
        """Bytes that sampling needs at least, by name."""
        sizes, threads = self._sizes, self._sampling_threads
        looks_ahead = self._kind.looks_ahead and self._table is not None
        # Finished blocks wait in the channel, with each sampling thread while the channel is full, and at the gate. A
        # superbatch has its blocks on the disk, except for two that are being written.
        num_blocks = 2 * threads + (2 if looks_ahead else SAMPLED_AHEAD) + 1
        addresses_bytes = address_bytes(self._table, self._kind, self._device_rows)
        tracing_bytes = writer_bytes(sizes.record_bytes) + reader_bytes(sizes.record_bytes) if looks_ahead else 0
        return {
            **self._workload.also_held,
            "sampled ahead": num_blocks * buffer_bytes(sizes.block_bytes) + tracing_bytes,
            "sampling": threads * sizes.workspace_bytes,
            "sorting ids": sizes.num_rows * BYTES_PER_ROW_TO_JOIN,
            **({"row addresses of the device": addresses_bytes} if addresses_bytes else {}),
        }

    def _named_lists(self) -> NamedLists | None:
        """The least memory for neighbour lists: what --neighbor-cache names, or what reading them takes."""
        wished_bytes = self._workload.neighbor_cache_bytes
        if self._workload.is_given:
            return None
        if self._in_turn != "none":
            fit_bytes = list_bytes(self.files) if self._in_turn == "all" else 0
            return lists_in_turn(self.files, self._sizes, fit_bytes, self._sampling_threads)
        num_processes = self._budget.num_processes
        return named_lists(self.files, self._sizes, wished_bytes, self._sampling_threads, num_processes)

    def _take_lists(self, room: StoreRoom) -> None:
        if self._in_turn != "none":
            lists = self._named_lists()
            assert lists is not None, "batches are sampled"
            for name, num_bytes in lists.reserves.items():
                room.take(name, num_bytes)
            self.lists = ListsPlan("memory" if self._in_turn == "all" else "cached")
            return
        if self._workload.is_given:
            self.lists = ListsPlan("mapped")
            room.reasons.append("Topology memory-mapped: batches are read, not sampled")
            return
        wished_bytes = self._workload.neighbor_cache_bytes
        self.lists = plan_lists(room, self.files, self._sizes, self._lists_bytes, wished_bytes)
