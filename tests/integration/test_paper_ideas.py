"""The ideas of the papers at work, by counters and the order of events: docs/claims.md lists them.

tests/mutations.py takes each idea out of the code, and the tests here must then fail. None depends on time: where a
test waits, it waits for what must happen.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop._native import BufferPool, Engine
from diskhop.budget import Budget
from diskhop.config.sampled import SampledConfig
from diskhop.dataset.dataset import Dataset
from diskhop.embedding.partitions.buffer import PartitionBuffer
from diskhop.loaders.hops import HopLoader
from diskhop.pipeline.batch import Pass
from diskhop.pipeline.pipeline import Pipeline, open_pipeline
from diskhop.planning.planner import choose_plan
from diskhop.policies.minhash import min_hashes
from diskhop.protocols import NodeIds, SampledBatch, Table
from diskhop.runs.embedding.loop import EmbeddingRun
from diskhop.runs.embedding.phases import Phase
from diskhop.runs.nodes.defaults import resolve_config
from diskhop.runs.nodes.packing import run_samples
from diskhop.runs.nodes.workload import training_workload
from diskhop.runs.start import run_config
from diskhop.stores.packed.layout import Layout
from diskhop.stores.packed.packer import Packer
from diskhop.stores.packed.resident import hold_listed
from diskhop.stores.packed.segments import SharedRows
from diskhop.stores.packed.store import PackedStore
from diskhop.stores.resources import open_reader
from tests.embedding import embed_config, small_triples
from tests.graphs import memory_folder
from tests.hop_tables import write_hop_tables
from tests.integration.test_stores import ListedTrace, batch_of, no_limit, opened, write_table
from tests.packed import OPTIONS, pack_small
from tests.property.test_packer import make_case, pack
from tests.runs import small_graph

_LONGEST_WAIT_SECONDS = 10.0


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "sbm", dim=257)


@contextmanager
def pipeline_of(
    dataset: Dataset, scratch: Path | str, store: str, layout: Layout | None = None, **changes: Any
) -> Iterator[tuple[Pipeline, Callable[[int], Pass]]]:
    """A pipeline of a run with OPTIONS, and the pass of each epoch."""
    config, _, task = resolve_config(dataset, {**OPTIONS, "store": store, "scratch": str(scratch), **changes})
    assert isinstance(config, SampledConfig)
    workload = training_workload(config, task.seeds, task.held, dataset.num_nodes)
    budget = Budget(config.memory_bytes)
    plan = choose_plan(dataset, replace(workload, prepared=layout), budget)
    with open_pipeline(dataset, plan, budget) as pipeline:
        yield pipeline, run_samples(config, task.seeds.train, dataset.num_nodes).pass_of


class Submitted:
    """A store that records the batches whose submission has returned."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._changed = threading.Condition()
        self.numbers: list[int] = []

    def submit(self, batch: SampledBatch, make_room: Any) -> Any:
        ticket = self._store.submit(batch, make_room)
        with self._changed:
            self.numbers.append(batch.number)
            self._changed.notify_all()
        return ticket

    def wait_for(self, count: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: len(self.numbers) >= count, _LONGEST_WAIT_SECONDS)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


# -- DiskGNN --


def test_packed_chunks_are_begun_two_ahead(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 5.3: while a batch is trained on, the reads of the two after it have begun."""
    layout = pack_small(dataset, tmp_path, reuse=True).layout
    begun: list[int] = []
    begin = PackedStore._begin

    def record(store: PackedStore, source: Any, chunk: Any) -> Any:
        begun.append(chunk.number)
        return begin(store, source, chunk)

    monkeypatch.setattr(PackedStore, "_begin", record)
    with pipeline_of(dataset, tmp_path, "packed", layout, reuse=True) as (pipeline, pass_of):
        store: Any = pipeline.store
        wanted = pass_of(0)
        source = layout.find(wanted.trace_settings(dataset.hash), wanted.numbers)
        numbers = list(wanted.numbers)
        assert len(numbers) > 4
        for index, (batch, _) in enumerate(store.replay(source, numbers)):
            assert begun == numbers[: index + 3]
            store.release(store.submit(batch, no_limit))


def test_rows_of_a_segment_lie_in_minhash_order_within_a_partition() -> None:
    """Section 5.1: rows that the same batches need lie together."""
    generator = np.random.default_rng(0)
    batches = [np.sort(generator.choice(400, 150, replace=False)) for _ in range(8)]
    table = Table(path=Path("unread"), num_rows=400, row_bytes=64, row_stride=64)
    shared = SharedRows(ListedTrace(batches), np.zeros(400, np.bool_), len(batches), table, partition_rows=128)
    for index in range(len(batches)):
        shared.rows_of(index)
    segment = shared.segment_after(len(batches) - 1)
    assert segment is not None
    counts = np.bincount(np.concatenate(batches), minlength=400)
    ids = np.flatnonzero(counts > 1)
    # Hashes of rows do not depend on how the rows are numbered.
    first, second = min_hashes(batches, 400)
    expected = sorted(ids.tolist(), key=lambda row: (row // 128, first[row], second[row], row))
    assert segment.ids.tolist() == expected


def test_resident_rows_are_the_most_accessed_of_all_packed_epochs(dataset: Dataset, tmp_path: Path) -> None:
    """Section 4.1: a row that later epochs access more often stays in memory, even if the first does not."""
    layout = pack_small(dataset, tmp_path, epochs=3, cache_bytes=40_000).layout
    counts: Counter[int] = Counter()
    with pipeline_of(dataset, "", "memory", cache_bytes=0, epochs=3) as (pipeline, pass_of):
        for epoch in range(3):
            with pipeline.run(pass_of(epoch)) as batches:
                for batch in batches:
                    counts.update(batch.sampled.node_ids.tolist())
    by_count = sorted(counts, key=lambda row: (-counts[row], row))
    assert layout.held_ids().tolist() == sorted(by_count[: layout.num_held])
    assert layout.num_held > 20


def test_the_packer_reads_a_partition_while_it_packs_the_one_before(tmp_path: Path) -> None:
    """Section 5.2: the read of partition t + 1 is submitted before the packer waits for that of partition t."""
    case = make_case(tmp_path, 3000, 512, 0, 4)
    events: list[tuple[str, int]] = []
    engine = _RecordedReads(Engine("threads", 4), case.table, events)
    packer = Packer(case.table, hold_listed(case.held, 3000), engine, BufferPool(1 << 24), 1 << 18, 1)  # type: ignore[arg-type]
    assert packer.num_partitions == 6
    pack(packer, case, tmp_path)
    order = [("submit", 0)]
    for turn in range(6):
        order += [("submit", turn + 1), ("wait", turn)] if turn < 5 else [("wait", turn)]
    assert events == order


class _RecordedReads:
    """An engine that records the reads of a table, by partition."""

    def __init__(self, engine: Engine, table: Table, events: list[tuple[str, int]]) -> None:
        self._engine = engine
        self._table = table
        self._events = events
        self._tickets: dict[int, int] = {}

    def submit_read(self, file: Any, *arguments: Any) -> int:
        ticket = self._engine.submit_read(file, *arguments)
        if file.path == str(self._table.path):
            self._tickets[ticket] = len(self._tickets)
            self._events.append(("submit", self._tickets[ticket]))
        return ticket

    def wait(self, ticket: int) -> None:
        if ticket in self._tickets:
            self._events.append(("wait", self._tickets[ticket]))
        self._engine.wait(ticket)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


# -- Legend --


def test_the_next_partition_is_read_while_staying_buckets_are_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 4: the read is submitted before the buckets that do not touch the leaving partition are trained."""
    events: list[str] = []
    submit, train = PartitionBuffer._submit_read, EmbeddingRun._train_phase

    def record_read(buffer: PartitionBuffer, partition: int) -> None:
        events.append("read")
        submit(buffer, partition)

    def record_training(loop: EmbeddingRun, phase: Phase) -> None:
        if phase.gone and phase.buckets:
            events.append("staying")
        train(loop, phase)

    monkeypatch.setattr(PartitionBuffer, "_submit_read", record_read)
    monkeypatch.setattr(EmbeddingRun, "_train_phase", record_training)
    config = embed_config(partitions=8, epochs=1, evaluate=False, partition_order="searched")
    with memory_folder(tmp_path) as folder:
        plan = run_config(small_triples(folder / "triples"), config, folder / "out").result["plan"]
    # All swaps of this order can be prefetched: a read and buckets in every state but the last.
    assert plan["prefetchable"] == 1
    assert events[:3] == ["read"] * 3
    assert events[3:] == ["read", "staying"] * (plan["states"] - 1)


def test_the_next_partition_is_read_into_the_slot_that_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 4, with three slots: written, and the next one read in its place, before the staying buckets train."""
    events: list[str] = []
    train, exchange = EmbeddingRun._train_phase, PartitionBuffer.exchange

    def record_exchange(buffer: PartitionBuffer, leaving: Sequence[int], next_state: Sequence[int]) -> None:
        slots = [buffer.base(each) for each in leaving]
        exchange(buffer, leaving, next_state)
        if slots:
            events.append("exchange")
            assert slots == [buffer.base(next_state[-1])]

    def record_training(loop: EmbeddingRun, phase: Phase) -> None:
        if phase.buckets:
            events.append("staying" if phase.gone else "leaving")
            assert set(phase.partitions).isdisjoint(phase.gone), "negatives of these would be of the next partition"
        train(loop, phase)

    monkeypatch.setattr(PartitionBuffer, "exchange", record_exchange)
    monkeypatch.setattr(EmbeddingRun, "_train_phase", record_training)
    config = embed_config(
        partitions=8, epochs=1, evaluate=False, partition_order="searched", prefetch_slot="leaving", buffer=3
    )
    with memory_folder(tmp_path) as folder:
        plan = run_config(small_triples(folder / "triples"), config, folder / "out").result["plan"]
    assert (plan["num_slots"], plan["prefetchable"], plan["overlap"]) == (3, 1, True)
    assert events[:-1] == ["leaving", "exchange", "staying"] * (plan["states"] - 1)


# -- PP-GNN --


def test_the_next_batch_of_hops_is_read_while_one_is_used(tmp_path: Path) -> None:
    """Section 5: with two buffers, a batch is in flight whenever the consumer has one."""
    values = np.random.default_rng(0).normal(size=(2, 3000, 4)).astype(np.float32)
    tables = write_hop_tables(tmp_path / "tables", list(values))
    for place in ("memory", "disk"):
        loader = HopLoader(tables, batch_size=1000, place=place, memory="100MB")
        with loader, loader.run() as batches:
            in_flight = [(batch.number, [number for number, *_ in batches._in_flight]) for batch in batches]
        assert in_flight == [(0, [1]), (1, [2]), (2, [])]


# -- Ginex --


def test_belady_reads_ahead_of_the_model(dataset: Dataset, tmp_path: Path) -> None:
    """Section 3: while the model has a batch, the next ones have been submitted."""
    with pipeline_of(dataset, tmp_path, "belady") as (pipeline, pass_of):
        store = Submitted(pipeline.store)
        pipeline.store = store
        with pipeline.run(pass_of(0)) as batches:
            first = next(iter(batches))
            assert first.sampled.number == 0
            assert store.wait_for(4), f"only batches {store.numbers} were submitted"


# -- reads that batches share --


def test_one_scan_serves_all_batches_in_flight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches join one scan; native/tests/rows/test_shared_scan.cpp shows that it reads the union of their rows."""
    table, expected = write_table(tmp_path / "features.bin", 400, 512, 512)
    num_opened = 0

    def record(*arguments: Any) -> Any:
        nonlocal num_opened
        num_opened += 1
        return open_reader(*arguments)

    monkeypatch.setattr("diskhop.stores.scanning.open_reader", record)
    batches: list[NodeIds] = [np.arange(first, 400, 2) for first in range(4)]
    with opened("direct", table) as store:
        tickets = [store.submit(batch_of(ids, number), no_limit) for number, ids in enumerate(batches)]
        assert num_opened == 1
        for ids, ticket in zip(batches, tickets, strict=True):
            (segment,) = store.collect(ticket).segments
            np.testing.assert_array_equal(segment.buffer, expected[ids])
            store.release(ticket)
