"""Preparing a run on hop tables along paths: the tables are built unless they exist, then placed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.config.typed_hop import TypedHopConfig
from diskhop.dataset.dataset import Dataset
from diskhop.derived.scratch import scratch_path
from diskhop.disk.model import DiskModel
from diskhop.hops.make.propagate import Propagated
from diskhop.hops.path_tables import find_path_tables, path_shape, propagate_paths
from diskhop.hops.paths import PathSpec, require_features
from diskhop.hops.spec import ALL_ROWS, LABELLED_ROWS, find_rows
from diskhop.planning.hops.rank import TablesToRead
from diskhop.runs.callbacks import Callback
from diskhop.runs.feeds import PreparedRun
from diskhop.runs.nodes.hops import prepare_hops
from diskhop.runs.nodes.task import NodeTask
from diskhop.runs.typed.target import reversed_types


def path_spec(dataset: Dataset, config: TypedHopConfig, budget: Budget) -> PathSpec:
    """Return the tables that a run reads; see propagation_spec()."""
    of_all = PathSpec(
        target=config.target,
        paths=config.paths,
        reversed_types=reversed_types(config.reverse),
        dtype=config.dtype,
        rows=ALL_ROWS,
    )
    if not dataset.nodes[config.target].num_splits:
        return of_all
    labelled, scratch = replace(of_all, rows=LABELLED_ROWS), Path(config.scratch) if config.scratch else None
    are_there = [find_path_tables(dataset, spec, scratch, budget) is not None for spec in (labelled, of_all)]
    return of_all if are_there == [False, True] else labelled


def prepare_typed_hops(
    dataset: Dataset, config: TypedHopConfig, task: NodeTask, budget: Budget, callback: Callback
) -> PreparedRun:
    """Build the tables unless they exist, and choose where to train from. Raises as propagate_paths(); BudgetError."""
    labelled = dataset.of_node_type(config.target)
    return prepare_hops(labelled, config, task, budget, callback, partial(_make_tables, dataset))


def _make_tables(
    dataset: Dataset, _labelled: Dataset, config: TypedHopConfig, budget: Budget, engine: Engine, callback: Callback
) -> Propagated:
    callback.announced(f"Averaging along paths before training: {'; '.join(config.paths)}")
    return propagate_paths(
        dataset,
        path_spec(dataset, config, budget),
        budget,
        engine=engine,
        threads=config.threads,
        disk=config.disk_bytes or None,
        scratch=config.scratch or None,
        progress=callback.prepared,
    )


def tables_along_paths(dataset: Dataset, config: TypedHopConfig, budget: Budget, disk: DiskModel) -> TablesToRead:
    """Return the tables that a run would read, for plans: nothing is built."""
    spec = path_spec(dataset, config, budget)
    require_features(dataset, spec.target, f"--target {spec.target}: the first table")
    paths, rows = spec.parsed(dataset), find_rows(dataset.of_node_type(spec.target), spec.rows, budget)
    num_rows = dataset.nodes[spec.target].num_nodes if rows is None else len(rows)
    shape = path_shape(dataset, spec, paths, num_rows)
    num_bytes = len(paths) * shape.num_bytes
    lists_bytes = sum(4 * spec.types(dataset).edges[step].num_edges for path in paths for step in path.steps)
    seconds = disk.sequential_seconds(lists_bytes + num_bytes, num_bytes)
    return TablesToRead(shape, len(paths), scratch_path(dataset.path, config.scratch or None), seconds, num_bytes)
