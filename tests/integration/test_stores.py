"""One contract for every store in the registry: rows are what indexing the table gives, whatever brings them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop._native import BufferPool, FaultInjector, FaultRule, why_no_uring
from diskhop.budget import Budget
from diskhop.errors import BudgetError, ReadError
from diskhop.features import STORES
from diskhop.features.resources import StoreResources, assemble, rows_in_place
from diskhop.io.engine import open_engine
from diskhop.protocols import FeatureStore, SampledBatch, Table

ENGINES = ["threads"] if why_no_uring() else ["uring", "threads"]
READING_STORES = ["memory", "pread", "direct"]


def batch_of(ids: NDArray[np.int64], number: int = 0) -> SampledBatch:
    no_edges = np.zeros(0, np.int64)
    return SampledBatch(
        number=number,
        num_seeds=len(ids),
        node_ids=ids,
        indptr=np.zeros(1, np.int64),
        sources=no_edges.astype(np.int32),
        edge_positions=no_edges,
        num_sampled_nodes=(len(ids),),
        num_sampled_edges=(),
    )


def write_table(path: Path, num_rows: int, row_bytes: int, row_stride: int) -> tuple[Table, NDArray[np.uint8]]:
    raw = np.random.default_rng(7).integers(0, 256, (num_rows, row_stride), np.uint8)
    raw.tofile(path)
    return Table(path=path, num_rows=num_rows, row_bytes=row_bytes, row_stride=row_stride), raw[:, :row_bytes]


@contextmanager
def opened(
    name: str,
    table: Table,
    *,
    engine: str = ENGINES[0],
    injector: FaultInjector | None = None,
    threads: int = 2,
    max_gap_bytes: int = 4096,
    budget: Budget | None = None,
) -> Iterator[FeatureStore[Any]]:
    resources = StoreResources(
        engine=open_engine(engine, 32, injector).engine,
        pool=BufferPool(1 << 26),
        budget=budget or Budget(1 << 30),
        max_gap_bytes=max_gap_bytes,
        max_read_bytes=1 << 16,
        staging_bytes=1 << 22,
        reading_threads=threads,
        threads=threads,
    )
    store = STORES[name](table, resources)
    try:
        yield store
    finally:
        store.close()


def fetch(store: FeatureStore[Any], ids: NDArray[np.int64]) -> NDArray[np.uint8]:
    ticket = store.submit(batch_of(ids))
    rows = store.collect(ticket)
    out = np.full((len(ids), store.table.row_bytes), 0xA5, np.uint8)  # a row never written would show
    assemble(rows, out, 2)
    store.release(ticket)
    return out


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", STORES)
@settings(max_examples=15, deadline=None)
@given(
    num_rows=st.integers(1, 400),
    row_bytes=st.sampled_from([1, 3, 4, 100, 127, 128, 129, 511, 512, 513, 4000]),
    padding=st.sampled_from([0, 0, 5, 28]),
    gap=st.sampled_from([0, 100, 5000, 1 << 20]),
    threads=st.integers(1, 3),
    seed=st.integers(0, 2**32),
)
def test_rows_equal_indexing(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    engine: str,
    num_rows: int,
    row_bytes: int,
    padding: int,
    gap: int,
    threads: int,
    seed: int,
) -> None:
    path = tmp_path_factory.mktemp("table") / "features.bin"
    table, expected = write_table(path, num_rows, row_bytes, row_bytes + padding)
    generator = np.random.default_rng(seed)
    with opened(name, table, engine=engine, threads=threads, max_gap_bytes=gap) as store:
        for num_wanted in (0, 1, num_rows // 2, num_rows):
            ids = generator.permutation(num_rows)[:num_wanted].astype(np.int64)
            np.testing.assert_array_equal(fetch(store, ids), expected[ids])


@pytest.mark.parametrize("name", STORES)
def test_several_batches_in_flight_do_not_mix(tmp_path: Path, name: str) -> None:
    table, expected = write_table(tmp_path / "features.bin", 5000, 64, 64)
    generator = np.random.default_rng(1)
    with opened(name, table) as store:
        wanted = [generator.permutation(5000)[:700].astype(np.int64) for _ in range(8)]
        tickets = [store.submit(batch_of(ids, number)) for number, ids in enumerate(wanted)]
        for ticket, ids in reversed(list(zip(tickets, wanted, strict=True))):
            out = np.empty((len(ids), 64), np.uint8)
            assemble(store.collect(ticket), out, 1)
            np.testing.assert_array_equal(out, expected[ids])
            store.release(ticket)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", READING_STORES)
@pytest.mark.parametrize("kind", ["short_transfer", "interrupted", "again"])
def test_faults_that_a_retry_cures_change_nothing(tmp_path: Path, name: str, engine: str, kind: str) -> None:
    table, expected = write_table(tmp_path / "features.bin", 600, 200, 200)
    ids = np.random.default_rng(2).permutation(600)[:150].astype(np.int64)
    for nth in (1, 2, 3, 7):
        injector = FaultInjector([FaultRule(kind, "reads", nth)], seed=nth)
        with opened(name, table, engine=engine, injector=injector, max_gap_bytes=0) as store:
            np.testing.assert_array_equal(fetch(store, ids), expected[ids])
        assert injector.count("reads") >= 1


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", READING_STORES)
@pytest.mark.parametrize("kind", ["io_error", "truncated"])
def test_every_read_that_fails_names_file_and_offset(tmp_path: Path, name: str, engine: str, kind: str) -> None:
    table, _ = write_table(tmp_path / "features.bin", 120, 600, 600)
    ids = np.random.default_rng(3).permutation(120)[:40].astype(np.int64)

    counting = FaultInjector([])
    with opened(name, table, engine=engine, injector=counting, max_gap_bytes=0) as store:
        fetch(store, ids)
    num_reads = counting.count("reads")
    assert num_reads >= 1
    for nth in range(1, num_reads + 1):
        injector = FaultInjector([FaultRule(kind, "reads", nth)])

        def run(faults: FaultInjector = injector) -> None:
            with opened(name, table, engine=engine, injector=faults, max_gap_bytes=0) as store:
                fetch(store, ids)

        with pytest.raises(ReadError, match=r"features\.bin.*offset \d+"):
            run()


@pytest.mark.parametrize("name", STORES)
def test_counts_are_of_this_batch_and_add_up(tmp_path: Path, name: str) -> None:
    table, _ = write_table(tmp_path / "features.bin", 3000, 512, 512)
    ids = np.random.default_rng(4).permutation(3000)[:1000].astype(np.int64)
    with opened(name, table) as store:
        ticket = store.submit(batch_of(ids))
        rows = store.collect(ticket)
        counts = rows.counts
        assert counts.rows_requested == 1000
        assert counts.bytes_needed == 1000 * 512
        if name in ("pread", "direct"):
            assert counts.rows_hit == 0
            assert counts.bytes_read >= 1000 * 512
            assert counts.reads == 1000 if name == "pread" else counts.reads < 1000
        # Between disk and model each row is copied once by the CPU.
        if rows_in_place(rows) is None:
            assemble(rows, np.empty((1000, 512), np.uint8), 1)
        assert counts.bytes_copied == 1000 * 512
        store.release(ticket)


def test_memory_store_reserves_its_table(tmp_path: Path) -> None:
    table, _ = write_table(tmp_path / "features.bin", 1000, 512, 512)
    budget = Budget(600_000)
    with opened("memory", table, budget=budget):
        assert budget.available_bytes == 600_000 - 512_000
    assert budget.available_bytes == 600_000
    with pytest.raises(BudgetError, match="feature table"), opened("memory", table, budget=Budget(511_999)):
        pass


@pytest.mark.parametrize("name", STORES)
def test_closing_with_batches_in_flight_returns(tmp_path: Path, name: str) -> None:
    table, _ = write_table(tmp_path / "features.bin", 4000, 512, 512)
    ids = np.arange(0, 4000, 2, dtype=np.int64)
    with opened(name, table) as store:
        tickets = [store.submit(batch_of(ids, number)) for number in range(5)]
        store.release(tickets[-1])
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("diskhop")]
