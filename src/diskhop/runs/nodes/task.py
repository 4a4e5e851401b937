"""Which nodes a run trains on and is measured by, and their labels: what a run keeps of the graph from start to end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import keyed_permutation
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.manifest import split_file
from diskhop.errors import ConfigError
from diskhop.protocols import NodeIds, Purpose
from diskhop.sampling.seeds import SplitSeeds

_TRAIN_FRACTION, _VALID_FRACTION = 0.6, 0.2
# Of all nodes, where none is read: plenty for batches as large as those of a run.
_MOST_PRESUMED = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class NodeTask:
    """Labels (see Dataset.labels()) and seeds, what they hold of the budget by name, and what was done to get them.

    labels None: they do not fit the budget and were not read; the seeds are as if every node had one, so that a plan
    can still say how much would do.
    """

    labels: NDArray[Any] | None
    seeds: SplitSeeds
    held: dict[str, int]
    reasons: list[str]


def read_task(dataset: Dataset, *, split: int, evaluate: bool, memory_bytes: int) -> NodeTask:
    """Read labels and seeds, if a budget of memory_bytes has room for them. Raises as choose_seeds."""
    num_nodes = dataset.num_nodes
    name = next(iter(dataset.nodes))
    if dataset.manifest.node_types[name].labels is None:
        raise ConfigError(f"{dataset.path}: has no labels, which training needs; import a source with labels ('y')")
    label_bytes = num_nodes * (4 * dataset.num_tasks or 8)
    files = dataset.manifest.files
    paths = [split_file(name, part, split, dataset.num_splits) for part in _parts(evaluate)]
    # An epoch's order is a second copy.
    seed_bytes = 2 * sum(files[path].num_bytes for path in paths if path in files)
    if label_bytes + seed_bytes > memory_bytes:
        seeds, reasons = choose_seeds(dataset, None, split, evaluate)
        if dataset.num_splits == 0:
            seed_bytes = 2 * 8 * num_nodes
        return NodeTask(None, seeds, {"labels": label_bytes, "seeds": seed_bytes}, reasons)
    labels = dataset.labels()
    seeds, reasons = choose_seeds(dataset, labels, split, evaluate)
    return NodeTask(labels, seeds, {"labels": label_bytes, "seeds": 2 * seeds.num_bytes}, reasons)


def choose_seeds(
    dataset: Dataset, labels: NDArray[Any] | None, split: int, evaluate: bool
) -> tuple[SplitSeeds, list[str]]:
    """Take a split of the dataset, or draw one, and say what was done. labels None: as if every node had one.

    Nodes without a label are left out of every part. A dataset without splits gets a random one of its labelled
    nodes, 60 % train, 20 % valid, 20 % test, which depends on the split's number alone: runs with different
    seeds stay comparable. Raises ConfigError if a part that is used has no labelled node.
    """
    is_labelled = None
    if labels is not None:
        is_labelled = labels >= 0 if labels.ndim == 1 else ~np.isnan(labels).all(axis=1)
    if dataset.num_splits == 0:
        if is_labelled is None:
            labelled = np.arange(0, dataset.num_nodes, -(-dataset.num_nodes // _MOST_PRESUMED))
        else:
            labelled = np.flatnonzero(is_labelled)
        return _draw(dataset, labelled, split, evaluate)
    reasons: list[str] = []
    parts = {}
    for name in _parts(evaluate):
        ids = dataset.split(name, split)
        if ids is None and name != "train":
            reasons.append(f"no {name}: the dataset's split has no such part")
            continue
        parts[name] = _labelled_part(dataset, name, np.empty(0, np.int64) if ids is None else ids, is_labelled, reasons)
    return SplitSeeds(parts["train"], parts.get("valid"), parts.get("test")), reasons


def _parts(evaluate: bool) -> tuple[str, ...]:
    return ("train", "valid", "test") if evaluate else ("train",)


def _labelled_part(
    dataset: Dataset, name: str, ids: NodeIds, is_labelled: NDArray[np.bool_] | None, reasons: list[str]
) -> NodeIds:
    labelled = ids if is_labelled is None else ids[is_labelled[ids]]
    if len(labelled) == 0:
        raise ConfigError(
            f"{dataset.path}: split '{name}' must have a labelled node, none of its {len(ids)} nodes is; "
            "import the graph again with a split that has some"
        )
    if len(labelled) < len(ids):
        reasons.append(f"{name} on {len(labelled)} nodes: {len(ids) - len(labelled)} more of the split have no label")
    return labelled


def _draw(dataset: Dataset, labelled: NodeIds, number: int, evaluate: bool) -> tuple[SplitSeeds, list[str]]:
    if len(labelled) < 3:
        raise ConfigError(f"{dataset.path}: drawing a split takes at least 3 labelled nodes, there are {len(labelled)}")
    # Draws of INFER belong to no epoch of a run: a split shares no key with its batches.
    drawn = labelled[keyed_permutation(len(labelled), number, int(Purpose.INFER), 0)]
    num_train = max(1, int(len(drawn) * _TRAIN_FRACTION))
    num_valid = max(1, int(len(drawn) * _VALID_FRACTION))
    train, valid, test = np.split(drawn, [num_train, num_train + num_valid])
    reason = f"split {len(train)} train, {len(valid)} valid, {len(test)} test: drawn at random, the dataset has none"
    return SplitSeeds(train, valid if evaluate else None, test if evaluate else None), [reason]
