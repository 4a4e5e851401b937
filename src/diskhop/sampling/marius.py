"""MariusGNN (Waleffe et al., 2023): neighbours are drawn among the nodes of partitions that are resident together.

Nodes are in partitions of consecutive ones. The states of an epoch have some of them resident each, in the order of
COMET (policies/comet.py). Every training node is a seed once an epoch, in one of the states that have its partition
resident, drawn at random; its batch reaches no node outside of that state's partitions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, NeighborOptions, keyed_permutation
from diskhop.config.options import require
from diskhop.config.sampler import MARIUS
from diskhop.policies.comet import check_comet, comet_states
from diskhop.policies.orderings import State
from diskhop.protocols import NodeRows, SamplerSpec
from diskhop.sampling.cached_topology import AnyTopology
from diskhop.sampling.core_sampler import CoreSampler
from diskhop.sampling.keyed import draw_below, key_of
from diskhop.sampling.kind import SamplerKind, check_counts
from diskhop.sampling.starts import EpochKey, Starts

PARTITIONS, RESIDENT = "partitions", "resident"
# Keys the order of partitions and the choice of states.
_ORDER, _STATE = 0x434F4D, 0x535441


def marius_spec(fanouts: tuple[int, ...], num_partitions: int, num_resident: int) -> SamplerSpec:
    """Return the sampler of a number of partitions, of which some are resident."""
    return SamplerSpec(MARIUS, fanouts, ((PARTITIONS, num_partitions), (RESIDENT, num_resident)))


def check_marius(spec: SamplerSpec) -> None:
    """Raise ConfigError for a spec that marius_spec() does not give, and for numbers that do not fit each other."""
    check_counts(spec)
    names, values = [name for name, _ in spec.parameters], [value for _, value in spec.parameters]
    is_known = names == [PARTITIONS, RESIDENT] and all(isinstance(value, int) for value in values)
    hint = f"for example (({PARTITIONS!r}, 16), ({RESIDENT!r}, 4))"
    require(is_known, "parameters", f"numbers of {PARTITIONS} and {RESIDENT}", list(spec.parameters), hint)
    check_comet(*(int(value) for value in values))


def nodes_per_partition(num_nodes: int, num_partitions: int) -> int:
    """Number of consecutive nodes in a partition; the last one may have fewer."""
    return max(1, -(-num_nodes // num_partitions))


def open_marius(topology: AnyTopology, spec: SamplerSpec, seed: int, pool: BufferPool) -> CoreSampler:
    """Open the sampler. The times of a batch's seeds are the resident partitions, a bit each, the same for all."""
    size = nodes_per_partition(topology.num_nodes, _numbers(spec)[0])
    core = topology.make_sampler(spec.fanouts, NeighborOptions(nodes_per_partition=size))
    return CoreSampler(core, topology.indices_path, seed, pool)


def states_of(spec: SamplerSpec, seed: int, epoch: int) -> list[State]:
    """Return the resident partitions of each state of an epoch."""
    num_partitions, num_resident = _numbers(spec)
    order = keyed_permutation(num_partitions, key_of((_ORDER, seed)), 0, epoch)
    return comet_states(num_partitions, num_resident, order.tolist())


def marius_starts(spec: SamplerSpec, key: EpochKey) -> Starts:
    """Return the seeds of an epoch, state by state; a batch has seeds of one state."""
    num_partitions, _ = _numbers(spec)
    states = states_of(spec, key.seed, key.epoch)
    seeds = key.seeds[keyed_permutation(len(key.seeds), key.seed, int(key.purpose), key.epoch)]
    partitions = seeds // nodes_per_partition(key.num_nodes, num_partitions)
    # Every partition is resident in the same number of states.
    of_partition = [
        [number for number, state in enumerate(states) if partition in state] for partition in range(num_partitions)
    ]
    options = np.array(of_partition)
    draws = draw_below(options.shape[1], len(seeds), key_of((_STATE, key.seed, int(key.purpose), key.epoch)))
    state_of = options[partitions, draws]
    order = np.argsort(state_of, kind="stable")
    masks = np.array([sum(1 << each for each in state) for state in states], np.int64)
    sizes = np.bincount(state_of, minlength=len(states))
    return Starts(
        seeds=NodeRows(seeds[order]),
        batch_size=key.batch_size,
        times=masks[state_of[order]],
        row_starts=_batch_starts(sizes, key.batch_size),
    )


def _batch_starts(sizes: NDArray[np.int64], batch_size: int) -> NDArray[np.int64]:
    """Cut the seeds of each state into batches."""
    ends = np.cumsum(sizes)
    starts = [np.arange(end - size, end, batch_size) for size, end in zip(sizes, ends, strict=True)]
    return np.concatenate([*starts, ends[-1:]]).astype(np.int64)


def _numbers(spec: SamplerSpec) -> tuple[int, int]:
    parameters = dict(spec.parameters)
    return int(parameters[PARTITIONS]), int(parameters[RESIDENT])


KIND = SamplerKind(name=MARIUS, check=check_marius, open=open_marius, starts=marius_starts, examples=())
