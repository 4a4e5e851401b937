"""Seed nodes in every form that users give them: a split, ids, names, a mask, or none for all nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.config.options import require
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.id_map import IdMap
from diskhop.errors import ConfigError
from diskhop.loaders.node_arrays import node_array, require_distinct
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


def resolve_input_nodes(dataset: Dataset, id_map: IdMap, nodes: Any, split: int | None) -> InputNodes:
    """Find the seed nodes, each once. Raises ConfigError for nodes that the dataset does not have, and other values.

    split: number of the split that `nodes` names a part of; None: the first.
    """
    given = _find_nodes(dataset, id_map, nodes, split)
    require(len(given.rows) > 0, "input_nodes", "at least one node", [], "pass ids of nodes, or None for all")
    return given


def _find_nodes(dataset: Dataset, id_map: IdMap, nodes: Any, split: int | None) -> InputNodes:
    if isinstance(nodes, str):
        purposes = {"train": Purpose.TRAIN, "valid": Purpose.VALID, "test": Purpose.TEST}
        if nodes not in purposes:
            raise ConfigError(f"input_nodes '{nodes}' is not a split; the splits are train, valid, test")
        rows = dataset.split_rows(nodes, split or 0)
        if rows is None:
            raise ConfigError(f"{dataset.path}: has no split '{nodes}'; pass node ids as input_nodes")
        return InputNodes(rows, purposes[nodes])
    require(split is None, "split", "left out where input_nodes is no part of one", split, "pass input_nodes='train'")
    if nodes is None:
        return InputNodes(id_map.all_rows(), Purpose.TRAIN)
    if isinstance(nodes, tuple):
        raise ConfigError("input_nodes of one type of a typed graph are not supported; pass ids, a mask or a split")
    ids = node_array("input_nodes", nodes)
    if ids.dtype == np.bool_:
        rows, positions = id_map.rows_of_mask(ids.astype(np.bool_, copy=False), "input_nodes")
        return InputNodes(rows, Purpose.TRAIN, positions)
    require_distinct("input_nodes", ids)
    return InputNodes(id_map.rows(SourceIds(ids), "input_nodes"), Purpose.TRAIN)
