"""A built-in network over all nodes of a dataset: from the network to tables of its layers' outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import DiskModel
from diskhop.errors import BudgetError
from diskhop.hops.make.lists import dataset_lists
from diskhop.hops.make.passes import Lists
from diskhop.hops.stream.parts import stored_rows
from diskhop.hops.stream.scan import Scan, ScannedLists, read_scan, rows_with_edges, scanning_bytes
from diskhop.nn.layers.network import Network
from diskhop.nn.reproducible import reproducible
from diskhop.planning.predict import StreamedPlan, plan_streamed
from diskhop.planning.predict_sizes import GraphCounts, StreamedWork, reading_outputs_bytes
from diskhop.predicting.rows import RowTable
from diskhop.predicting.shared_network import SharedNetwork
from diskhop.predicting.streamed.compute import Computation
from diskhop.predicting.streamed.earlier_blocks import Blocks, plan_with_earlier
from diskhop.predicting.streamed.layers import HIDDEN, num_tiles
from diskhop.predicting.streamed.network_tables import NetworkTables
from diskhop.predicting.streamed.row_step import KEPT
from diskhop.predicting.streamed.source import first_dim, first_row_bytes
from diskhop.predicting.streamed.spare_files import SpareFiles
from diskhop.predicting.streamed.steps import StreamedSteps
from diskhop.predicting.streamed.table_work import TableWork
from diskhop.predicting.streamed.tables import RANGE_BYTES, GroupRows
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import TaskTools, WorkFolder, run_tasks
from diskhop.system.memory import default_threads


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """Outputs of layers for all nodes, on disk until the context ends.

    layers: float32 rows, by the number of the layer from 1.
    steps: name and seconds of each step.
    """

    layers: Mapping[int, RowTable]
    steps: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class StreamedRun:
    """A network to compute for all nodes of a dataset.

    dataset: the dataset.
    network: the network, in evaluation mode; its first `num_layers` layers are computed.
    wanted: numbers of the layers whose outputs are wanted, from 1.
    budget: memory to reserve from.
    threads: cores.
    tools: engine and fault injector.
    disk: model of the disk.
    progress: receives progress.
    range_bytes: bytes of a table that a crash costs, roughly.
    later: memory by name of what reads the outputs, in bytes; it is planned with, not reserved.
    build: see SharedNetwork; with it, the processes of an executor share the rows of every table.
    """

    dataset: Dataset
    network: Network
    wanted: frozenset[int]
    budget: Budget
    threads: int
    tools: TaskTools
    disk: DiskModel
    progress: Progress = silent
    range_bytes: int = RANGE_BYTES
    later: Mapping[str, int] = field(default_factory=dict)
    build: Callable[[], Network] | None = None

    def plan(self) -> StreamedPlan:
        """Plan the work without reading the graph, as if every node had and were a neighbour. Raises BudgetError."""
        num_nodes = self.dataset.topology.num_nodes
        return self._plan(self._work(num_nodes, num_nodes))

    @property
    def _processes(self) -> int:
        return 1 if self.build is None else self.tools.processes

    @property
    def _processes_per_machine(self) -> int:
        return 1 if self.build is None else self.tools.processes_per_machine

    @cached_property
    def _tables(self) -> NetworkTables:
        return NetworkTables(self.dataset, SharedNetwork(self.network, self.build), self.wanted, self.range_bytes)

    def _plan(self, work: StreamedWork, blocks: Blocks = ()) -> StreamedPlan:
        budget, sharing = self.budget, self._processes_per_machine
        try:
            plan = plan_streamed(
                work,
                memory_bytes=budget.available_bytes // sharing,
                threads=max(1, self.threads // sharing),
                cores=max(1, default_threads() // sharing),
                engine=self.tools.engine.name,
                disk=self.disk,
                later={name: -(-num_bytes // sharing) for name, num_bytes in self.later.items()},
                blocks=blocks,
                processes=self._processes,
            )
        except BudgetError as error:
            # The smallest budget has room for the rest, too.
            if budget.available_bytes < budget.total_bytes or sharing > 1:
                budget.require({"computing layers": sharing * (error.smallest_bytes or 0)})
            raise
        return replace(plan, memory_bytes=budget.available_bytes, num_processes=sharing)

    @contextmanager
    def compute(self, work: WorkFolder, on_plan: Callable[[StreamedPlan], None]) -> Iterator[Computed]:
        """Compute what is missing in a work folder, and give access to the wanted outputs.

        Raises BudgetError, PredictionError for values that are not finite, DestinationError.
        """
        tables = self._tables
        scanned = self._scan(dataset_lists(self.dataset.topology), tables.layers[0].weighing != "mean", work)
        num_stored = int(stored_rows(rows_with_edges(scanned, self.dataset.num_nodes)).sum())
        plan_layers = partial(self._plan, self._work(scanned.num_sources, num_stored))
        plan = plan_with_earlier(work, tables.key("blocks"), plan_layers, self.tools.injector)
        on_plan(plan)
        with ExitStack() as stack:
            stack.enter_context(reproducible(self.threads))
            steps = tables.open(plan, scanned, work, self.tools, stack)
            table_work = TableWork(
                plan=plan,
                tables=[*steps.tables, *steps.sums.values(), *steps.norms.values()],
                tools=self.tools,
                budget=self.budget,
                progress=self.progress,
                spares=stack.enter_context(SpareFiles(self.tools.injector)),
                processes=self._processes,
            )
            Computation(steps=steps, kept=self.wanted, work=table_work).run()
            outputs = {number: self._rows(steps, number) for number in self.wanted}
            reading_bytes = reading_outputs_bytes(tables.wanted_tiles, plan.part_rows, self.threads)
            with self.budget.reserve("reading outputs", reading_bytes):
                yield Computed(outputs, table_work.steps)

    def _scan(self, lists: Lists, counts_loops: bool, work: WorkFolder) -> ScannedLists:
        """Scan the lists, or read what an earlier scan found."""
        memory_bytes = self.budget.available_bytes
        folder = work.stage("lists", f"{self.dataset.hash}, rows with edges, loops: {counts_loops}")
        scan = Scan("scan", lists, counts_loops, memory_bytes, self.progress)
        with self.budget.reserve("reading lists", scanning_bytes(lists, memory_bytes)):
            run_tasks([scan], folder, self.tools, threads=1)
        return read_scan(folder / scan.name)

    def _work(self, num_sources: int, num_stored: int) -> StreamedWork:
        topology, tables = self.dataset.topology, self._tables
        kept = [num_tiles(tables.groups(number).get(KEPT, 0)) for number in range(len(tables.layers))]
        return StreamedWork(
            layers=tuple(layer.shape() for layer in tables.layers),
            output_tiles=num_tiles(tables.layers[-1].out_dim),
            kept_tiles=tuple(kept),
            wanted_tiles=tables.wanted_tiles,
            graph=GraphCounts(
                num_nodes=topology.num_nodes,
                num_edges=topology.num_edges,
                index_bytes=topology.index_dtype.itemsize,
                num_sources=num_sources,
                num_stored=num_stored,
                feature_row_bytes=first_row_bytes(self.dataset),
                feature_dim=first_dim(self.dataset),
            ),
            kept=self.wanted - {len(tables.layers)},
            takes_features=not self.network.changes_features,
        )

    def _rows(self, steps: StreamedSteps, number: int) -> RowTable:
        layout = steps.network.layouts[number]
        name = KEPT if layout.has(KEPT) else HIDDEN
        return GroupRows(steps.tables[number], layout, name, steps.plan.part_rows, self.tools.engine, self.threads)
