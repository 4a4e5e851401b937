"""The samplers of a run: how training draws neighbours or nodes, and how validation and test draw neighbours."""

from __future__ import annotations

from diskhop.config.sampled import ALL_NEIGHBORS, SampledConfig
from diskhop.config.sampler import CHOOSING, CLUSTER, IMPORTANCE, LABOR, LAYER_WISE, MARIUS, NEIGHBOR, SAINT_WALK
from diskhop.pipeline.batch import Pass
from diskhop.protocols import NodeRows, Purpose, SamplerSpec, neighbor_spec
from diskhop.sampling.cluster_sampler import cluster_spec
from diskhop.sampling.columns import WEIGHTS
from diskhop.sampling.importance import importance_spec
from diskhop.sampling.marius import marius_spec
from diskhop.sampling.neighbor_ways import NeighborWays
from diskhop.sampling.saint import saint_spec
from diskhop.sampling.samplers import SAMPLERS
from diskhop.sampling.seeds import SeedSet, count_batches, shuffled_seeds
from diskhop.sampling.starts import EpochKey, Starts


def train_sampler(config: SampledConfig) -> SamplerSpec:
    """Return the sampler of training batches."""
    if config.sampler in IMPORTANCE:
        return importance_spec(
            config.sampler,
            config.fanout,
            importance=config.importance,
            batch_dependency=config.batch_dependency,
        )
    if config.sampler == SAINT_WALK:
        return saint_spec(config.sampler, config.batch_size, config.walk_length)
    if config.sampler == MARIUS:
        return marius_spec(config.fanout, config.node_partitions, config.resident_partitions)
    if config.sampler == CLUSTER:
        return cluster_spec(config.clusters)
    if config.sampler in CHOOSING:
        return saint_spec(config.sampler, config.batch_size)
    return _ways_of(config).spec(config.fanout)


def eval_sampler(config: SampledConfig) -> SamplerSpec:
    """Return the sampler of validation and test, which draws neighbours whatever training does.

    With all neighbours there is nothing to draw: batches are then those of a run without weights and replacement, and
    measure what `diskhop evaluate` computes exactly.
    """
    if all(count == ALL_NEIGHBORS for count in config.eval_fanout):
        return neighbor_spec(config.eval_fanout)
    return _ways_of(config).spec(config.eval_fanout)


def draws_all(config: SampledConfig) -> bool:
    """Return whether training takes all neighbours, so that degrees in its batches are those of the graph."""
    takes_all = all(count == ALL_NEIGHBORS for count in config.fanout)
    has_plain_edges = config.sampler in (NEIGHBOR, LABOR) and not config.weighted and not config.importance
    return takes_all and has_plain_edges


def normalises_by_graph(config: SampledConfig) -> bool:
    """Return whether models that normalise do so by degrees in the whole graph, not by sampled ones as PyG does.

    With all neighbours both are the same, and the graph's are exact at the rim too. Layer-wise samplers sample the
    normalised graph: its sums are unbiased, and sums normalised by the few edges that are drawn are not.
    """
    return draws_all(config) or config.sampler in LAYER_WISE


def chooses_nodes(config: SampledConfig) -> bool:
    """Return whether the sampler chooses the nodes of training batches, some of which are training nodes."""
    return config.sampler in CHOOSING


def train_pass(config: SampledConfig, train_rows: NodeRows, num_nodes: int, epoch: int) -> Pass:
    """Return the pass of an epoch of training."""
    spec = train_sampler(config)
    arrange = SAMPLERS[spec.kind].starts
    if arrange is None:
        starts = Starts(seeds=shuffled_seeds(train_rows, config.seed, epoch), batch_size=config.batch_size)
    else:
        starts = arrange(spec, _epoch_key(config, train_rows, num_nodes, epoch))
    return Pass(
        seeds=starts.seeds,
        numbers=range(count_batches(len(starts.seeds), starts.batch_size, config.max_batches, starts.row_starts)),
        batch_size=starts.batch_size,
        sampler=spec,
        seed=config.seed,
        purpose=Purpose.TRAIN,
        epoch=epoch,
        row_starts=starts.row_starts,
        times=starts.times,
    )


def train_seed_set(config: SampledConfig, train_rows: NodeRows, num_nodes: int) -> SeedSet:
    """Return the starts of training batches as the planner sees them."""
    spec = train_sampler(config)
    arrange = SAMPLERS[spec.kind].starts
    if arrange is None:
        starts = Starts(seeds=train_rows, batch_size=config.batch_size)
    else:
        starts = arrange(spec, _epoch_key(config, train_rows, num_nodes, 0))
    return SeedSet(
        purpose=Purpose.TRAIN,
        seeds=starts.seeds,
        batch_size=starts.batch_size,
        sampler=spec,
        is_shuffled=arrange is None,
        row_starts=starts.row_starts,
        times=starts.times,
    )


def _epoch_key(config: SampledConfig, train_rows: NodeRows, num_nodes: int, epoch: int) -> EpochKey:
    return EpochKey(
        num_nodes=num_nodes,
        seeds=train_rows,
        batch_size=config.batch_size,
        seed=config.seed,
        purpose=Purpose.TRAIN,
        epoch=epoch,
    )


def _ways_of(config: SampledConfig) -> NeighborWays:
    return NeighborWays(
        replace=config.replace, weights=WEIGHTS if config.weighted else "", subgraph=config.subgraph_type
    )
