"""The samplers of a typed run: fan-outs of all edge types, and those of some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from diskhop.config.train import ALL_NEIGHBORS
from diskhop.config.typed_link import AnyTypedConfig
from diskhop.protocols import SamplerSpec
from diskhop.sampling.neighbor_ways import NeighborWays
from diskhop.sampling.type_fanouts import FANOUTS


def train_sampler(config: AnyTypedConfig) -> SamplerSpec:
    """Return the sampler of training batches."""
    return _sampler(config, config.fanout, config.type_fanout)


def eval_sampler(config: AnyTypedConfig) -> SamplerSpec:
    """Return the sampler of validation and test. Fan-outs by edge type are those of training, unless all are taken."""
    takes_all = all(count == ALL_NEIGHBORS for count in config.eval_fanout)
    return _sampler(config, config.eval_fanout, () if takes_all else config.type_fanout)


def _sampler(config: AnyTypedConfig, fanout: tuple[int, ...], type_fanout: Sequence[str]) -> SamplerSpec:
    spec = NeighborWays(replace=config.replace, subgraph=config.subgraph_type).spec(fanout)
    if not type_fanout:
        return spec
    return replace(spec, parameters=(*spec.parameters, (FANOUTS, ";".join(type_fanout))))
