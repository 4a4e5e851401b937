"""Which store a run takes: each is planned, simulated on a short trace, and the one with the fewest seconds is taken.

An *option* is a store with a way to divide the budget. All that is measured is measured before: batches' sizes, the
disk, a step of the model, what copying a row takes. The rest is arithmetic, see costs.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File
from diskhop.batches.short_trace import ListsRead, ShortTrace
from diskhop.budget import Budget, format_bytes
from diskhop.config.options import AUTO
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import DiskModel
from diskhop.errors import BudgetError, ConfigError
from diskhop.io.engine import choose_engine, open_engine
from diskhop.pipeline.pinned import counts_accesses
from diskhop.pipeline.sizes import batch_bytes
from diskhop.planning.batch_sizes import BatchSizes, measure_batches
from diskhop.planning.in_flight import FEW_IN_FLIGHT, MOST_IN_FLIGHT
from diskhop.planning.measure import disk_model, measure_copy_seconds
from diskhop.planning.options import Option, Ranking, rank
from diskhop.planning.short_trace import measure_lists, sample_short_trace
from diskhop.planning.store_plan import divides_memory, plan_store
from diskhop.planning.workload import Workload, require_served, why_not
from diskhop.plans import Prediction, SampledPlan
from diskhop.policies.static import most_accessed
from diskhop.protocols import NodeIds
from diskhop.sampling.accesses import COUNTING_BYTES_PER_NODE
from diskhop.sampling.cached_topology import count_neighbors, list_bytes
from diskhop.stores.costs import Machine, Scenario
from diskhop.stores.misses import predict_packed_ahead, simulate
from diskhop.stores.stores import STORES
from diskhop.system.memory import default_threads, free_memory_bytes

PACKED, AHEAD = "packed", "packed ahead"
# With fewer epochs, nobody gets back what waiting for the first batch costs.
_FEWEST_EPOCHS_AHEAD = 3
_UNBOUNDED = "mapped"
# Of options that are as good as each other the first here is taken.
_SIMPLEST = ("memory", "direct", "static", "shared", "belady", "packed", "mapped", "pread")
# A row of the table's bitmap, when it was used last, and what Belady's rule keeps of it.
_SIMULATION_BYTES_PER_ROW = 12


def packs_ahead(workload: Workload, plan: SampledPlan) -> bool:
    """Whether all that a run trains on is packed before it begins: where it pays, and the disk for it was named."""
    if workload.reuse:
        return True
    if workload.disk_bytes is None or workload.epochs < _FEWEST_EPOCHS_AHEAD:
        return False
    # The plan's superbatches are so long that two of them take all of it.
    return 2 * plan.superbatch >= workload.num_batches * workload.epochs


def choose_plan(dataset: Dataset, workload: Workload, budget: Budget, device: DiskModel | None = None) -> SampledPlan:
    """The plan of the store that was named, or, for 'auto', of the one with the fewest predicted seconds.

    device: default: what is measured of the disk that the features lie on. Raises ConfigError for an unknown store or
    engine, or options that are of no use, BudgetError, naming the smallest budget that would do, before anything is
    opened or measured.
    """
    store = workload.store or AUTO
    require_served(dataset, workload, store)
    if store != AUTO:
        return plan_store(dataset, workload, store, budget, device)
    if dataset.features() is None:
        plan = plan_store(dataset, workload, "direct", budget, device)
        return replace(plan, reasons=("store direct: there are no features to bring", *plan.reasons))
    try:
        return rank_options(dataset, workload, budget, device).best
    except _NoRoomError as error:
        return _first_that_fits(dataset, workload, budget, device, str(error))


class _NoRoomError(BudgetError):
    """Nothing can be simulated in this budget."""


def _first_that_fits(
    dataset: Dataset, workload: Workload, budget: Budget, device: DiskModel | None, why: str
) -> SampledPlan:
    """The simplest store that the budget holds, where nothing can be compared. Raises BudgetError."""
    too_small: list[BudgetError] = []
    for store in _SIMPLEST:
        if store == _UNBOUNDED or _refusal(dataset, workload, store):
            continue
        try:
            plan = plan_store(dataset, _for_store(workload, store), store, budget, device)
        except BudgetError as error:
            too_small.append(error)
            continue
        return replace(plan, reasons=(f"store {store}: {why}", *plan.reasons))
    raise _of_least(too_small)


def _of_least(errors: Sequence[BudgetError]) -> BudgetError:
    """The one that asks for the fewest bytes."""
    return min(errors, key=lambda error: error.smallest_bytes or 0)


def predict_plan(
    dataset: Dataset, workload: Workload, plan: SampledPlan, budget: Budget, device: DiskModel | None = None
) -> SampledPlan:
    """A plan with what it will cost; as it was, where nothing can be simulated in the budget."""
    if dataset.features() is None:
        return plan
    try:
        with _Simulation(dataset, workload, budget, device) as simulation:
            return replace(plan, predicted=simulation.predict(plan, workload))
    except BudgetError:
        return plan


def rank_options(
    dataset: Dataset, workload: Workload, budget: Budget, device: DiskModel | None = None
) -> Ranking[SampledPlan]:
    """All stores on a workload, each with the division of the budget that suits it best. workload.store is left out.

    Raises BudgetError if no store fits.
    """
    refused: dict[str, str] = {}
    too_small: list[BudgetError] = []
    found: list[Option[SampledPlan]] = []
    with _Simulation(dataset, workload, budget, device) as simulation:
        for store in STORES:
            if reason := _refusal(dataset, workload, store):
                refused[store] = reason
                continue
            options: list[Option[SampledPlan]] = []
            divides = divides_memory(_for_store(workload, store), store) and not STORES[store].extracts
            for together in (FEW_IN_FLIGHT, MOST_IN_FLIGHT) if divides else (None,):
                try:
                    options.append(simulation.plan(store, together))
                except BudgetError as error:
                    refused[store] = str(error)
                    too_small.append(error)
                except ConfigError as error:
                    refused[store] = str(error)
            if options:
                refused.pop(store, None)
                found.append(min(options, key=lambda option: option.seconds(workload.epochs)))
    if not any(option.is_bounded for option in found):
        raise _of_least(too_small) if too_small else ConfigError(next(iter(refused.values())))
    return rank(found, refused, workload.epochs, "store")


def _refusal(dataset: Dataset, workload: Workload, store: str) -> str:
    """Why a store is not for this workload; options that it has no use for are left out before."""
    table = dataset.features()
    assert table is not None
    if (
        store == "memory"
        and workload.cache_bytes is not None
        and workload.cache_bytes < table.num_rows * table.row_bytes
    ):
        return f"--cache {format_bytes(workload.cache_bytes)} holds a part of the table only"
    return why_not(dataset, _for_store(workload, store), store)


def _for_store(workload: Workload, store: str) -> Workload:
    """Without the options that a store has no use for, and in order: a choice must not change what is trained."""
    kind = STORES[store]
    return replace(
        workload,
        store=store,
        cache_bytes=workload.cache_bytes if kind.keeps_rows else None,
        disk_bytes=workload.disk_bytes if kind.looks_ahead else None,
        scratch=workload.scratch if kind.looks_ahead else None,
        pinned=workload.pinned if kind.pins else None,
        layout=workload.layout if kind.packs else None,
        ordered=True,
    )


class _Simulation:
    """What options are simulated on: all that is measured, and memory for it; a context."""

    def __init__(self, dataset: Dataset, workload: Workload, budget: Budget, device: DiskModel | None) -> None:
        self.sizes: BatchSizes = measure_batches(dataset, workload.seed_sets, workload.seed)
        self._dataset = dataset
        self._workload = workload
        # Of its own: what a run reserves is to be told without this, which is gone before.
        self._budget = Budget(max(1, budget.available_bytes))
        self._whole = budget
        self._held = ExitStack()
        table = dataset.features()
        assert table is not None
        self._table = table
        engine_name, _ = choose_engine(workload.engine or AUTO)
        self._engine: Engine = open_engine(engine_name).engine
        device = device or disk_model(dataset, engine_name)
        self._max_gap_bytes = device.break_even_gap_bytes
        self._counts: NDArray[Any] | None = None
        self._lists: dict[int, ListsRead] = {}
        try:
            self._reserve("labels and seeds", sum(workload.also_held.values()))
            self._reserve("simulating", _SIMULATION_BYTES_PER_ROW * table.num_rows)
            self.trace: ShortTrace = sample_short_trace(
                dataset, workload, self.sizes, self._budget, self._engine, self._max_gap_bytes
            )
            self._reserve("short trace", sum(ids.nbytes for ids in self.trace.node_ids))
            step_seconds = 0.0
            if workload.measure_step is not None:
                num_bytes = batch_bytes(dataset, self.trace.middle.num_bytes, self.trace.middle.num_nodes)
                with self._budget.reserve("measuring", num_bytes):
                    step_seconds = workload.measure_step(self.trace.middle)
        except BudgetError as error:
            self._held.close()
            # What is named is held by this budget: the smallest for all that is as much more as it lacks.
            enough_bytes = budget.total_bytes + (error.smallest_bytes or 0) - self._budget.total_bytes
            raise _NoRoomError(
                f"--memory {format_bytes(budget.total_bytes)} is too small to compare stores; "
                f"take at least {-(-enough_bytes // 1_000_000)}MB",
                enough_bytes,
            ) from error
        self.machine = Machine(
            device=device,
            threads=workload.threads or default_threads(),
            step_seconds=step_seconds,
            copy_seconds=measure_copy_seconds(table.row_bytes, table.num_rows, self._budget),
        )
        self._alignment = File(str(table.path), "read").offset_alignment

    def __enter__(self) -> _Simulation:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def plan(self, store: str, together: int | None) -> Option[SampledPlan]:
        """A store with memory for so many batches on their way. Raises as plan_store()."""
        workload = _for_store(self._workload, store)
        device = self.machine.device
        plan = plan_store(self._dataset, workload, store, self._whole, device, self.sizes, together)
        name = AHEAD if store == PACKED and (plan.layout or packs_ahead(workload, plan)) else store
        is_bounded = store != _UNBOUNDED
        return Option(
            name=name,
            plan=plan,
            predicted=self.predict(plan, workload),
            reason="" if is_bounded else "its page cache is the kernel's: no budget bounds it",
            simplicity=_SIMPLEST.index(store),
            is_bounded=is_bounded,
        )

    def predict(self, plan: SampledPlan, workload: Workload) -> Prediction:
        """What an epoch by a plan takes. workload: that the plan was made for."""
        counts = counts_accesses(self._dataset, plan.store, plan.pinned)
        case = Scenario(
            trace=self.trace,
            table=self._table,
            table_alignment=self._alignment,
            plan=plan,
            machine=self.machine,
            num_batches=workload.num_batches,
            is_only=workload.epochs == 1,
            is_reused=workload.reuse,
            pinned=self._pinned(plan) if counts else None,
            counting_bytes=list_bytes(self._dataset.topology) if counts else 0,
            page_cache_bytes=max(0, free_memory_bytes() - sum(plan.reserved.values())),
            lists=self._lists_read(plan),
        )
        if plan.store == PACKED and (plan.layout or packs_ahead(workload, plan)):
            epochs = 1 if workload.reuse else workload.epochs
            predicted = predict_packed_ahead(case, epochs)
            return replace(predicted, preparation_seconds=0.0) if plan.layout else predicted
        return simulate(plan.store, case)

    def _reserve(self, name: str, num_bytes: int) -> None:
        self._held.enter_context(self._budget.reserve(name, num_bytes))

    def _pinned(self, plan: SampledPlan) -> NodeIds:
        if self._counts is None:
            if plan.pinned == "accesses":
                self._counts = np.zeros(self._table.num_rows, np.uint32)
                for ids in self.trace.node_ids:
                    self._counts[ids] += 1
            else:
                with self._budget.reserve("counting accesses", COUNTING_BYTES_PER_NODE * self._dataset.num_nodes):
                    self._counts = count_neighbors(self._dataset.topology, self._engine, BufferPool(0))
        return most_accessed(self._counts, plan.cache_rows)

    def _lists_read(self, plan: SampledPlan) -> ListsRead | None:
        """What sampling reads of lists that are on the disk."""
        if plan.topology == "memory":
            return None
        if plan.topology == "mapped":
            # A page for each list: nothing is known of those that are in the page cache.
            num_lists = float(sum(self.trace.middle.num_sampled_nodes[:-1]))
            return ListsRead(num_lists, 4096 * num_lists, self.trace.sample_seconds)
        cache_bytes = plan.topology_cache_bytes
        if cache_bytes not in self._lists:
            self._lists[cache_bytes] = measure_lists(
                self._dataset, self._workload, cache_bytes, self._budget, self._engine, self._max_gap_bytes
            )
        return self._lists[cache_bytes]
