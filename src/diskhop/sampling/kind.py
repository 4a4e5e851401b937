"""The entry of one sampler in the registry, sampling/samplers.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from diskhop._native import BufferPool
from diskhop.config.sampled import FANOUT
from diskhop.config.sampler import TYPED_SAMPLERS, WHY_NOT_TYPED
from diskhop.errors import ConfigError
from diskhop.protocols import Sampler, SamplerSpec
from diskhop.sampling.cached_topology import AnyTopology
from diskhop.sampling.columns import ColumnUse
from diskhop.sampling.starts import EpochKey, Starts


def why_not_typed(name: str) -> str:
    """Return why a sampler cannot sample a graph with types, '' if it can."""
    if name in TYPED_SAMPLERS:
        return ""
    return f"it {WHY_NOT_TYPED.get(name, 'samples one type of nodes and edges')}; use {' or '.join(TYPED_SAMPLERS)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerKind:
    """A way to sample.

    name: value of `SamplerSpec.kind`.
    check: raises ConfigError for a spec that the sampler cannot serve.
    open: makes a sampler of a topology from a checked spec, a seed and the pool that batches take their memory from.
    columns: the weights and times that a sampler of a checked spec draws by.
    examples: specs that it serves on any graph. The contract of samplers is tested on each.
    starts: arranges the batches of an epoch; None: batches have the shuffled seeds, batch_size each.
    chooses_nodes: True if batches have nodes of the sampler's choice, all of which are seeds.
    refuses_types: why it cannot sample a graph with types, for a checked spec; '' if it can.
    """

    name: str
    check: Callable[[SamplerSpec], None]
    open: Callable[[AnyTopology, SamplerSpec, int, BufferPool], Sampler]
    examples: tuple[SamplerSpec, ...]
    columns: Callable[[SamplerSpec], tuple[ColumnUse, ...]] = lambda _spec: ()
    starts: Callable[[SamplerSpec, EpochKey], Starts] | None = None
    chooses_nodes: bool = False
    refuses_types: Callable[[SamplerSpec], str] = lambda spec: why_not_typed(spec.kind)


def check_counts(spec: SamplerSpec) -> None:
    """Raise ConfigError for a spec without hops or with an invalid fan-out."""
    if not spec.fanouts or not FANOUT.holds(spec.fanouts):
        raise ConfigError(
            f"fan-outs must be one or more {FANOUT.text}, got {list(spec.fanouts)}; for example {FANOUT.example}"
        )
