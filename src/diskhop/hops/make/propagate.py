"""Features propagated over the graph ahead of training: from a dataset and a spec to a folder of hop tables (PP-GNN).

Everything is a task (tasks.py): lists for the direction, scalings, features cut into tiles, then for each operator, hop
and block of columns a pass. After a crash, or Ctrl-C, the same call goes on from the last one that was finished,
whatever its budget. The folder appears whole, its manifest last.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from diskhop._native import Engine
from diskhop.budget import Budget, parse_bytes
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.derived.clean import TABLES_FILE
from diskhop.derived.scratch import free_bytes
from diskhop.disk.model import DiskModel
from diskhop.disk.probe import remembered_model
from diskhop.errors import ConfigError, FormatError, ReadError
from diskhop.hops.make.blocks import first_cold_row
from diskhop.hops.make.builder import HopTableBuilder
from diskhop.hops.make.cold_edges import count_sources, looking_bytes
from diskhop.hops.make.lists import ListedEdges, ListMaker, ListsWanted, dataset_lists, num_sorted_edges
from diskhop.hops.make.plan import PropagationPlan, plan_propagation
from diskhop.hops.make.task import Task, require_disk
from diskhop.hops.make.tiles import sum_pages
from diskhop.hops.make.work_tables import WorkTables
from diskhop.hops.spec import ALL_ROWS, LABELLED_ROWS, PropagationSpec, find_rows, folder_name
from diskhop.hops.tables import (
    ROWS_FILE,
    TILE_COLUMNS,
    HopTables,
    TableFile,
    TableOperator,
    TableShape,
    encode_hop_tables,
    open_hop_tables,
    table_names,
)
from diskhop.io.atomic import Injector, destination_errors, make_directories, rename, sync_directory, write_file
from diskhop.io.engine import open_engine
from diskhop.protocols import NodeIds
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import TaskTools, WorkFolder, run_tasks
from diskhop.system.memory import default_memory_bytes, default_threads


@dataclass(frozen=True, slots=True, eq=False)
class Propagated:
    """Hop tables; how they were planned, and what making them took, a step each as result.json has them.

    plan: None, and no steps, for tables that were there. reserved: the most bytes of memory, by name.
    """

    tables: HopTables
    plan: PropagationPlan | None
    steps: list[dict[str, Any]]
    reserved: dict[str, int]


def find_hop_tables(
    dataset: Dataset, spec: PropagationSpec, scratch: Path | None = None, budget: Budget | None = None
) -> HopTables | None:
    """The tables that propagate() made, or would find: None if they are not there. Raises ConfigError, FormatError."""
    rows = find_rows(dataset, spec.rows, budget or Budget(default_memory_bytes()))
    path = scratch_folder_of(dataset, scratch) / folder_name(spec.key(dataset.hash, rows))
    return open_hop_tables(path, dataset.hash) if path.exists() else None


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
    told: Callable[[PropagationPlan], None] | None = None,
    tell: Callable[[str], None] = lambda _: None,
    injector: Injector | None = None,
) -> Propagated:
    """Make hop tables, or find them. memory: without a budget, as '2GB'; default: half of what is free.

    disk: that tables may take while they are made; default: what is free. scratch: the folder to put them in; default:
    DATASET/derived. told: hears of the plan before anything is written. tell: hears of tables that are stale. Raises
    ConfigError for features or a graph that cannot be propagated, for too small a disk; BudgetError, DestinationError.
    """
    opened = dataset if isinstance(dataset, Dataset) else open_dataset(Path(dataset))
    if budget is None:
        budget = Budget(default_memory_bytes() if memory is None else _bytes(memory))
    threads = threads or default_threads()
    folder = scratch_folder_of(opened, None if scratch is None else Path(scratch))
    own_engine = open_engine(engine).engine if isinstance(engine, str) else engine
    rows = find_rows(opened, spec.rows, budget)
    key = spec.key(opened.hash, rows)
    destination = folder / folder_name(key)
    if destination.exists():
        return Propagated(open_hop_tables(destination, opened.hash), None, [], {})
    for stale in stale_folders(folder, opened, spec):
        tell(f"{stale} is not used: it was made from another state of the dataset; 'diskhop clean' removes it")
    edges = ListedEdges(opened.topology, f"lists of dataset {opened.hash}")
    wanted = _wanted_lists(edges, spec, progress)
    task = _look_at_sources(_task_of(opened, spec, rows, wanted), opened, budget, threads, progress)
    device = remembered_model(folder if folder.exists() else opened.path, own_engine.name)
    plan = plan_propagation(task, memory_bytes=budget.available_bytes, threads=threads, device=device)
    make_directories(folder, injector)
    with WorkFolder(destination, injector) as work, ExitStack() as held:
        _require_disk(task, plan, opened, spec, None if disk is None else _bytes(disk), folder, work)
        if told is not None:
            told(plan)
        tools = TaskTools(own_engine, injector)
        maker = ListMaker(edges, work.stage("lists", key), work, tools, budget, threads, progress)
        kept, done = work.stage("kept", key), work.stage("done", key)
        whole = kept if rows is None else work.stage("whole", key)
        if rows is not None:
            run_tasks([_RowIds(ROWS_FILE, rows)], kept, tools, threads=1)
        tables = held.enter_context(WorkTables(whole, done, task.shape, tools))
        making = HopTableBuilder(
            dataset=opened,
            task=task,
            plan=plan,
            lists={counts_loops: _lists(each, edges, maker) for counts_loops, each in wanted.items()},
            maker=maker,
            kept=kept,
            whole=tables,
            rows=rows,
            budget=budget,
            tools=tools,
            threads=threads,
            progress=progress,
        )
        making.make()
        _write_manifest(making, spec)
        with destination_errors(destination):
            rename(kept, destination, injector)
            sync_directory(folder, injector)
        work.remove()
    return Propagated(open_hop_tables(destination, opened.hash), plan, making.steps, budget.table())


def plan_tables(
    dataset: Dataset, spec: PropagationSpec, budget: Budget, *, threads: int, device: DiskModel
) -> tuple[Task, PropagationPlan]:
    """What propagate() would make, and how; nothing is made. Raises ConfigError, BudgetError."""
    edges = ListedEdges(dataset.topology, f"lists of dataset {dataset.hash}")
    task = _task_of(dataset, spec, find_rows(dataset, spec.rows, budget), _wanted_lists(edges, spec, silent))
    return task, plan_propagation(task, memory_bytes=budget.available_bytes, threads=threads, device=device)


def _bytes(size: int | str) -> int:
    return parse_bytes(size) if isinstance(size, str) else size


def scratch_folder_of(dataset: Dataset, scratch: Path | None) -> Path:
    """Where hop tables of a dataset lie."""
    return dataset.path / "derived" if scratch is None else scratch


def stale_folders(folder: Path, dataset: Dataset, spec: PropagationSpec) -> list[Path]:
    """Folders of tables as the spec wants them, of another state of the dataset, whose own folder it is."""
    if folder != scratch_folder_of(dataset, None):
        return []
    wanted = (_table_operators(spec), spec.hops, spec.dtype)
    found = []
    for manifest in sorted(folder.glob(f"propagated-*/{TABLES_FILE}")):
        try:
            tables = open_hop_tables(manifest.parent)
        except (FormatError, ReadError):
            continue
        if (tables.operators, tables.hops, tables.dtype) == wanted and tables.dataset_hash != dataset.hash:
            found.append(manifest.parent)
    return found


@dataclass(frozen=True, slots=True)
class _RowIds:
    """The task that writes the ids of the rows that are kept."""

    name: str
    ids: NodeIds

    def write(self, path: Path, _tools: TaskTools) -> None:
        """See tasks.Task."""
        self.ids.astype("<i8").tofile(path)


def _wanted_lists(edges: ListedEdges, spec: PropagationSpec, progress: Progress) -> dict[bool, ListsWanted]:
    """By whether an operator counts loops, the lists that it takes; loops that are not there need not be left out."""
    counts_loops = {operator.info.self_weight == 0 for operator in spec.parsed()}
    has_loops = False in counts_loops and edges.have_loops(progress)
    return {each: ListsWanted(spec.direction, each or not has_loops) for each in sorted(counts_loops)}


def _task_of(dataset: Dataset, spec: PropagationSpec, rows: NodeIds | None, wanted: dict[bool, ListsWanted]) -> Task:
    table, topology = dataset.features(), dataset.topology
    if table is None:
        raise ConfigError(f"{dataset.path}: has no features to propagate; import the graph with some")
    if table.num_rows == 0:
        raise ConfigError(f"{dataset.path}: has no nodes to propagate features of; import a graph that has some")
    return Task(
        table=table,
        feature_dtype=dataset.feature_dtype,
        shape=TableShape(num_rows=table.num_rows, dim=dataset.feature_dim, dtype=spec.dtype, tile_columns=TILE_COLUMNS),
        num_edges=topology.num_edges * (2 if spec.direction == "both" else 1),
        index_bytes=topology.index_dtype.itemsize,
        operators=spec.parsed(),
        hops=spec.hops,
        sorted_edges=sum(num_sorted_edges(topology.num_edges, each) for each in set(wanted.values())),
        num_kept=None if rows is None else len(rows),
    )


def _look_at_sources(task: Task, dataset: Dataset, budget: Budget, threads: int, progress: Progress) -> Task:
    """The task, with what its lists name where that may make blocks wider."""
    memory_bytes = budget.available_bytes
    first_cold = first_cold_row(task, memory_bytes, threads)
    if first_cold is None:
        return task
    with budget.reserve("looking at sources", looking_bytes(task.index_bytes, memory_bytes)):
        sources = count_sources(dataset_lists(dataset.topology), first_cold, memory_bytes, progress)
    return replace(task, sources=sources)


def _lists(wanted: ListsWanted, edges: ListedEdges, maker: ListMaker) -> Any:
    return maker.sort(wanted) if num_sorted_edges(edges.num_edges, wanted) else dataset_lists(edges.topology)


def _require_disk(
    task: Task,
    plan: PropagationPlan,
    dataset: Dataset,
    spec: PropagationSpec,
    disk_bytes: int | None,
    folder: Path,
    work: WorkFolder,
) -> None:
    """Refuse a disk that is too small: the one that --disk names, or what is free."""
    remedies, cold_bytes = [], plan.work_bytes - task.work_bytes
    files = dataset.manifest.files.items()
    num_labelled = sum(entry.num_bytes // 8 for name, entry in files if "/splits/" in name)
    if spec.rows == ALL_ROWS and num_labelled:
        remedies.append((f"--rows {LABELLED_ROWS}", replace(task, num_kept=num_labelled)))
    if spec.dtype == "float32":
        remedies.append(("--dtype float16", replace(task, shape=replace(task.shape, dtype="float16"))))
    if disk_bytes is not None:
        require_disk(task, disk_bytes, "--disk is", remedies, cold_bytes=cold_bytes)
    free = free_bytes(folder) + work.kept_bytes()
    require_disk(task, free, f"{folder} has free", remedies, cold_bytes=cold_bytes)


def _table_operators(spec: PropagationSpec) -> tuple[TableOperator, ...]:
    return tuple(
        TableOperator(
            name=operator.file_name,
            parameters={"kind": operator.kind, **operator.parameters, "direction": spec.direction},
        )
        for operator in spec.parsed()
    )


def _write_manifest(making: HopTableBuilder, spec: PropagationSpec) -> None:
    """Of what is in the folder of tables that are kept, last of all."""
    operators, shape = _table_operators(spec), making.task.kept_shape
    files = []
    for name in table_names(operators, spec.hops):
        table = name.removesuffix(".bin")
        checksum = (
            making.whole.checksum(table)
            if making.rows is None
            else sum_pages(making.kept / name, 0, shape.num_bytes).checksum
        )
        files.append(TableFile(name=name, num_bytes=shape.num_bytes, checksum=checksum))
    tables = HopTables(
        path=making.kept,
        dataset_hash=making.dataset.hash,
        operators=operators,
        hops=spec.hops,
        shape=shape,
        files=tuple(files),
        rows=making.rows,
    )
    write_file(making.kept / TABLES_FILE, encode_hop_tables(tables), making.tools.injector)
