"""Links of each pass of a run on one edge type: negatives and candidates are nodes of the types that it joins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from diskhop.config.link import DRAWS, TRIPLET
from diskhop.config.typed_link import TypedLinkConfig
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edge_lists import EdgeLists
from diskhop.errors import ConfigError
from diskhop.protocols import Purpose
from diskhop.runs.links.batches import LinkNodes, LinkPasses, passes_of
from diskhop.runs.typed.samplers import eval_sampler, train_sampler
from diskhop.sampling.edge_split.target import SplitTarget
from diskhop.sampling.links import LinkEnds
from diskhop.sampling.negatives import Candidates, candidates


def check_negatives(config: TypedLinkConfig, target: SplitTarget) -> None:
    """Refuse sources that are drawn by in-degree, which they have no edges of this type to have."""
    by_degree = config.negative_draws != DRAWS[0]
    if by_degree and target.is_between_types and config.neg_sampling != TRIPLET:
        raise ConfigError(
            f"--negative-draws {config.negative_draws} is by in-degree, which sources of {','.join(target.ends)} do "
            f"not have: add --neg-sampling {TRIPLET}, which draws destinations alone, or use --negative-draws "
            f"{DRAWS[0]}"
        )


def typed_passes(
    merged: Dataset, config: TypedLinkConfig, target: SplitTarget, parts: Mapping[Purpose, LinkEnds]
) -> LinkPasses:
    """Return the passes of a run. merged: with the edges that messages of training use."""

    def side(place: int) -> Candidates:
        num_nodes, first_row = target.nodes_of(place)
        return Candidates(num_nodes=num_nodes, first_row=first_row)

    uniform = LinkNodes(side(0), side(-1))
    drawn = uniform
    if config.negative_draws != DRAWS[0]:
        lists = EdgeLists.of_merged(merged.topology, target.number)
        sums = lists.map_starts() - lists.first_edge
        num_nodes, first_row = target.nodes_of(-1)
        by_degree = replace(candidates(num_nodes, cumulative=sums), first_row=first_row)
        drawn = LinkNodes(uniform.sources if target.is_between_types else by_degree, by_degree)
    return passes_of(config, parts, uniform, drawn, (train_sampler(config), eval_sampler(config)))
