"""Advice of a run on nodes: a line on what to try where neighbours or labels make a graph hard.

Adjusted homophily (Platonov et al., 2023) is the share of edges within a class beyond chance: 1 if all are, about 0 if
a neighbour's class says nothing. Only labels of training and validation nodes are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskhop.config.train import TrainConfig
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.files import map_array
from diskhop.runs.choices import Choice
from diskhop.runs.nodes.task import NodeTask

# Lists of neighbours that are read, and neighbours of each: some pages of the files, whatever the graph's size.
_MOST_LISTS, _MOST_NEIGHBORS = 500, 50
_FEWEST_EDGES = 100
_LITTLE_HOMOPHILY = 0.2
_DOMINATING_SHARE = 0.75
_FEW_NODES = 5
_MANY_LAYERS = 5
_ADVICE = "advice"
_SHOWN_CLASSES = 5


@dataclass(frozen=True, slots=True, eq=False)
class LabelFacts:
    """Facts about classes and neighbours.

    num_train: training nodes of each class, int64 (classes).
    homophily: adjusted homophily of a sample of edges; None if too few of them have labels at both ends.
    num_edges: edges of that sample.
    """

    num_train: NDArray[np.int64]
    homophily: float | None
    num_edges: int


def read_label_facts(dataset: Dataset, task: NodeTask) -> LabelFacts | None:
    """Read the facts; None for labels that are no classes, or were not read. Raises ReadError."""
    if task.labels is None or task.labels.ndim != 1:
        return None
    num_train = np.bincount(task.labels[task.seeds.train], minlength=dataset.num_classes)
    source, destination = _sample_edges(dataset, task)
    homophily = adjusted_homophily(source, destination) if len(source) >= _FEWEST_EDGES else None
    return LabelFacts(num_train, homophily, len(source))


def adjusted_homophily(source: NDArray[np.int64], destination: NDArray[np.int64]) -> float | None:
    """Return the adjusted homophily of edges, given the classes of their ends; None if all are of one class."""
    ends = np.bincount(np.concatenate([source, destination]))
    by_chance = float(((ends / ends.sum()) ** 2).sum())
    if by_chance == 1:
        return None
    return (float((source == destination).mean()) - by_chance) / (1 - by_chance)


def _sample_edges(dataset: Dataset, task: NodeTask) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the classes of the ends of some edges between training and validation nodes."""
    assert task.labels is not None
    seeds = task.seeds
    known = np.zeros(dataset.num_nodes, bool)
    for part in (seeds.train, seeds.valid):
        if part is not None:
            known[part] = True
    rows = np.flatnonzero(known)
    rows = rows[np.arange(min(len(rows), _MOST_LISTS)) * len(rows) // max(1, min(len(rows), _MOST_LISTS))]
    files = dataset.only_edges.topology
    indptr = map_array(files.indptr_path, np.int64, files.num_nodes + 1)
    indices = map_array(files.indices_path, files.index_dtype, files.num_edges)
    lists = [indices[indptr[row] : min(indptr[row + 1], indptr[row] + _MOST_NEIGHBORS)] for row in rows]
    source = np.concatenate([np.empty(0, np.int64), *lists]).astype(np.int64)
    destination = np.repeat(rows, [len(each) for each in lists])
    # A node says nothing about itself. A damaged list is found where it is read whole.
    is_used = (source != destination) & (source < dataset.num_nodes)
    source, destination = source[is_used], destination[is_used]
    is_used = known[source]
    return task.labels[source[is_used]], task.labels[destination[is_used]]


def advise(facts: LabelFacts, config: TrainConfig) -> Iterator[Choice]:
    """Yield a line for each difficulty that the options do not meet yet."""
    num_train, num_classes = facts.num_train, len(facts.num_train)
    if facts.homophily is not None and facts.homophily < _LITTLE_HOMOPHILY:
        is_deep = config.model == "sage" and config.layers >= _MANY_LAYERS
        way = "" if is_deep else f"--model sage --layers {_MANY_LAYERS} --residual, or "
        why = f"adjusted homophily {facts.homophily:.2f} of {facts.num_edges:,} edges: neighbours often differ"
        yield Choice(_ADVICE, "heterophilous", f"{why}; try {way}--tune 10")
    missing = np.flatnonzero(num_train == 0)
    if len(missing):
        shown = ", ".join(map(str, missing[:_SHOWN_CLASSES])) + (" ..." if len(missing) > _SHOWN_CLASSES else "")
        why = f"{len(missing)} of {num_classes} classes have no training node and are never predicted: {shown}"
        yield Choice(_ADVICE, "classes missing", f"{why}; import a split with some of each")
    num_few = int(((num_train > 0) & (num_train < _FEW_NODES)).sum())
    share = float(num_train.max() / max(1, num_train.sum()))
    is_plain = config.metric == "accuracy" and not config.class_weights
    if num_few and is_plain:
        why = f"{num_few} of {num_classes} classes have under {_FEW_NODES} training nodes"
        yield Choice(_ADVICE, "rare classes", f"{why}; if they matter: --class-weights balanced --metric f1_macro")
    elif share >= _DOMINATING_SHARE and is_plain and num_classes > 1:
        metric = "auc" if num_classes == 2 else "f1_macro"
        why = f"class {int(num_train.argmax())} has {share:.0%} of the training nodes, and always predicting it as much"
        yield Choice(_ADVICE, "one large class", f"{why} accuracy; try --metric {metric} --class-weights balanced")
