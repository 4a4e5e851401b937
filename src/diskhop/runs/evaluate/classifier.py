"""Evaluating a node classifier: its outputs for all nodes, measured on every part of the split."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.budget import Budget, parse_sizes
from diskhop.config.options import require_known
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.manifest import SPLIT_NAMES
from diskhop.errors import ConfigError
from diskhop.io.atomic import write_file
from diskhop.predicting.metrics.measure import Progress, least_memory, measure_outputs
from diskhop.predicting.metrics.outputs import kind_of
from diskhop.predicting.rows import RowTable
from diskhop.protocols import NodeRows
from diskhop.run_files import EVALUATION_FILE
from diskhop.runs.nodes.opened import OpenClassifier, open_classifier
from diskhop.runs.nodes.task import read_task
from diskhop.runs.result import describe_run, measure_memory
from diskhop.system.memory import resident_bytes

ALL = "all"
# Computes the logits of all nodes and opens them; memory for the work is reserved of the budget, and released. The last
# argument: memory by name that measuring them needs.
OpenLogits = Callable[[OpenClassifier, Dataset, Budget, Mapping[str, int]], AbstractContextManager[RowTable]]


@dataclass(frozen=True, slots=True, eq=False)
class _Measured:
    """Truth that outputs are compared with: labels of all nodes, rows of each part, and bytes of memory by name."""

    labels: NDArray[Any]
    parts: Mapping[str, NodeRows]
    held: Mapping[str, int]
    notes: tuple[str, ...] = ()


def evaluate_classifier(
    run: Path | str,
    open_logits: OpenLogits,
    *,
    dataset: Dataset | Path | str | None = None,
    part: str | None = None,
    memory: int | str | None = None,
    progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """Measure a run's best model on each part of the split, and write the result to RUN/evaluation.json.

    open_logits: computes the logits; called once everything else is known to fit.
    dataset: by default the one that the run was trained on; another must fit the run's schema.
    part: train, valid or test; None for all that the dataset has.
    memory: bytes or a size such as '2GB'; default: the run's.
    progress: called with rows measured and in total.
    Returns the run, the dataset, metrics by part (see measure_outputs()), and memory. Raises ConfigError, BudgetError.
    """
    if part is not None:
        require_known("part", part, SPLIT_NAMES)
    opened = open_classifier(run)
    graph = opened.open_dataset(dataset)
    opened.require_fit(graph)
    budget = Budget(parse_sizes(memory=memory).get("memory_bytes", opened.config.memory_bytes))
    measured = _read_parts(opened, graph, part, budget)
    names = graph.names("classes")
    with ExitStack() as held:
        for name, num_bytes in measured.held.items():
            held.enter_context(budget.reserve(name, num_bytes))
        before_bytes = resident_bytes("VmRSS")
        later = least_memory(measured.labels, measured.parts, opened.schema.num_outputs)
        table = held.enter_context(open_logits(opened, graph, budget, later))
        parts = measure_outputs(table, measured.labels, measured.parts, budget, class_names=names, progress=progress)
    result = {
        **describe_run(opened.kind, graph, opened.config.model, opened.config.seed),
        "run": str(opened.path),
        "trained_on": opened.dataset_hash,
        "outputs": {"kind": kind_of(measured.labels).plural, "count": opened.schema.num_outputs},
        "parts": parts,
        "notes": list(measured.notes),
        **measure_memory(before_bytes, budget),
    }
    write_file(opened.path / EVALUATION_FILE, (json.dumps(result, indent=1) + "\n").encode())
    return result


def _read_parts(opened: OpenClassifier, dataset: Dataset, part: str | None, budget: Budget) -> _Measured:
    """Read labels and parts. Raises ConfigError without any, BudgetError if labels do not fit."""
    if dataset.hash != opened.dataset_hash and dataset.num_splits == 0:
        return _all_labelled(dataset, part, budget)
    task = read_task(dataset, split=opened.config.split, evaluate=True, memory_bytes=budget.total_bytes)
    budget.require(task.held)
    assert task.labels is not None, "labels that fit the budget are read"
    seeds = {"train": task.seeds.train, "valid": task.seeds.valid, "test": task.seeds.test}
    parts = {name: rows for name, rows in seeds.items() if rows is not None and part in (None, name)}
    if not parts:
        raise ConfigError(f"{dataset.path}: has no part '{part}'; use another --part, such as train")
    return _Measured(task.labels, parts, task.held)


def _all_labelled(dataset: Dataset, part: str | None, budget: Budget) -> _Measured:
    """Take all labelled nodes of a dataset without a split that is not the run's own."""
    if part is not None:
        raise ConfigError(f"{dataset.path}: has no split, and no part '{part}'; remove --part to measure all labels")
    per_row = 4 * dataset.num_tasks or 8
    held = {"labels": per_row * dataset.num_nodes, "seeds": 8 * dataset.num_nodes}
    budget.require(held)
    labels = dataset.label_rows()
    if labels is None:
        raise ConfigError(f"{dataset.path}: has no labels to compare predictions with; import a source with labels")
    rows = NodeRows(np.flatnonzero(kind_of(labels).is_labelled(labels)))
    note = "The dataset has no split: all labelled nodes are measured, which may include nodes of the training"
    return _Measured(labels, {ALL: rows}, held, (note,))
