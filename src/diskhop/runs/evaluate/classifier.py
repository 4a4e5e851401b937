"""Evaluating a node classifier: its outputs for all nodes, measured on every part of the split."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from diskhop.budget import Budget, parse_sizes
from diskhop.config.options import require_known
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.manifest import SPLIT_NAMES
from diskhop.io.atomic import write_file
from diskhop.predicting.metrics.measure import Progress, least_memory, measure_outputs
from diskhop.predicting.metrics.measure_values import measure_values
from diskhop.predicting.rows import RowTable
from diskhop.run_files import EVALUATION_FILE
from diskhop.runs.nodes.measured import read_measured_parts
from diskhop.runs.nodes.objective import KIND_OF_TASK
from diskhop.runs.nodes.opened import OpenClassifier, open_classifier
from diskhop.runs.result import describe_run, measure_memory
from diskhop.system.memory import resident_bytes

# Computes the logits of all nodes and opens them; memory for the work is reserved of the budget, and released. The last
# argument: memory by name that measuring them needs.
OpenLogits = Callable[[OpenClassifier, Dataset, Budget, Mapping[str, int]], AbstractContextManager[RowTable]]


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
    nodes = opened.nodes_of(graph)
    measured = read_measured_parts(opened, nodes, part, budget)
    names = nodes.names("classes")
    with ExitStack() as held:
        for name, num_bytes in measured.held.items():
            held.enter_context(budget.reserve(name, num_bytes))
        before_bytes = resident_bytes("VmRSS")
        later = least_memory(measured.labels, measured.parts, opened.schema.num_outputs)
        table = held.enter_context(open_logits(opened, graph, budget, later))
        if opened.scaling is not None:
            parts = measure_values(table, measured.labels, measured.parts, budget, opened.scaling, progress=progress)
        else:
            parts = measure_outputs(
                table, measured.labels, measured.parts, budget, class_names=names, progress=progress
            )
    result = {
        **describe_run(opened.kind, graph, opened.config.model, opened.config.seed),
        "run": str(opened.path),
        "trained_on": opened.dataset_hash,
        "outputs": {"kind": KIND_OF_TASK[opened.config.task], "count": opened.schema.num_outputs},
        "parts": parts,
        "notes": list(measured.notes),
        **measure_memory(before_bytes, budget),
    }
    write_file(opened.path / EVALUATION_FILE, (json.dumps(result, indent=1) + "\n").encode())
    return result
