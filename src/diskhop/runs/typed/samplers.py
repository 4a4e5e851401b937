"""The samplers of a typed run, with counts of all types alike and those of some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from diskhop.config.sampled import ALL_NEIGHBORS
from diskhop.config.sampler import HGT, LABOR
from diskhop.config.typed_link import AnyTypedConfig
from diskhop.protocols import SamplerSpec
from diskhop.sampling.hgt import NODES, hgt_spec
from diskhop.sampling.importance import importance_spec
from diskhop.sampling.neighbor_ways import NeighborWays
from diskhop.sampling.type_fanouts import FANOUTS


def train_sampler(config: AnyTypedConfig) -> SamplerSpec:
    """Return the sampler of training batches."""
    if config.sampler == HGT:
        return _by_type(hgt_spec(config.fanout), NODES, config.type_fanout)
    if config.sampler == LABOR:
        spec = importance_spec(LABOR, config.fanout, batch_dependency=config.batch_dependency)
        return _by_type(spec, FANOUTS, config.type_fanout)
    return _neighbors(config, config.fanout, config.type_fanout)


def eval_sampler(config: AnyTypedConfig) -> SamplerSpec:
    """Return the sampler of validation and test, which draws neighbours whatever training does.

    Fan-outs by edge type are those of training, unless all are taken.
    """
    takes_all = all(count == ALL_NEIGHBORS for count in config.eval_fanout)
    counts_nodes = config.sampler == HGT
    return _neighbors(config, config.eval_fanout, () if takes_all or counts_nodes else config.type_fanout)


def _neighbors(config: AnyTypedConfig, fanout: tuple[int, ...], type_fanout: Sequence[str]) -> SamplerSpec:
    spec = NeighborWays(replace=config.replace, subgraph=config.subgraph_type).spec(fanout)
    return _by_type(spec, FANOUTS, type_fanout)


def _by_type(spec: SamplerSpec, parameter: str, counts: Sequence[str]) -> SamplerSpec:
    """Return a sampler with other counts for some types. counts: as TYPE=N,N."""
    return replace(spec, parameters=(*spec.parameters, (parameter, ";".join(counts)))) if counts else spec
