"""One contract for every store in the registry: rows are what indexing the table gives, whatever brings them."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop._native import BufferPool, FaultInjector, FaultRule, why_no_uring
from diskhop.counters import FetchCounts
from diskhop.errors import BudgetError, PipelineError, ReadError
from diskhop.io.engine import open_engine
from diskhop.plans import StoreShare
from diskhop.protocols import FeatureStore, SampledBatch, Table
from diskhop.stores.packed.sizes import own_rows
from diskhop.stores.resources import StoreResources, assemble, rows_in_place
from diskhop.stores.stores import STORES
from tests.examples import examples
from tests.replays import CacheCounts, replay_belady
from tests.toys import half_store

ENGINES = ["threads"] if why_no_uring() else ["uring", "threads"]
ALL_STORES = [*STORES, half_store.KIND.name]
READING_STORES = [name for name in ALL_STORES if name != "mapped"]


@pytest.fixture(autouse=True, scope="module")
def _toy_registered() -> Iterator[None]:
    """The contract holds for a store that is only registered, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(STORES, half_store.KIND.name, half_store.KIND)
        yield


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


def no_limit(_num_bytes: int) -> None:
    """Allow any number of bytes."""


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
    cache_rows: int = 50,
    buffer_rows: int | None = None,
    pinned: NDArray[np.int64] | None = None,
) -> Iterator[FeatureStore[Any]]:
    scratch = Path(tempfile.mkdtemp(dir=table.path.parent))
    if buffer_rows is None:
        buffer_rows = 8 * own_rows(table, table.num_rows, 0) if name == "packed" else table.num_rows
    resources = StoreResources(
        engine=open_engine(engine, 32, injector).engine,
        pool=BufferPool(1 << 26),
        max_gap_bytes=max_gap_bytes,
        max_read_bytes=1 << 16,
        staging_bytes=1 << 22,
        threads=threads,
        share=StoreShare(cache_rows=cache_rows, buffer_rows=buffer_rows, partition_bytes=1 << 17),
        memory_bytes=1_000_000,
        pinned=pinned,
        scratch=scratch,
    )
    store = STORES[name].open(table, resources)
    try:
        yield store
    finally:
        store.close()
        assert not list(scratch.iterdir())


class ListedTrace:
    """An access trace in memory."""

    def __init__(self, batches: Sequence[NDArray[np.int64]]) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    def node_ids(self, index: int) -> NDArray[np.int64]:
        return self._batches[index]


def look_ahead(store: Any, span: Sequence[NDArray[np.int64]], first: int = 0) -> None:
    for number, ids in enumerate(span):
        store.make_room(batch_of(ids, first + number))
    store.look_ahead(ListedTrace(span), lambda: None)


def submit_all(store: Any, batches: Sequence[NDArray[np.int64]], superbatch: int = 3) -> list[Any]:
    """Tickets of batches, looked over in superbatches by a store that wants that."""
    tickets = []
    for first in range(0, len(batches), superbatch):
        span = batches[first : first + superbatch]
        if hasattr(store, "look_ahead"):
            look_ahead(store, span, first)
        tickets += [store.submit(batch_of(ids, first + number), no_limit) for number, ids in enumerate(span)]
    return tickets


def fetch(store: FeatureStore[Any], ids: NDArray[np.int64]) -> NDArray[np.uint8]:
    (ticket,) = submit_all(store, [ids])
    rows = store.collect(ticket)
    out = np.full((len(ids), store.table.row_bytes), 0xA5, np.uint8)  # a row never written would show
    assemble(rows, out, 2)
    store.release(ticket)
    return out


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ALL_STORES)
@examples(15)
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


@pytest.mark.parametrize("name", ALL_STORES)
def test_several_batches_in_flight_do_not_mix(tmp_path: Path, name: str) -> None:
    table, expected = write_table(tmp_path / "features.bin", 5000, 64, 64)
    generator = np.random.default_rng(1)
    with opened(name, table) as store:
        wanted = [generator.permutation(5000)[:700].astype(np.int64) for _ in range(8)]
        tickets = submit_all(store, wanted)
        for ticket, ids in reversed(list(zip(tickets, wanted, strict=True))):
            out = np.empty((len(ids), 64), np.uint8)
            assemble(store.collect(ticket), out, 1)
            np.testing.assert_array_equal(out, expected[ids])
            store.release(ticket)


@pytest.mark.pairwise
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

        with pytest.raises(ReadError, match=r"\.bin.*offset \d+"):
            run()


@pytest.mark.parametrize("name", ALL_STORES)
def test_counts_are_of_this_batch_and_add_up(tmp_path: Path, name: str) -> None:
    table, _ = write_table(tmp_path / "features.bin", 3000, 512, 512)
    ids = np.random.default_rng(4).permutation(3000)[:1000].astype(np.int64)
    with opened(name, table) as store:
        (ticket,) = submit_all(store, [ids])
        rows = store.collect(ticket)
        counts = rows.counts
        assert counts.rows_requested == 1000
        assert counts.bytes_needed == 1000 * 512
        if name in ("pread", "direct"):
            assert counts.rows_hit == 0
            assert counts.bytes_read >= 1000 * 512
            assert counts.reads == 1000 if name == "pread" else counts.reads < 1000
        # Between disk and model each row is copied once by the CPU; where some are held, the others once more to join
        # them; and once more into a cache. Out of a shared buffer the model reads them where they are.
        if rows_in_place(rows) is None and name != "shared":
            assemble(rows, np.empty((1000, 512), np.uint8), 1)
        num_joined = 1000 - counts.rows_hit if counts.rows_hit and name not in ("memory", "packed") else 0
        num_filled = 50 if name == "belady" else 0
        assert counts.bytes_copied == (1000 + num_joined + num_filled) * 512
        store.release(ticket)


def test_pinned_rows_are_never_read_again(tmp_path: Path) -> None:
    # So far apart that no read is of two rows.
    table, expected = write_table(tmp_path / "features.bin", 2000, 100, 3 * 4096)
    generator = np.random.default_rng(5)
    for pinned in (None, np.sort(generator.permutation(2000)[:300])):
        injector = FaultInjector([])
        with opened("static", table, injector=injector, cache_rows=300, pinned=pinned, max_gap_bytes=0) as store:
            held = np.arange(300) if pinned is None else pinned
            others = np.setdiff1d(np.arange(2000), held)
            before = injector.count("reads")
            ids = generator.permutation(held)
            np.testing.assert_array_equal(fetch(store, ids), expected[ids])
            assert injector.count("reads") == before
            ids = generator.permutation(np.concatenate([held[:100], others[:70]]))
            (ticket,) = submit_all(store, [ids])
            counts = store.collect(ticket).counts
            assert (counts.rows_hit, counts.reads) == (100, 70)
            store.release(ticket)


def test_belady_reads_what_its_rule_says(tmp_path: Path) -> None:
    """The pure policy's misses and fills are the store's, over several superbatches."""
    # Rows so far apart, and batches one after the other, so that no read is of two rows or for two batches.
    table, expected = write_table(tmp_path / "features.bin", 500, 60, 3 * 4096)
    generator = np.random.default_rng(6)
    trace = [generator.permutation(500)[: generator.integers(0, 200)] for _ in range(20)]
    predicted = replay_belady(trace, 500, 80, span=6, fills=True)
    counts = FetchCounts()
    with opened("belady", table, cache_rows=80, max_gap_bytes=0) as store:
        for first in range(0, 20, 6):
            look_ahead(store, trace[first : first + 6])
            for ids in trace[first : first + 6]:
                ticket = store.submit(batch_of(ids), no_limit)
                rows = store.collect(ticket)
                np.testing.assert_array_equal(rows.segments[0].buffer, expected[ids])
                counts.add(rows.counts)
                store.release(ticket)
    assert counts.rows_hit == predicted.hits
    assert counts.rows_filled == predicted.filled
    assert counts.reads == predicted.rows_read


def simulate_lru(trace: Sequence[NDArray[np.int64]], num_slots: int) -> CacheCounts:
    """Count by sets: a batch is in use until the next is there; then the least recently used rows are evicted."""
    counts = CacheCounts()
    users: Counter[int] = Counter()
    unused: dict[int, None] = {}  # the least recently used first
    for number, ids in enumerate(trace):
        for row in ids.tolist():
            is_held = users[row] > 0 or row in unused
            counts.hits += is_held
            counts.misses += not is_held
            users[row] += 1
            unused.pop(row, None)
        while len(+users) + len(unused) > num_slots:
            del unused[next(iter(unused))]
        for row in trace[number - 1].tolist() if number else ():
            users[row] -= 1
            if not users[row]:
                unused[row] = None
    return counts


def test_shared_reads_what_its_rule_says(tmp_path: Path) -> None:
    """Slots that nobody uses are taken from who was used least recently; rows are read again only then."""
    table, expected = write_table(tmp_path / "features.bin", 500, 60, 3 * 4096)
    generator = np.random.default_rng(6)
    trace = [generator.permutation(500)[: generator.integers(1, 90)] for _ in range(60)]
    predicted = simulate_lru(trace, 200)
    counts = FetchCounts()
    with opened("shared", table, cache_rows=200, buffer_rows=200, max_gap_bytes=0) as store:
        used: deque[tuple[Any, NDArray[np.int64]]] = deque()
        for ids in trace:
            ticket = store.submit(batch_of(ids), no_limit)
            counts.add(store.collect(ticket).counts)
            used.append((ticket, ids))
            for earlier, earlier_ids in used:
                (lent,) = store.collect(earlier).segments
                np.testing.assert_array_equal(lent.buffer[lent.from_rows], expected[earlier_ids])
            if len(used) == 2:
                store.release(used.popleft()[0])
        read, dropped, held = store.totals  # type: ignore[attr-defined]
    assert counts.rows_hit == predicted.hits
    assert counts.reads == read == predicted.misses
    assert read == dropped + held


def test_a_row_that_another_batch_is_reading_is_not_read_twice(tmp_path: Path) -> None:
    table, expected = write_table(tmp_path / "features.bin", 2000, 60, 3 * 4096)
    injector = FaultInjector([])
    first_ids, second_ids = np.arange(0, 1500), np.arange(1000, 2000)
    with opened("shared", table, injector=injector, max_gap_bytes=0) as store:
        first, second = submit_all(store, [first_ids, second_ids])
        (lent,) = (rows := store.collect(second)).segments
        np.testing.assert_array_equal(lent.buffer[lent.from_rows], expected[second_ids])
        assert rows.counts.rows_hit + rows.counts.rows_shared == 500
        assert store.collect(first).counts.rows_requested == 1500
        for ticket in (first, second):
            store.release(ticket)
    assert injector.count("reads") == 2000


def test_a_batch_that_the_buffer_cannot_hold_names_a_budget_that_would_do(tmp_path: Path) -> None:
    table, _ = write_table(tmp_path / "features.bin", 500, 60, 60)
    with (
        opened("shared", table, buffer_rows=100) as store,
        pytest.raises(BudgetError, match=r"batch 7 has 110 rows.* has 100; use --memory 2MB or more"),
    ):
        store.submit(batch_of(np.arange(110), 7), no_limit)


@pytest.mark.parametrize("name", ALL_STORES)
def test_who_waits_for_a_batch_that_was_cancelled_goes_on(tmp_path: Path, name: str) -> None:
    table, expected = write_table(tmp_path / "features.bin", 3000, 512, 512)
    ids = np.arange(400, dtype=np.int64)
    with opened(name, table, buffer_rows=850 if name == "packed" else 700) as store:
        # In `shared` and `packed` there is no room for the third.
        tickets = submit_all(store, [ids, ids + 200, np.arange(2500, 2700)])

        def wait_for_third() -> None:
            with contextlib.suppress(RuntimeError, CancelledError):
                store.collect(tickets[2])

        waiting = threading.Thread(target=wait_for_third)
        waiting.start()
        store.cancel(tickets[2])
        waiting.join(20)
        assert not waiting.is_alive()
        for ticket, wanted in zip(tickets[:2], (ids, ids + 200), strict=True):
            out = np.empty((len(wanted), 512), np.uint8)
            assemble(store.collect(ticket), out, 1)
            np.testing.assert_array_equal(out, expected[wanted])
        for ticket in tickets:
            store.release(ticket)


def test_a_pass_that_was_broken_off_leaves_nothing_wrong_behind(tmp_path: Path) -> None:
    table, expected = write_table(tmp_path / "features.bin", 500, 60, 60)
    generator = np.random.default_rng(7)
    with opened("belady", table, cache_rows=200) as store:
        for num_collected in (3, 0, 6, 2):
            store.start_pass()  # type: ignore[attr-defined]
            trace = [generator.permutation(500)[:150] for _ in range(6)]
            tickets = submit_all(store, trace, superbatch=6)
            for number, (ticket, ids) in enumerate(zip(tickets, trace, strict=True)):
                if number < num_collected:
                    np.testing.assert_array_equal(store.collect(ticket).segments[0].buffer, expected[ids])
                store.release(ticket)
            if num_collected < 6:
                with pytest.raises(PipelineError, match="start a new pass of the pipeline"):
                    store.collect(tickets[-1])


@pytest.mark.parametrize("name", ALL_STORES)
def test_closing_with_batches_in_flight_returns(tmp_path: Path, name: str) -> None:
    table, _ = write_table(tmp_path / "features.bin", 4000, 512, 512)
    ids = np.arange(0, 4000, 2, dtype=np.int64)
    with opened(name, table) as store:
        tickets = submit_all(store, [ids] * 5)
        store.release(tickets[-1])
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("diskhop")]
