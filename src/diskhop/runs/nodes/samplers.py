"""The samplers of a run: how training draws neighbours, and how validation and test do."""

from __future__ import annotations

from diskhop.config.sampler import NEIGHBOR
from diskhop.config.train import ALL_NEIGHBORS, SampledConfig
from diskhop.protocols import SamplerSpec, neighbor_spec
from diskhop.sampling.columns import WEIGHTS
from diskhop.sampling.importance import importance_spec
from diskhop.sampling.neighbor_ways import NeighborWays


def train_sampler(config: SampledConfig) -> SamplerSpec:
    """Return the sampler of training batches."""
    if config.sampler != NEIGHBOR:
        return importance_spec(
            config.sampler,
            config.fanout,
            importance=config.importance,
            batch_dependency=config.batch_dependency,
        )
    return _ways_of(config).spec(config.fanout)


def eval_sampler(config: SampledConfig) -> SamplerSpec:
    """Return the sampler of validation and test, which draws neighbours whatever training does.

    With all neighbours there is nothing to draw: batches are then those of a run without weights and replacement, and
    measure what `diskhop evaluate` computes exactly.
    """
    if all(count == ALL_NEIGHBORS for count in config.eval_fanout):
        return neighbor_spec(config.eval_fanout)
    return _ways_of(config).spec(config.eval_fanout)


def draws_all(config: SampledConfig) -> bool:
    """Return whether training takes all neighbours, so that degrees in its batches are those of the graph."""
    return all(count == ALL_NEIGHBORS for count in config.fanout) and not config.weighted


def _ways_of(config: SampledConfig) -> NeighborWays:
    return NeighborWays(
        replace=config.replace, weights=WEIGHTS if config.weighted else "", subgraph=config.subgraph_type
    )
