"""Samplers that a loader gets by name: sampler='labor', 'ladies' or 'fastgcn', with their own arguments."""

from __future__ import annotations

from typing import Any

from diskhop.config.options import check_arguments, require, require_known
from diskhop.config.sampled import SampledConfig
from diskhop.config.sampler import IMPORTANCE, LABOR, NEIGHBOR
from diskhop.errors import ConfigError
from diskhop.loaders.checks import whole_numbers
from diskhop.protocols import SamplerSpec
from diskhop.sampling.importance import importance_spec
from diskhop.sampling.neighbor_ways import NeighborWays


def resolve_named(loader: str, num_neighbors: Any, ways: NeighborWays, arguments: dict[str, Any]) -> Any:
    """Return the sampler that the arguments name, as a SamplerSpec; num_neighbors itself if they name none.

    loader: name of the class.
    num_neighbors: counts per hop.
    arguments: those of torch's loader, of which the ones that are not torch's are taken out. Its `sampler` is an order.
    Raises ConfigError for arguments that do not go together.
    """
    name = arguments.pop("sampler") if isinstance(arguments.get("sampler"), str) else NEIGHBOR
    require_known("sampler", name, (NEIGHBOR, *IMPORTANCE), f"{loader}: ")
    importance, batch_dependency = arguments.pop("importance", 0), arguments.pop("batch_dependency", 1)
    check_arguments(loader, SampledConfig, importance=importance, batch_dependency=batch_dependency)
    if name == NEIGHBOR:
        hint = "pass sampler='labor' with it, or leave it out"
        require(importance == 0, "importance", "0 without sampler='labor'", importance, hint)
        require(batch_dependency == 1, "batch_dependency", "1 without a sampler's name", batch_dependency, hint)
        return num_neighbors
    require(importance == 0 or name == LABOR, "importance", f"0 with sampler='{name}'", importance, "leave it out")
    if ways != NeighborWays():
        given = ", ".join(given for given, _ in ways.parameters())
        raise ConfigError(f"sampler='{name}' draws in its own way, which {given} would change; leave one of them out")
    if isinstance(num_neighbors, SamplerSpec):
        raise ConfigError(f"num_neighbors is a SamplerSpec, which names its own sampler; leave out sampler='{name}'")
    counts = whole_numbers("num_neighbors", num_neighbors, "[10, 10]")
    return importance_spec(name, counts, importance=int(importance), batch_dependency=int(batch_dependency))
