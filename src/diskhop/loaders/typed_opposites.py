"""Opposites of drawn edges in a graph with several types, as PyG's subgraph_type='bidirectional' adds them.

The opposite of an edge within a node type is of its own edge type. Otherwise it is of the edge type that leads back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from diskhop.batches.typed import EdgePart, TypedBatch
from diskhop.dataset.type_map import REVERSE, EdgeEnds, reverse_ends
from diskhop.errors import ConfigError
from diskhop.plans import PreparedBytes

# Of each edge and its opposite: both ends, a number in order, and the copies that finding each number once takes.
ADDED = PreparedBytes(per_edge=2 * (16 + 8 + 24))


def opposite_types(edge_types: Sequence[EdgeEnds]) -> dict[EdgeEnds, EdgeEnds]:
    """Return the edge type of the opposites of each type. Raises ConfigError for a type that none leads back from.

    It is the type of the same relation with 'rev_' before it, as PyG's ToUndirected() names it; within a node type else
    the type itself; and else the only type in the other direction that does not reverse another by its name.
    """
    return {ends: _opposite(ends, edge_types) for ends in edge_types}


def _opposite(ends: EdgeEnds, edge_types: Sequence[EdgeEnds]) -> EdgeEnds:
    source, _, destination = ends
    by_name = _opposite_by_name(ends)
    if by_name in edge_types:
        return by_name
    if source == destination:
        return ends
    leading_back = [
        each
        for each in edge_types
        if (each[0], each[-1]) == (destination, source)
        and not (each[1].startswith(REVERSE) and _opposite_by_name(each) in edge_types)
    ]
    if len(leading_back) == 1:
        return leading_back[0]
    found = f"{len(leading_back)} edge types lead" if leading_back else "no edge type except reverses of others leads"
    raise ConfigError(
        f"subgraph_type 'bidirectional' needs the edge type of the opposites of {ends}, and {found} from {destination} "
        f"to {source}; import one as {by_name}, or use subgraph_type='directional'"
    )


def _opposite_by_name(ends: EdgeEnds) -> EdgeEnds:
    source, relation, destination = ends
    if relation.startswith(REVERSE):
        return destination, relation.removeprefix(REVERSE), source
    return reverse_ends(ends)


def with_opposites(typed: TypedBatch, opposites: Mapping[EdgeEnds, EdgeEnds]) -> dict[EdgeEnds, NDArray[np.int64]]:
    """Return the edges of each type of a batch and the opposites of the type's opposites, each once.

    An edge is its source's and its destination's place within their types, int64 (2, edges), in the order of
    destinations, then sources.
    """
    drawn = {ends: _ends_of(part) for ends, part in typed.blocks.items()}
    found = {}
    for ends, edges in drawn.items():
        pairs = np.concatenate([edges, drawn[opposites[ends]][::-1]], axis=1)
        num_sources = max(1, len(typed.parts[ends[0]].node_ids))
        destinations, sources = np.divmod(np.unique(pairs[1] * num_sources + pairs[0]), num_sources)
        found[ends] = np.stack([sources, destinations])
    return found


def _ends_of(part: EdgePart) -> NDArray[np.int64]:
    destinations = np.repeat(np.arange(len(part.indptr) - 1), np.diff(part.indptr))
    return np.stack([part.sources.astype(np.int64), destinations])
