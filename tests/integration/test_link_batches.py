"""Batches of links through every store: the same seeds, negatives and rows, whatever carries them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import assumed_disk_model
from diskhop.pipeline.batch import Pass
from diskhop.pipeline.pack_steps import Samples
from diskhop.pipeline.pipeline import open_pipeline
from diskhop.planning.planner import choose_plan
from diskhop.planning.workload import Workload
from diskhop.protocols import NodeRows, Purpose, SampledBatch, SamplerSpec, neighbor_spec
from diskhop.sampling.links import GivenEnds, Links, shuffle_key
from diskhop.sampling.negatives import Negatives, candidates
from diskhop.sampling.neighbor_ways import NeighborWays
from diskhop.sampling.samplers import lists_of, open_sampler
from diskhop.sampling.seeds import SeedSet
from diskhop.sampling.topology import open_topology
from diskhop.stores.stores import STORES
from tests.graphs import make_dataset, threads_engine
from tests.packed import pack
from tests.unit.sampling_oracle import assert_same_batch

BATCH_SIZE, SEED = 40, 5
WAYS = [("binary", False), ("triplet", False), ("binary", True), ("triplet", True)]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(tmp_path_factory.mktemp("graphs") / "random", num_nodes=600, num_edges=4000, dim=20)


def wanted_of(dataset: Dataset, mode: str, is_disjoint: bool, epoch: int = 0) -> tuple[Pass, SeedSet]:
    side = candidates(dataset.num_nodes)
    ends = np.random.default_rng(3).integers(0, dataset.num_nodes, (2, 290))
    links = Links(
        ends=GivenEnds(ends),
        negatives=Negatives(mode=mode, amount=1, sources=side, destinations=side),  # type: ignore[arg-type]
        is_disjoint=is_disjoint,
    )
    sampler: SamplerSpec = NeighborWays(disjoint=True).spec((4, 3)) if is_disjoint else neighbor_spec((4, 3))
    nothing = NodeRows(np.empty(0, np.int64))
    wanted = Pass(
        seeds=nothing,
        links=replace(links, shuffled_by=shuffle_key(SEED, Purpose.TRAIN, epoch)),
        numbers=range(8),
        batch_size=BATCH_SIZE,
        sampler=sampler,
        seed=SEED,
        purpose=Purpose.TRAIN,
        epoch=epoch,
    )
    seed_set = SeedSet(
        purpose=Purpose.TRAIN, seeds=nothing, links=links, batch_size=BATCH_SIZE, sampler=sampler, is_shuffled=True
    )
    return wanted, seed_set


def sample_all(dataset: Dataset, wanted: Pass) -> list[SampledBatch]:
    """The batches without a pipeline."""
    with open_topology(lists_of(dataset, [wanted.sampler]), "mapped", threads_engine(), Budget(1)) as topology:
        sampler = open_sampler(topology, wanted.sampler, SEED)
        return [
            sampler.sample(seeds.rows, purpose=wanted.purpose, epoch=wanted.epoch, number=number, times=seeds.times)
            for number, seeds in ((number, wanted.seeds_of(number)) for number in wanted.numbers)
        ]


def check(dataset: Dataset, wanted: Pass, store: str, scratch: Path, threads: int, prepared: object = None) -> None:
    _, seed_set = wanted_of(dataset, "binary", False)
    seed_set = replace(seed_set, links=wanted.links, sampler=wanted.sampler)
    workload = Workload(
        seed_sets=(seed_set,),
        seed=SEED,
        store=store,
        engine="threads",
        threads=threads,
        ordered="ordered" in STORES[store].uses,
        scratch=str(scratch) if "scratch" in STORES[store].uses else None,
        prepared=prepared,  # type: ignore[arg-type]
    )
    plan = choose_plan(dataset, workload, Budget(200_000_000), assumed_disk_model())
    table = dataset.feature_table()
    assert table is not None
    features = np.fromfile(table.path, np.float32).reshape(dataset.num_nodes, -1)
    expected = sample_all(dataset, wanted)
    ends = []
    with open_pipeline(dataset, plan, Budget(plan.memory_bytes), expected=seed_set) as pipeline:
        assert prepared is None or plan.share.layout
        with pipeline.run(wanted, lambda sampled, _x: wanted.links_of(sampled.number)) as batches:
            for batch, same in zip(batches, expected, strict=True):
                assert_same_batch(batch.sampled, same)
                np.testing.assert_array_equal(batch.x.numpy(), features[same.node_ids])
                ends.append(same.node_ids[batch.prepared.sources[: len(batch.prepared.positions)]])
    assert wanted.links is not None
    given = wanted.links.ends.take(np.concatenate([wanted.links_of(number).positions for number in wanted.numbers]))
    np.testing.assert_array_equal(np.concatenate(ends), given[0])


@pytest.mark.fast(8)
@pytest.mark.pairwise
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(("mode", "is_disjoint"), WAYS)
def test_every_store_serves_links(
    dataset: Dataset, tmp_path: Path, mode: str, is_disjoint: bool, store: str, threads: int
) -> None:
    check(dataset, wanted_of(dataset, mode, is_disjoint)[0], store, tmp_path, threads)


def test_batches_of_links_packed_ahead_are_replayed(dataset: Dataset, tmp_path: Path) -> None:
    wanted, seed_set = wanted_of(dataset, "binary", False)
    workload = Workload(seed_sets=(seed_set,), seed=SEED, store="packed", scratch=str(tmp_path), threads=1)
    plan = choose_plan(dataset, workload, Budget(200_000_000), assumed_disk_model())
    samples = Samples(pass_of=lambda epoch: wanted_of(dataset, "binary", False, epoch)[0], epochs=(0, 1), num_batches=8)
    layout = pack(dataset, plan, Budget(plan.memory_bytes), samples).layout
    for epoch in (0, 1):
        check(dataset, wanted_of(dataset, "binary", False, epoch)[0], "packed", tmp_path, 1, layout)
    other = wanted_of(dataset, "triplet", False)[0]
    assert layout.find(other.trace_settings(dataset.hash), range(8)) is None
    assert layout.find(wanted.trace_settings(dataset.hash), range(8)) is not None
