"""Pre-propagation of features over the graph, from a dataset and a spec to a folder of hop tables (PP-GNN).

All work is done in tasks (runtime/tasks.py): lists for the direction, scales, features cut into tiles, then one pass
per operator, hop and block of columns. After a crash or Ctrl-C, the same call resumes after the last finished task,
whatever its budget. The folder appears complete, its manifest is written last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diskhop._native import Engine
from diskhop.budget import Budget, format_bytes, parse_bytes
from diskhop.dataset.dataset import Dataset, as_dataset
from diskhop.dataset.listed_edges import ListedEdges
from diskhop.derived.clean import TABLES_FILE
from diskhop.derived.scratch import scratch_path
from diskhop.disk.probe import remembered_model
from diskhop.display import Display, Facts, Part, Row
from diskhop.hops.find import find_stale_tables, table_operators
from diskhop.hops.make.builder import HopTableBuilder
from diskhop.hops.make.lists import ListMaker, ListsWanted, dataset_lists, num_sorted_edges
from diskhop.hops.make.passes import Lists
from diskhop.hops.make.plan import PropagationPlan
from diskhop.hops.make.prepare import count_task_sources, plan_task, require_disk_for, task_of, wanted_lists
from diskhop.hops.make.row_numbers import stored_numbers, write_numbers
from diskhop.hops.make.task import Task
from diskhop.hops.make.tiles import sum_pages
from diskhop.hops.make.work_tables import WorkTables
from diskhop.hops.spec import PropagationSpec, find_rows, folder_name
from diskhop.hops.tables import (
    HopTables,
    TableFile,
    encode_hop_tables,
    open_hop_tables,
    table_names,
)
from diskhop.io.atomic import Injector, make_directories, write_file
from diskhop.io.engine import open_engine
from diskhop.protocols import NodeRows, SourceIds
from diskhop.runtime.executors import open_executor
from diskhop.runtime.jobs import Executor
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import TaskTools, WorkFolder
from diskhop.system.memory import default_memory_bytes, default_threads


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Propagated(Display):
    """The result of propagate().

    tables: the hop tables.
    plan: how they were built; None if they existed.
    steps: name, seconds and bytes of each step; empty if the tables existed.
    reserved: peak memory by name, in bytes.
    memory: of the process, by the names of result.json; empty where the caller measures it.
    """

    tables: HopTables
    plan: PropagationPlan | None
    steps: list[dict[str, Any]]
    reserved: dict[str, int]
    memory: Mapping[str, int] = field(default_factory=dict)

    def rows(self) -> list[Row]:
        """Return names and texts of lines for people."""
        tables, plan = self.tables, self.plan
        predicted = {} if plan is None else {stage.name: stage.seconds for stage in plan.steps}
        rows = [
            ("propagated" if self.steps else "propagated before", f"{tables.path}, {format_bytes(tables.num_bytes)}"),
            ("tables", f"{tables.num_tables} of {tables.num_rows:,} x {tables.dim} {tables.dtype}"),
        ]
        for step in self.steps if plan is not None else ():
            about = f", {predicted[step['step']]:.1f} s predicted" if step["step"] in predicted else ""
            rows.append((step["step"], f"{step['seconds']:.1f} s{about}"))
        return rows

    def _title(self) -> str:
        return "Hop tables"

    def _parts(self) -> Sequence[Part]:
        return [Facts(self.rows())]


def propagate(
    dataset: Dataset | Path | str,
    spec: PropagationSpec,
    budget: Budget | None = None,
    *,
    memory: int | str | None = None,
    disk: int | str | None = None,
    scratch: Path | str | None = None,
    threads: int | None = None,
    engine: Engine | str = "auto",
    progress: Progress = silent,
    executor: Executor | str = "",
    workers: int | None = None,
    on_plan: Callable[[PropagationPlan], None] = lambda _: None,
    log: Callable[[str], None] = lambda _: None,
    injector: Injector | None = None,
) -> Propagated:
    """Build hop tables, or find existing ones.

    memory: memory budget without `budget`, such as '2GB'; default: half of the free memory.
    disk: disk space for tables while they are built; default: all free space.
    scratch: folder for the tables; default: DATASET/derived.
    threads: maximum number of threads; default: all cores.
    executor, workers: where blocks of columns are computed, as --executor; see runtime/executors.py. Or an executor.
    on_plan: called with the plan before anything is written.
    log: called with a line for each folder of tables that is out of date.

    Raises ConfigError for features or a graph that cannot be propagated and for too small a disk; BudgetError;
    DestinationError.
    """
    opened = as_dataset(dataset)
    if budget is None:
        budget = Budget(default_memory_bytes() if memory is None else _parse_size(memory))
    folder = scratch_path(opened.path, scratch)
    rows = find_rows(opened, spec.rows, budget)
    is_weighted = spec.uses_weights(opened)
    destination = folder / folder_name(spec.key(opened.hash, rows, is_weighted=is_weighted))
    if destination.exists():
        WorkFolder(destination, injector).remove_left()
        return Propagated(open_hop_tables(destination, opened.hash), None, [], {})
    for stale in find_stale_tables(folder, opened, spec):
        log(f"{stale} is not used: it was built from another version of the dataset; 'diskhop clean' removes it")
    own_engine = open_engine(engine).engine if isinstance(engine, str) else engine
    threads = max(threads or default_threads(), workers or 1)
    with ExitStack() as stack:
        if isinstance(executor, str):
            use: dict[str, Any] = {"threads": threads, "memory_bytes": budget.total_bytes, "engine": own_engine}
            executor = stack.enter_context(open_executor(executor, workers, **use))
        tools = TaskTools(own_engine, injector, executor=executor)
        run = _Propagation(opened, spec, is_weighted, rows, destination, budget, threads, tools, progress)
        return run.build(None if disk is None else _parse_size(disk), on_plan)


@dataclass(frozen=True, slots=True, eq=False)
class _Propagation:
    """One call of propagate() that has tables to build.

    dataset: the dataset.
    spec: tables to build.
    is_weighted: whether sums use the weights of edges.
    rows: rows to keep, None for all.
    destination: folder of the tables.
    budget: memory to reserve from.
    threads: maximum number of threads.
    tools: engine and fault injector.
    progress: receives progress.
    """

    dataset: Dataset
    spec: PropagationSpec
    is_weighted: bool
    rows: NodeRows | None
    destination: Path
    budget: Budget
    threads: int
    tools: TaskTools
    progress: Progress

    def build(self, disk_bytes: int | None, on_plan: Callable[[PropagationPlan], None]) -> Propagated:
        """Plan, build and publish the tables."""
        folder, injector = self.destination.parent, self.tools.injector
        edges = ListedEdges(self.dataset.topology, f"lists of dataset {self.dataset.hash}")
        wanted = wanted_lists(edges, self.spec, self.progress, is_weighted=self.is_weighted)
        task = task_of(self.dataset, self.spec, self.rows, wanted)
        sharing = self.tools.processes_per_machine  # each computes blocks in its part of the memory
        task = count_task_sources(task, self.dataset, self.budget, self.threads, sharing, self.progress)
        disk = remembered_model(folder if folder.exists() else self.dataset.path, self.tools.engine.name)
        plan = plan_task(
            task, self.budget, threads=self.threads, disk=disk, per_machine=sharing, processes=self.tools.processes
        )
        make_directories(folder, injector)
        with WorkFolder(self.destination, injector) as work, ExitStack() as stack:
            work.lock()
            if self.destination.exists():  # another process has just finished
                work.remove()
                return Propagated(open_hop_tables(self.destination, self.dataset.hash), None, [], {})
            require_disk_for(task, plan, self.dataset, self.spec, disk_bytes, folder, work)
            on_plan(plan)
            builder = self._open_builder(task, plan, edges, wanted, work, stack)
            builder.build()
            _write_manifest(builder, self.spec)
            work.publish(builder.kept)
        tables = open_hop_tables(self.destination, self.dataset.hash)
        return Propagated(tables, plan, builder.steps, self.budget.table())

    def _open_builder(
        self,
        task: Task,
        plan: PropagationPlan,
        edges: ListedEdges,
        wanted: dict[bool, ListsWanted],
        work: WorkFolder,
        stack: ExitStack,
    ) -> HopTableBuilder:
        key = self.spec.key(self.dataset.hash, self.rows, is_weighted=self.is_weighted)
        maker = ListMaker(edges, work.stage("lists", key), work, self.tools, self.budget, self.threads, self.progress)
        kept, done = work.stage("kept", key), work.stage("done", key)
        whole = kept if self.rows is None else work.stage("whole", key)
        write_numbers(kept, self.dataset, self.rows, self.budget, self.tools)
        tables = stack.enter_context(WorkTables(whole, done, task.shape, self.tools))
        return HopTableBuilder(
            dataset=self.dataset,
            task=task,
            plan=plan,
            lists={each: self._open_lists(lists, edges, maker) for each, lists in wanted.items()},
            maker=maker,
            kept=kept,
            whole=tables,
            rows=self.rows,
            budget=self.budget,
            tools=self.tools,
            threads=self.threads,
            progress=self.progress,
        )

    def _open_lists(self, wanted: ListsWanted, edges: ListedEdges, maker: ListMaker) -> Lists:
        if wanted.is_weighted:
            column, weights = self.dataset.only_edges.weight_column(), self.dataset.edge_weights()
            assert column is not None, "the dataset has weights"
            assert weights is not None, "the dataset has weights"
            if wanted.is_looped:
                return maker.add_loops(wanted, weights)
            return dataset_lists(edges.topology, column.table.path)
        return maker.sort(wanted) if num_sorted_edges(edges.num_edges, wanted) else dataset_lists(edges.topology)


def _parse_size(size: int | str) -> int:
    return parse_bytes(size) if isinstance(size, str) else size


def _write_manifest(builder: HopTableBuilder, spec: PropagationSpec) -> None:
    """Write the manifest of the kept tables, as the last file."""
    operators = table_operators(spec, is_weighted=builder.task.weight_bytes > 0)
    shape = builder.task.kept_shape
    files = []
    for name in table_names(operators, spec.hops):
        table = name.removesuffix(".bin")
        checksum = (
            builder.whole.checksum(table)
            if builder.rows is None
            else sum_pages(builder.kept / name, 0, shape.num_bytes).checksum
        )
        files.append(TableFile(name=name, num_bytes=shape.num_bytes, checksum=checksum))
    ids, positions = stored_numbers(builder.kept, builder.dataset, shape.num_rows)
    tables = HopTables(
        path=builder.kept,
        dataset_hash=builder.dataset.hash,
        operators=operators,
        hops=spec.hops,
        shape=shape,
        files=tuple(files),
        num_nodes=builder.dataset.num_nodes,
        rows=builder.rows,
        ids=None if ids is None else SourceIds(ids),
        positions=positions,
    )
    write_file(builder.kept / TABLES_FILE, encode_hop_tables(tables), builder.tools.injector)
