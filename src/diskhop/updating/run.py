"""Runs an update: opens the delta, estimates, reads, merges, and publishes the next generation.

One pass over the edge lists, plus work in proportion to the delta; features are appended in place. The old generation
is the dataset's until the new one is durable, and its files stay until the next update.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from diskhop._native import Engine
from diskhop.budget import Budget, format_bytes
from diskhop.dataset.build.files import WRITER_BYTES
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.disk.probe import remembered_model
from diskhop.importing.estimate import format_seconds
from diskhop.importing.evidence.decisions import Decision
from diskhop.importing.options import ImportOptions
from diskhop.importing.tools import ImportLimits, ImportTools
from diskhop.io.atomic import Injector, require_free_space
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import TaskTools, WorkFolder
from diskhop.system.memory import default_memory_bytes, default_threads
from diskhop.updating.delta import NO_NODES, DeltaNodes, DeltaSource
from diskhop.updating.edges import EdgeUpdate, merge_bytes
from diskhop.updating.generation import NewGeneration
from diskhop.updating.nodes import NodeUpdate
from diskhop.updating.options import EdgeRules, require_plain
from diskhop.updating.tables import DeltaTables

# Edges per second that are merged on one core, and rows per second that are taken from tables, measured.
_MERGED_EDGES, _TABLE_ROWS = 60e6, 1e6
_LEAST_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateEstimate:
    """Prediction for one update.

    delta_bytes: files of the delta. read_bytes: bytes read of the dataset. written_bytes: bytes of new files and rows.
    seconds: duration.
    """

    delta_bytes: int
    read_bytes: int
    written_bytes: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{format_bytes(self.delta_bytes)} to apply: about {format_bytes(self.read_bytes)} of the dataset read, "
            f"{format_bytes(self.written_bytes)} written, {format_seconds(self.seconds)}"
        )


def update_dataset(
    path: Path,
    delta: Path,
    *,
    options: ImportOptions | None = None,
    engine: Engine,
    budget: Budget | None = None,
    threads: int | None = None,
    limits: ImportLimits | None = None,
    injector: Injector | None = None,
    progress: Progress | None = None,
    on_decisions: Callable[[Sequence[Decision]], None] | None = None,
    on_estimate: Callable[[UpdateEstimate], None] | None = None,
    on_facts: Callable[[Mapping[str, Any]], None] | None = None,
) -> Dataset:
    """Apply a delta to a dataset, and open the result.

    options: those of OF_DELTAS; None everywhere: as the tables look.
    Other arguments are those of import_graph(); see importing/run.py.

    Raises SourceError for a delta that breaks a rule, ConfigError for a dataset that cannot be updated, BudgetError,
    DestinationError for a full disk. The dataset is then as it was, but where a WriteError says that the update is
    applied. So it is with a delta without rows.
    """
    options, progress = options or ImportOptions(), progress or silent
    budget = budget or Budget(default_memory_bytes())
    threads = threads or default_threads()
    require_plain(open_dataset(path))
    with WorkFolder(path, injector) as folder, ExitStack() as held:
        folder.lock()
        # Only now: another update may just have ended.
        dataset = open_dataset(path)
        source = DeltaTables(delta, dataset, options)
        rules = EdgeRules.of(options, dataset, has_edges=source.num_added + source.num_removed > 0)
        least = merge_bytes((2 if rules.undirected else 1) * (source.num_added + source.num_removed))
        budget.require({"writing files": WRITER_BYTES, "merging edges": least})
        estimate = estimate_update(
            dataset, source, rules, remembered_model(path, engine.name).sequential_write_bytes_per_second
        )
        what = f"the update, with {format_bytes(estimate.written_bytes)} of new files,"
        require_free_space(path, estimate.written_bytes, what)
        if on_decisions is not None:
            on_decisions(source.decisions)
        if on_estimate is not None:
            on_estimate(estimate)
        tools = TaskTools(engine, injector)
        work = ImportTools(folder, tools, budget, threads, progress, held, limits=limits or ImportLimits())
        found = source.read(work)
        if not (len(found.nodes) or len(found.added) or len(found.removed)):
            # A job of every night may have nothing to do.
            folder.remove()
            _tell(on_facts, dataset)
            return dataset
        held.enter_context(budget.reserve("writing files", WRITER_BYTES))
        with NewGeneration(dataset, engine, injector) as new:
            nodes = NodeUpdate(new, found.nodes, work)
            edges = EdgeUpdate(new, found.added, found.removed, nodes.info.count, rules, work)
            edge_type = edges.write()
            node_type = nodes.write()
            manifest = replace(
                dataset.manifest,
                node_types={dataset.only_nodes.name: node_type},
                edge_types={dataset.only_edges.name: edge_type},
                names=nodes.num_names,
            )
            updated = new.publish(manifest)
        # The update is durable: an error would say that it failed. The next one removes the folder.
        with suppress(OSError):
            folder.remove()
    _tell(on_facts, updated, found.nodes, edges.num_added, edges.num_removed)
    return updated


def _tell(
    on_facts: Callable[[Mapping[str, Any]], None] | None,
    updated: Dataset,
    nodes: DeltaNodes = NO_NODES,
    num_added: int = 0,
    num_removed: int = 0,
) -> None:
    if on_facts is not None:
        on_facts(
            {
                "generation": updated.manifest.generation,
                "nodes_added": nodes.num_new,
                "nodes_changed": len(nodes) - nodes.num_new,
                "edges_added": num_added,
                "edges_removed": num_removed,
            }
        )


def estimate_update(dataset: Dataset, source: DeltaSource, rules: EdgeRules, bytes_per_second: float) -> UpdateEstimate:
    """Predict what a delta takes."""
    files, (info,) = dataset.manifest.files, dataset.manifest.node_types.values()
    of_edges = sum(entry.num_bytes for path, entry in files.items() if path.startswith("edges/"))
    num_edges = max(1, dataset.num_edges)
    added = (2 if rules.undirected else 1) * source.num_added
    of_nodes = sum(
        entry.num_bytes
        for path, entry in files.items()
        if not path.startswith("edges/") and not path.endswith("features.bin") and source.num_nodes
    )
    rows = source.num_nodes * (info.features.row_stride if info.features is not None else 0)
    merges = source.num_added or source.num_removed or source.num_nodes
    read_bytes = (of_edges if merges else 0) + of_nodes
    written_bytes = read_bytes + rows + of_edges * added // num_edges
    table_rows = source.num_added + source.num_removed + source.num_nodes
    seconds = num_edges / _MERGED_EDGES + table_rows / _TABLE_ROWS + written_bytes / bytes_per_second
    return UpdateEstimate(
        delta_bytes=source.num_bytes,
        read_bytes=read_bytes,
        written_bytes=written_bytes,
        seconds=_LEAST_SECONDS + seconds,
    )
