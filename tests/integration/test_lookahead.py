"""Sampling ahead to the disk: whatever the superbatches, the batches are the same, and the disk is left as it was."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from diskhop._native import FaultInjector, FaultRule
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import assumed_disk_model
from diskhop.errors import BudgetError, ConfigError, DestinationError
from diskhop.pipeline.batch import MiniBatch, Pass
from diskhop.pipeline.pipeline import open_pipeline
from diskhop.planning.planner import choose_plan
from diskhop.planning.workload import Workload
from diskhop.plans import SampledPlan
from diskhop.protocols import NodeRows, Purpose, neighbor_spec
from diskhop.sampling.seeds import SeedSet, count_batches
from diskhop.stores.stores import STORES
from tests.plans import with_share
from tests.runs import noisy_graph

SAMPLER = neighbor_spec((5, 4))
LOOKING_AHEAD = [name for name, kind in STORES.items() if kind.looks_ahead]
BATCH_SIZE = 20
# Of the first superbatch's writes: its trace takes 17, then come 16 of next uses and up to 17 of changes.
_WRITES_OF_PLANS = range(18, 50)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return noisy_graph(tmp_path_factory.mktemp("graphs") / "sbm")


def workload_of(dataset: Dataset, **options: object) -> Workload:
    seeds = dataset.split_rows("train")
    assert seeds is not None
    seed_set = SeedSet(purpose=Purpose.TRAIN, seeds=seeds, batch_size=BATCH_SIZE, sampler=SAMPLER, is_shuffled=False)
    given = {"engine": "threads", "threads": 2, **options}
    return Workload(seed_sets=(seed_set,), seed=0, **given)  # type: ignore[arg-type]


def plan_of(dataset: Dataset, **options: object) -> SampledPlan:
    return choose_plan(dataset, workload_of(dataset, **options), Budget(100_000_000), assumed_disk_model())


def pass_over(seeds: NodeRows, epoch: int = 0, first: int = 0, numbers: list[int] | None = None) -> Pass:
    return Pass(
        seeds=seeds,
        numbers=range(first, count_batches(len(seeds), BATCH_SIZE)) if numbers is None else numbers,
        batch_size=BATCH_SIZE,
        sampler=SAMPLER,
        seed=3,
        purpose=Purpose.TRAIN,
        epoch=epoch,
    )


def fetched(
    dataset: Dataset,
    plan: SampledPlan,
    passes: tuple[tuple[int, int], ...] = ((0, 0),),
    injector: FaultInjector | None = None,
    order: list[int] | None = None,
) -> list[tuple[int, bytes, bytes, int]]:
    """Return number, ids, features and rows read of every batch of every pass (epoch, first batch)."""
    seeds = dataset.split_rows("train")
    assert seeds is not None
    found = []

    def summary(batch: MiniBatch) -> tuple[int, bytes, bytes, int]:
        ids, rows = batch.sampled.node_ids.tobytes(), batch.x.numpy().tobytes()
        counts = batch.counts
        return batch.sampled.number, ids, rows, counts.rows_requested - counts.rows_hit + counts.rows_filled

    with open_pipeline(dataset, plan, Budget(plan.memory_bytes), injector) as pipeline:
        for epoch, first in passes:
            with pipeline.run(pass_over(seeds, epoch, first, order)) as batches:
                found += [summary(batch) for batch in batches]
    return found


def values(found: list[tuple[int, bytes, bytes, int]]) -> list[tuple[int, bytes, bytes]]:
    return [(number, ids, rows) for number, ids, rows, _ in found]


@pytest.mark.fast(4)
@pytest.mark.parametrize("superbatch", [1, 2, 7, 1000])
@pytest.mark.parametrize("sampling_threads", [1, 3])
@pytest.mark.parametrize("store", LOOKING_AHEAD)
def test_batches_are_those_of_any_store(
    dataset: Dataset, tmp_path: Path, store: str, superbatch: int, sampling_threads: int
) -> None:
    passes = ((0, 0), (1, 0), (2, 11), (3, 39))
    expected = fetched(dataset, plan_of(dataset, store="direct"), passes)
    plan = plan_of(dataset, store=store, cache_bytes=20_000, scratch=str(tmp_path / "new" / "scratch"))
    plan = replace(with_share(plan, superbatch=superbatch), sampling_threads=sampling_threads)
    assert values(fetched(dataset, plan, passes)) == values(expected)
    assert not list((tmp_path / "new" / "scratch").iterdir())


@pytest.mark.fast(4)
@pytest.mark.parametrize("superbatch", [1, 2, 7, 1000])
@pytest.mark.parametrize("first", [0, 11])
@pytest.mark.parametrize("store", LOOKING_AHEAD)
def test_batches_in_another_order_are_the_same(
    dataset: Dataset, tmp_path: Path, store: str, superbatch: int, first: int
) -> None:
    direct = plan_of(dataset, store="direct")
    in_turn = {batch[0]: batch for batch in values(fetched(dataset, direct, ((0, first),)))}
    order = [first + each for each in np.random.default_rng(superbatch).permutation(40 - first).tolist()]
    expected = [in_turn[number] for number in order]
    assert values(fetched(dataset, direct, ((0, first),), order=order)) == expected
    plan = plan_of(dataset, store=store, cache_bytes=20_000, scratch=str(tmp_path))
    plan = with_share(plan, superbatch=superbatch)
    assert values(fetched(dataset, plan, ((0, first),), order=order)) == expected


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        (list(range(41)), "numbers must be from 0 to 39, got 0 to 40; pass range\\(40\\) for all batches"),
        ([-1, 3], "numbers must be from 0 to 39, got -1 to 3"),
        ([*range(39), 0], "numbers must name each batch at most once"),
    ],
)
def test_numbers_of_no_batch_or_of_one_batch_twice_are_refused(
    dataset: Dataset, numbers: list[int], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        fetched(dataset, plan_of(dataset, store="direct"), order=numbers)


def test_the_further_it_looks_the_more_it_finds(dataset: Dataset, tmp_path: Path) -> None:
    plan = plan_of(dataset, store="belady", cache_bytes=40_000, scratch=str(tmp_path))
    rows_read = [
        sum(rows for *_, rows in fetched(dataset, with_share(plan, superbatch=superbatch))) for superbatch in (1, 4, 40)
    ]
    assert rows_read[0] > rows_read[1] > rows_read[2]


@pytest.mark.fast("packed")
@pytest.mark.parametrize("store", LOOKING_AHEAD)
def test_a_pass_left_early_spoils_nothing(dataset: Dataset, tmp_path: Path, store: str) -> None:
    plan = plan_of(dataset, store=store, cache_bytes=40_000, scratch=str(tmp_path))
    expected = values(fetched(dataset, plan))
    seeds = dataset.split_rows("train")
    assert seeds is not None
    with open_pipeline(dataset, plan, Budget(plan.memory_bytes)) as pipeline:
        for num_taken in (0, 1, 9, 20, 40):
            with pipeline.run(pass_over(seeds)) as batches:
                for index in range(num_taken):
                    batch = next(batches)
                    assert (index, batch.sampled.node_ids.tobytes(), batch.x.numpy().tobytes()) == expected[index]
    assert not list(tmp_path.iterdir())


@pytest.mark.fast("belady")
@pytest.mark.parametrize("store", LOOKING_AHEAD)
def test_a_disk_that_fills_up_makes_superbatches_shorter(dataset: Dataset, small_disk: Path, store: str) -> None:
    plan = plan_of(dataset, store=store, cache_bytes=4_000, scratch=str(small_disk))
    expected = values(fetched(dataset, plan_of(dataset, store="direct")))
    assert plan.share.superbatch >= 2
    # More than a disk of 1 MiB takes.
    long = with_share(plan, superbatch=1000)
    assert values(fetched(dataset, long)) == expected
    room = os.statvfs(small_disk)
    # In the end for hardly more than one batch, whose rows `packed` puts there.
    for kept_kib in (200, 110 if store == "packed" else 60):
        ballast = small_disk / "ballast"
        ballast.write_bytes(bytes(room.f_bsize * room.f_bfree - kept_kib * 1024))
        assert values(fetched(dataset, long)) == expected
        backwards = list(range(39, -1, -1))
        assert values(fetched(dataset, long, order=backwards)) == expected[::-1]
        ballast.unlink()


@pytest.mark.parametrize("store", LOOKING_AHEAD)
def test_a_full_disk_is_one_line(dataset: Dataset, small_disk: Path, store: str) -> None:
    plan = plan_of(dataset, store=store, cache_bytes=4_000, scratch=str(small_disk))
    room = os.statvfs(small_disk)
    (small_disk / "ballast").write_bytes(bytes(room.f_bsize * room.f_bfree - 12 * 1024))
    with pytest.raises(DestinationError, match=f"{re.escape(str(small_disk))}.*free some space"):
        fetched(dataset, plan)
    assert [path.name for path in small_disk.iterdir()] == ["ballast"]


@pytest.mark.fast(5)
@pytest.mark.parametrize("nth", [1, 2, 3, 17, 18, 33, 34, 49, 51, 52, 60])
def test_a_write_that_finds_no_room_is_made_up_for(dataset: Dataset, tmp_path: Path, nth: int) -> None:
    plan = plan_of(dataset, store="belady", cache_bytes=4_000, scratch=str(tmp_path))
    expected = values(fetched(dataset, plan))
    injector = FaultInjector([FaultRule("no_space", "writes", nth)])
    if nth in _WRITES_OF_PLANS:
        # Room for what the inspector writes was made before; that it is gone is no shortage but a fault.
        with pytest.raises(DestinationError, match=r"(uses|changes)-\d+\.bin.*free some space"):
            fetched(dataset, plan, injector=injector)
    else:
        assert values(fetched(dataset, plan, injector=injector)) == expected
        injector = FaultInjector([FaultRule("no_space", "writes", nth)])
        backwards = list(range(39, -1, -1))
        assert values(fetched(dataset, plan, injector=injector, order=backwards)) == expected[::-1]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("store", LOOKING_AHEAD)
def test_the_scratch_folder_of_a_run_that_was_killed_is_removed(dataset: Dataset, tmp_path: Path, store: str) -> None:
    abandoned = tmp_path / "run-abandoned"
    of_type, of_user = abandoned / "paper", tmp_path / "run-of-the-user"
    for folder in (of_type, of_user / "deep"):
        folder.mkdir(parents=True)
    for file in (abandoned / "trace-0.bin", of_type / "chunks-0.bin", of_type / ".lists-chunks-0.bin"):
        file.write_bytes(b"x")
    (of_user / "deep" / "notes.txt").touch()
    (tmp_path / "of-the-user").mkdir()
    fetched(dataset, plan_of(dataset, store=store, scratch=str(tmp_path)))
    assert {path.name for path in tmp_path.iterdir()} == {"of-the-user", of_user.name}


@pytest.mark.parametrize("store", LOOKING_AHEAD)
def test_a_scratch_folder_that_cannot_be_made_names_the_option(dataset: Dataset, tmp_path: Path, store: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DestinationError, match=r"file.*choose another folder with --scratch"):
        fetched(dataset, plan_of(dataset, store=store, scratch=str(tmp_path / "file" / "below")))


@pytest.mark.parametrize("store", LOOKING_AHEAD)
def test_by_default_what_is_left_is_the_cache_and_half_the_disk_is_used(dataset: Dataset, store: str) -> None:
    plan = plan_of(dataset, store=store)
    assert plan.share.cache_rows == dataset.num_nodes
    assert plan.share.scratch == str(dataset.path / "derived")
    assert plan.share.superbatch > 1000
    small = plan_of(dataset, store=store, disk_bytes=2_000_000)
    assert 1 < small.share.superbatch < 100


def test_options_without_use_are_refused(dataset: Dataset) -> None:
    for options, message in (
        (
            {"store": "direct", "cache_bytes": 1},
            "--cache has no effect with --store direct; .*static or belady",
        ),
        (
            {"store": "static", "disk_bytes": 1},
            "--disk has no effect with --store static; .*belady or packed",
        ),
        ({"store": "static", "scratch": "x"}, "--scratch has no effect with --store static"),
        ({"store": "belady", "pinned": "degree"}, "--pinned has no effect with --store belady"),
        ({"store": "static", "pinned": "luck"}, "unknown way to pin rows 'luck'"),
        ({"store": "belady", "disk_bytes": 1000}, "--disk 1 KB is too small to sample ahead: use --disk 1MB or more"),
    ):
        with pytest.raises(ConfigError, match=message):
            plan_of(dataset, **options)


@pytest.mark.parametrize("pinned", ["degree", "accesses"])
@pytest.mark.parametrize("store", [name for name, kind in STORES.items() if "pinned" in kind.uses])
def test_the_rows_that_are_asked_for_most_are_pinned(dataset: Dataset, store: str, pinned: str) -> None:
    plan = plan_of(dataset, store=store, pinned=pinned, cache_bytes=200 * 120)
    assert plan.share.cache_rows == 200
    seeds = dataset.split_rows("train")
    assert seeds is not None
    budget = Budget(plan.memory_bytes)
    expected = workload_of(dataset).seed_sets[0]
    with (
        open_pipeline(dataset, plan, budget, expected=expected) as pipeline,
        pipeline.run(pass_over(seeds)) as batches,
    ):
        counts = [(batch.counts.rows_hit, batch.counts.rows_requested) for batch in batches]
    hits, requested = np.array(counts).sum(axis=0)
    # A tenth of the rows, more than a tenth of the accesses.
    assert hits / requested > 0.13
    assert budget.available_bytes == budget.total_bytes


def test_counting_what_to_pin_is_refused_up_front_where_there_is_no_room(dataset: Dataset) -> None:
    with pytest.raises(BudgetError) as caught:
        choose_plan(dataset, workload_of(dataset, store="static"), Budget(10_000), assumed_disk_model())
    smallest_bytes = caught.value.smallest_bytes
    assert smallest_bytes is not None
    plan = choose_plan(dataset, workload_of(dataset, store="static"), Budget(smallest_bytes), assumed_disk_model())
    assert values(fetched(dataset, plan)) == values(fetched(dataset, plan_of(dataset, store="memory")))
