"""The planner: pure rankings, simulations against counting by hand, and choices that runs take."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import assumed_disk_model
from diskhop.errors import BudgetError, ConfigError
from diskhop.io.engine import open_engine
from diskhop.planning.batch_sizes import measure_batches
from diskhop.planning.options import AS_GOOD, Option, rank
from diskhop.planning.planner import choose_plan, rank_options
from diskhop.planning.short_trace import sample_short_trace, spread_numbers
from diskhop.planning.simulation import Simulation, prepares_ahead
from diskhop.planning.store_plan import plan_store
from diskhop.planning.workload import Workload
from diskhop.plans import Prediction, RunPlan, SampledPlan
from diskhop.policies.belady import belady_misses
from diskhop.policies.lru import lru_misses
from diskhop.policies.superbatches import lengths_of_passes, superbatch_lengths
from diskhop.protocols import NodeRows, Purpose, neighbor_spec
from diskhop.sampling.seeds import SeedSet
from diskhop.stores.stores import STORES
from tests.plans import with_share
from tests.replays import replay_belady
from tests.runs import small_graph

PLAN = RunPlan(engine="threads", threads=1, memory_bytes=1, reserved={}, reasons=("why",))
DEVICE = assumed_disk_model()


@pytest.fixture(scope="module")
def dataset(module_folder: Path) -> Dataset:
    return small_graph(module_folder / "sbm", num_nodes=20_000, dim=256, num_edges=100_000, train_fraction=0.5)


def workload_of(dataset: Dataset, **changes: Any) -> Workload:
    train = dataset.split_rows("train")
    assert train is not None
    seeds = SeedSet(purpose=Purpose.TRAIN, seeds=train, batch_size=200, sampler=neighbor_spec((5, 5)), is_shuffled=True)
    return replace(Workload(seed_sets=(seeds,), seed=0, reads_lent_rows=True), **changes)


def option(name: str, seconds: float, simplicity: int = 0, before: float = 0.0) -> Option[RunPlan]:
    predicted = Prediction(
        epoch_seconds=seconds, io_seconds=seconds, cores_seconds=0, compute_seconds=0, open_seconds=before
    )
    return Option(name=name, plan=PLAN, predicted=predicted, simplicity=simplicity)


def test_a_store_is_registered_by_its_name() -> None:
    assert all(name == kind.name for name, kind in STORES.items())
    assert len({kind.simplicity for kind in STORES.values()}) == len(STORES)


def test_the_fewest_seconds_of_the_whole_run_are_taken() -> None:
    once, often = option("prepared", 1, before=10), option("plain", 2)
    assert rank([once, often], {}, 1, "store").options[0].name == "plain"
    assert rank([once, often], {}, 20, "store").options[0].name == "prepared"


def test_of_options_that_are_as_good_the_simpler_one_is_taken() -> None:
    simple, quick = option("simple", AS_GOOD - 0.001, 0), option("quick", 1, 1)
    ranking = rank([quick, simple], {"none": "too large"}, 3, "store")
    assert [each.name for each in ranking.options] == ["simple", "quick", "none"]
    best = ranking.best
    assert best.predicted == simple.predicted
    assert [each.option for each in best.rejected] == ["quick", "none"]
    assert best.reasons[0].startswith("store simple: 1.03 s per epoch predicted; disk 1.03 s, CPU 0 s (overlapped)")
    assert best.to_dict()["predicted_epoch_seconds"] == simple.predicted.epoch_seconds  # type: ignore[union-attr]


def test_an_option_that_no_budget_bounds_is_shown_and_not_taken() -> None:
    ranking = rank([replace(option("map", 1), is_bounded=False, reason="unbounded"), option("slow", 9)], {}, 1, "store")
    assert [each.name for each in ranking.options] == ["slow", "map"]


@given(
    trace=st.lists(st.lists(st.integers(0, 30), min_size=1, unique=True), min_size=1, max_size=12),
    capacity=st.integers(0, 31),
)
def test_lru_by_batches_agrees_with_lru_by_rows_where_whole_batches_are_held(
    trace: list[list[int]], capacity: int
) -> None:
    held: OrderedDict[int, int] = OrderedDict()
    for number, (ids, misses) in enumerate(
        zip(trace, lru_misses([np.array(ids, np.uint32) for ids in trace], 31, capacity), strict=True)
    ):
        # Of the batches before, the last ones are held whole, and one of them in part.
        whole, num_held = number, 0
        for batch in reversed(range(number)):
            last = [row for row, last_batch in held.items() if last_batch == batch]
            if num_held + len(last) > capacity:
                break
            whole, num_held = batch, num_held + len(last)
        surely = {row for row, batch in held.items() if batch >= whole}
        maybe = {row for row, batch in held.items() if batch == whole - 1}
        missed = set(misses.tolist())
        assert missed.isdisjoint(surely & set(ids))
        assert missed >= set(ids) - surely - maybe
        held |= dict.fromkeys(ids, number)


def test_rows_that_belady_misses_are_as_many_as_its_replay_counts() -> None:
    draws = np.random.default_rng(0)
    trace = [np.sort(draws.choice(200, 40, replace=False)).astype(np.uint32) for _ in range(12)]
    spans = list(belady_misses(trace, 200, 50, spans=[4, 4, 4]))
    counts = replay_belady([ids.astype(np.int64) for ids in trace], 200, 50, span=4, fills=True)
    assert sum(len(missed) for _, misses in spans for missed in misses) == counts.misses
    assert sum(len(filled) for filled, _ in spans) == counts.filled


def test_superbatches_grow_up_to_what_the_disk_takes() -> None:
    assert superbatch_lengths(100, 50, 4.0) == [16, 42, 42]
    assert superbatch_lengths(5, 50, 4.0) == [5]
    assert superbatch_lengths(9, 4, 1.5) == [4, 3, 2]


def test_superbatches_of_the_next_pass_go_on_growing_and_end_without_a_short_one() -> None:
    assert superbatch_lengths(37, 1000, 1.5) == [16, 21]
    assert superbatch_lengths(37, 1000, 1.5, after=21) == [37]
    assert superbatch_lengths(37, 20, 1.5, after=21) == [19, 18], "as far as the disk allows"
    assert superbatch_lengths(100, 1000, 1.5, after=24) == [36, 64]
    assert superbatch_lengths(37, 1000, 1.5, after=4) == [16, 21], "after a short validation"
    for num_batches in range(1, 200):
        lengths = superbatch_lengths(num_batches, 30, 1.5, after=16)
        assert sum(lengths) == num_batches
        assert max(lengths) <= 30
        assert lengths[-1] * 3 >= lengths[0]


def test_a_short_first_superbatch_is_followed_by_ones_that_its_training_can_hide() -> None:
    assert lengths_of_passes(37, 1000, 1.5, 8) == [[8, 12, 17], [19, 18], [19, 18]]
    assert lengths_of_passes(37, 1000, 1.5, 12) == [[12, 13, 12], [18, 19], [37]]
    for first, num_batches, growth in itertools.product((1, 2, 7, 16), range(1, 120, 7), (1.5, 4.0)):
        lengths = [each for of_pass in lengths_of_passes(num_batches, 50, growth, first) for each in of_pass]
        assert lengths[0] == min(first, num_batches)
        for before, length in pairwise(lengths):
            assert length <= max(1.3 * max(growth * before, first), growth * before + 1), "no more than growth"


@pytest.mark.parametrize(("shorter_seconds", "expected"), [(9.9, 16), (9.6, 8)])
def test_a_shorter_first_superbatch_must_be_clearly_faster(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shorter_seconds: float, expected: int
) -> None:
    """Its followers read the table more often, which costs more than it saves where the disk is slow."""
    workload = workload_of(dataset, epochs=5, store="packed", scratch=str(tmp_path))

    def predict(_self: Simulation, plan: SampledPlan, _workload: Workload) -> Prediction:
        seconds = shorter_seconds if plan.share.first_superbatch == 8 else 10.0
        return Prediction(epoch_seconds=seconds, io_seconds=1, cores_seconds=1, compute_seconds=1)

    with Simulation(dataset, workload, Budget(80_000_000), DEVICE) as simulation:
        plan = plan_store(dataset, workload, "packed", Budget(80_000_000), DEVICE)
        monkeypatch.setattr(Simulation, "predict", predict)
        usual = simulation.predict(plan, workload)
        found, _ = simulation._with_first_superbatch(plan, usual, workload)
    assert found.share.first_superbatch == expected


@pytest.mark.parametrize(
    ("epochs", "reuse", "least_share", "most_share"),
    [(1, False, 0.9, 1.0), (5, False, 0.0, 0.1), (5, True, 0.0, 0.0)],
    ids=["the only one", "one of several", "with the same batches"],
)
def test_an_epoch_finds_what_the_one_before_left(
    dataset: Dataset, epochs: int, reuse: bool, least_share: float, most_share: float
) -> None:
    """All pages of a map stay in memory, and an epoch's batches name nearly all of the table's rows."""
    ranking = rank_options(dataset, workload_of(dataset, epochs=epochs, reuse=reuse), Budget(500_000_000), DEVICE)
    reads = next(each.predicted.reads for each in ranking.options if each.name == "mapped" and each.predicted)
    num_pages = dataset.num_nodes * 256 * 4 // 4096
    assert least_share * num_pages <= reads <= most_share * num_pages


def test_a_table_that_fits_is_read_once(dataset: Dataset) -> None:
    plan = choose_plan(dataset, workload_of(dataset, store="auto"), Budget(500_000_000), DEVICE)
    assert plan.store == "memory"
    assert plan.predicted is not None
    assert {each.option for each in plan.rejected} == STORES.keys() - {"memory"}
    assert all(each.reason for each in plan.rejected)


def test_a_small_budget_takes_a_store_that_reads(dataset: Dataset) -> None:
    budget = Budget(24_000_000)
    plan = choose_plan(dataset, workload_of(dataset), budget, DEVICE)
    assert plan.store != "memory"
    assert sum(plan.reserved.values()) <= budget.total_bytes
    assert budget.available_bytes == budget.total_bytes, "what is compared by is given back"


def test_options_of_some_stores_do_not_keep_others_from_being_taken(dataset: Dataset) -> None:
    workload = workload_of(dataset, cache_bytes=1_000_000, disk_bytes=10**9, pinned="degree")
    ranking = rank_options(dataset, workload, Budget(500_000_000), DEVICE)
    reasons = {each.name: each.reason for each in ranking.options}
    assert "holds only part of the table" in reasons["memory"]
    assert {each.name for each in ranking.options if each.plan is not None} >= {"direct", "static", "belady"}


def test_what_is_chosen_keeps_the_order_of_batches(dataset: Dataset) -> None:
    ranking = rank_options(dataset, workload_of(dataset), Budget(500_000_000), DEVICE)
    assert all(each.plan.ordered for each in ranking.options if each.plan is not None)


def test_a_budget_in_which_nothing_runs_names_the_smallest_that_does(dataset: Dataset) -> None:
    with pytest.raises(BudgetError, match="the smallest that works is"):
        choose_plan(dataset, workload_of(dataset), Budget(2_000_000), DEVICE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"store": "nearby"}, "unknown store 'nearby'; the known ones are auto, memory"),
        ({"store": "direct", "cache_bytes": 10}, "--cache has no effect with --store direct"),
        ({"pinned": "luck"}, "unknown way to pin rows 'luck'"),
    ],
)
def test_options_that_cannot_be_are_refused(dataset: Dataset, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        choose_plan(dataset, workload_of(dataset, **changes), Budget(500_000_000), DEVICE)


def test_epochs_are_packed_ahead_where_that_pays(dataset: Dataset) -> None:
    plan = choose_plan(dataset, workload_of(dataset, store="packed"), Budget(500_000_000), DEVICE)
    assert not prepares_ahead(workload_of(dataset), plan)
    assert prepares_ahead(workload_of(dataset, reuse=True), plan)
    assert not prepares_ahead(workload_of(dataset, epochs=2, disk_bytes=10**9), plan)
    assert prepares_ahead(workload_of(dataset, epochs=3, disk_bytes=10**9), with_share(plan, superbatch=10**6))


def test_numbers_of_a_trace_are_distinct_and_spread_over_the_pass() -> None:
    assert spread_numbers(1000, 96)[:24] == [*range(537, 545), *range(203, 211), *range(870, 878)]
    for num_batches in range(3, 60):
        for count in range(2, num_batches):
            numbers = spread_numbers(num_batches, count)
            assert count / 2 < len(set(numbers)) == len(numbers) <= count
            assert set(numbers) <= set(range(num_batches))


def test_the_trace_of_a_pass_in_order_is_like_the_whole_pass(dataset: Dataset) -> None:
    """Rows of a batch are as many, whether nodes with many neighbours come first or last."""
    degrees = np.diff(np.fromfile(dataset.topology.indptr_path, np.int64))
    by_degree = np.argsort(degrees, kind="stable")
    rows = []
    for order in (by_degree, by_degree[::-1].copy()):
        seeds = SeedSet(
            purpose=Purpose.INFER,
            seeds=NodeRows(order),
            batch_size=20,
            sampler=neighbor_spec((-1,)),
            is_shuffled=False,
        )
        workload = Workload(seed_sets=(seeds,), seed=0)
        sizes = measure_batches(dataset, workload.seed_sets, 0, 500_000_000)
        engine = open_engine("threads").engine
        rows.append(sample_short_trace(dataset, workload, sizes, Budget(500_000_000), engine).num_rows)
    assert rows[0] == pytest.approx(rows[1], rel=0.1)
    assert rows[0] == pytest.approx(20 * (1 + degrees.mean()), rel=0.1)


def test_a_dataset_without_features_needs_no_choice(tmp_path: Path) -> None:
    plain = small_graph(tmp_path / "plain", num_nodes=200, dim=0, num_edges=1000, train_fraction=0.5)
    plan = choose_plan(plain, workload_of(plain), Budget(500_000_000), DEVICE)
    assert plan.store == "direct"
    assert "no features" in plan.reasons[0]


def test_a_budget_in_which_nothing_can_be_compared_names_what_to_take(dataset: Dataset) -> None:
    with pytest.raises(BudgetError, match=r"too small to compare stores; use --memory \d+MB or more") as caught:
        rank_options(dataset, workload_of(dataset), Budget(100_000), DEVICE)
    assert caught.value.smallest_bytes is not None
    assert caught.value.smallest_bytes > 100_000
