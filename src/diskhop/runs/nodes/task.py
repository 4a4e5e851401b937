"""Labels and seed nodes of a run that trains on nodes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import keyed_permutation
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.manifest import split_file
from diskhop.errors import ConfigError
from diskhop.protocols import NodeRows, Purpose
from diskhop.runs.choices import Choice
from diskhop.sampling.seeds import SplitSeeds
from diskhop.system.resident import OwnMemory, ResidentMemory

_TRAIN_FRACTION, _VALID_FRACTION = 0.6, 0.2
# Nodes to plan with where labels are not read: plenty for batches as large as a run's.
_MOST_PRESUMED = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class NodeTask:
    """Labels of all nodes, and the nodes that a run trains and measures on.

    labels: see NodeSet.label_rows(). None: they do not fit the budget and were not read; the seeds are as if every node
        had one, so that a plan can still say how much memory would do.
    seeds: the seed nodes of training, validation and test.
    held: bytes of the budget that these take, by name.
    choices: how the split was chosen.
    """

    labels: NDArray[Any] | None
    seeds: SplitSeeds
    held: dict[str, int]
    choices: list[Choice]

    @property
    def num_bytes(self) -> int:
        """Bytes of memory of labels and seeds that were read."""
        return self.seeds.num_bytes + (0 if self.labels is None else int(self.labels.nbytes))


def read_task(
    dataset: Dataset, *, split: int, evaluate: bool, memory_bytes: int, memory: ResidentMemory | None = None
) -> NodeTask:
    """Read labels and seed nodes, if a budget of memory_bytes has room for them. Raises as choose_seeds().

    memory: of processes that call this together, and have one copy of the labels; None for this process alone.
    """
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
        seeds, choices = choose_seeds(dataset, None, split, evaluate)
        if dataset.num_splits == 0:
            seed_bytes = 2 * 8 * num_nodes
        return NodeTask(None, seeds, {"labels": label_bytes, "seeds": seed_bytes}, choices)
    labels = (memory or OwnMemory()).keep(partial(_label_rows, dataset))
    seeds, choices = choose_seeds(dataset, labels, split, evaluate)
    return NodeTask(labels, seeds, {"labels": label_bytes, "seeds": 2 * seeds.num_bytes}, choices)


def _label_rows(dataset: Dataset) -> NDArray[Any]:
    labels = dataset.label_rows()
    assert labels is not None, "a dataset without labels is refused"
    return labels


def choose_seeds(
    dataset: Dataset, labels: NDArray[Any] | None, split: int, evaluate: bool
) -> tuple[SplitSeeds, list[Choice]]:
    """Take a split of the dataset, or draw one, and return it with the reasons.

    labels: None stands for labels of all nodes. Nodes without a label are left out of every part. A dataset without
    splits gets a random one of its labelled nodes, 60 % train, 20 % valid, 20 % test. It depends on the split's number
    alone, so runs with different seeds stay comparable. Raises ConfigError if a part that is used has no labelled node.
    """
    is_labelled = None
    if labels is not None:
        is_labelled = labels >= 0 if labels.ndim == 1 else ~np.isnan(labels).all(axis=1)
    if dataset.num_splits == 0:
        if is_labelled is None:
            labelled = NodeRows(np.arange(0, dataset.num_nodes, -(-dataset.num_nodes // _MOST_PRESUMED)))
        else:
            labelled = NodeRows(np.flatnonzero(is_labelled))
        return _draw(dataset, labelled, split, evaluate)
    choices: list[Choice] = []
    parts = {}
    for name in _parts(evaluate):
        ids = dataset.split_rows(name, split)
        if ids is None and name != "train":
            choices.append(Choice(name, "none", f"the dataset's split has no {name} part"))
            continue
        found = NodeRows(np.empty(0, np.int64)) if ids is None else ids
        parts[name] = _labelled_part(dataset, name, found, is_labelled, choices)
    return SplitSeeds(parts["train"], parts.get("valid"), parts.get("test")), choices


def _parts(evaluate: bool) -> tuple[str, ...]:
    return ("train", "valid", "test") if evaluate else ("train",)


def _labelled_part(
    dataset: Dataset, name: str, ids: NodeRows, is_labelled: NDArray[np.bool_] | None, choices: list[Choice]
) -> NodeRows:
    labelled = ids if is_labelled is None else NodeRows(ids[is_labelled[ids]])
    if len(labelled) == 0:
        raise ConfigError(
            f"{dataset.path}: split '{name}' must have a labelled node, none of its {len(ids)} nodes is; "
            "import the graph again with a split that has some"
        )
    if len(labelled) < len(ids):
        why = f"{len(ids) - len(labelled)} more of the split have no label"
        choices.append(Choice(name, f"{len(labelled)} nodes", why))
    return labelled


def _draw(dataset: Dataset, labelled: NodeRows, number: int, evaluate: bool) -> tuple[SplitSeeds, list[Choice]]:
    if len(labelled) < 3:
        raise ConfigError(
            f"{dataset.path}: a random split needs at least 3 labelled nodes, there are {len(labelled)}; "
            "import a source with more labels, or with a split"
        )
    # Draws of INFER belong to no epoch of a run, so a split shares no key with its batches.
    drawn = labelled[keyed_permutation(len(labelled), number, int(Purpose.INFER), 0)]
    num_train = max(1, int(len(drawn) * _TRAIN_FRACTION))
    num_valid = max(1, int(len(drawn) * _VALID_FRACTION))
    train, valid, test = map(NodeRows, np.split(drawn, [num_train, num_train + num_valid]))
    shown = f"{len(train)} train, {len(valid)} valid, {len(test)} test"
    choice = Choice("split", shown, "random, since the dataset has none")
    return SplitSeeds(train, valid if evaluate else None, test if evaluate else None), [choice]
