"""The samplers that benchmarks/samplers.py compares on workload W's graph, and the batches of an epoch of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diskhop._native import keyed_permutation
from diskhop.budget import Budget
from diskhop.config.sampler import CLUSTER, FASTGCN, LABOR, LADIES, MARIUS, SAINT_EDGE, SAINT_NODE, SAINT_WALK
from diskhop.dataset.dataset import Dataset
from diskhop.io.engine import open_engine
from diskhop.pipeline.batch import Pass
from diskhop.protocols import NEIGHBOR, NodeRows, Purpose, SamplerSpec, neighbor_spec
from diskhop.sampling.cluster_sampler import cluster_spec
from diskhop.sampling.clusters import ClustersSpec, make_clusters, open_clusters
from diskhop.sampling.importance import importance_spec
from diskhop.sampling.marius import marius_spec
from diskhop.sampling.saint import saint_spec
from diskhop.sampling.samplers import SAMPLERS
from diskhop.sampling.seeds import SeedSet, count_batches
from diskhop.sampling.starts import EpochKey, Starts
from workloads import BATCH_SIZE, SEED, WORKLOADS

FANOUTS = WORKLOADS["W"].fanouts
DEPENDENCY = 64
DEPENDENT_LABOR = f"labor, {DEPENDENCY} batches"
PARTITIONS, RESIDENT = 16, 4
# As many nodes per batch as training chooses.
NODES_PER_BATCH, NODES_PER_CLUSTER, MOST_CLUSTERS = 2000, 100, 15_000


@dataclass(frozen=True, slots=True)
class Row:
    """A sampler. batch_size: seeds, or clusters, of a batch."""

    spec: SamplerSpec
    batch_size: int = BATCH_SIZE


@dataclass(frozen=True, slots=True, eq=False)
class Epoch:
    """The batches of a sampler's epoch. is_arranged: whether the sampler orders its own starts."""

    spec: SamplerSpec
    starts: Starts
    is_arranged: bool

    @property
    def num_batches(self) -> int:
        return count_batches(len(self.starts.seeds), self.starts.batch_size, row_starts=self.starts.row_starts)

    def pass_of(self, numbers: Sequence[int]) -> Pass:
        """Return the pass over some of its batches."""
        return Pass(
            seeds=self.starts.seeds,
            numbers=numbers,
            batch_size=self.starts.batch_size,
            sampler=self.spec,
            seed=SEED,
            purpose=Purpose.TRAIN,
            epoch=0,
            row_starts=self.starts.row_starts,
            times=self.starts.times,
        )

    def seed_set(self) -> SeedSet:
        """Return it as the planner sees it."""
        return SeedSet(
            purpose=Purpose.TRAIN,
            seeds=self.starts.seeds,
            batch_size=self.starts.batch_size,
            sampler=self.spec,
            is_shuffled=not self.is_arranged,
            row_starts=self.starts.row_starts,
            times=self.starts.times,
        )


def rows_of(num_nodes: int) -> dict[str, Row]:
    """Return the samplers by the names of their lines; the first is the baseline."""
    per_hop = {LADIES: 8192, FASTGCN: num_nodes // 100}
    saint = {
        SAINT_NODE: saint_spec(SAINT_NODE, BATCH_SIZE),
        SAINT_EDGE: saint_spec(SAINT_EDGE, BATCH_SIZE),
        SAINT_WALK: saint_spec(SAINT_WALK, BATCH_SIZE, 2),
    }
    num_clusters = count_clusters(num_nodes)
    return {
        NEIGHBOR: Row(neighbor_spec(FANOUTS)),
        LABOR: Row(importance_spec(LABOR, FANOUTS)),
        DEPENDENT_LABOR: Row(importance_spec(LABOR, FANOUTS, batch_dependency=DEPENDENCY)),
        "labor-1": Row(importance_spec(LABOR, FANOUTS, importance=1)),
        f"labor-1, {DEPENDENCY} batches": Row(
            importance_spec(LABOR, FANOUTS, importance=1, batch_dependency=DEPENDENCY)
        ),
        **{kind: Row(importance_spec(kind, (count,) * len(FANOUTS))) for kind, count in per_hop.items()},
        MARIUS: Row(marius_spec(FANOUTS, PARTITIONS, RESIDENT)),
        **{kind: Row(spec) for kind, spec in saint.items()},
        CLUSTER: Row(cluster_spec(num_clusters), max(1, NODES_PER_BATCH * num_clusters // num_nodes)),
    }


def count_clusters(num_nodes: int) -> int:
    return max(1, min(MOST_CLUSTERS, num_nodes // NODES_PER_CLUSTER))


def with_clusters(dataset: Dataset) -> Dataset:
    """Return the dataset with the clusters of the row `cluster`, which are made next to it if they are missing."""
    spec = ClustersSpec(dataset_hash=dataset.hash, num_clusters=count_clusters(dataset.num_nodes))
    folder = dataset.path.parent / f"{dataset.path.name}-{spec.folder(Path()).name}"
    if not folder.exists():
        make_clusters(spec, folder, dataset.topology, open_engine().engine, Budget(1 << 40))
    return dataset.with_clusters(open_clusters(folder, spec, dataset.num_nodes))


def seeds_of(dataset: Dataset) -> NodeRows:
    """Return a tenth of the nodes, in random order."""
    num_seeds = max(BATCH_SIZE, dataset.num_nodes // 10)
    return NodeRows(keyed_permutation(dataset.num_nodes, SEED, int(Purpose.TRAIN), 0)[:num_seeds])


def epoch_of(dataset: Dataset, row: Row) -> Epoch:
    """Return the first epoch of a sampler, over a tenth of the nodes where it starts from seeds."""
    seeds, arrange = seeds_of(dataset), SAMPLERS[row.spec.kind].starts
    if arrange is None:
        return Epoch(row.spec, Starts(seeds=seeds, batch_size=row.batch_size), False)
    key = EpochKey(
        num_nodes=dataset.num_nodes,
        seeds=seeds,
        batch_size=row.batch_size,
        seed=SEED,
        purpose=Purpose.TRAIN,
        epoch=0,
    )
    return Epoch(row.spec, arrange(row.spec, key), True)
