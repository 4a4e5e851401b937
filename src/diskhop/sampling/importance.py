"""Samplers whose draws belong to nodes, not to edges, so that the lists of a batch share them: LABOR, LADIES, FastGCN.

LABOR (Balin and Catalyurek, 2023) keeps as many edges of every list as neighbour sampling does in the mean, but of
fewer distinct nodes. LADIES (Zou et al., 2019) and FastGCN (Chen et al., 2018) draw a number of nodes per hop, for all
lists together. The fan-out of a hop is then that number. native/include/diskhop/sampling/importance.hpp has the rules.
"""

from __future__ import annotations

from collections.abc import Sequence

from diskhop._native import BufferPool, ImportanceOptions
from diskhop.config.options import require
from diskhop.config.rules import COUNT
from diskhop.config.sampler import FASTGCN, LABOR, LADIES
from diskhop.errors import ConfigError
from diskhop.protocols import Sampler, SamplerSpec
from diskhop.sampling.cached_topology import AnyTopology
from diskhop.sampling.core_sampler import CoreSampler
from diskhop.sampling.kind import SamplerKind, check_counts
from diskhop.sampling.type_fanouts import fanouts_by_type, flat_fanouts, without_fanouts

ROUNDS, BATCH_DEPENDENCY = "importance", "batch_dependency"
_PARAMETERS = {LABOR: (ROUNDS, BATCH_DEPENDENCY), LADIES: (BATCH_DEPENDENCY,), FASTGCN: (BATCH_DEPENDENCY,)}


def importance_spec(
    kind: str, fanouts: Sequence[int], *, importance: int = 0, batch_dependency: int = 1
) -> SamplerSpec:
    """Return a sampler of this kind.

    kind: labor, ladies or fastgcn.
    fanouts: neighbours kept per list (labor) or nodes drawn (ladies, fastgcn), per hop; -1 for all.
    importance: of labor, 1 to prefer nodes that several lists have (LABOR-1), 0 for equal chances in a list (LABOR-0).
    batch_dependency: batches in which the draw of each node is replaced once. 1: batches are independent. With k,
        consecutive batches share all but 1 of k draws, and so most of their nodes.
    """
    given = {ROUNDS: (importance, 0), BATCH_DEPENDENCY: (batch_dependency, 1)}
    spec = SamplerSpec(
        kind, tuple(fanouts), tuple((name, value) for name, (value, usual) in given.items() if value != usual)
    )
    check_importance(spec)
    return spec


def check_importance(spec: SamplerSpec) -> None:
    """Raise ConfigError for a spec without hops, with an invalid fan-out or with parameters that the kind lacks."""
    check_counts(spec)
    known = _PARAMETERS[spec.kind]
    if spec.kind == LABOR:
        fanouts_by_type(spec)
        spec = without_fanouts(spec)
    names = [name for name, _ in spec.parameters]
    for name, value in spec.parameters:
        if name not in known:
            raise ConfigError(
                f"the sampler '{spec.kind}' has no parameter '{name}', only {', '.join(known)}; leave it out"
            )
        require(names.count(name) == 1, "parameters", f"with '{name}' once", names, "leave one out")
        if name == ROUNDS:
            require(value in (0, 1), name, "0 (LABOR-0) or 1 (LABOR-1)", value, "for example ('importance', 1)")
        else:
            is_whole = not isinstance(value, str) and float(value).is_integer() and COUNT.holds(int(value))
            require(
                is_whole, name, "a whole number of batches, at least 1", value, "for example ('batch_dependency', 64)"
            )


def has_weights(spec: SamplerSpec) -> bool:
    """Return whether the edges of batches have weights, which sums over neighbours need to be unbiased."""
    return spec.kind in (LADIES, FASTGCN) or dict(spec.parameters).get(ROUNDS, 0) == 1


def _open(topology: AnyTopology, spec: SamplerSpec, seed: int, pool: BufferPool) -> Sampler:
    given = dict(spec.parameters)
    method = "balanced_labor" if given.get(ROUNDS, 0) == 1 else spec.kind
    options = ImportanceOptions(method, int(given.get(BATCH_DEPENDENCY, 1)))
    core = topology.make_sampler(flat_fanouts(spec, topology.types), options)
    return CoreSampler(core, topology.indices_path, seed, pool, has_weights=has_weights(spec))


def _kind(name: str, examples: Sequence[SamplerSpec]) -> SamplerKind:
    return SamplerKind(name=name, check=check_importance, open=_open, examples=tuple(examples))


KINDS = (
    _kind(
        LABOR,
        (
            importance_spec(LABOR, (4, 3)),
            importance_spec(LABOR, (4, 3), importance=1),
            importance_spec(LABOR, (4, 3), batch_dependency=3),
        ),
    ),
    _kind(LADIES, (importance_spec(LADIES, (100, 200)), importance_spec(LADIES, (100, -1), batch_dependency=2))),
    _kind(FASTGCN, (importance_spec(FASTGCN, (300, 400)), importance_spec(FASTGCN, (400,), batch_dependency=4))),
)
