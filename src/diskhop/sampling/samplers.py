"""The registry of samplers. A new sampler is one file with a `KIND`, and one entry of `SAMPLERS`."""

from __future__ import annotations

from diskhop._native import BufferPool
from diskhop.config.options import require_known
from diskhop.errors import ConfigError
from diskhop.protocols import Sampler, SamplerSpec
from diskhop.sampling import neighbor
from diskhop.sampling.cached_topology import AnyTopology
from diskhop.sampling.kind import SamplerKind

SAMPLERS: dict[str, SamplerKind] = {kind.name: kind for kind in (neighbor.KIND,)}


def open_sampler(topology: AnyTopology, spec: SamplerSpec, seed: int, pool: BufferPool | None = None) -> Sampler:
    """Open a sampler. Every sampler of the package is made here.

    seed: of the draws, 64 bits. pool: the memory of batches; default: memory that is not reused.
    Raises ConfigError for an unknown kind, for settings that it cannot serve and for a bad seed.
    """
    require_known("sampler", spec.kind, SAMPLERS)
    kind = SAMPLERS[spec.kind]
    kind.check(spec)
    if not 0 <= seed < 2**64:
        raise ConfigError(f"seed must be at least 0 and less than 2^64, got {seed}; pass seed=0")
    return kind.open(topology, spec, seed, pool or BufferPool(0))
