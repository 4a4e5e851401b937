"""Limits that a user names, --superbatch and --neighbor-cache: planned exactly, refused in one line, same batches."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

import diskhop
from diskhop.budget import Budget
from diskhop.config.options import AUTO
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import assumed_disk_model
from diskhop.errors import BudgetError, ConfigError
from diskhop.loaders.neighbor import NeighborLoader
from diskhop.planning.batch_sizes import measure_batches
from diskhop.planning.planner import choose_plan, predict_plan
from diskhop.planning.simulation import prepares_ahead
from diskhop.planning.workload import Workload
from diskhop.plans import SampledPlan
from diskhop.protocols import Purpose, neighbor_spec
from diskhop.sampling.cached_topology import cached_topology_bytes, list_bytes
from diskhop.sampling.seeds import SeedSet
from diskhop.stores.stores import STORES
from tests.runs import small_graph

DISK = assumed_disk_model()


@pytest.fixture(scope="module")
def dataset(module_folder: Path) -> Dataset:
    return small_graph(module_folder / "sbm", num_nodes=20_000, dim=16, num_edges=400_000, train_fraction=0.5)


@pytest.fixture(scope="module")
def workload(dataset: Dataset) -> Workload:
    train = dataset.split_rows("train")
    assert train is not None
    seeds = SeedSet(purpose=Purpose.TRAIN, seeds=train, batch_size=100, sampler=neighbor_spec((3, 3)), is_shuffled=True)
    return Workload(seed_sets=(seeds,), seed=0, threads=2)


def plan_of(dataset: Dataset, workload: Workload, memory_bytes: int = 400 << 20, **changes: Any) -> SampledPlan:
    return choose_plan(dataset, replace(workload, **changes), Budget(memory_bytes), DISK)


@pytest.mark.parametrize("store", ["belady", "packed"])
def test_a_superbatch_has_no_more_batches_than_named_or_than_fit_the_disk(
    dataset: Dataset, workload: Workload, store: str
) -> None:
    free = plan_of(dataset, workload, store=store, disk_bytes=1 << 30)
    named = plan_of(dataset, workload, store=store, disk_bytes=1 << 30, superbatch=3)
    small = plan_of(dataset, workload, store=store, disk_bytes=8 << 20, superbatch=10**6)
    assert (named.share.superbatch, free.share.superbatch > 3) == (3, True)
    assert small.share.superbatch == plan_of(dataset, workload, store=store, disk_bytes=8 << 20).share.superbatch
    assert any("Sampling up to 3 batches ahead (two superbatches, --superbatch)" in each for each in named.reasons)
    # Reservations do not depend on it.
    assert named.reserved == free.reserved


def test_a_named_superbatch_is_trained_on_while_the_next_one_is_packed(dataset: Dataset, workload: Workload) -> None:
    ahead = replace(workload, store="packed", disk_bytes=1 << 40, epochs=5)
    assert prepares_ahead(ahead, choose_plan(dataset, ahead, Budget(400 << 20), DISK))
    named = replace(ahead, superbatch=10**6)
    assert not prepares_ahead(named, choose_plan(dataset, named, Budget(400 << 20), DISK))


def test_a_superbatch_is_refused_for_a_store_that_does_not_look_ahead(dataset: Dataset, workload: Workload) -> None:
    with pytest.raises(ConfigError, match=r"--superbatch has no effect with --store static; .* belady or packed"):
        plan_of(dataset, workload, store="static", superbatch=3)
    with pytest.raises(ConfigError, match="--superbatch has no effect with --reuse"):
        plan_of(dataset, workload, store="packed", reuse=True, superbatch=3)
    with pytest.raises(ConfigError, match="--superbatch has no effect on pack"):
        diskhop.pack(dataset, superbatch=3)


def test_lists_take_exactly_the_memory_that_is_named(dataset: Dataset, workload: Workload) -> None:
    files = dataset.topology
    assert plan_of(dataset, workload, store="static").topology == "memory"
    plan = plan_of(dataset, workload, store="static", neighbor_cache_bytes=400_000)
    assert (plan.topology, plan.topology_cache_bytes) == ("cached", 400_000)
    assert plan.reserved["topology"] == cached_topology_bytes(files, 400_000)
    assert any("400 KB of the most useful neighbour lists (--neighbor-cache)" in each for each in plan.reasons)
    # All lists are in memory where they fit what is named.
    assert plan_of(dataset, workload, store="static", neighbor_cache_bytes=list_bytes(files)).topology == "memory"


@pytest.mark.parametrize("store", [AUTO, *STORES])
def test_the_smallest_budget_for_a_named_cache_of_lists_works(dataset: Dataset, workload: Workload, store: str) -> None:
    """Whatever is too small is refused once: what the refusal names is enough for everything, the lists included."""
    all_bytes = list_bytes(dataset.topology)
    sizes = measure_batches(dataset, workload.seed_sets, 0, 200_000_000)
    # The parts of three processes are never a whole number of bytes.
    for cache_bytes, num_processes in product((1, 100_000, all_bytes - 1, all_bytes), (1, 3)):
        wished = replace(workload, store=store, neighbor_cache_bytes=cache_bytes, sizes=sizes)
        with pytest.raises(BudgetError, match="--memory") as refused:
            choose_plan(dataset, wished, Budget(1, num_processes), DISK)
        assert refused.value.smallest_bytes is not None
        plan = choose_plan(dataset, wished, Budget(refused.value.smallest_bytes, num_processes), DISK)
        assert plan.topology == ("memory" if cache_bytes == all_bytes else "cached")
        assert plan.topology_cache_bytes in (0, cache_bytes)


def test_the_smallest_budget_has_room_for_choosing_rows_to_pin(
    dataset: Dataset, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a graph of a hundred times as many nodes, where that takes more than anything else."""
    monkeypatch.setattr("diskhop.planning.store_plan.COUNTING_BYTES_PER_NODE", 2400)
    wished = replace(
        workload, store="static", pinned="accesses", sizes=measure_batches(dataset, workload.seed_sets, 0, 200_000_000)
    )
    for cache_bytes, num_processes in product((None, 1, 100_000), (1, 3)):
        named = replace(wished, neighbor_cache_bytes=cache_bytes)
        with pytest.raises(BudgetError, match="counting accesses") as refused:
            choose_plan(dataset, named, Budget(1, num_processes), DISK)
        assert refused.value.smallest_bytes is not None
        budget = Budget(refused.value.smallest_bytes, num_processes)
        plan = choose_plan(dataset, named, budget, DISK)
        wanted = {name: plan.reserved.get(name, 0) for name in ("topology", "sampling")}
        budget.require({**wanted, "counting accesses": 2400 * dataset.num_nodes + plan.batch_bytes}, plan.shared)


def test_lists_on_the_disk_are_predicted_to_be_read(dataset: Dataset, workload: Workload) -> None:
    predicted = []
    for cache_bytes in (None, 100_000):
        changed = replace(workload, store="memory", neighbor_cache_bytes=cache_bytes)
        plan = choose_plan(dataset, changed, Budget(400 << 20), DISK)
        predicted.append(predict_plan(dataset, changed, plan, Budget(400 << 20), DISK).predicted)
    assert predicted[0] is not None
    assert predicted[1] is not None
    assert predicted[1].io_seconds > predicted[0].io_seconds == 0


def test_a_loader_delivers_the_same_batches_within_named_limits(dataset: Dataset, module_folder: Path) -> None:
    def batches(**limits: Any) -> list[Any]:
        options: dict[str, Any] = {
            "batch_size": 1000,
            "memory": "300MB",
            "store": "belady",
            "cache": "200KB",
            "disk": "1GB",
        }
        with NeighborLoader(dataset, [3, 3], "train", scratch=module_folder, **options, **limits) as loader:
            return [(batch.n_id, batch.edge_index, batch.x) for batch in loader]

    wanted = batches()
    found = batches(superbatch=2, neighbor_cache="300KB")
    assert len(found) == len(wanted) == 10
    for one, other in zip(found, wanted, strict=True):
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("limits", "message"),
    [({"superbatch": -1}, "superbatch must be"), ({"neighbor_cache": "much"}, "much")],
)
def test_limits_of_a_loader_are_checked(dataset: Dataset, limits: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        NeighborLoader(dataset, [3], "train", **limits)
