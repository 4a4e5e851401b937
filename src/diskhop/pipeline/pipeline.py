"""A dataset's topology and feature store, opened by a plan within a budget, and passes over seed nodes.

    with open_pipeline(dataset, plan, budget) as pipeline, pipeline.run(Pass(...)) as batches:
        for batch in batches:
            ...

stages.py has the stages of a pass, stream.py delivers its batches, ahead.py prepares it before that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from diskhop._native import BufferPool, Engine, FaultInjector
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.derived.scratch import scratch_folder
from diskhop.io.engine import open_engine
from diskhop.io.locks import shared_directory
from diskhop.pipeline.ahead import MakePass, SampledAhead
from diskhop.pipeline.batch import Pass, Prepare
from diskhop.pipeline.device_rows import DeviceRows, GroupDeviceRows, open_device_rows, open_group_rows
from diskhop.pipeline.in_flight import InFlightBatches
from diskhop.pipeline.parts import PipelineParts
from diskhop.pipeline.peers import shared_memory
from diskhop.pipeline.pinned import choose_rows, counts_accesses
from diskhop.pipeline.stages import stages_of
from diskhop.pipeline.stream import BatchStream
from diskhop.pipeline.transfer import Destination, DeviceCopies, Transfer
from diskhop.plans import SampledPlan
from diskhop.policies.device_rows import PLACING_BYTES_PER_ROW, RowLevels
from diskhop.protocols import NodeIds, TableGroup
from diskhop.sampling.accesses import COUNTING_BYTES_PER_NODE
from diskhop.sampling.cached_topology import STAGING_BYTES
from diskhop.sampling.lists_in_turn import ListsInTurn, memory_in_turn
from diskhop.sampling.open import open_plan_lists, open_plan_topology
from diskhop.sampling.seeds import SeedSet
from diskhop.stores.group_share import without_cached_rows
from diskhop.stores.resources import PreparedBatches, StoreResources
from diskhop.stores.rest import rest_store
from diskhop.stores.stores import store_kind
from diskhop.system.resident import OwnMemory, ResidentMemory

_RESERVED_BY_PIPELINE = (
    "mini-batches in flight",
    "sampled ahead",
    "sampling",
    "sorting ids",
    "staging",
    "row addresses of the device",
)


class Pipeline(PipelineParts):
    """A dataset's topology and feature store, open, and the plan to run them by."""

    _ahead: SampledAhead | None = None

    def run(
        self,
        wanted: Pass,
        prepare: Prepare | None = None,
        destination: Destination | None = None,
        *,
        following: MakePass | None = None,
    ) -> BatchStream:
        """Start a pass. End it before the next one starts.

        prepare: called with each batch and its features while it is prefetched, on a thread of the pipeline.
        destination: the device that batches are delivered on; None: they stay in memory.
        following: makes the pass that will be run next. A store that looks ahead begins it while the last batches of
            this one are delivered; if another pass is run instead, it is dropped.
        """
        ahead = self._sample_ahead(wanted, following)
        in_flight = InFlightBatches(self.plan, self.store, None if ahead is None else ahead.on_disk)
        try:
            stages = stages_of(self, wanted, prepare, in_flight)
            if destination is not None:
                stages.append(Transfer(destination, len(wanted.numbers), in_flight))
            return BatchStream(stages, len(wanted.numbers), ordered=self.plan.ordered, in_flight=in_flight, ahead=ahead)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Drop the passes that are sampled ahead."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()

    def _sample_ahead(self, wanted: Pass, following: MakePass | None) -> SampledAhead | None:
        """Continue the pass if it is begun, or begin it. None if its batches are not sampled ahead."""
        begun = None if self._ahead is None else self._ahead.take_following()
        self._ahead = None
        if begun is not None and not begun.is_of(wanted):
            begun.close()
            begun = None
        if begun is None and self.scratch is not None and not self.is_prepared(wanted):
            begun = SampledAhead(self, wanted)
        self._ahead = begun
        if begun is not None:
            begun.announce(following)
        return begun


@contextmanager
def open_pipeline(
    dataset: Dataset,
    plan: SampledPlan,
    budget: Budget,
    injector: FaultInjector | None = None,
    *,
    expected: SeedSet | None = None,
    copies: DeviceCopies | None = None,
) -> Iterator[Pipeline]:
    """Open topology and store by the plan and reserve their memory; close them on leaving.

    expected: typical batches, for a store that pins the rows that they access.
    copies: to the device that batches are delivered on; None for a plan without rows on one.

    Processes that share the budget call it together, and open the plan of the first one.
    """
    memory = shared_memory(budget)
    plan = plan if memory is None else memory.first(lambda: plan)
    engine = open_engine(plan.engine, plan.engine_depth, injector).engine
    num_bytes = plan.reserved["mini-batches in flight"] + plan.reserved["sampled ahead"] + plan.staging_bytes
    pool = BufferPool(num_bytes + (STAGING_BYTES if plan.topology == "cached" else 0))
    with ExitStack() as stack:
        table = dataset.feature_table()
        kind = store_kind(plan.store, table)
        pinned = prepared = levels = scratch = lists = None
        reserves = dict(plan.share.reserves)
        if table is not None and kind.looks_ahead:
            scratch = stack.enter_context(scratch_folder(Path(plan.share.scratch)))
        if plan.share.lists_in_cache_bytes:
            # The lists are in the memory of the cache first.
            cache_bytes = reserves.pop("cache")
            stack.enter_context(budget.reserve("cache", cache_bytes))
            assert scratch is not None, "the store looks ahead"
            content = memory_in_turn(cache_bytes)
            lists = stack.enter_context(open_plan_lists(dataset, plan, content, engine, budget, pool, scratch))
            topology = lists.topology
        else:
            topology = stack.enter_context(open_plan_topology(dataset, plan, engine, budget, pool, memory))
        if plan.share.layout and table is not None and kind.find_prepared is not None:
            folder = Path(plan.share.layout)
            stack.enter_context(shared_directory(folder))
            prepared = kind.find_prepared(folder, table)
            pinned = prepared.held_ids()
        is_counted = counts_accesses(dataset, plan.store, plan.pinned) and prepared is None
        if table is not None and (plan.row_places or is_counted):
            # The plan's bytes are reserved later: counting needs a batch and the working memory of sampling now.
            counting_bytes = COUNTING_BYTES_PER_NODE * topology.num_nodes + plan.reserved["sampling"] + plan.batch_bytes
            if plan.row_places is not None:
                counting_bytes += PLACING_BYTES_PER_ROW * plan.row_places.num_rows
            with budget.reserve("counting accesses", counting_bytes):
                # Processes that share rows share the choice: each expects seeds of its own.
                keep = (OwnMemory() if memory is None else memory).keep
                chosen = keep(lambda: choose_rows(dataset, plan, topology, expected, engine, pool, pinned))
            if (places := plan.row_places) is None:
                pinned = chosen
            else:
                levels = RowLevels(chosen[: places.device_rows], chosen[places.device_rows :])
            # Levels are views of it, and end once their rows are read.
            del chosen
        for name in _RESERVED_BY_PIPELINE:
            stack.enter_context(budget.reserve(name, plan.reserved.get(name, 0)))
        store = None
        device_rows: DeviceRows | GroupDeviceRows | None = None
        if table is not None:
            for name, num_bytes in reserves.items():
                stack.enter_context(budget.reserve(name, num_bytes, is_shared=name in plan.shared))
            resources = _resources_of(plan, engine, pool, memory, pinned, scratch, prepared, lists)
            if levels is not None:
                assert copies is not None, "batches are delivered on the device that has rows"
                if isinstance(table, TableGroup):
                    device_rows = open_group_rows(table, resources, levels, copies)
                else:
                    device_rows = open_device_rows(table, dataset.feature_dtype, resources, levels, copies)
                stack.callback(device_rows.close)
                levels = None
                if kind.resident_rows(table, plan.share):
                    # These rows are in front of the store, which then has none in memory.
                    resources = replace(resources, share=without_cached_rows(plan.share))
                kind = store_kind(kind.rest or kind.name, table)
            store = kind.open(table, resources)
            if device_rows is not None:
                store = rest_store(store, device_rows.addresses, looks_ahead=kind.looks_ahead)
            stack.callback(store.close)
        pipeline = Pipeline(
            dataset=dataset,
            plan=plan,
            topology=topology,
            store=store,
            engine=engine,
            pool=pool,
            scratch=scratch,
            prepared=prepared,
            lists=lists,
            device_rows=device_rows,
        )
        stack.callback(pipeline.close)
        yield pipeline


def _resources_of(
    plan: SampledPlan,
    engine: Engine,
    pool: BufferPool,
    memory: ResidentMemory | None,
    pinned: NodeIds | None,
    scratch: Path | None,
    prepared: PreparedBatches | None,
    lists: ListsInTurn | None,
) -> StoreResources:
    return StoreResources(
        engine=engine,
        pool=pool,
        max_gap_bytes=plan.max_gap_bytes,
        max_read_bytes=plan.max_read_bytes,
        staging_bytes=plan.staging_bytes,
        threads=plan.threads,
        share=plan.share,
        memory_bytes=plan.memory_bytes,
        pinned=pinned,
        scratch=scratch,
        prepared=prepared,
        cached_rows=None if lists is None else lists.memory,
        memory=memory or OwnMemory(),
    )
