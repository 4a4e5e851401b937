"""Arguments of NeighborLoader: those of PyTorch Geometric that it refuses, and samplers in any form."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Any

from diskhop.errors import ConfigError
from diskhop.loaders.checks import whole_numbers
from diskhop.protocols import SamplerSpec, neighbor_spec

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


def refuse_unsupported(pyg_arguments: dict[str, Any]) -> None:
    """Raise ConfigError for an unknown argument, or for one of PyG's that would change the batches."""
    for name, value in pyg_arguments.items():
        if name not in _REFUSED:
            raise ConfigError(f"NeighborLoader has no argument '{name}'")
        allowed, reason = _REFUSED[name]
        if not any(value is each or (type(value) is type(each) and value == each) for each in allowed):
            raise ConfigError(f"NeighborLoader cannot take {name}={reprlib.repr(value)}: {reason}")


def resolve_sampler(num_neighbors: Any) -> SamplerSpec:
    """Return the sampler of fan-outs, or the sampler given."""
    if isinstance(num_neighbors, SamplerSpec):
        whole_numbers("num_neighbors", num_neighbors.fanouts, "[10, 10]")
        return num_neighbors
    if isinstance(num_neighbors, str | dict) or not isinstance(num_neighbors, Sequence):
        shown = reprlib.repr(num_neighbors)
        raise ConfigError(f"num_neighbors must be a list with one count per hop, got {shown}; pass [10, 10]")
    return neighbor_spec(whole_numbers("num_neighbors", num_neighbors, "[10, 10]"))
