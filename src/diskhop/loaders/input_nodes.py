"""Seed nodes in every form that users give them: a split, ids, names, a mask, or none for all nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from diskhop.dataset.dataset import Dataset
from diskhop.dataset.id_map import IdMap
from diskhop.errors import ConfigError
from diskhop.protocols import NodeRows, Purpose, SourceIds


@dataclass(frozen=True, slots=True, eq=False)
class InputNodes:
    """Seed nodes as a user gave them.

    rows: their rows in the dataset, in the order given.
    purpose: the use of their draws.
    input_ids: what `input_id` of a batch tells of each seed; None: its position in `rows`. For a mask, it is the
        position in the mask.
    """

    rows: NodeRows
    purpose: Purpose
    input_ids: NDArray[np.int64] | None = None


def resolve_input_nodes(dataset: Dataset, id_map: IdMap, nodes: Any, split: int) -> InputNodes:
    """Find the seed nodes. Raises ConfigError for nodes that the dataset does not have, and for other values."""
    if isinstance(nodes, str):
        purposes = {"train": Purpose.TRAIN, "valid": Purpose.VALID, "test": Purpose.TEST}
        if nodes not in purposes:
            raise ConfigError(f"input_nodes '{nodes}' is not a split; the splits are train, valid, test")
        rows = dataset.split_rows(nodes, split)
        if rows is None:
            raise ConfigError(f"{dataset.path}: has no split '{nodes}'; pass node ids as input_nodes")
        return InputNodes(rows, purposes[nodes])
    if nodes is None:
        return InputNodes(id_map.all_rows(), Purpose.TRAIN)
    if isinstance(nodes, tuple):
        raise ConfigError("input_nodes of one type of a typed graph are not supported; pass ids, a mask or a split")
    ids = nodes.numpy() if isinstance(nodes, torch.Tensor) else np.asarray(nodes)
    if ids.dtype == np.bool_:
        rows, positions = id_map.rows_of_mask(ids, "input_nodes")
        return InputNodes(rows, Purpose.TRAIN, positions)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise ConfigError(f"input_nodes must be one-dimensional integer ids, got shape {ids.shape} of {ids.dtype}")
    return InputNodes(id_map.rows(SourceIds(ids.astype(np.int64)), "input_nodes"), Purpose.TRAIN)
