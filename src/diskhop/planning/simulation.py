"""Simulating plans on a short trace of sampled batches, with everything measured that predictions need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File
from diskhop.batches.short_trace import ListsRead, ShortTrace
from diskhop.batches.sizes import BatchSizes
from diskhop.budget import Budget, format_bytes
from diskhop.config.options import AUTO
from diskhop.config.sampled import ACCESSES
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import DiskModel
from diskhop.errors import BudgetError, ConfigError
from diskhop.io.engine import choose_engine, open_engine
from diskhop.pipeline.pinned import counts_accesses
from diskhop.pipeline.sizes import batch_bytes
from diskhop.planning.batch_sizes import measure_batches
from diskhop.planning.device_rows import on_device, without_device_rows
from diskhop.planning.lists_on_disk import COUNTED_BYTES, find_list_curve
from diskhop.planning.measure import disk_model, measure_copy_seconds
from diskhop.planning.options import AS_GOOD, Option
from diskhop.planning.short_trace import sample_short_trace
from diskhop.planning.store_plan import may_take_turns, own_threads, plan_store
from diskhop.planning.workload import Workload, for_store
from diskhop.plans import Prediction, SampledPlan
from diskhop.policies.division import fewest_seconds
from diskhop.policies.list_reads import ListCurve
from diskhop.policies.superbatches import FIRST_LENGTHS
from diskhop.protocols import NodeIds
from diskhop.sampling.accesses import COUNTING_BYTES_PER_NODE
from diskhop.sampling.cached_topology import count_neighbors, list_bytes
from diskhop.sampling.samplers import lists_of
from diskhop.stores.costs import CoreSeconds, Machine, Scenario
from diskhop.stores.group_share import pick_pinned
from diskhop.stores.in_flight import MORE_IN_FLIGHT, MOST_IN_FLIGHT
from diskhop.stores.kind import StoreKind
from diskhop.stores.stores import STORES, store_kind
from diskhop.system.memory import free_memory_bytes

# With fewer epochs, waiting for the first batch costs more than preparing all of them saves.
_FEWEST_EPOCHS_AHEAD = 3
# Bytes per row of the table: a bitmap, when the row was used last, and the state of Belady's rule.
_SIMULATION_BYTES_PER_ROW = 12
# An option that takes more times as long as the fastest one so far is not divided again.
_MOST_GAINED = 1.25
# Where the disk takes less of the cores' time, more batches in flight gain nothing.
_KEEPS_UP = 0.8


class NoRoomError(BudgetError):
    """The budget is too small to simulate anything."""


def prepares_ahead(workload: Workload, plan: SampledPlan) -> bool:
    """Whether all batches of a run are prepared before the first epoch: it pays, and --disk has room for them."""
    if STORES[plan.store].find_prepared is None:
        return False
    if workload.reuse:
        return True
    # --superbatch asks for superbatches.
    is_bounded = workload.disk_bytes is not None and workload.superbatch is None
    if not is_bounded or workload.epochs < _FEWEST_EPOCHS_AHEAD:
        return False
    # Superbatches of the plan are as long as two of them fit the disk.
    return 2 * plan.share.superbatch >= workload.num_batches * workload.epochs


class Simulation:
    """A short trace, measured speeds, and memory for simulating plans; a context manager.

    sizes: sizes of large batches. trace: the sampled batches. machine: measured speeds.
    """

    def __init__(self, dataset: Dataset, workload: Workload, budget: Budget, disk: DiskModel | None) -> None:
        """Measure what predictions need. Raises NoRoomError, naming the smallest budget that works."""
        self.sizes: BatchSizes = workload.sizes or measure_batches(
            dataset, workload.seed_sets, workload.seed, budget.total_bytes
        )
        self._dataset = dataset
        self._workload = workload
        # A budget of its own: the run's report must not contain memory that is free before the run begins.
        # It has the part of all processes, which wait for one to simulate.
        self._budget = Budget(max(1, budget.left_after({})))
        self._whole = budget
        self._reserved = ExitStack()
        table = dataset.feature_table()
        assert table is not None
        self._table = table
        engine_name, _ = choose_engine(workload.engine or AUTO)
        self._engine: Engine = open_engine(engine_name).engine
        disk = disk or disk_model(dataset, engine_name)
        self._max_gap_bytes = disk.break_even_gap_bytes
        # Once: plans are compared, and must be predicted with the same page cache.
        self._free_bytes = free_memory_bytes()
        self._counts: NDArray[Any] | None = None
        self._curve: ListCurve | None = None
        self._fastest = math.inf
        try:
            step_seconds = self._sample_and_measure_step()
        except BudgetError as error:
            self._reserved.close()
            # The run's budget has more reservations than this one: it lacks the same number of bytes.
            enough_bytes = budget.total_bytes + (error.smallest_bytes or 0) - self._budget.total_bytes
            raise NoRoomError(
                f"--memory {format_bytes(budget.total_bytes)} is too small to compare stores; "
                f"use --memory {-(-enough_bytes // 1_000_000)}MB or more, or name a store with --store",
                enough_bytes,
            ) from error
        self.machine = Machine(
            disk=disk.shared_by(budget.num_processes),
            threads=workload.threads or own_threads(budget),
            step_seconds=step_seconds,
            copy_seconds=measure_copy_seconds(table.row_bytes, table.num_rows, self._budget),
            num_processes=budget.num_processes,
        )
        self._alignment = File(str(table.path), "read").offset_alignment

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reserved.close()

    def plans(self, kind: StoreKind) -> list[Option[SampledPlan]]:
        """Plan a store in the ways that it divides memory, simulated. Raises as plan_store()."""
        workload = for_store(self._workload, kind)
        options: list[Option[SampledPlan]] = []
        # Few batches in flight leave more memory to cached rows. A store that caches nothing has the same plan twice.
        for most_in_flight in (None, MOST_IN_FLIGHT):
            try:
                plan = self._plan(kind, workload, most_in_flight)
                if _is_new(plan, options):
                    options.append(self._option(kind, plan, workload))
                    fewer = self._with_fewer_lists(kind, options[-1], workload, most_in_flight)
                    options += [each for each in fewer if each.plan is not None and _is_new(each.plan, options)]
            except (BudgetError, ConfigError):
                if not options:
                    raise
        best = min(options, key=lambda option: option.seconds(workload.epochs))
        assert best.plan is not None
        assert best.predicted is not None
        deeper = self.plan_deeper(kind, workload, best.plan, best.predicted)
        in_turn = self.plan_in_turn(kind, workload, (deeper or best).seconds(workload.epochs))
        return [*options, *(each for each in (deeper, in_turn) if each is not None)]

    def plan_deeper(
        self, kind: StoreKind, workload: Workload, plan: SampledPlan, predicted: Prediction
    ) -> Option[SampledPlan] | None:
        """Plan a store with more batches in flight than it takes by itself, simulated.

        What batches lack is read together, so that the memory of cached rows may be worth more to batches in flight.
        plan, predicted: of the store otherwise. Returns None if this is not clearly faster, or not possible.
        """
        best: Option[SampledPlan] | None = None
        for most_in_flight in MORE_IN_FLIGHT:
            if predicted.io_seconds <= _KEEPS_UP * predicted.cores_seconds:
                break
            try:
                deeper = self._plan(kind, workload, most_in_flight)
                is_same = replace(deeper, reasons=plan.reasons) == plan
                if is_same or (deeper.topology, deeper.share.layout) != (plan.topology, plan.share.layout):
                    break
                option = self._option(kind, deeper, workload)
            except (BudgetError, ConfigError):
                break
            assert option.plan is not None
            assert option.predicted is not None
            if AS_GOOD * option.seconds(workload.epochs) >= predicted.run_seconds(workload.epochs):
                break
            best, plan, predicted = option, option.plan, option.predicted
        return best

    def plan_in_turn(self, kind: StoreKind, workload: Workload, seconds: float) -> Option[SampledPlan] | None:
        """Plan a store whose cached rows have the same memory as neighbour lists, in turn, simulated.

        seconds: of the run without that. Returns None if this is not clearly faster, or not possible.
        """
        if not may_take_turns(self._dataset, workload, kind, self._whole):
            return None
        best: Option[SampledPlan] | None = None
        # All lists may only have room where a single batch is in flight.
        for most_in_flight in (None, 1):
            try:
                plan = self._plan(kind, workload, most_in_flight, takes_turns=True)
                if not plan.share.lists_in_cache_bytes:
                    continue  # no memory is left for rows, so that there is none to share
                option = self._option(kind, plan, workload)
            except (BudgetError, ConfigError):
                continue  # no memory or disk for it, or for measuring what is read of lists
            if AS_GOOD * option.seconds(workload.epochs) < seconds:
                best, seconds = option, option.seconds(workload.epochs)
        return best

    def _plan(
        self,
        kind: StoreKind,
        workload: Workload,
        most_in_flight: int | None,
        lists_bytes: int | None = None,
        *,
        takes_turns: bool = False,
    ) -> SampledPlan:
        """Fill in a plan of a store on this disk, with these sizes of batches; see plan_store()."""
        return plan_store(
            self._dataset,
            workload,
            kind.name,
            self._whole,
            self.machine.disk,
            self.sizes,
            most_in_flight,
            lists_bytes,
            takes_turns=takes_turns,
        )

    def _with_fewer_lists(
        self, kind: StoreKind, option: Option[SampledPlan], workload: Workload, most_in_flight: int | None
    ) -> list[Option[SampledPlan]]:
        """Return the same store with memory for rows that lists would take, of a graph with types, if that is faster.

        A node has a list per edge type there, so lists take as much as rows do, and may leave nothing for these.
        """
        plan, epochs = option.plan, self._workload.epochs
        assert plan is not None
        if self._dataset.types is None or not kind.is_bounded or workload.neighbor_cache_bytes is not None:
            return []
        self._fastest = min(self._fastest, option.seconds(epochs))
        if option.seconds(epochs) > _MOST_GAINED * self._fastest:
            return []
        tried: dict[int, SampledPlan] = {}

        def seconds_of(lists_bytes: int) -> float | None:
            try:
                fewer = self._plan(kind, workload, most_in_flight, lists_bytes)
            except BudgetError:
                return None
            tried[lists_bytes] = fewer
            return self.predict(fewer, workload).run_seconds(epochs)

        taken = fewest_seconds(plan.reserved["topology"], option.seconds(epochs), seconds_of)
        return [self._option(kind, tried[taken], workload)] if taken in tried else []

    def predict(self, plan: SampledPlan, workload: Workload) -> Prediction:
        """Predict an epoch of a plan. workload: what the plan was made for."""
        counts = counts_accesses(self._dataset, plan.store, plan.pinned)
        scenario = Scenario(
            trace=self.trace,
            table=self._table,
            table_alignment=self._alignment,
            plan=plan,
            machine=self.machine,
            num_batches=-(-workload.num_batches // (workload.num_ranks or self.machine.num_processes)),
            is_only=workload.epochs == 1,
            is_reused=workload.reuse,
            pinned=self._pinned(plan) if counts else None,
            counting_bytes=list_bytes(self._dataset.topology) if counts else 0,
            page_cache_bytes=max(0, self._free_bytes - sum(plan.reserved.values())),
            lists=self._lists_read(plan),
            epochs_prepared=_epochs_prepared(plan, workload),
        )
        of_one = store_kind(plan.store, self._table).simulate(scenario)
        count = self.machine.num_processes
        return replace(
            of_one,
            reads=count * of_one.reads,
            bytes_read=count * of_one.bytes_read,
            bytes_written=count * of_one.bytes_written,
        )

    def _option(self, kind: StoreKind, plan: SampledPlan, workload: Workload) -> Option[SampledPlan]:
        is_prepared = _epochs_prepared(plan, workload) > 0
        predicted = self.predict(plan, workload)
        if kind.looks_ahead and not is_prepared and not plan.share.lists_in_cache_bytes:
            plan, predicted = self._with_first_superbatch(plan, predicted, workload)
        return Option(
            name=_option_name(plan, is_prepared=is_prepared),
            plan=plan,
            predicted=predicted,
            reason="" if kind.is_bounded else "not selectable: the OS page cache is outside --memory",
            simplicity=kind.simplicity,
            is_bounded=kind.is_bounded,
        )

    def _with_first_superbatch(
        self, plan: SampledPlan, predicted: Prediction, workload: Workload
    ) -> tuple[SampledPlan, Prediction]:
        """Return the plan with the first superbatch that makes a run fastest, and its prediction.

        A shorter one must be clearly faster: the lengths that follow it read the table more often, for many epochs, and
        so cost far more than it saves where the disk is slower than measured.
        predicted: of the plan as it is.
        """
        epochs, usual = self._workload.epochs, plan
        for length in FIRST_LENGTHS:
            if length >= usual.share.first_superbatch:
                continue
            shorter = replace(usual, share=replace(usual.share, first_superbatch=length))
            found = self.predict(shorter, workload)
            if AS_GOOD * found.run_seconds(epochs) < predicted.run_seconds(epochs):
                plan, predicted = shorter, found
        return plan, predicted

    def _sample_and_measure_step(self) -> float:
        """Sample the trace, and return the seconds of one training step."""
        workload = self._workload
        self._reserve("labels and seeds", sum(workload.also_held.values()))
        self._reserve("simulating", _SIMULATION_BYTES_PER_ROW * self._table.num_rows)
        self.trace: ShortTrace = sample_short_trace(self._dataset, workload, self.sizes, self._budget, self._engine)
        if num_rows := on_device(self._table, workload.device_bytes, self.sizes):
            self.trace = without_device_rows(self.trace, num_rows, self._table)
        self._reserve("short trace", sum(ids.nbytes for ids in self.trace.node_ids))
        if workload.measure_step is None:
            return 0.0
        middle = self.trace.middle
        with self._budget.reserve("measuring", batch_bytes(self._dataset, middle.num_bytes, middle.node_ids)):
            return workload.measure_step(middle)

    def _reserve(self, name: str, num_bytes: int) -> None:
        self._reserved.enter_context(self._budget.reserve(name, num_bytes))

    def _pinned(self, plan: SampledPlan) -> NodeIds:
        if self._counts is None:
            if plan.pinned == ACCESSES:
                self._counts = np.zeros(self._table.num_rows, np.uint32)
                for ids in self.trace.node_ids:
                    self._counts[ids] += 1
            else:
                with self._budget.reserve("counting accesses", COUNTING_BYTES_PER_NODE * self._dataset.num_nodes):
                    self._counts = count_neighbors(self._dataset.topology, self._engine, BufferPool(0), COUNTED_BYTES)
        return pick_pinned(self._counts, self._table, plan.share)

    def _lists_read(self, plan: SampledPlan) -> ListsRead | None:
        """Return what sampling reads from the disk; None if all lists are in memory, or none is needed."""
        if plan.topology != "cached":
            return None
        if self._curve is None:
            files = lists_of(self._dataset, self._workload.samplers)
            self._curve = find_list_curve(files, self.trace.middle, self._engine, self._budget)
        found = self._curve.reads(
            plan.topology_cache_bytes,
            max_gap_bytes=self._max_gap_bytes,
            alignment=self._alignment,
            max_read_bytes=plan.max_read_bytes,
        )
        cores = CoreSeconds()
        cores_seconds = self.trace.sample_seconds + found.reads * cores.read + found.draws * cores.join_row
        return ListsRead(found.reads, found.num_bytes, cores_seconds)


def _epochs_prepared(plan: SampledPlan, workload: Workload) -> int:
    """Return how many epochs' batches are prepared before the first epoch, now or by an earlier run."""
    if not plan.share.layout and not prepares_ahead(workload, plan):
        return 0
    return 1 if workload.reuse else workload.epochs


def _option_name(plan: SampledPlan, *, is_prepared: bool) -> str:
    if is_prepared:
        return f"{plan.store} ahead"
    return f"{plan.store} in turn" if plan.share.lists_in_cache_bytes else plan.store


def _is_new(plan: SampledPlan, options: Sequence[Option[SampledPlan]]) -> bool:
    """Return whether none of the options runs as this plan does, whatever reasons it has."""
    return all(option.plan is None or replace(option.plan, reasons=plan.reasons) != plan for option in options)
