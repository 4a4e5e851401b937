"""One contract for every sampler in the registry: the same batches with the right rows, whatever carries them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from diskhop import from_pyg
from diskhop._native import BufferPool, why_no_uring
from diskhop.batches.record import decode_batch, encode_batch
from diskhop.batches.trace import TraceReader, TraceWriter
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import assumed_disk_model
from diskhop.errors import ConfigError
from diskhop.io.engine import open_engine
from diskhop.pipeline.batch import MiniBatch, Pass
from diskhop.pipeline.pack_steps import Samples
from diskhop.pipeline.pipeline import open_pipeline
from diskhop.planning.planner import choose_plan
from diskhop.planning.workload import Workload
from diskhop.plans import SampledPlan
from diskhop.protocols import NodeRows, Purpose, SampledBatch, Sampler, SamplerSpec, SeedTimes
from diskhop.sampling.cached_topology import NeighborCacheOptions, open_cached_topology
from diskhop.sampling.cluster_sampler import cluster_spec
from diskhop.sampling.clusters import ClustersSpec, make_clusters, open_clusters
from diskhop.sampling.marius import marius_spec
from diskhop.sampling.neighbor_ways import NeighborWays
from diskhop.sampling.samplers import SAMPLERS, lists_of, open_sampler
from diskhop.sampling.seeds import SeedSet
from diskhop.sampling.topology import open_topology
from diskhop.stores.stores import STORES
from tests.graphs import threads_engine
from tests.packed import pack
from tests.toys import first_neighbors
from tests.unit.sampling_oracle import assert_same_batch

NUM_CLUSTERS = 12
# Samplers that draw by columns, which the graph of these tests has.
BY_COLUMNS = [
    NeighborWays(weights="edge_weight").spec((4, 3)),
    NeighborWays(weights="edge_weight", replace=True, subgraph="induced").spec((3, 2)),
    NeighborWays(times="time").spec((4, 3)),
    NeighborWays(times="time", strategy="last", subgraph="bidirectional").spec((4, 3)),
    NeighborWays(times="edge_time", weights="edge_weight", subgraph="induced").spec((4, 3)),
    NeighborWays(times="edge_time", strategy="last", replace=True).spec((4, 3)),
]
# Samplers of clusters, which the dataset of these tests has; each batch has two.
OF_CLUSTERS = [cluster_spec(NUM_CLUSTERS)]
# Samplers among partitions, of which the first two of four are resident.
OF_PARTITIONS = [marius_spec((4, 3), 4, 2), marius_spec((-1,), 4, 2)]
EXAMPLES = [spec for kind in (*SAMPLERS.values(), first_neighbors.KIND) for spec in kind.examples]
SPECS = EXAMPLES + BY_COLUMNS + OF_CLUSTERS + OF_PARTITIONS
ENGINES = ["threads"] if why_no_uring() else ["uring", "threads"]
BATCH_SIZE = 60
SEED = 5


def name_of(spec: SamplerSpec) -> str:
    return "-".join([spec.kind, *map(str, spec.fanouts), *(f"{name}={value}" for name, value in spec.parameters)])


each_spec = pytest.mark.parametrize("spec", SPECS, ids=name_of)


@pytest.fixture(autouse=True, scope="module")
def _toy_registered() -> Iterator[None]:
    """The contract holds for a sampler that is only registered, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SAMPLERS, "first", first_neighbors.KIND)
        yield


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    num_nodes, num_edges = 1500, 9000
    rng = np.random.default_rng(2)
    sources = (rng.random(num_edges) ** 2 * num_nodes).astype(np.int64)
    graph = Data(
        x=torch.from_numpy(rng.random((num_nodes, 20), np.float32)),
        y=torch.from_numpy(rng.integers(0, 3, num_nodes)),
        train_mask=torch.from_numpy(rng.random(num_nodes) < 0.25),
        edge_index=torch.from_numpy(np.stack([sources, rng.integers(0, num_nodes, num_edges)])),
        edge_weight=torch.from_numpy(rng.exponential(size=num_edges).astype(np.float32)),
        edge_time=torch.from_numpy(rng.integers(0, 20, num_edges)),
        time=torch.from_numpy(rng.integers(0, 20, num_nodes).astype(np.int16)),
    )
    made = from_pyg(graph, tmp_path_factory.mktemp("graphs") / "random")
    spec = ClustersSpec(dataset_hash=made.hash, num_clusters=NUM_CLUSTERS)
    folder = spec.folder(made.path / "derived")
    make_clusters(spec, folder, made.topology, threads_engine(), Budget(10**8))
    return made.with_clusters(open_clusters(folder, spec, num_nodes))


def seeds_of(dataset: Dataset, spec: SamplerSpec) -> NodeRows:
    if spec in OF_CLUSTERS:
        return NodeRows(np.arange(NUM_CLUSTERS))
    seeds = dataset.split_rows("train")
    assert seeds is not None
    return NodeRows(seeds[seeds < dataset.num_nodes // 2]) if spec in OF_PARTITIONS else seeds


def batch_size_of(spec: SamplerSpec) -> int:
    return 2 if spec in OF_CLUSTERS else BATCH_SIZE


def times_of(dataset: Dataset, spec: SamplerSpec) -> SeedTimes:
    """Times of the seeds, where edges have times, and partitions that are resident."""
    if spec in OF_PARTITIONS:
        return np.full(len(seeds_of(dataset, spec)), 0b0011)
    is_by_edges = ("times", "edge_time") in spec.parameters
    return np.arange(len(seeds_of(dataset, spec))) % 20 if is_by_edges else None


def pass_over(dataset: Dataset, spec: SamplerSpec) -> Pass:
    seeds = seeds_of(dataset, spec)
    numbers = range(-(-len(seeds) // batch_size_of(spec)))
    return Pass(
        seeds=seeds,
        numbers=numbers,
        batch_size=batch_size_of(spec),
        sampler=spec,
        seed=SEED,
        purpose=Purpose.TRAIN,
        epoch=0,
        times=times_of(dataset, spec),
    )


def sample_all(dataset: Dataset, spec: SamplerSpec) -> list[SampledBatch]:
    """The batches without a pipeline, of the mapped topology."""
    wanted = pass_over(dataset, spec)
    with open_topology(lists_of(dataset, [spec]), "mapped", threads_engine(), Budget(1)) as topology:
        sampler = open_sampler(topology, spec, SEED)
        return [sample(sampler, wanted, number) for number in wanted.numbers]


def sample(sampler: Sampler, wanted: Pass, number: int) -> SampledBatch:
    seeds = wanted.seeds_of(number)
    return sampler.sample(seeds.rows, purpose=wanted.purpose, epoch=0, number=number, times=seeds.times)


def plan_for(
    dataset: Dataset, spec: SamplerSpec, store: str, scratch: Path, *, is_lent: bool, threads: int, **more: Any
) -> SampledPlan:
    seed_set = SeedSet(
        purpose=Purpose.TRAIN,
        seeds=seeds_of(dataset, spec),
        batch_size=batch_size_of(spec),
        sampler=spec,
        is_shuffled=False,
        times=times_of(dataset, spec),
    )
    workload = Workload(
        seed_sets=(seed_set,),
        seed=SEED,
        store=store,
        engine="threads",
        threads=threads,
        reads_lent_rows=is_lent,
        ordered="ordered" in STORES[store].uses,
        scratch=str(scratch) if "scratch" in STORES[store].uses else None,
        **more,
    )
    return choose_plan(dataset, workload, Budget(200_000_000), assumed_disk_model())


def check(dataset: Dataset, batches: Iterator[MiniBatch], expected: list[SampledBatch], is_lent: bool) -> None:
    table = dataset.feature_table()
    assert table is not None
    features = np.fromfile(table.path, np.float32).reshape(dataset.num_nodes, -1)
    number = 0
    for number, batch in enumerate(batches, 1):
        assert_same_batch(batch.sampled, expected[number - 1])
        x = batch.x.numpy()
        assert batch.rows is None or is_lent, "the consumer takes rows in their order alone"
        np.testing.assert_array_equal(x if batch.rows is None else x[batch.rows], features[batch.sampled.node_ids])
    assert number == len(expected)


@pytest.mark.fast(90)
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("is_lent", [False, True])
@pytest.mark.parametrize("store", STORES)
@each_spec
def test_every_store_serves_it(
    dataset: Dataset, tmp_path: Path, spec: SamplerSpec, store: str, is_lent: bool, threads: int
) -> None:
    plan = plan_for(dataset, spec, store, tmp_path, is_lent=is_lent, threads=threads)
    budget = Budget(plan.memory_bytes)
    with (
        open_pipeline(dataset, plan, budget) as pipeline,
        pipeline.run(pass_over(dataset, spec)) as batches,
    ):
        check(dataset, batches, sample_all(dataset, spec), is_lent)
    assert budget.available_bytes == budget.total_bytes


@each_spec
def test_batches_packed_ahead_are_replayed(dataset: Dataset, tmp_path: Path, spec: SamplerSpec) -> None:
    if times_of(dataset, spec) is not None:
        pytest.skip("training has no times of its own for seeds")
    plan = plan_for(dataset, spec, "packed", tmp_path, is_lent=False, threads=1)
    wanted = pass_over(dataset, spec)
    samples = Samples(
        pass_of=lambda _epoch: wanted,
        epochs=(0,),
        num_batches=len(wanted.numbers),
    )
    layout = pack(dataset, plan, Budget(plan.memory_bytes), samples).layout
    plan = plan_for(dataset, spec, "packed", tmp_path, is_lent=False, threads=1, prepared=layout)
    with open_pipeline(dataset, plan, Budget(plan.memory_bytes)) as pipeline, pipeline.run(wanted) as batches:
        check(dataset, batches, sample_all(dataset, spec), is_lent=False)


@each_spec
def test_a_trace_has_them_as_they_were(dataset: Dataset, tmp_path: Path, spec: SamplerSpec) -> None:
    expected = sample_all(dataset, spec)
    settings = pass_over(dataset, spec).trace_settings(dataset.hash)
    resources = threads_engine(), BufferPool(0)
    numbers = range(len(expected))
    with TraceWriter(tmp_path / "trace.bin", settings, dataset.num_nodes, *resources, numbers) as writer:
        for batch in expected:
            writer.append(batch)
    reader = TraceReader(tmp_path / "trace.bin", settings, *resources, numbers)
    for index, batch in enumerate(expected):
        assert_same_batch(reader.batch(index), batch)
        np.testing.assert_array_equal(reader.node_ids(index), batch.row_ids)
        assert_same_batch(decode_batch(encode_batch(batch, dataset.num_nodes)), batch)


@pytest.mark.fast(34)
@pytest.mark.parametrize("engine_name", ENGINES)
@each_spec
def test_every_topology_gives_the_same_batches(dataset: Dataset, spec: SamplerSpec, engine_name: str) -> None:
    expected = sample_all(dataset, spec)
    wanted, files = pass_over(dataset, spec), lists_of(dataset, [spec])
    for topology in ("memory", "cached", "uncached"):
        if spec.kind == "first" and topology != "memory":
            continue  # the toy reads whole lists
        budget, engine, pool = Budget(1 << 26), open_engine(engine_name).engine, BufferPool(1 << 20)
        cache_bytes = 10_000 if topology == "cached" else 0
        options = NeighborCacheOptions(cache_bytes=cache_bytes, max_gap_bytes=4096)
        opened = (
            open_topology(files, "memory", engine, budget)
            if topology == "memory"
            else open_cached_topology(files, options, engine, budget, pool)
        )
        with opened as lists:
            sampler = open_sampler(lists, spec, SEED, pool)
            for number in (*reversed(wanted.numbers), 0):
                assert_same_batch(sample(sampler, wanted, number), expected[number])
            assert sampler.workspace_bytes >= 0


@each_spec
def test_its_batches_follow_the_rules(dataset: Dataset, spec: SamplerSpec) -> None:
    indptr = np.fromfile(dataset.topology.indptr_path, np.int64)
    indices = np.fromfile(dataset.topology.indices_path, dataset.topology.index_dtype)
    for batch in sample_all(dataset, spec):
        assert len(np.unique(batch.row_ids)) == batch.num_rows
        assert (batch.distinct is None) == (batch.seed_of is None)
        assert batch.num_seeds == batch.num_sampled_nodes[0]
        assert sum(batch.num_sampled_nodes) == batch.num_nodes
        assert sum(batch.num_sampled_edges) == len(batch.sources)
        targets = np.repeat(batch.node_ids[: len(batch.indptr) - 1], np.diff(batch.indptr))
        if batch.by_hop:
            np.testing.assert_array_equal(indices[batch.edge_positions], batch.node_ids[batch.sources])
            np.testing.assert_array_equal(np.searchsorted(indptr, batch.edge_positions, "right") - 1, targets)
        if batch.seed_of is not None and batch.distinct is not None:
            np.testing.assert_array_equal(batch.distinct.ids[batch.distinct.of_nodes], batch.node_ids)
            pairs = np.stack([batch.seed_of, batch.node_ids])
            assert np.unique(pairs, axis=1).shape == pairs.shape
            places = np.repeat(np.arange(len(batch.indptr) - 1), np.diff(batch.indptr))
            np.testing.assert_array_equal(batch.seed_of[batch.sources], batch.seed_of[places])


def test_another_spec_is_another_pass(dataset: Dataset) -> None:
    settings = {name_of(spec): pass_over(dataset, spec).trace_settings(dataset.hash) for spec in SPECS}
    assert len({str(each) for each in settings.values()}) == len(SPECS)
    with (
        open_topology(dataset.topology, "mapped", threads_engine(), Budget(1)) as topology,
        pytest.raises(ConfigError, match="unknown sampler"),
    ):
        open_sampler(topology, replace(SPECS[0], kind="nowhere"), SEED)
