"""How a loader draws neighbours: PyG's arguments, and the times of the nodes that batches begin at."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from diskhop.config.options import require
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edge_set import ColumnFile
from diskhop.errors import ConfigError
from diskhop.loaders.checks import require_flags, require_texts
from diskhop.loaders.node_arrays import node_array
from diskhop.protocols import NEIGHBOR, SamplerSpec, SeedTimes
from diskhop.sampling.columns import TIMES
from diskhop.sampling.neighbor_ways import NeighborWays, ways_of
from diskhop.sampling.samplers import find_columns
from diskhop.sampling.type_fanouts import without_fanouts

_EXAMPLES = {"subgraph_type": "induced", "temporal_strategy": "last"}


def resolve_ways(
    *,
    replace: Any,
    subgraph_type: Any,
    disjoint: Any,
    temporal_strategy: Any,
    time_attr: Any,
    weight_attr: Any,
    directed: Any = True,
) -> NeighborWays:
    """Return how neighbours are drawn by PyG's arguments. Raises ConfigError."""
    require_flags(replace=replace, disjoint=disjoint, directed=directed)
    require_texts(time_attr=time_attr, weight_attr=weight_attr)
    # PyG's SubgraphType is an enumeration of texts.
    subgraph = getattr(subgraph_type, "value", subgraph_type)
    for name, value in (("subgraph_type", subgraph), ("temporal_strategy", temporal_strategy)):
        require(isinstance(value, str), name, "text", value, f"for example {name}={_EXAMPLES[name]!r}")
    if not directed:
        warnings.warn("directed=False is the old name of subgraph_type='induced'", DeprecationWarning, stacklevel=3)
        subgraph = "induced"
    return NeighborWays(
        replace=bool(replace),
        weights=weight_attr or "",
        times=time_attr or "",
        strategy=temporal_strategy,
        disjoint=bool(disjoint),
        subgraph=subgraph,
    )


def is_disjoint(sampler: SamplerSpec) -> bool:
    """Return whether every seed has a subgraph of its own, so that a seed may repeat."""
    return sampler.kind == NEIGHBOR and ways_of(without_fanouts(sampler)).is_disjoint


def times_of(dataset: Dataset, sampler: SamplerSpec) -> ColumnFile | None:
    """Return the times that a sampler draws by; None if it draws without."""
    return next((file for file in find_columns(dataset, [sampler]) if file.use == TIMES), None)


def resolve_input_time(dataset: Dataset, sampler: SamplerSpec, input_time: Any, num_seeds: int) -> SeedTimes:
    """Return a time per seed, int64; None for the times of the nodes, or for draws without times.

    Raises ConfigError for times that are missing or have no effect, and for columns that the dataset does not have.
    """
    times = times_of(dataset, sampler)
    if times is None:
        if input_time is not None:
            raise ConfigError("input_time has no effect without time_attr; pass the name of times as time_attr")
        return None
    if input_time is None:
        if times.of == "edges":
            raise ConfigError(
                f"time_attr '{times.name}' has times of edges, and the {num_seeds} input nodes need times as well; "
                "pass them as input_time"
            )
        return None
    given = node_array("input_time", input_time)
    is_fit = given.dtype != np.bool_ and len(given) == num_seeds
    hint = "pass one time per input node"
    require(is_fit, "input_time", f"{num_seeds} whole numbers, one per input node", input_time, hint)
    return np.ascontiguousarray(given)


def require_times(edge_label_time: Any, time_attr: Any) -> None:
    """Raise ConfigError if only one of the times of links and of the graph is given."""
    if edge_label_time is None and time_attr is not None:
        raise ConfigError(
            f"time_attr {time_attr!r} needs the times of the links, and 'edge_label_time' is not set; "
            "pass one time per link, or leave time_attr out"
        )
    if edge_label_time is not None and time_attr is None:
        raise ConfigError(
            "edge_label_time has no effect without times of nodes or edges, and 'time_attr' is not set; "
            "pass their name as time_attr"
        )
