"""Ways to draw neighbours: with replacement, by weights, by time, per seed, and with more edges than were drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from diskhop.config.options import require, require_known
from diskhop.config.sampled import SUBGRAPHS
from diskhop.errors import ConfigError
from diskhop.protocols import NEIGHBOR, SamplerSpec
from diskhop.sampling.columns import TIMES, WEIGHTS, ColumnUse

STRATEGIES = ("uniform", "last")


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighborWays:
    """How neighbours are drawn; the defaults are uniform draws without replacement. Raises ConfigError.

    replace: True to draw with replacement; a fan-out of -1 still takes each neighbour once.
    weights: name of the edge weights that are the probabilities of draws, '' for uniform draws. An edge of weight 0 is
        never drawn.
    times: name of the times of edges or nodes, '' for none. Only neighbours that are not later than the seed are drawn.
    strategy: 'uniform', or 'last' for the latest neighbours that are not later than the seed.
    disjoint: True for a subgraph per seed; sampling by times implies it.
    subgraph: 'directional' for the drawn edges, 'bidirectional' for those and their opposites, or 'induced' for all
        edges among the nodes of the batch.
    """

    replace: bool = False
    weights: str = ""
    times: str = ""
    strategy: str = STRATEGIES[0]
    disjoint: bool = False
    subgraph: str = SUBGRAPHS[0]

    def __post_init__(self) -> None:
        require_known("temporal_strategy", self.strategy, STRATEGIES)
        require_known("subgraph_type", self.subgraph, SUBGRAPHS)
        hint = "name the times, as time_attr='edge_time', or leave it out"
        require(
            self.strategy != "last" or self.times != "", "temporal_strategy", "'uniform' without times", "last", hint
        )
        hint = "leave out weight_attr, or use temporal_strategy='uniform'"
        is_drawn = self.strategy != "last" or self.weights == ""
        require(is_drawn, "temporal_strategy", "'uniform' where neighbours are drawn by weights", "last", hint)

    @property
    def is_disjoint(self) -> bool:
        """True if every seed has a subgraph of its own."""
        return self.disjoint or self.times != ""

    @property
    def by_hop(self) -> bool:
        """True if the batch has the drawn edges alone."""
        return self.subgraph == "directional"

    @property
    def columns(self) -> tuple[ColumnUse, ...]:
        """The columns that draws depend on."""
        uses = ColumnUse(WEIGHTS, self.weights), ColumnUse(TIMES, self.times)
        return tuple(use for use in uses if use.name)

    def parameters(self) -> tuple[tuple[str, float | str], ...]:
        """Return what differs from the defaults, as parameters of a SamplerSpec."""
        given: list[tuple[str, float | str]] = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                given.append((field.name, value if isinstance(value, str) else 1))
        return tuple(given)

    def spec(self, fanouts: Sequence[int]) -> SamplerSpec:
        """Return the neighbour sampler that draws in this way."""
        return SamplerSpec(NEIGHBOR, tuple(fanouts), self.parameters())


def ways_of(spec: SamplerSpec) -> NeighborWays:
    """Return the way that a neighbour sampler draws. Raises ConfigError for parameters that it does not have."""
    kinds = {field.name: type(field.default) for field in fields(NeighborWays)}
    given: dict[str, Any] = {}
    for name, value in spec.parameters:
        if name not in kinds:
            known = ", ".join(kinds)
            raise ConfigError(f"the sampler '{NEIGHBOR}' has no parameter '{name}', only {known}; leave it out")
        if name in given:
            raise ConfigError(f"the sampler '{NEIGHBOR}' has the parameter '{name}' twice; leave one out")
        if kinds[name] is bool:
            require(value in (0, 1), name, "0 or 1", value, f"for example ({name!r}, 1)")
            given[name] = bool(value)
        else:
            require(isinstance(value, str), name, "text", value, f"for example ({name!r}, 'name')")
            given[name] = value
    return NeighborWays(**given)
