"""Sampling of the Heterogeneous Graph Transformer (Hu et al., 2020): a number of nodes of each type per hop.

Nodes next to the batch have budgets, by how many edges of the batch's nodes reach them, and are drawn in proportion to
the square (PyG's HGTLoader). A batch has all edges among its nodes. native/include/diskhop/sampling/budget.hpp has the
rules. The counts of a SamplerSpec are those of every node type; the parameter 'nodes' gives others by node type, as
'paper=512,256;author=0,64', where 0 leaves a type out of a hop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from diskhop._native import BudgetOptions, BufferPool
from diskhop.dataset.type_map import TypeMap
from diskhop.errors import ConfigError
from diskhop.protocols import Sampler, SamplerSpec
from diskhop.sampling.cached_topology import AnyTopology
from diskhop.sampling.core_sampler import CoreSampler
from diskhop.sampling.kind import SamplerKind, check_counts
from diskhop.sampling.type_fanouts import counts_by_name

HGT, NODES = "hgt", "nodes"
_EXAMPLE = "for example ('nodes', 'paper=512,256')"


def hgt_spec(num_samples: Sequence[int], by_type: Mapping[str, Sequence[int]] | None = None) -> SamplerSpec:
    """Return a sampler by budget. Raises ConfigError.

    num_samples: nodes of each type per hop, -1 for all that have a budget.
    by_type: the same for some node types alone; 0 for none.
    """
    text = ";".join(f"{name}={','.join(map(str, counts))}" for name, counts in (by_type or {}).items())
    spec = SamplerSpec(HGT, tuple(num_samples), ((NODES, text),) if text else ())
    check_hgt(spec)
    return spec


def check_hgt(spec: SamplerSpec) -> None:
    """Raise ConfigError for a spec without hops, with invalid counts or with other parameters than 'nodes'."""
    check_counts(spec)
    for name, _ in spec.parameters:
        if name != NODES:
            raise ConfigError(f"the sampler '{HGT}' has no parameter '{name}', only {NODES}; leave it out")
    counts_by_name(spec, NODES, "node type", _EXAMPLE)


def _counts_of(spec: SamplerSpec, types: TypeMap | None) -> list[int]:
    """Return the counts of all node types for the first hop, then for the second, and so on."""
    by_type = counts_by_name(spec, NODES, "node type", _EXAMPLE)
    known = ("node",) if types is None else types.node_types
    for name in by_type:
        if name not in known:
            raise ConfigError(
                f"counts are given for the node type '{name}', which the graph does not have, only {', '.join(known)}"
            )
    of_types = [by_type.get(name, spec.fanouts) for name in known]
    return [counts[hop] for hop in range(len(spec.fanouts)) for counts in of_types]


def _open(topology: AnyTopology, spec: SamplerSpec, seed: int, pool: BufferPool) -> Sampler:
    core = topology.make_sampler(_counts_of(spec, topology.types), BudgetOptions())
    return CoreSampler(core, topology.indices_path, seed, pool, by_hop=False)


KIND = SamplerKind(
    name=HGT,
    check=check_hgt,
    open=_open,
    examples=(hgt_spec((30, 20)), hgt_spec((-1,))),
)
