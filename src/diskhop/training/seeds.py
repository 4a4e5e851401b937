"""Which nodes a run trains on and is measured by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskhop._native import keyed_permutation
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.protocols import NodeIds, Purpose

_TRAIN_FRACTION, _VALID_FRACTION = 0.6, 0.2


@dataclass(frozen=True, slots=True, eq=False)
class SplitSeeds:
    """Labelled nodes to train on, to choose the best model by, to report on; None: the dataset has no such part."""

    train: NodeIds
    valid: NodeIds | None
    test: NodeIds | None

    @property
    def num_bytes(self) -> int:
        """Memory that the ids take."""
        return sum(ids.nbytes for ids in (self.train, self.valid, self.test) if ids is not None)


def choose_seeds(dataset: Dataset, split: int, evaluate: bool) -> tuple[SplitSeeds, list[str]]:
    """Take a split of the dataset, or draw one, and say what was done.

    Nodes without a label are left out of every part. A dataset without splits gets a random one of its labelled
    nodes, 60 % train, 20 % valid, 20 % test, which depends on the split's number alone: runs with different
    seeds stay comparable. Raises ConfigError if there are no labels or a part that is used has no labelled node.
    """
    labels = dataset.labels()
    if labels is None:
        raise ConfigError(f"{dataset.path}: has no labels, which training needs; import a source with labels ('y')")
    is_labelled = labels >= 0 if labels.ndim == 1 else ~np.isnan(labels).all(axis=1)
    if dataset.num_splits == 0:
        return _draw(dataset, np.flatnonzero(is_labelled), split, evaluate)
    reasons: list[str] = []
    parts = {}
    for name in ("train", "valid", "test") if evaluate else ("train",):
        ids = dataset.split(name, split)
        if ids is None and name != "train":
            reasons.append(f"no {name}: the dataset's split has no such part")
            continue
        parts[name] = _labelled_part(dataset, name, np.empty(0, np.int64) if ids is None else ids, is_labelled, reasons)
    return SplitSeeds(parts["train"], parts.get("valid"), parts.get("test")), reasons


def _labelled_part(
    dataset: Dataset, name: str, ids: NodeIds, is_labelled: NDArray[np.bool_], reasons: list[str]
) -> NodeIds:
    labelled = ids[is_labelled[ids]]
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
