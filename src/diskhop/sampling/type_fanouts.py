"""Fan-outs by edge type: the parameter 'fanouts' of a SamplerSpec.

It is text, as 'paper__cites__paper=15,10;author__writes__paper=5,5'. An edge type has one fan-out per hop; 0 leaves the
type out of that hop. Types that the parameter does not name have the fan-outs of the spec itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from diskhop.config.rules import MOST_COUNT
from diskhop.config.sampled import ALL_NEIGHBORS
from diskhop.dataset.type_map import EdgeEnds, TypeMap
from diskhop.errors import ConfigError
from diskhop.protocols import SamplerSpec

FANOUTS = "fanouts"
_EXAMPLE = "for example ('fanouts', 'paper__cites__paper=15,10')"


def with_fanouts(spec: SamplerSpec, by_type: Mapping[EdgeEnds, Sequence[int]]) -> SamplerSpec:
    """Return a sampler with other fan-outs for some edge types. Raises ConfigError as fanouts_by_type() does."""
    text = ";".join(f"{type_name(ends)}={','.join(map(str, counts))}" for ends, counts in by_type.items())
    typed = replace(spec, parameters=(*without_fanouts(spec).parameters, *([(FANOUTS, text)] if text else [])))
    fanouts_by_type(typed)
    return typed


def without_fanouts(spec: SamplerSpec) -> SamplerSpec:
    """Return the sampler with the same fan-outs for all edge types."""
    return replace(spec, parameters=tuple(given for given in spec.parameters if given[0] != FANOUTS))


def type_name(ends: EdgeEnds) -> str:
    """Return the name of an edge type in the parameter."""
    return "__".join(ends)


def fanouts_by_type(spec: SamplerSpec) -> dict[str, tuple[int, ...]]:
    """Return the fan-outs that the parameter gives, by the name of the edge type. Raises as counts_by_name() does."""
    return counts_by_name(spec, FANOUTS, "edge type", _EXAMPLE)


def counts_by_name(spec: SamplerSpec, parameter: str, what: str, example: str) -> dict[str, tuple[int, ...]]:
    """Return the counts per hop that a parameter gives by the names of types; none without it.

    what: 'edge type' or 'node type', and example: the next step, for errors. Raises ConfigError for a text that cannot
    be read, a type or the parameter twice, another number of hops than the spec has, and for counts that are none.
    """
    texts = [value for name, value in spec.parameters if name == parameter]
    if len(texts) > 1:
        raise ConfigError(f"the sampler '{spec.kind}' has the parameter '{parameter}' twice; leave one out")
    found: dict[str, tuple[int, ...]] = {}
    for entry in str(texts[0]).split(";") if texts else ():
        name, _, text = entry.rpartition("=")
        try:
            counts = tuple(int(count) for count in text.split(","))
        except ValueError:
            counts = ()
        if not name or not counts or name in found:
            raise ConfigError(
                f"'{parameter}' must name each {what} once, with whole numbers per hop, got '{entry}'; {example}"
            )
        if len(counts) != len(spec.fanouts):
            raise ConfigError(
                f"the {what} '{name}' has {len(counts)} counts, and the sampler {len(spec.fanouts)} hops; "
                "give one per hop"
            )
        bad = [count for count in counts if count != ALL_NEIGHBORS and not 0 <= count <= MOST_COUNT]
        if bad:
            raise ConfigError(
                f"the counts of the {what} '{name}' must be from 0 to {MOST_COUNT}, or {ALL_NEIGHBORS} for all, got "
                f"{bad[0]}; {example}"
            )
        found[name] = counts
    return found


def flat_fanouts(spec: SamplerSpec, types: TypeMap | None) -> list[int]:
    """Return the fan-outs of all edge types for the first hop, then for the second, and so on.

    Raises ConfigError for a type that the graph does not have.
    """
    by_type = fanouts_by_type(spec)
    if types is None:
        if by_type:
            raise ConfigError(
                f"the graph has one type of edges, and fan-outs are given for {', '.join(by_type)}; give one per hop"
            )
        return list(spec.fanouts)
    names = [type_name(edges.ends) for edges in types.edges]
    for name in by_type:
        if name not in names:
            raise ConfigError(
                f"fan-outs are given for the edge type '{name}', which the graph does not have, only {', '.join(names)}"
            )
    of_types = [by_type.get(name, spec.fanouts) for name in names]
    return [fanouts[hop] for hop in range(len(spec.fanouts)) for fanouts in of_types]
