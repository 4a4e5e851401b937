"""Seed nodes in every form that users give them: a split, ids, names, a mask, or none for all nodes."""

from __future__ import annotations

import numbers
import reprlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.config.options import require
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.id_map import IdMap
from diskhop.dataset.names import Names
from diskhop.errors import ConfigError
from diskhop.loaders.node_arrays import node_array, require_no_mask
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


def resolve_input_nodes(
    dataset: Dataset, id_map: IdMap, nodes: Any, split: int | None, input_id: Any = None
) -> InputNodes:
    """Find the seed nodes. Raises ConfigError for nodes that the dataset does not have, and other values.

    split: number of the split that `nodes` names a part of; None: the first.
    input_id: what `input_id` of a batch tells of each seed; None: as in InputNodes.
    """
    given = _find_nodes(dataset, id_map, _of_type(dataset, nodes), split)
    if len(given.rows) == 0:
        what = f"the part '{nodes}' of the split has none" if isinstance(nodes, str) else "the mask has none"
        raise ConfigError(f"input_nodes must have at least one node, and {what}; pass ids, or None for all nodes")
    if input_id is None:
        return given
    ids = node_array("input_id", input_id)
    is_fit = ids.dtype != np.bool_ and len(ids) == len(given.rows)
    hint = "pass one number per node"
    require(is_fit, "input_id", f"{len(given.rows)} whole numbers, as many as nodes", input_id, hint)
    return replace(given, input_ids=ids)


def _of_type(dataset: Dataset, nodes: Any) -> Any:
    """Return the nodes of the only type of a typed graph, which PyG takes as 'type' or ('type', nodes)."""
    if not dataset.is_typed:
        return nodes
    name = dataset.only_nodes.name
    if isinstance(nodes, str) and nodes == name:
        return None
    if not isinstance(nodes, tuple | list) or len(nodes) != 2 or not isinstance(nodes[0], str) or _are_names(nodes):
        return nodes
    if nodes[0] != name:
        raise ConfigError(
            f"input_nodes are of type '{nodes[0]}', and the nodes of {dataset.path} are '{name}'; pass ('{name}', ids)"
        )
    return nodes[1]


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
    if isinstance(nodes, tuple) and nodes and not isinstance(nodes[0], numbers.Integral):
        raise ConfigError(
            f"input_nodes {reprlib.repr(nodes)} are of a typed graph, and the nodes of {dataset.path} have no type; "
            "pass ids, a mask or a split"
        )
    if _are_names(nodes):
        names = Names(dataset, "nodes", dataset.num_nodes)
        if not names.are_given:
            raise ConfigError(
                f"input_nodes are names, and the nodes of {dataset.path} have none; pass ids, such as "
                f"{id_map.all_ids()[:1].tolist()}"
            )
        nodes = np.sort(id_map.all_ids())[names.find_all(list(map(str, nodes)))]
    ids = node_array("input_nodes", nodes)
    if ids.dtype == np.bool_:
        rows, positions = id_map.rows_of_mask(ids.astype(np.bool_, copy=False), "input_nodes")
        return InputNodes(rows, Purpose.TRAIN, positions)
    require_no_mask("input_nodes", ids, dataset.num_nodes)
    return InputNodes(id_map.rows(SourceIds(ids), "input_nodes"), Purpose.TRAIN)


def _are_names(nodes: Any) -> bool:
    """Check for names of nodes, in a list or an array of text."""
    if isinstance(nodes, np.ndarray):
        return nodes.dtype.kind == "U" and nodes.ndim == 1
    return isinstance(nodes, list) and len(nodes) > 0 and all(isinstance(each, str) for each in nodes)
