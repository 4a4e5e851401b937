"""A sampler is one file and one entry of the registry: loader, planner, traces and packing take it as it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop import NeighborLoader
from diskhop._native import BufferPool
from diskhop.batches.trace import TraceReader, TraceWriter
from diskhop.budget import Budget
from diskhop.config.sampled import SampledConfig
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.errors import ConfigError, FormatError
from diskhop.pipeline.pack_steps import Samples
from diskhop.planning.planner import choose_plan
from diskhop.protocols import Purpose, SampledBatch, SamplerSpec, neighbor_spec
from diskhop.runs.nodes.defaults import resolve_config
from diskhop.runs.nodes.packing import run_samples
from diskhop.runs.nodes.workload import training_workload
from diskhop.sampling.samplers import SAMPLERS, open_sampler
from diskhop.sampling.topology import open_topology
from diskhop.stores.packed.layout import samples_of
from diskhop.stores.stores import STORES
from tests.graphs import threads_engine
from tests.packed import OPTIONS, pack
from tests.runs import small_graph
from tests.toys import first_neighbors

FIRST = SamplerSpec("first", (3, 2), (("skip", 1.0),))


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SAMPLERS, "first", first_neighbors.KIND)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    path = tmp_path_factory.mktemp("graphs") / "sbm"
    small_graph(
        path,
        num_nodes=1500,
        dim=20,
        num_classes=3,
        num_edges=9000,
        homophily=0.7,
        signal=1.0,
        train_fraction=0.3,
        seed=2,
    )
    return open_dataset(path)


def sampled(dataset: Dataset, spec: SamplerSpec, seeds: np.ndarray[Any, Any], number: int) -> SampledBatch:
    with open_topology(dataset.topology, "mapped", threads_engine(), Budget(1)) as topology:
        sampler = open_sampler(topology, spec, seed=0)
        return sampler.sample(seeds, purpose=Purpose.TRAIN, epoch=0, number=number)


@pytest.mark.parametrize("store", [None, *STORES])
def test_a_loader_delivers_its_batches_from_any_store(dataset: Dataset, tmp_path: Path, store: str | None) -> None:
    table, train = dataset.feature_table(), dataset.split_rows("train")
    assert table is not None
    assert train is not None
    features = np.fromfile(table.path, np.float32).reshape(dataset.num_nodes, -1)
    looks_ahead = store is not None and STORES[store].looks_ahead
    options: dict[str, Any] = {"store": store, "scratch": str(tmp_path)} if looks_ahead else {"store": store}
    with NeighborLoader(dataset, FIRST, "train", batch_size=64, memory="100MB", ordered=True, **options) as loader:
        assert loader.plan.topology == "memory"
        numbers = 0
        for number, batch in enumerate(loader):
            expected = sampled(dataset, FIRST, train[number * 64 :][:64], number)
            np.testing.assert_array_equal(batch.n_id.numpy(), expected.node_ids)
            np.testing.assert_array_equal(batch.edge_index[0].numpy(), expected.sources)
            np.testing.assert_array_equal(batch.x.numpy(), features[expected.node_ids])
            numbers += 1
        assert numbers == len(loader)
        state = loader.state_dict()
    assert state["arguments"]["num_neighbors"] == FIRST.to_dict()
    with (
        NeighborLoader(dataset, [3, 2], "train", batch_size=64, memory="100MB") as other,
        pytest.raises(ConfigError, match="cannot resume: the state is of a loader with num_neighbors"),
    ):
        other.load_state_dict(state)


def test_a_planner_predicts_it(dataset: Dataset) -> None:
    with NeighborLoader(dataset, FIRST, "train", batch_size=64, memory="100MB") as loader:
        few = loader.plan
    with NeighborLoader(dataset, replace(FIRST, fanouts=(30, 30)), "train", batch_size=64, memory="100MB") as loader:
        many = loader.plan
    assert few.predicted is not None
    assert many.predicted is not None
    assert few.batch_rows < many.batch_rows


def with_sampler(samples: Samples, sampler: SamplerSpec) -> Samples:
    return replace(samples, pass_of=lambda epoch: replace(samples.pass_of(epoch), sampler=sampler))


def test_batches_that_are_packed_ahead_are_found_by_the_same_sampler_only(dataset: Dataset, tmp_path: Path) -> None:
    config, _, task = resolve_config(dataset, {**OPTIONS, "scratch": str(tmp_path), "store": "packed", "epochs": 1})
    assert isinstance(config, SampledConfig)
    workload = training_workload(config, task.seeds, task.held, dataset.num_nodes)
    workload = replace(workload, seed_sets=tuple(replace(each, sampler=FIRST) for each in workload.seed_sets))
    budget = Budget(config.memory_bytes)
    plan = choose_plan(dataset, workload, budget)
    plain = run_samples(config, task.seeds.train, dataset.num_nodes)
    samples = with_sampler(plain, FIRST)
    layout = pack(dataset, plan, budget, samples).layout
    assert layout.find_epoch(samples.settings(dataset, 0)) is not None
    for other in (neighbor_spec(FIRST.fanouts), replace(FIRST, parameters=(("skip", 2.0),))):
        settings = with_sampler(plain, other).settings(dataset, 0)
        assert layout.find_epoch(settings) is None
        assert layout.differing(settings).startswith(
            ("sampler first, not None", "parameters {'skip': 1.0}, not {'skip")
        )


def test_a_trace_of_another_sampler_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    train = dataset.split_rows("train")
    assert train is not None
    config, _, task = resolve_config(dataset, OPTIONS)
    assert isinstance(config, SampledConfig)
    samples = run_samples(config, task.seeds.train, dataset.num_nodes)
    settings, plain = (with_sampler(samples, each).settings(dataset, 0) for each in (FIRST, neighbor_spec((3, 2))))
    pool = threads_engine(), BufferPool(0)
    for written, wanted, difference in (
        (settings, plain, "its sampler is first, not None"),
        (plain, settings, "its sampler is None, not first"),
    ):
        with TraceWriter(tmp_path / "trace.bin", written, dataset.num_nodes, *pool, range(1)) as writer:
            writer.append(sampled(dataset, written.sampler, train[:20], 0))
            writer.finish()
        assert len(TraceReader(tmp_path / "trace.bin", written, *pool, range(1))) == 1
        with pytest.raises(FormatError, match=difference):
            TraceReader(tmp_path / "trace.bin", wanted, *pool, range(1))


def test_a_neighbour_sampler_is_written_as_its_fan_outs_alone(dataset: Dataset) -> None:
    """Traces, layouts and their names depend on these values and on their order."""
    config, _, task = resolve_config(dataset, OPTIONS)
    assert isinstance(config, SampledConfig)
    written = samples_of(run_samples(config, task.seeds.train, dataset.num_nodes).settings(dataset, 0))
    assert list(written.items()) == [
        ("dataset_hash", dataset.hash),
        ("fanouts", [4, 4]),
        ("seed", 0),
        ("purpose", "train"),
        ("batch_size", 25),
    ]


def test_what_no_sampler_serves_is_refused(dataset: Dataset) -> None:
    with open_topology(dataset.topology, "mapped", threads_engine(), Budget(1)) as topology:
        with pytest.raises(ConfigError, match=r"unknown sampler 'frist' \(did you mean 'first'\?\)"):
            open_sampler(topology, replace(FIRST, kind="frist"), 0)
        with pytest.raises(ConfigError, match="must be at least 1, got"):
            open_sampler(topology, replace(FIRST, fanouts=(-1,)), 0)
        with pytest.raises(
            ConfigError, match=r"the sampler 'neighbor' has no parameter 'skip', only replace, .*; leave it out"
        ):
            open_sampler(topology, replace(FIRST, kind="neighbor"), 0)
