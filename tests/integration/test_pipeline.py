"""The pipeline's promises: the same batches whatever carries them, errors that arrive, threads that end."""

from __future__ import annotations

import itertools
import re
import threading
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from diskhop._native import FaultInjector, FaultRule, why_no_uring
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import assumed_disk_model
from diskhop.errors import BudgetError, ConfigError, DiskhopError, PipelineError, ReadError
from diskhop.pipeline.batch import InFlightBatch, MiniBatch, Pass
from diskhop.pipeline.parts import PipelineParts
from diskhop.pipeline.pipeline import open_pipeline
from diskhop.pipeline.stages import stages_of
from diskhop.pipeline.stream import BatchStream
from diskhop.planning.planner import choose_plan
from diskhop.planning.workload import Workload
from diskhop.plans import SampledPlan
from diskhop.protocols import NodeRows, Purpose, SampledBatch, SamplerSpec, neighbor_spec
from diskhop.sampling.seeds import SeedSet, count_batches
from diskhop.stores.packed.sizes import own_rows
from diskhop.stores.stores import STORES
from tests.graphs import make_dataset, open_paths
from tests.plans import with_share
from tests.runs import noisy_graph
from tests.toys.double_stage import Double

ENGINES = ["threads"] if why_no_uring() else ["uring", "threads"]
SAMPLER = neighbor_spec((4, 3))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return noisy_graph(
        tmp_path_factory.mktemp("graphs") / "sbm", num_nodes=3000, dim=37, num_edges=18_000, train_fraction=0.3
    )


def plan_for(dataset: Dataset, memory_bytes: int = 200_000_000, store: str = "direct", **wanted: Any) -> SampledPlan:
    seeds = dataset.split_rows("train")
    assert seeds is not None
    seed_set = SeedSet(purpose=Purpose.TRAIN, seeds=seeds, batch_size=100, sampler=SAMPLER, is_shuffled=False)
    workload = Workload(seed_sets=(seed_set,), seed=0, store=store, engine="threads", threads=2, **wanted)
    return choose_plan(dataset, workload, Budget(memory_bytes), assumed_disk_model())


def pass_over(
    seeds: NodeRows,
    *,
    epoch: int = 0,
    batch_size: int = 100,
    seed: int = 3,
    max_batches: int = 0,
    sampler: SamplerSpec = SAMPLER,
) -> Pass:
    return Pass(
        seeds=seeds,
        numbers=range(count_batches(len(seeds), batch_size, max_batches)),
        batch_size=batch_size,
        sampler=sampler,
        seed=seed,
        purpose=Purpose.TRAIN,
        epoch=epoch,
    )


def run_all(
    dataset: Dataset,
    plan: SampledPlan,
    injector: FaultInjector | None = None,
    epoch: int = 0,
    num_batches: int = 5,
) -> list[MiniBatch]:
    seeds = dataset.split_rows("train")
    assert seeds is not None
    budget = Budget(plan.memory_bytes)
    with (
        open_pipeline(dataset, plan, budget, injector) as pipeline,
        pipeline.run(pass_over(seeds, epoch=epoch, max_batches=num_batches)) as batches,
    ):
        # Clones, since the pipeline reuses the memory of batches it has given out.
        found = [replace(batch, x=rows_of(batch), rows=None) for batch in batches]
    assert budget.available_bytes == budget.total_bytes
    numbers = [batch.sampled.number for batch in found]
    assert not plan.ordered or numbers == sorted(numbers)
    return sorted(found, key=lambda batch: batch.sampled.number)


def rows_of(batch: MiniBatch) -> torch.Tensor:
    return batch.x.clone() if batch.rows is None else batch.x[torch.from_numpy(batch.rows.copy())]


def assert_same(left: list[MiniBatch], right: list[MiniBatch]) -> None:
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        for name in ("node_ids", "indptr", "sources", "edge_positions"):
            np.testing.assert_array_equal(getattr(one.sampled, name), getattr(other.sampled, name))
        assert one.sampled.num_sampled_nodes == other.sampled.num_sampled_nodes
        assert one.sampled.number == other.sampled.number
        assert torch.equal(one.x.view(torch.uint8), other.x.view(torch.uint8))


@pytest.mark.pairwise
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_batches_are_bit_identical_whatever_carries_them(
    dataset: Dataset, store: str, engine: str, threads: int
) -> None:
    reference = run_all(dataset, replace(plan_for(dataset, store="memory"), sampling_threads=1))
    plan = replace(
        plan_for(dataset, store=store),
        engine=engine,
        sampling_threads=threads,
        threads=threads,
        topology="memory" if threads == 1 else "mapped" if threads == 2 else "cached",
        topology_cache_bytes=20_000,
        bytes_in_flight=threads * plan_for(dataset, store=store).batch_bytes,
    )
    assert_same(run_all(dataset, plan), reference)


@pytest.fixture(scope="module", params=["float32", "float16", "bfloat16", "int8"])
def feature_dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=[1, 3, 100, 127, 128, 129, 768, 1000])
def graph_of_width(
    request: pytest.FixtureRequest, feature_dtype: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Dataset, list[MiniBatch]]:
    """A graph with rows so many values wide, and its batches as `memory` brings them."""
    dim = request.param
    made = make_dataset(
        tmp_path_factory.mktemp("widths") / "graph", num_nodes=900, num_edges=4000, dim=dim, dtype=feature_dtype
    )
    table = made.feature_table()
    assert table is not None
    value_bytes = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}[feature_dtype]
    assert table.row_bytes == dim * value_bytes + (4 if feature_dtype == "int8" else 0)
    return made, run_all(made, plan_for(made, store="memory"))


@pytest.mark.fast(24)
@pytest.mark.pairwise
@pytest.mark.parametrize("store", STORES)
def test_rows_of_every_width_and_dtype_are_those_of_memory(
    graph_of_width: tuple[Dataset, list[MiniBatch]], store: str
) -> None:
    made, reference = graph_of_width
    assert len(reference) == 3
    # Rows held and rows read in every batch, and a seam between superbatches.
    plan = replace(with_share(plan_for(made, store=store), cache_rows=200, superbatch=2), engine=ENGINES[0])
    found = run_all(made, plan)
    assert_same(found, reference)
    if "ordered" in STORES[store].uses:
        assert sum(batch.counts.rows_hit + batch.counts.rows_shared for batch in found) > 0
    elif "cache" in STORES[store].uses:
        assert all(0 < batch.counts.rows_hit < batch.counts.rows_requested for batch in found)


@pytest.mark.pairwise
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("store", [name for name, kind in STORES.items() if kind.lends])
def test_rows_read_where_the_store_has_them_are_those_of_memory(
    graph_of_width: tuple[Dataset, list[MiniBatch]], store: str, ordered: bool
) -> None:
    made, reference = graph_of_width
    plan = with_share(plan_for(made, store=store, reads_lent_rows=True, ordered=ordered), cache_rows=200)
    assert (plan.bytes_assembled > 0) == (made.feature_dtype == "int8")
    assert_same(run_all(made, plan), reference)


def test_batches_come_as_they_are_finished_or_in_their_order(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch is slow to be brought: others pass it, unless the order is to be kept."""
    seeds = dataset.split_rows("train")
    assert seeds is not None
    fetch_rows = PipelineParts.fetch_rows
    others_passed = threading.Event()

    def fetch_slowly(self: PipelineParts, batch: InFlightBatch, with_in_degrees: bool) -> None:
        if batch.sampled.number == 1 and not self.plan.ordered:
            assert others_passed.wait(60)
        fetch_rows(self, batch, with_in_degrees)

    monkeypatch.setattr(PipelineParts, "fetch_rows", fetch_slowly)
    for ordered in (True, False):
        others_passed.clear()
        plan = plan_for(dataset, store="shared", ordered=ordered, reads_lent_rows=True)
        assert (plan.ordered, plan.share.extractors >= 2) == (ordered, True)
        numbers = []
        with (
            open_pipeline(dataset, plan, Budget(plan.memory_bytes)) as pipeline,
            pipeline.run(pass_over(seeds, max_batches=8)) as batches,
        ):
            for batch in batches:
                numbers.append(batch.sampled.number)
                if len(numbers) == 5:
                    others_passed.set()
        assert sorted(numbers) == list(range(8))
        assert (numbers == list(range(8))) == ordered
        assert ordered or numbers.index(1) >= 5


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("reads_lent_rows", [True, False])
def test_the_smallest_budget_of_a_shared_buffer_works(dataset: Dataset, ordered: bool, reads_lent_rows: bool) -> None:
    def plan_of(memory_bytes: int) -> SampledPlan:
        return plan_for(dataset, memory_bytes, "shared", ordered=ordered, reads_lent_rows=reads_lent_rows)

    with pytest.raises(BudgetError, match="feature buffer") as caught:
        plan_of(1000)
    smallest_bytes = caught.value.smallest_bytes
    assert smallest_bytes is not None
    plan = plan_of(smallest_bytes)
    assert plan.share.extractors == 2
    # With room for no more batches than are in it at once, all come.
    assert_same(run_all(dataset, plan, num_batches=0), run_all(dataset, plan_for(dataset), num_batches=0))
    with pytest.raises(BudgetError):
        plan_of(smallest_bytes - 1)


def test_a_batch_that_the_shared_buffer_cannot_hold_ends_the_pass(dataset: Dataset) -> None:
    plan = with_share(plan_for(dataset, store="shared", reads_lent_rows=True), buffer_rows=500)
    with pytest.raises(BudgetError, match=r"batch \d+ has \d+ rows.* has 500; use --memory 2\d\dMB or more"):
        run_all(dataset, plan)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("diskhop")]


@pytest.mark.fast(1)
@pytest.mark.parametrize("times", [150, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("reads_lent_rows", [True, False])
def test_leaving_at_any_moment_returns_at_once(dataset: Dataset, reads_lent_rows: bool, times: int) -> None:
    """Whatever the stages wait for just then; the buffer that they leave behind serves the next pass."""
    plan = plan_for(dataset, store="shared", reads_lent_rows=reads_lent_rows)
    seeds = dataset.split_rows("train")
    assert seeds is not None
    # For two batches and the model's.
    plan = with_share(plan, buffer_rows=3 * plan.batch_rows, extractors=2)
    generator = np.random.default_rng(0)
    with open_pipeline(dataset, plan, Budget(plan.memory_bytes)) as pipeline:
        for start in range(times):
            with pipeline.run(pass_over(seeds, epoch=start, batch_size=50, seed=0)) as batches:
                for _ in range(generator.integers(0, 4)):
                    next(batches)
                time.sleep(generator.choice([0, 0.0005, 0.003]))
                left = time.monotonic()
            assert time.monotonic() - left < 10
            assert not [thread for thread in threading.enumerate() if thread.name.startswith("diskhop_")]
        read, dropped, held = pipeline.store.totals  # type: ignore[union-attr]
        assert read == dropped + held


@pytest.mark.fast(1)
@pytest.mark.parametrize("times", [40, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("reads_lent_rows", [True, False])
def test_leaving_while_chunks_are_packed_or_read_returns_at_once(
    dataset: Dataset, tmp_path: Path, reads_lent_rows: bool, times: int
) -> None:
    """Room for two batches, superbatches of three: stages wait for room, packing, the disk and each other."""
    plan = plan_for(dataset, store="packed", reads_lent_rows=reads_lent_rows, cache_bytes=20_000, scratch=str(tmp_path))
    table = dataset.feature_table()
    seeds = dataset.split_rows("train")
    assert table is not None
    assert seeds is not None
    plan = with_share(plan, buffer_rows=2 * own_rows(table, plan.batch_rows, 0), superbatch=3)
    expected = run_all(dataset, plan, num_batches=0)
    generator = np.random.default_rng(0)
    with open_pipeline(dataset, plan, Budget(plan.memory_bytes)) as pipeline:
        for start in range(times):
            with pipeline.run(pass_over(seeds)) as batches:
                for index in range(generator.integers(0, 5)):
                    assert torch.equal(rows_of(next(batches)), expected[index].x), start
                time.sleep(generator.choice([0, 0.0005, 0.003]))
                left = time.monotonic()
            assert time.monotonic() - left < 1
            assert not [thread for thread in threading.enumerate() if thread.name.startswith("diskhop_")]
    assert not list(tmp_path.iterdir())
    assert not open_paths(tmp_path)


@pytest.mark.parametrize("store", ["shared", "packed"])
def test_leaving_as_a_batch_joins_the_line_for_room_returns(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    """A ticket that is there just after the others were cancelled is cancelled too."""
    plan = plan_for(dataset, store=store, reads_lent_rows=True, cache_bytes=0)
    table = dataset.feature_table()
    seeds = dataset.split_rows("train")
    assert table is not None
    assert seeds is not None
    buffer_rows = 2 * (own_rows(table, plan.batch_rows, 0) if store == "packed" else plan.batch_rows)
    plan = with_share(plan, buffer_rows=buffer_rows, cache_rows=buffer_rows if store == "shared" else 0)
    plan = replace(plan, ordered=True)
    is_in_line = threading.Event()
    with open_pipeline(dataset, plan, Budget(plan.memory_bytes)) as pipeline:
        opened: Any = pipeline.store
        submit = opened.submit
        streams: list[BatchStream] = []

        def submit_slowly(batch: SampledBatch, make_room: Any) -> Any:
            ticket = submit(batch, make_room)
            if batch.number == 2:
                is_in_line.set()
                while not (streams and streams[0]._threads.is_stopped):
                    time.sleep(0.001)
            return ticket

        monkeypatch.setattr(opened, "submit", submit_slowly)
        stream = pipeline.run(pass_over(seeds))
        streams.append(stream)
        close_gate = stream._in_flight.fetching.close

        def close_slowly(error: BaseException | None) -> None:
            time.sleep(0.3)
            close_gate(error)

        monkeypatch.setattr(stream._in_flight.fetching, "close", close_slowly)
        next(stream)
        assert is_in_line.wait(20)
        closing = threading.Thread(target=stream.close, daemon=True)
        closing.start()
        closing.join(10)
        assert not closing.is_alive()


def test_features_are_the_dataset_s_rows(dataset: Dataset) -> None:
    table = dataset.feature_table()
    assert table is not None
    expected = np.fromfile(table.path, np.float32).reshape(dataset.num_nodes, 37)
    for batch in run_all(dataset, plan_for(dataset)):
        np.testing.assert_array_equal(batch.x.numpy(), expected[batch.sampled.node_ids])


def test_epochs_and_purposes_draw_again(dataset: Dataset) -> None:
    plan = plan_for(dataset)
    first, second = run_all(dataset, plan, epoch=0), run_all(dataset, plan, epoch=1)
    assert any(
        one.sampled.num_nodes != other.sampled.num_nodes
        or not np.array_equal(one.sampled.node_ids, other.sampled.node_ids)
        for one, other in zip(first, second, strict=True)
    )


@pytest.mark.pairwise
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("store", ["direct", "static", "belady", "shared", "packed"])
@pytest.mark.parametrize("kind", ["short_transfer", "interrupted", "again"])
def test_curable_faults_leave_batches_as_they_are(dataset: Dataset, store: str, engine: str, kind: str) -> None:
    reference = run_all(dataset, plan_for(dataset))
    rules = [FaultRule(kind, counted, nth) for counted in ("reads", "writes") for nth in (1, 2, 3, 5, 8, 13, 40)]
    plan = replace(plan_for(dataset, store=store), engine=engine)
    assert_same(run_all(dataset, plan, FaultInjector(rules, seed=1)), reference)


@pytest.mark.fast(10)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("store", ["direct", "static", "belady", "shared", "packed"])
@pytest.mark.parametrize("kind", ["io_error", "truncated"])
def test_each_incurable_fault_is_one_error_with_file_and_offset(
    dataset: Dataset, store: str, engine: str, kind: str
) -> None:
    plan = replace(plan_for(dataset, store=store), engine=engine, bytes_in_flight=1)

    def errors_with_failing_read(nth: int) -> list[str]:
        injector = FaultInjector([FaultRule(kind, "reads", nth)])
        errors = []
        try:
            run_all(dataset, plan, injector, num_batches=3)
        except ReadError as error:
            errors.append(str(error))
        assert len(errors) == (injector.count("reads") >= nth)
        return errors

    # How many reads there are depends on which batches share one: go on until none is left to fail.
    errors = list(itertools.takewhile(bool, map(errors_with_failing_read, itertools.count(1))))
    assert len(errors) >= 4
    assert all(re.search(r"\.bin.*offset \d+", text) for (text,) in errors)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("diskhop")]


@pytest.mark.parametrize("store", ["direct", "static", "belady", "shared", "packed"])
def test_leaving_early_joins_every_thread_and_returns_the_memory(dataset: Dataset, store: str) -> None:
    plan = plan_for(dataset, store=store)
    seeds = dataset.split_rows("train")
    assert seeds is not None
    for num_taken in (0, 1, 3):
        budget = Budget(plan.memory_bytes)
        with open_pipeline(dataset, plan, budget) as pipeline:
            started = time.monotonic()
            with pipeline.run(pass_over(seeds, batch_size=50, seed=0)) as batches:
                for _ in range(num_taken):
                    next(batches)
            assert time.monotonic() - started < 10
            assert not [thread for thread in threading.enumerate() if thread.name.startswith("diskhop_")]
        assert budget.available_bytes == budget.total_bytes


def test_a_stage_that_breaks_reaches_the_consumer_with_its_cause(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(self: PipelineParts, *_: object) -> None:
        raise ZeroDivisionError("in the stage")

    monkeypatch.setattr(PipelineParts, "fetch_rows", break_down)
    with pytest.raises(PipelineError, match="collect") as caught:
        run_all(dataset, plan_for(dataset))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_stage_without_memory_or_disk_says_so(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[tuple[Exception, type[Exception], str]] = [
        (MemoryError("no memory"), MemoryError, "no memory"),
        (OSError(5, "Input/output error", "some.bin"), PipelineError, r"some\.bin"),
    ]
    for error, expected, words in errors:

        def break_down(self: PipelineParts, *_: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(PipelineParts, "fetch_rows", break_down)
        with pytest.raises(expected, match=words):
            run_all(dataset, plan_for(dataset))


@pytest.mark.parametrize(("store", "ordered"), [("direct", True), ("shared", False)])
def test_a_stage_more_is_one_class_and_one_entry(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, store: str, ordered: bool
) -> None:
    plan = plan_for(dataset, store=store, ordered=ordered)
    assert plan.ordered == ordered
    expected = run_all(dataset, plan)
    seeds = dataset.split_rows("train")
    assert seeds is not None
    wanted = pass_over(seeds, max_batches=5)
    budget = Budget(plan.memory_bytes)
    with open_pipeline(dataset, plan, budget) as pipeline:

        def start(last: Double) -> BatchStream:
            monkeypatch.setattr("diskhop.pipeline.pipeline.stages_of", lambda *given: [*stages_of(*given), last])
            return pipeline.run(wanted)

        with start(Double()) as batches:
            found = [replace(batch, x=rows_of(batch), rows=None) for batch in batches]
        for batch, once in zip(sorted(found, key=lambda batch: batch.number), expected, strict=True):
            assert torch.equal(batch.x, 2 * once.x)
        with pytest.raises(PipelineError, match="stage 'double' failed"), start(Double(breaks_at=3)) as batches:
            list(batches)
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("diskhop_")]
    assert budget.available_bytes == budget.total_bytes


def test_a_pass_holds_nothing_for_the_batches_to_come(dataset: Dataset) -> None:
    plan = plan_for(dataset)
    seeds = np.resize(np.arange(dataset.num_nodes), 200_000)
    with open_pipeline(dataset, plan, Budget(plan.memory_bytes)) as pipeline:
        tracemalloc.start()
        with pipeline.run(pass_over(NodeRows(seeds), batch_size=1, seed=0, sampler=neighbor_spec((2,)))) as batches:
            assert len(batches) == len(seeds)
            next(batches)
            peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak_bytes < 4_000_000


def test_a_repeated_seed_is_refused(dataset: Dataset) -> None:
    plan = plan_for(dataset)
    with (
        open_pipeline(dataset, plan, Budget(plan.memory_bytes)) as pipeline,
        pipeline.run(pass_over(NodeRows(np.array([1, 2, 1])), batch_size=3, seed=0)) as batches,
        pytest.raises(DiskhopError, match="1"),
    ):
        next(batches)


def test_a_batch_larger_than_all_in_flight_goes_alone(dataset: Dataset) -> None:
    plan = plan_for(dataset)
    cramped = replace(plan, bytes_in_flight=plan.batch_bytes // 50)
    assert_same(run_all(dataset, cramped), run_all(dataset, plan))


def test_the_smallest_budget_that_is_named_works_and_less_does_not(dataset: Dataset) -> None:
    with pytest.raises(BudgetError, match="smallest that works") as caught:
        plan_for(dataset, memory_bytes=10_000)
    smallest_bytes = caught.value.smallest_bytes
    assert smallest_bytes is not None
    assert_same(run_all(dataset, plan_for(dataset, smallest_bytes)), run_all(dataset, plan_for(dataset)))
    with pytest.raises(BudgetError):
        plan_for(dataset, smallest_bytes - 1)


def test_an_unknown_store_lists_the_known(dataset: Dataset) -> None:
    with pytest.raises(ConfigError, match="direct"):
        plan_for(dataset, store="magic")
