"""Arguments of NeighborLoader: those of PyTorch Geometric that it refuses, and seed nodes and samplers in any form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.protocols import NodeIds, Purpose, SamplerSpec, neighbor_spec
from diskhop.runtime.blocks import row_ranges

# PyG's arguments without a meaning here: the values that change nothing, and the reason to refuse any other.
_REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "input_time": ((None,), "temporal sampling is not supported"),
    "replace": ((False,), "draws are without replacement"),
    "subgraph_type": (("directional",), "only 'directional' subgraphs are sampled"),
    "disjoint": ((False,), "disjoint subgraphs are not supported"),
    "temporal_strategy": (("uniform",), "temporal sampling is not supported"),
    "time_attr": ((None,), "temporal sampling is not supported"),
    "weight_attr": ((None,), "neighbours are drawn uniformly"),
    "transform_sampler_output": ((None,), "use transform, which gets the finished batch"),
    "is_sorted": ((False, True), ""),  # neighbour lists are always sorted
    "filter_per_worker": ((None,), "diskhop fetches rows on its own threads"),
    "neighbor_sampler": ((None,), "pass a SamplerSpec as num_neighbors"),
    "directed": ((True,), "only directed subgraphs are sampled"),
    "num_workers": ((0,), "diskhop samples and prefetches on its own threads; leave it at 0"),
    "persistent_workers": ((False,), "diskhop samples and prefetches on its own threads"),
    "prefetch_factor": ((None,), "the memory budget determines the batches in flight"),
    "pin_memory": ((False,), "batches are in ordinary memory"),
    "collate_fn": ((None,), "use transform, which gets the finished batch"),
    "worker_init_fn": ((None,), "there are no worker processes"),
    "sampler": ((None,), "pass the nodes as input_nodes"),
    "batch_sampler": ((None,), "pass the nodes as input_nodes and a batch_size"),
    "generator": ((None,), "pass seed; draws depend only on it"),
    "timeout": ((0,), "errors of a stage are raised at once"),
    "multiprocessing_context": ((None,), "there are no worker processes"),
}
_IDS_PER_BLOCK = 1 << 20


def refuse_unsupported(pyg_arguments: dict[str, Any]) -> None:
    """Raise ConfigError for an unknown argument, or for one of PyG's that would change the batches."""
    for name, value in pyg_arguments.items():
        if name not in _REFUSED:
            raise ConfigError(f"NeighborLoader has no argument '{name}'")
        allowed, reason = _REFUSED[name]
        if not any(value is each or (type(value) is type(each) and value == each) for each in allowed):
            raise ConfigError(f"NeighborLoader cannot take {name}={value!r}: {reason}")


def resolve_sampler(num_neighbors: Any) -> SamplerSpec:
    """Return the sampler of fan-outs, or the sampler given."""
    if isinstance(num_neighbors, SamplerSpec):
        return num_neighbors
    if isinstance(num_neighbors, str | dict) or not isinstance(num_neighbors, Sequence):
        raise ConfigError(f"num_neighbors must be a list with one count per hop, got {num_neighbors!r}; pass [10, 10]")
    return neighbor_spec(num_neighbors)


def resolve_input_nodes(
    dataset: Dataset, original_ids: NodeIds | None, nodes: Any, split: int
) -> tuple[NodeIds, Purpose]:
    """Return the seed nodes as internal ids, and the use of their draws."""
    if isinstance(nodes, str):
        purposes = {"train": Purpose.TRAIN, "valid": Purpose.VALID, "test": Purpose.TEST}
        if nodes not in purposes:
            raise ConfigError(f"input_nodes '{nodes}' is not a split; the splits are train, valid, test")
        ids = dataset.split(nodes, split if dataset.num_splits > 1 else None)
        if ids is None:
            raise ConfigError(f"{dataset.path}: has no split '{nodes}'; pass node ids as input_nodes")
        return ids, purposes[nodes]
    if nodes is None:
        return np.arange(dataset.num_nodes) if original_ids is None else np.argsort(original_ids), Purpose.TRAIN
    if isinstance(nodes, tuple):
        raise ConfigError("input_nodes of one type of a typed graph are not supported; pass ids, a mask or a split")
    ids = nodes.numpy() if isinstance(nodes, torch.Tensor) else np.asarray(nodes)
    if ids.dtype == np.bool_:
        if ids.shape != (dataset.num_nodes,):
            raise ConfigError(f"input_nodes mask must have shape ({dataset.num_nodes},), got {ids.shape}")
        ids = np.flatnonzero(ids)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise ConfigError(f"input_nodes must be one-dimensional integer ids, got shape {ids.shape} of {ids.dtype}")
    ids = ids.astype(np.int64)
    return ids if original_ids is None else _find_ids(ids, original_ids), Purpose.TRAIN


def _find_ids(ids: NodeIds, original_ids: NodeIds) -> NodeIds:
    """Return the nodes with these original ids. Raises ConfigError for an id without a node."""
    wanted, places = np.unique(ids, return_inverse=True)
    found = np.full(len(wanted), -1, np.int64)
    for start, stop in row_ranges(len(original_ids), _IDS_PER_BLOCK):
        block = original_ids[start:stop]
        nearest = np.minimum(np.searchsorted(wanted, block), len(wanted) - 1)
        is_wanted = wanted[nearest] == block if len(wanted) else np.zeros(len(block), np.bool_)
        found[nearest[is_wanted]] = np.flatnonzero(is_wanted) + start
    if len(found) and found.min() < 0:
        raise ConfigError(f"input_nodes has id {wanted[np.argmin(found)]}, which no node of the source has")
    return found[places]
