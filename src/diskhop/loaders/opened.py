"""The open graph of a loader of sampled batches: a pipeline by a plan, and the values that batches have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, TypeAlias

import torch

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset, as_dataset
from diskhop.dataset.id_map import IdMap
from diskhop.dataset.made_features import NONE
from diskhop.errors import BudgetError, ConfigError
from diskhop.loaders.batches import Batch, BatchMaker
from diskhop.loaders.loader_data import LoaderData
from diskhop.loaders.shares import LoaderShare
from diskhop.loaders.typed_batches import TypedBatchMaker
from diskhop.loaders.typed_data import TypedLoaderData
from diskhop.loaders.typed_opposites import opposite_types
from diskhop.pipeline.batch_values import BatchValues, OpenValues
from diskhop.pipeline.pipeline import Pipeline, open_pipeline
from diskhop.pipeline.transfer import DeviceCopies
from diskhop.planning.planner import choose_plan
from diskhop.planning.workload import Workload
from diskhop.plans import PreparedBytes, SampledPlan
from diskhop.sampling.seeds import SeedSet

AnyBatchMaker: TypeAlias = BatchMaker | TypedBatchMaker


class OpenGraph:
    """The graph of a loader, open; get() opens it again after attributes were removed from the loader's data.

    name: of the loader, for errors.
    data: the graph; what is removed from it is not read.
    seed_set: the batches that it will be asked for.
    budget: memory of everything.
    held: bytes that the loader holds besides, by name.
    choices: those of a Workload.
    copies: to the device that batches are delivered on; None: they stay in memory.
    share: the batches of this process, and the processes that open the graph together with it.
    out_dtype, make: see BatchMaker.
    added: bytes that the loader adds to a batch; None: none.
    copies_rows: whether features of a batch are copied once more, as those of repeated seeds are.
    adds_opposites: whether batches of a graph with several types have the opposites of drawn edges.
    plan: the plan that it is open by.

    Raises ConfigError, and BudgetError with the smallest memory that works.
    """

    plan: SampledPlan

    def __init__(
        self,
        name: str,
        data: LoaderData,
        seed_set: SeedSet,
        budget: Budget,
        *,
        id_map: IdMap | Mapping[str, IdMap],
        held: Mapping[str, int],
        choices: Mapping[str, Any],
        share: LoaderShare,
        copies: DeviceCopies | None = None,
        out_dtype: torch.dtype | None = None,
        make: Callable[[], Batch] | None = None,
        added: PreparedBytes | None = None,
        copies_rows: bool = False,
        adds_opposites: bool = False,
    ) -> None:
        self._added = added or PreparedBytes()
        self._name = name
        self._data = data
        self._seed_set = seed_set
        self._budget = budget
        self._id_map = id_map
        self._held = held
        self._choices = choices
        self._share = share
        self._copies = copies
        self._out_dtype = out_dtype
        self._make = make
        self._copies_rows = copies_rows
        self._adds_opposites = adds_opposites
        self._exit = ExitStack()
        self._opened: tuple[Pipeline, AnyBatchMaker] | None = None
        self._without: frozenset[str] = frozenset()
        self._open()

    def get(self) -> tuple[Pipeline, AnyBatchMaker]:
        """Return the pipeline, and what makes batches of its output. No stream may be open."""
        if self._without != self._data.removed:
            self.require_open()
            # Nothing keeps the old one's memory while the new one is opened.
            self.close()
            with self._share.opened(self.close):
                self._open()
        return self.require_open()

    def get_for_one_type(self) -> tuple[Pipeline, BatchMaker]:
        """Return what get() returns, of a graph with one type of nodes and of edges."""
        pipeline, maker = self.get()
        assert isinstance(maker, BatchMaker)
        return pipeline, maker

    def require_open(self) -> tuple[Pipeline, AnyBatchMaker]:
        """Return what get() returned. Raises ConfigError after close()."""
        if self._opened is None:
            raise ConfigError(f"this {self._name} is closed; make a new one")
        return self._opened

    def close(self) -> None:
        """Return memory and close files."""
        self._opened = None
        self._exit.close()

    def _values(self, graph: Dataset, memory_bytes: int) -> BatchValues:
        return BatchValues(graph, memory_bytes, self._without, self._budget.num_processes)

    def _planned(self, graph: Dataset, memory_bytes: int) -> SampledPlan:
        """Return a plan in which a share of memory_bytes is for values that are held."""
        values = self._values(graph, memory_bytes)
        held = {**self._held, **values.reserved}
        added = values.added.plus(self._added)
        if self._copies_rows and (table := graph.feature_table()) is not None:
            added = replace(added, per_node=added.per_node + table.row_bytes)
        workload = Workload(
            seed_sets=(self._seed_set,),
            holds_while_waiting=True,
            also_held=held,
            held_once=values.shared,
            num_ranks=self._share.ranks.count,
            values=added,
            **self._choices,
        )
        return choose_plan(graph, workload, self._budget)

    def _open(self) -> None:
        self._without = frozenset(self._data.removed)
        graph = _graph_to_read(self._data)

        def plan() -> tuple[int, SampledPlan]:
            try:
                return self._budget.total_bytes, self._planned(graph, self._budget.total_bytes)
            except BudgetError:
                return 0, self._planned(graph, 0)

        peers, memory = self._share.peers, self._share.memory
        memory_bytes, self.plan = plan() if peers is None else peers.first(plan)
        values = self._values(graph, memory_bytes)
        with ExitStack() as opened:
            for name, num_bytes in {**self._held, **values.reserved}.items():
                opened.enter_context(self._budget.reserve(name, num_bytes, is_shared=name in self.plan.shared))
            pipeline = opened.enter_context(
                open_pipeline(graph, self.plan, self._budget, expected=self._seed_set, copies=self._copies)
            )
            opened_values = values.open(pipeline.engine, self.plan.max_gap_bytes, memory)
            self._opened = pipeline, self._maker(graph, opened_values)
            self._exit = opened.pop_all()

    def _maker(self, graph: Dataset, values: OpenValues) -> AnyBatchMaker:
        data, id_map = self._data, self._id_map
        if isinstance(data, TypedLoaderData):
            assert not isinstance(id_map, IdMap)
            opposites = opposite_types(data.edge_types) if self._adds_opposites else None
            return TypedBatchMaker(
                graph, id_map, values, out_dtype=self._out_dtype, make_empty=self._make, opposites=opposites
            )
        assert isinstance(id_map, IdMap)
        return BatchMaker(graph, data, id_map, values, out_dtype=self._out_dtype, make=self._make)


def graph_of(data: Any, features: str | None, seed: int) -> LoaderData:
    """Return the graph of a loader. features: kind of features that stand in for missing ones; None: no x at all."""
    dataset = as_dataset(data)
    x = dataset.only_nodes.attributes.get("x")
    if features is not None and x is not None and x.stored_as != "features":
        raise ConfigError(
            f"{dataset.path}: has x, {x.dtype} of shape {x.shape} per node, and features '{features}' stand in for a "
            f"missing one; remove features='{features}'"
        )
    if features is not None or dataset.feature_table() is None:
        dataset = dataset.with_made_features(NONE if features is None else features, seed)
    return LoaderData(dataset)


def typed_graph_of(dataset: Dataset, features: str | None, merge: Callable[[Dataset], Dataset]) -> TypedLoaderData:
    """Return the graph of a loader that has several types. merge: merges them."""
    if features not in (None, NONE):
        raise ConfigError(
            f"features '{features}' stand in for those of a graph without types, and {dataset.path} has some; "
            "leave features out"
        )
    return TypedLoaderData(merge(dataset))


def _graph_to_read(data: LoaderData) -> Dataset:
    """Leave out features that batches do not have: those that were removed, and those of which x is another form."""
    if isinstance(data, TypedLoaderData):
        return data.to_read()
    x = data.only_nodes.attributes.get("x")
    if data.feature_table() is None or (x is not None and x.stored_as == "features" and "x" not in data.removed):
        return data
    return data.without_features().with_made_features(NONE)
