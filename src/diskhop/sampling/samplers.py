"""The registry of samplers. A new sampler is one file with a `KIND`, and one entry of `SAMPLERS`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from diskhop._native import BufferPool
from diskhop.config.options import require_known
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edge_set import ColumnFile, TopologyFiles
from diskhop.dataset.merge import MergeTools, merged_lists
from diskhop.dataset.merged import merged_spec
from diskhop.errors import ConfigError
from diskhop.protocols import Sampler, SamplerSpec
from diskhop.sampling import cluster_sampler, hgt, importance, marius, neighbor, saint
from diskhop.sampling.cached_topology import AnyTopology
from diskhop.sampling.columns import ColumnUse, find_column
from diskhop.sampling.kind import SamplerKind
from diskhop.sampling.typed_columns import find_merged_column

SAMPLERS: dict[str, SamplerKind] = {
    kind.name: kind
    for kind in (neighbor.KIND, *importance.KINDS, *saint.KINDS, cluster_sampler.KIND, marius.KIND, hgt.KIND)
}


def find_columns(dataset: Dataset, specs: Iterable[SamplerSpec]) -> tuple[ColumnFile, ...]:
    """Locate the weights and times that samplers draw by, each once. Raises ConfigError for those that are missing."""
    return tuple(find_column(dataset, each) for each in _wanted_columns(specs))


def _wanted_columns(specs: Iterable[SamplerSpec]) -> tuple[ColumnUse, ...]:
    wanted: dict[str, ColumnUse] = {}
    for spec in specs:
        _check(spec)
        for each in SAMPLERS[spec.kind].columns(spec):
            if wanted.setdefault(each.use, each) != each:
                raise ConfigError(
                    f"samplers of one run draw by {each.use} '{wanted[each.use].name}' and '{each.name}'; use one"
                )
    return tuple(wanted.values())


def merged_lists_of(
    dataset: Dataset, specs: Iterable[SamplerSpec], tools: MergeTools, reversed_types: Iterable[str] = ()
) -> TopologyFiles:
    """Return the merged lists of a dataset with types, and the weights and times that samplers draw by.

    What is missing is made. Raises as merged_lists() and find_merged_column() do.
    """
    wanted = _wanted_columns(specs)
    files = merged_lists(dataset, tools, reversed_types)
    return replace(files, columns=tuple(find_merged_column(dataset, files, each, tools) for each in wanted))


def merged_graph(
    dataset: Dataset, specs: Iterable[SamplerSpec], tools: MergeTools, reversed_types: Iterable[str] = ()
) -> Dataset:
    """Return a dataset with types as one graph of all of them, ready for these samplers; see merged_lists_of()."""
    names = tuple(reversed_types)
    lists = merged_lists_of(dataset, specs, tools, names)
    return dataset.with_merged_types(lists, merged_spec(dataset, names).key)


def lists_of(dataset: Dataset, specs: Iterable[SamplerSpec]) -> TopologyFiles:
    """Return the neighbour lists of a dataset, with the weights and times that samplers draw by."""
    return replace(dataset.topology, columns=find_columns(dataset, specs))


def _check(spec: SamplerSpec) -> None:
    require_known("sampler", spec.kind, SAMPLERS)
    SAMPLERS[spec.kind].check(spec)


def open_sampler(topology: AnyTopology, spec: SamplerSpec, seed: int, pool: BufferPool | None = None) -> Sampler:
    """Open a sampler. Every sampler of the package is made here.

    seed: of the draws, 64 bits. pool: the memory of batches; default: memory that is not reused.
    Raises ConfigError for an unknown kind, for settings that it cannot serve and for a bad seed.
    """
    _check(spec)
    if topology.types is not None and not topology.types.is_single:
        reason = SAMPLERS[spec.kind].refuses_types(spec)
        if reason:
            raise ConfigError(f"the sampler '{spec.kind}' cannot sample a graph with types: {reason}")
    if not 0 <= seed < 2**64:
        raise ConfigError(f"seed must be at least 0 and less than 2^64, got {seed}; pass seed=0")
    return SAMPLERS[spec.kind].open(topology, spec, seed, pool or BufferPool(0))
