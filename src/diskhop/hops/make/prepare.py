"""From a dataset and a spec to a task, its plan and the disk space that it needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.listed_edges import ListedEdges
from diskhop.derived.scratch import free_bytes
from diskhop.disk.model import DiskModel
from diskhop.errors import BudgetError, ConfigError
from diskhop.hops.make.blocks import first_cold_row
from diskhop.hops.make.cold_edges import count_sources, scan_bytes
from diskhop.hops.make.lists import ListsWanted, dataset_lists, num_sorted_edges
from diskhop.hops.make.plan import PropagationPlan, plan_propagation
from diskhop.hops.make.task import Task, require_disk
from diskhop.hops.make.weighted_lists import WEIGHT_BYTES, looped_lists_bytes
from diskhop.hops.spec import ALL_ROWS, LABELLED_ROWS, PropagationSpec, find_rows
from diskhop.hops.tables import TILE_COLUMNS, TableShape
from diskhop.protocols import NodeRows, Table
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import WorkFolder


def plan_tables(
    dataset: Dataset,
    spec: PropagationSpec,
    budget: Budget,
    *,
    threads: int,
    disk: DiskModel,
    processes: int = 1,
) -> tuple[Task, PropagationPlan]:
    """Plan what propagate() would build. Raises ConfigError, BudgetError.

    budget, threads: of this machine, which its processes share equally.
    """
    edges = ListedEdges(dataset.topology, f"lists of dataset {dataset.hash}")
    wanted = wanted_lists(edges, spec, silent, is_weighted=spec.uses_weights(dataset))
    task = task_of(dataset, spec, find_rows(dataset, spec.rows, budget), wanted)
    return task, plan_task(task, budget, threads=threads, disk=disk, per_machine=processes, processes=processes)


def plan_task(
    task: Task, budget: Budget, *, threads: int, disk: DiskModel, per_machine: int, processes: int
) -> PropagationPlan:
    """Plan what each process computes. Raises BudgetError, with the smallest budget that works for all of them.

    budget, threads: of a machine, which its per_machine processes share equally. processes: of all machines.
    """
    try:
        return plan_propagation(
            task,
            memory_bytes=budget.available_bytes // per_machine,
            threads=max(1, threads // per_machine),
            disk=disk,
            processes=processes,
        )
    except BudgetError as error:
        # The smallest budget has room for the rest, too.
        if budget.available_bytes < budget.total_bytes or per_machine > 1:
            budget.require({"propagating features": per_machine * (error.smallest_bytes or 0)})
        raise


def wanted_lists(
    edges: ListedEdges, spec: PropagationSpec, progress: Progress, *, is_weighted: bool
) -> dict[bool, ListsWanted]:
    """Map whether operators count loops to the lists they need. A graph without loops needs no lists without loops."""
    counts_loops = {operator.info.self_weight == 0 for operator in spec.parsed()}
    if is_weighted:
        return {each: ListsWanted(spec.direction, each, is_weighted=True) for each in sorted(counts_loops)}
    has_loops = False in counts_loops and edges.have_loops(progress)
    return {each: ListsWanted(spec.direction, each or not has_loops) for each in sorted(counts_loops)}


def task_of(dataset: Dataset, spec: PropagationSpec, rows: NodeRows | None, wanted: dict[bool, ListsWanted]) -> Task:
    """Describe the tables to build. rows: rows to keep, None for all. Raises ConfigError if nothing can be built."""
    table, topology = _features_of(dataset), dataset.topology
    is_weighted = any(each.is_weighted for each in wanted.values())
    has_looped = any(each.is_looped for each in wanted.values())
    num_looped = topology.num_nodes if has_looped else 0
    return Task(
        table=table,
        feature_dtype=dataset.feature_dtype,
        shape=shape_of(dataset, spec),
        num_edges=topology.num_edges * (2 if spec.direction == "both" else 1) + num_looped,
        index_bytes=topology.index_dtype.itemsize,
        operators=spec.parsed(),
        hops=spec.hops,
        sorted_edges=sum(num_sorted_edges(topology.num_edges, each) for each in set(wanted.values())),
        num_kept=None if rows is None else len(rows),
        weight_bytes=WEIGHT_BYTES if is_weighted else 0,
        looped_bytes=looped_lists_bytes(topology) if has_looped else 0,
    )


def shape_of(dataset: Dataset, spec: PropagationSpec) -> TableShape:
    """Return the layout of tables with a row for every node. Raises ConfigError if nothing can be built."""
    num_rows = _features_of(dataset).num_rows
    return TableShape(num_rows=num_rows, dim=dataset.feature_dim, dtype=spec.dtype, tile_columns=TILE_COLUMNS)


def _features_of(dataset: Dataset) -> Table:
    table = dataset.feature_table()
    if table is None:
        raise ConfigError(
            f"{dataset.path}: has no features to propagate; import the graph again with --random-features 64"
        )
    if table.num_rows == 0:
        raise ConfigError(f"{dataset.path}: has no nodes; import a graph with nodes")
    return table


def count_task_sources(
    task: Task, dataset: Dataset, budget: Budget, threads: int, processes: int, progress: Progress
) -> Task:
    """Count the sources in the lists, if that may make blocks wider, and return the task with the counts.

    budget, threads: of all processes together, which compute blocks of their own.
    """
    memory_bytes = budget.available_bytes
    first_cold = first_cold_row(task, memory_bytes // processes, max(1, threads // processes))
    if first_cold is None:
        return task
    with budget.reserve("counting sources", scan_bytes(task.index_bytes, memory_bytes)):
        sources = count_sources(dataset_lists(dataset.topology), first_cold, memory_bytes, progress)
    return replace(task, sources=sources)


def require_disk_for(
    task: Task,
    plan: PropagationPlan,
    dataset: Dataset,
    spec: PropagationSpec,
    disk_bytes: int | None,
    folder: Path,
    work: WorkFolder,
) -> None:
    """Raise ConfigError if the tables need more disk than --disk, or than is free."""
    remedies, cold_bytes = [], plan.work_bytes - task.work_bytes
    files = dataset.manifest.files.items()
    num_labelled = sum(entry.num_bytes // 8 for name, entry in files if "/splits/" in name)
    if spec.rows == ALL_ROWS and num_labelled:
        remedies.append((f"--rows {LABELLED_ROWS}", replace(task, num_kept=num_labelled)))
    if spec.dtype == "float32":
        remedies.append(("--dtype float16", replace(task, shape=replace(task.shape, dtype="float16"))))
    if disk_bytes is not None:
        require_disk(task, disk_bytes, "--disk allows", remedies, cold_bytes=cold_bytes)
    free = free_bytes(folder) + work.kept_bytes()
    require_disk(task, free, f"free in {folder}:", remedies, cold_bytes=cold_bytes)
