"""The tables of a typed network in a work folder: one per layer and node type that a later table needs.

Table 0 of a type has its features, mapped to the hidden width; table i the rows of layer i. Only the target type has a
table of the last layer. A table is removed once nothing reads it, and finished ranges of rows survive a crash.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from diskhop.dataset.dataset import Dataset
from diskhop.dataset.type_map import TypeMap
from diskhop.derived.scratch import scratch_folder, scratch_path
from diskhop.disk.probe import remembered_model
from diskhop.errors import BudgetError
from diskhop.nn.typed.network import TypedNetwork
from diskhop.planning.measure import disk_model
from diskhop.plans import SampledPlan, StepPlan
from diskhop.predicting.batched.batches import LayerRun, PlannedLayer, plan_layer
from diskhop.predicting.batched.identity import describe_module
from diskhop.predicting.batched.layer_rows import compute_layer
from diskhop.predicting.batched.layer_tables import LayerPlans
from diskhop.predicting.batched.table_files import TableFiles
from diskhop.predicting.disk import ALL_FREE, DiskSpace
from diskhop.predicting.hop_rows import SomeColumns
from diskhop.predicting.row_files import RANGE_BYTES, RowFile
from diskhop.predicting.rows import RowTable
from diskhop.predicting.shared_network import SharedNetwork
from diskhop.predicting.typed.first_rows import FirstTable, GivenRows, digest_of
from diskhop.predicting.typed.layers import TypedLayer, TypedSource
from diskhop.predicting.typed.relations import sums_relations
from diskhop.predicting.typed.streamed import TypedStreamedRun
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import WorkFolder

_VERSION = 1
# Number of a layer, and node type.
TypedKey = tuple[int, str]


@dataclass(frozen=True, slots=True, eq=False)
class TypedTables:
    """Tables of the target type.

    tables: by the number of their layer.
    plans: plan of each layer that was computed by this call, by its name.
    """

    tables: Mapping[int, RowTable]
    plans: Mapping[str, SampledPlan]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TypedPrediction:
    """The tables of one network on one graph.

    dataset: the graph, with its types merged.
    shared: the network, in evaluation mode.
    given: rows of types without features.
    fanouts: neighbours per layer and edge type, -1 for all.
    run_by: memory, threads and strategies.
    work: folder of the tables.
    space: disk space that tables may take.
    range_bytes: bytes of a table that a crash costs at most, roughly.
    """

    dataset: Dataset
    shared: SharedNetwork[TypedNetwork]
    given: GivenRows
    fanouts: Sequence[int]
    run_by: LayerRun
    work: WorkFolder
    space: DiskSpace = ALL_FREE
    progress: Progress = silent
    range_bytes: int = RANGE_BYTES

    @property
    def network(self) -> TypedNetwork:
        """The network."""
        return self.shared.network

    def run(self, wanted: Collection[int]) -> TypedTables:
        """Compute the wanted layers of the target type, once all of the work is known to fit the memory.

        Raises BudgetError with the smallest budget that works, DestinationError for too small a disk, and
        PredictionError for a result that is not finite.
        """
        key = "\n".join([f"version {_VERSION}", f"dataset {self.dataset.hash}", *map(str, self._settings())])
        tables = self._tables(wanted, self.work.stage("tables", key), self.work.stage("done", key))
        self.space.require(self.work, tables.most_bytes, tables.result_bytes)
        missing, tools = tables.missing(), self.run_by.tools
        planned = self._plan_tables(missing, wanted)
        # Left by a run that ended between finishing a table and removing those that it was made from.
        tables.drop_unused(tools, missing[0] if missing else None)
        with ExitStack() as held:
            for name, num_bytes in self.run_by.held.items():
                held.enter_context(self.run_by.budget.reserve(name, num_bytes))
            run = replace(self.run_by, held={})
            for each in missing:
                self._compute(each, tables, planned, run)
                tables.drop_made(tools, each)
        found = {number: self._result(tables.files[number, self.network.target], number) for number in wanted}
        return TypedTables(found, {self._layer(each).label: plan.plan for each, plan in planned.items()})

    @property
    def is_streamed(self) -> bool:
        """Whether relations are summed as a whole instead, unless neighbours are drawn; see streamed()."""
        return sums_relations(self.network, self._types)

    def streamed(self, wanted: Collection[int], later: Mapping[str, int]) -> TypedStreamedRun:
        """Return the same network as passes over relations. later: memory of what reads the outputs."""
        run = self.run_by
        return TypedStreamedRun(
            dataset=self.dataset,
            shared=self.shared,
            given=self.given,
            wanted=frozenset(wanted),
            budget=run.budget,
            threads=run.threads,
            tools=run.tools,
            disk=run.disk or remembered_model(self.dataset.path, run.tools.engine.name),
            held=run.held,
            progress=self.progress,
            later=later,
        )

    def plan(self, wanted: Collection[int]) -> LayerPlans:
        """Plan every layer without computing any. Raises BudgetError with the smallest budget that works."""
        tables = self._tables(wanted, self.dataset.path, self.dataset.path)
        planned = self._plan_tables(list(tables.files), wanted)
        disk, first = self._planning_run.disk, []
        assert disk is not None
        for (number, node_type), file in tables.files.items():
            if number == 0:
                read_bytes = self._first(node_type).read_bytes
                seconds = disk.sequential_seconds(read_bytes, file.num_bytes)
                step = StepPlan(
                    name=f"features ({node_type})",
                    bytes_read=read_bytes,
                    bytes_written=file.num_bytes,
                    seconds=seconds,
                )
                first.append(step)
        labels = {each: self._layer(each).label for each in planned}
        return LayerPlans(
            plans={labels[each]: plan.plan for each, plan in planned.items()},
            table_bytes={labels[each]: tables.files[each].num_bytes for each in planned},
            work_bytes=tables.most_bytes,
            result_bytes=tables.result_bytes,
            first=tuple(first),
        )

    @property
    def _types(self) -> TypeMap:
        assert self.dataset.types is not None, "the types of the graph are merged"
        return self.dataset.types

    @property
    def _planning_run(self) -> LayerRun:
        # Tables of layers are no disks to measure before they have rows.
        run = self.run_by.of_one_process
        return replace(run, disk=run.disk or disk_model(self.dataset, run.tools.engine.name))

    def _first(self, node_type: str) -> FirstTable:
        return FirstTable(self.dataset, node_type, self.given, self.shared)

    def _layer(self, key: TypedKey) -> TypedLayer:
        return TypedLayer(*key, self.network, self._types)

    def _compute(
        self,
        key: TypedKey,
        tables: TableFiles[TypedKey],
        planned: Mapping[TypedKey, PlannedLayer],
        run: LayerRun,
    ) -> None:
        """Write the missing rows of a table."""
        out, (number, node_type) = tables.files[key], key
        if number == 0:
            self._first(node_type).compute(out, run, self.progress)
            return
        layer = self._layer(key)
        below, source = self._below(layer, tables.files), TypedSource(number, node_type, self.shared, self._types)
        compute_layer(below, planned[key], out, run, source, self.progress, layer.label)

    def _tables(self, wanted: Collection[int], folder: Path, done: Path) -> TableFiles[TypedKey]:
        """Return the tables that wanted ones of the target type need, layer by layer."""
        inputs = self._inputs(wanted)
        files = {
            (number, name): RowFile(
                f"layer-{number}-type-{self._types.node_types.index(name)}",
                folder,
                done,
                self._types.num_nodes[name],
                self.network.table_dim(number),
                self.range_bytes,
            )
            for number, name in inputs
        }
        return TableFiles(files, inputs, {(number, self.network.target) for number in wanted})

    def _inputs(self, wanted: Collection[int]) -> dict[TypedKey, list[TypedKey]]:
        """Return the tables that each table is made of, in the order in which they are made."""
        found: dict[TypedKey, list[TypedKey]] = {}
        needed = {self.network.target}
        for number in range(max(wanted), -1, -1):
            names = [name for name in self._types.node_types if name in needed]
            of_types = {name: [] if number == 0 else self._layer((number, name)).inputs for name in names}
            below = {(number, name): [(number - 1, each) for each in read] for name, read in of_types.items()}
            found = {**below, **found}
            needed = {each for read in of_types.values() for each in read}
        return found

    def _plan_tables(self, keys: Sequence[TypedKey], wanted: Collection[int]) -> dict[TypedKey, PlannedLayer]:
        """Plan tables; those of number 0 have no plan. Raises the BudgetError of the one that needs most memory."""
        run, planned, refusals = self._planning_run, {}, []
        alike: dict[Any, PlannedLayer] = {}
        scratch = None if run.scratch is None else Path(run.scratch)
        with scratch_folder(scratch_path(self.dataset.path, scratch)) as folder:
            tables = self._tables(wanted, folder, folder)
            for key in keys:
                try:
                    if key[0] == 0:
                        self._first(key[1]).require_memory(run)
                    else:
                        planned[key] = self._plan_layer(key, tables, run, alike)
                except BudgetError as error:
                    refusals.append(error)
        with self.run_by.refusals_of_all():
            if refusals:
                raise max(refusals, key=lambda error: error.smallest_bytes or 0)
        return planned

    def _plan_layer(
        self, key: TypedKey, tables: TableFiles[TypedKey], run: LayerRun, alike: dict[Any, PlannedLayer]
    ) -> PlannedLayer:
        """Plan a layer. alike: plans by what they depend on, which grow by this one: comparing stores takes seconds."""
        for each in tables.inputs[key]:
            with tables.files[each].path.open("wb") as file:  # stores look at it; it takes no disk space
                file.truncate(tables.files[each].num_bytes)
        layer, fanout = self._layer(key), self.fanouts[key[0] - 1]
        cost = layer.measure()
        facts = layer.node_type, cost, fanout
        if facts not in alike:
            alike[facts] = plan_layer(
                self._below(layer, tables.files), layer, cost, tables.files[key], run, fanout=fanout
            )
        return replace(alike[facts], layer=layer)

    def _below(self, layer: TypedLayer, files: Mapping[TypedKey, RowFile]) -> Dataset:
        """Return the graph with the tables that a layer reads as features of their types."""
        nodes = {}
        for name, each in self.dataset.nodes.items():
            file = files[layer.number - 1, name] if name in layer.inputs else None
            nodes[name] = each.without_features() if file is None else each.with_rows(file.table(), file.dim)
        return self.dataset.with_nodes(nodes)

    def _result(self, file: RowFile, number: int) -> RowTable:
        """Return the rows of a layer without what is carried to the next."""
        dim = self.network.output_dim(number)
        return file if dim == file.dim else SomeColumns(file, 0, dim)

    def _settings(self) -> Iterator[Any]:
        """Yield everything else that tables depend on."""
        yield sorted(self.given.made.items())
        for name, rows in self.given.learned.items():
            yield name, digest_of(rows)
        yield list(self.fanouts), self.run_by.seed, self.range_bytes, torch.__version__
        yield from describe_module("network", self.network)
