"""Ginex's phases: lists and cached rows have the same memory in turn, and the batches are those of any store."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import assumed_disk_model
from diskhop.errors import BudgetError, ReadError
from diskhop.pipeline.ahead import SampledAhead
from diskhop.pipeline.in_flight import InFlightBatches
from diskhop.pipeline.pipeline import open_pipeline
from diskhop.pipeline.stages import Sample
from diskhop.planning.planner import predict_plan
from diskhop.planning.simulation import Simulation
from diskhop.planning.store_plan import may_take_turns, plan_store
from diskhop.planning.workload import Workload
from diskhop.plans import SampledPlan
from diskhop.protocols import Purpose
from diskhop.runs.start import train
from diskhop.sampling.cached_topology import list_bytes
from diskhop.sampling.lists_in_turn import ListsInTurn
from diskhop.sampling.seeds import SeedSet
from diskhop.stores.belady import KIND, BeladyStore
from tests.integration.test_following_passes import (
    BATCH_SIZE,
    SAMPLER,
    pass_of,
    plan_of,
    rows_of,
    stage_threads,
    values_of,
    values_of_all,
)
from tests.plans import with_share
from tests.runs import OPTIONS, losses, noisy_graph

# The memory of all rows has room for all lists, or for two thirds of them.
SIZES: dict[str, dict[str, Any]] = {"all": {}, "some": {"dim": 4, "num_classes": 4}}
MEMORY_BYTES = 100_000_000


@pytest.fixture(scope="module", params=SIZES)
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return noisy_graph(tmp_path_factory.mktemp("graphs") / "sbm", **SIZES[request.param])


def workload_of(dataset: Dataset, scratch: Path, **options: Any) -> Workload:
    seeds = rows_of(dataset, "train")
    seed_set = SeedSet(purpose=Purpose.TRAIN, seeds=seeds, batch_size=BATCH_SIZE, sampler=SAMPLER, is_shuffled=False)
    given: dict[str, Any] = {"seed_sets": (seed_set,), "may_take_turns": True, "scratch": str(scratch), **options}
    return Workload(seed=0, store="belady", engine="threads", threads=2, **given)


def plan_in_turn(dataset: Dataset, scratch: Path, superbatch: int = 1000, **options: Any) -> SampledPlan:
    workload, budget = workload_of(dataset, scratch, **options), Budget(MEMORY_BYTES)
    assert may_take_turns(dataset, workload, KIND, budget)
    plan = plan_store(dataset, workload, "belady", budget, assumed_disk_model(), takes_turns=True)
    return with_share(plan, superbatch=superbatch, first_superbatch=superbatch)


@pytest.mark.fast(2)
@pytest.mark.parametrize(("superbatch", "announces"), [(7, True), (1000, False)])
def test_batches_are_those_of_any_store(dataset: Dataset, tmp_path: Path, superbatch: int, announces: bool) -> None:
    expected = values_of_all(dataset, plan_of(dataset, "direct"), announces=True)
    plan = plan_in_turn(dataset, tmp_path, superbatch)
    assert plan.topology == ("memory" if plan.share.lists_in_cache_bytes == list_bytes(dataset.topology) else "cached")
    assert values_of_all(dataset, plan, announces=announces) == expected
    assert not list(tmp_path.iterdir())


def test_lists_are_there_while_batches_are_sampled_and_rows_while_they_are_fetched(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 3.1: each superbatch begins with reading the lists, and nothing is sampled until its rows are fetched."""
    events: list[str] = []
    load, sample, submit, collect = ListsInTurn.load, Sample._sample, BeladyStore.submit, BeladyStore.collect

    def recorded(name: str, call: Callable[..., Any], *given: Any) -> Any:
        events.append(name)
        return call(*given)

    with open_pipeline(dataset, plan_in_turn(dataset, tmp_path, 7), Budget(MEMORY_BYTES)) as pipeline:
        lists, store = pipeline.lists, pipeline.store
        assert lists is not None
        assert isinstance(store, BeladyStore)
        assert np.shares_memory(store._cache.rows, lists.memory)
        expected = lists.memory[: lists.num_bytes].copy() if lists.checksum else np.fromfile(lists.source, np.uint8)

        def check_lists(*given: Any) -> Any:
            np.testing.assert_array_equal(lists.memory[: lists.num_bytes], expected)
            return sample(*given)

        monkeypatch.setattr(ListsInTurn, "load", lambda *given: recorded("load", load, *given))
        monkeypatch.setattr(Sample, "_sample", lambda *given: recorded("sample", check_lists, *given))
        monkeypatch.setattr(BeladyStore, "submit", lambda *given: recorded("fetch", submit, *given))
        monkeypatch.setattr(BeladyStore, "collect", lambda *given: recorded("fetch", collect, *given))
        values_of(pipeline, pass_of(dataset, 0))
    counts = [(name, len(list(same))) for name, same in groupby(events)]
    phases = [(name, count) for name, count in counts if name == "fetch"]
    # 40 batches in superbatches of at most 7; each batch is submitted and collected in the phase of its own.
    assert [count // 2 for _, count in phases] == [7, 7, 7, 7, 6, 6]
    # Channels may have all of the last batches by then.
    assert [name for name, _ in counts if name != "sample"] == ["load", "fetch"] * len(phases)
    assert sum(count for name, count in counts if name == "sample") == 40
    assert all(before[0] != "fetch" for before, after in pairwise(counts) if after[0] == "sample")


def test_the_account_holds_one_memory_for_both(dataset: Dataset, tmp_path: Path) -> None:
    plan, budget = plan_in_turn(dataset, tmp_path, 7), Budget(MEMORY_BYTES)
    with open_pipeline(dataset, plan, budget) as pipeline:
        values_of(pipeline, pass_of(dataset, 0))
    table = dataset.feature_table()
    assert table is not None
    assert {name: num_bytes for name, num_bytes in budget.table().items() if num_bytes} == plan.reserved
    assert plan.reserved["cache"] == table.num_rows * table.row_bytes >= plan.share.lists_in_cache_bytes
    lists = 8 * (dataset.num_nodes + 1)
    assert plan.topology == "cached" or plan.reserved["topology"] == lists
    with pytest.raises(BudgetError):
        plan_store(dataset, workload_of(dataset, tmp_path), "belady", Budget(1), assumed_disk_model(), takes_turns=True)


def test_a_pass_left_early_spoils_nothing(dataset: Dataset, tmp_path: Path) -> None:
    plan = plan_in_turn(dataset, tmp_path, 7)
    with open_pipeline(dataset, plan_of(dataset, "direct"), Budget(MEMORY_BYTES)) as pipeline:
        expected = values_of(pipeline, pass_of(dataset, 0))
    with open_pipeline(dataset, plan, Budget(MEMORY_BYTES)) as pipeline:
        for num_taken in (0, 1, 9):
            with pipeline.run(pass_of(dataset, 0), following=lambda: pass_of(dataset, 1)) as batches:
                for _ in range(num_taken):
                    next(batches)
        assert values_of(pipeline, pass_of(dataset, 0)) == expected
    assert not stage_threads()


def test_a_pass_left_early_stops_looking_ahead_before_it_releases_batches(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last batch of a superbatch lets the next one begin, which would read lists that are unused."""
    events: list[str] = []

    def recorded(name: str, call: Callable[[Any], None], part: Any) -> None:
        events.append(name)
        call(part)

    close, release_all = SampledAhead.close, InFlightBatches.release_all
    monkeypatch.setattr(SampledAhead, "close", lambda self: recorded("stop", close, self))
    monkeypatch.setattr(InFlightBatches, "release_all", lambda self: recorded("release", release_all, self))
    with open_pipeline(dataset, plan_in_turn(dataset, tmp_path, 7), Budget(MEMORY_BYTES)) as pipeline:
        with pipeline.run(pass_of(dataset, 0)) as batches:
            next(batches)
        assert events == ["stop", "release"]


def test_a_damaged_neighbor_cache_is_noticed(tmp_path: Path) -> None:
    dataset = noisy_graph(tmp_path / "sbm", **SIZES["some"])
    plan = plan_in_turn(dataset, tmp_path / "scratch", 7)
    with open_pipeline(dataset, plan, Budget(MEMORY_BYTES)) as pipeline:
        assert pipeline.lists is not None
        path = pipeline.lists.source
        content = bytearray(path.read_bytes())
        content[100] ^= 1
        path.write_bytes(content)
        with pytest.raises(ReadError, match=r"neighbor-cache\.bin: the neighbour cache does not match its checksum"):
            values_of(pipeline, pass_of(dataset, 0))


def _nothing_named(dataset: Dataset, tmp_path: Path, num_processes: int = 1, **options: Any) -> bool:
    workload = workload_of(dataset, tmp_path, **options)
    return may_take_turns(dataset, workload, KIND, Budget(MEMORY_BYTES, num_processes))


def test_sizes_that_are_named_stay_as_they_are(dataset: Dataset, tmp_path: Path) -> None:
    assert _nothing_named(dataset, tmp_path)
    assert not _nothing_named(dataset, tmp_path, cache_bytes=1000)
    assert not _nothing_named(dataset, tmp_path, neighbor_cache_bytes=1000)
    assert not _nothing_named(dataset, tmp_path, may_take_turns=False)
    assert not _nothing_named(dataset, tmp_path, num_processes=2)


def test_lists_and_rows_take_turns_where_that_is_predicted_to_be_faster(tmp_path: Path) -> None:
    """With memory for either of them, but not for both; and not where there is memory for both."""
    dataset = noisy_graph(tmp_path / "sbm", dim=200, num_edges=200_000)
    disk = assumed_disk_model().shared_by(1000)  # on a fast one, so few rows cost nothing
    workload = workload_of(dataset, tmp_path, epochs=3)
    with pytest.raises(BudgetError) as refused:
        plan_store(dataset, workload, "belady", Budget(1), disk)
    smallest_bytes = refused.value.smallest_bytes
    assert smallest_bytes is not None
    for more_bytes, expected in ((3_000_000, True), (MEMORY_BYTES, False)):
        budget = Budget(smallest_bytes + more_bytes)
        plan = plan_store(dataset, workload, "belady", budget, disk)
        predicted = predict_plan(dataset, workload, plan, budget, disk)
        assert predicted.predicted is not None
        assert (predicted.share.lists_in_cache_bytes > 0) == expected
        assert predicted.share.cache_rows > plan.share.cache_rows or not expected


def test_plans_without_memory_to_share_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = noisy_graph(tmp_path / "sbm")
    budget, disk = Budget(MEMORY_BYTES), assumed_disk_model()
    workload = workload_of(dataset, tmp_path)
    with Simulation(dataset, workload, budget, disk) as simulation:
        assert simulation.plan_in_turn(KIND, workload, math.inf) is not None
        nothing = with_share(plan_in_turn(dataset, tmp_path), lists_in_cache_bytes=0)
        monkeypatch.setattr("diskhop.planning.simulation.plan_store", lambda *_args, **_options: nothing)
        assert simulation.plan_in_turn(KIND, workload, math.inf) is None


def test_a_run_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = noisy_graph(tmp_path / "sbm")
    find = Simulation.plan_in_turn
    monkeypatch.setattr(
        Simulation, "plan_in_turn", lambda self, kind, workload, _: find(self, kind, workload, math.inf)
    )
    found = {}
    for store in ("direct", "belady"):
        out = tmp_path / store
        trained = train(dataset, out=out, **{**OPTIONS, "epochs": 2, "store": store, "model": "gcn"})
        found[store] = trained.result["plan"], losses(out)
    assert found["belady"][1] == found["direct"][1]
    assert found["belady"][0]["lists_in_cache_bytes"] == list_bytes(dataset.topology)
    assert "lists_in_cache_bytes" not in found["direct"][0]
