"""Labelled nodes that a trained classifier's outputs are measured on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.predicting.metrics.outputs import kind_of
from diskhop.protocols import NodeRows
from diskhop.runs.nodes.opened import OpenClassifier
from diskhop.runs.nodes.task import read_task

ALL = "all"


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredParts:
    """Truth that outputs are compared with.

    labels: of all nodes; see NodeSet.label_rows().
    parts: rows of the labelled nodes of each part of the split; of all labelled nodes where there is none.
    held: bytes of memory that these take, by name.
    notes: lines about what is measured.
    """

    labels: NDArray[Any]
    parts: Mapping[str, NodeRows]
    held: Mapping[str, int]
    notes: tuple[str, ...] = ()


def read_measured_parts(opened: OpenClassifier, dataset: Dataset, part: str | None, budget: Budget) -> MeasuredParts:
    """Read the labels of a dataset, and the part of its split that is measured; None: every part.

    Without a split, the run's own dataset has that of its training. Raises ConfigError without any labels, or without
    that part; BudgetError if labels do not fit.
    """
    if dataset.hash != opened.dataset_hash and dataset.num_splits == 0:
        return _all_labelled(dataset, part, budget)
    task = read_task(dataset, split=opened.config.split, evaluate=True, memory_bytes=budget.total_bytes)
    budget.require(task.held)
    assert task.labels is not None, "labels that fit the budget are read"
    seeds = {"train": task.seeds.train, "valid": task.seeds.valid, "test": task.seeds.test}
    parts = {name: rows for name, rows in seeds.items() if rows is not None and part in (None, name)}
    if not parts:
        raise ConfigError(f"{dataset.path}: has no part '{part}'; use another --part, such as train")
    return MeasuredParts(task.labels, parts, task.held)


def _all_labelled(dataset: Dataset, part: str | None, budget: Budget) -> MeasuredParts:
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
    return MeasuredParts(labels, {ALL: rows}, held, (note,))
