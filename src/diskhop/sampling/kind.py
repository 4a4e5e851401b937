"""The entry of one sampler in the registry, sampling/samplers.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from diskhop._native import BufferPool
from diskhop.protocols import Sampler, SamplerSpec
from diskhop.sampling.cached_topology import AnyTopology
from diskhop.sampling.columns import ColumnUse


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerKind:
    """A way to sample.

    name: value of `SamplerSpec.kind`.
    check: raises ConfigError for a spec that the sampler cannot serve.
    open: makes a sampler of a topology from a checked spec, a seed and the pool that batches take their memory from.
    columns: the weights and times that a sampler of a checked spec draws by.
    examples: specs that it serves on any graph. The contract of samplers is tested on each.
    """

    name: str
    check: Callable[[SamplerSpec], None]
    open: Callable[[AnyTopology, SamplerSpec, int, BufferPool], Sampler]
    examples: tuple[SamplerSpec, ...]
    columns: Callable[[SamplerSpec], tuple[ColumnUse, ...]] = lambda _spec: ()
