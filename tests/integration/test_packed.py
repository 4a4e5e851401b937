"""The store `packed`: batches are those of any store, damage is told, and whatever happens the room comes back."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop._native import FaultInjector, FaultRule
from diskhop.errors import ConfigError, FormatError, PipelineError, ReadError
from diskhop.protocols import NodeIds, Table
from diskhop.stores.packed.sizes import own_rows
from diskhop.stores.resources import assemble
from tests.integration.test_stores import batch_of, look_ahead, no_limit, opened, write_table


def chunk_files(table: Table) -> list[Path]:
    return sorted(table.path.parent.glob("*/chunks-*.bin"))


def fetch_all(store: Any, batches: list[NodeIds], expected: np.ndarray[Any, Any]) -> None:
    """A pass over batches, one on its way at a time."""
    store.start_pass()
    look_ahead(store, batches)
    for number, ids in enumerate(batches):
        ticket = store.submit(batch_of(ids, number), no_limit)
        out = np.empty((len(ids), store.table.row_bytes), np.uint8)
        assemble(store.collect(ticket), out, 1)
        np.testing.assert_array_equal(out, expected[ids])
        store.release(ticket)


def submit_and_collect(store: Any, batches: list[NodeIds]) -> None:
    """Each after the other, released whatever comes of it, as a pipeline does."""
    for number, ids in enumerate(batches):
        ticket = store.submit(batch_of(ids, number), no_limit)
        try:
            store.collect(ticket)
        finally:
            store.release(ticket)


@pytest.mark.parametrize("place", [0, 5, 30, 4090, 4096, 4700, 8191])
def test_a_chunk_that_was_damaged_is_told_and_the_next_pass_goes_on(tmp_path: Path, place: int) -> None:
    table, expected = write_table(tmp_path / "features.bin", 500, 60, 60)
    generator = np.random.default_rng(0)
    batches = [generator.permutation(500)[:300] for _ in range(4)]
    # Room for one batch: what is not given back is missed.
    with opened("packed", table, buffer_rows=own_rows(table, 300, 0)) as store:
        for _ in range(3):
            look_ahead(store, batches)
            (path,) = chunk_files(table)
            content = bytearray(path.read_bytes())
            content[place] ^= 4
            path.write_bytes(content)
            with pytest.raises(FormatError, match=rf"^{re.escape(str(path))}: .*chunk.* byte 0.*pack again$"):
                submit_and_collect(store, batches)
            fetch_all(store, batches, expected)


@pytest.mark.parametrize("kind", ["io_error", "truncated"])
def test_a_read_that_fails_takes_no_room_with_it(tmp_path: Path, kind: str) -> None:
    table, expected = write_table(tmp_path / "features.bin", 500, 60, 60)
    generator = np.random.default_rng(0)
    batches = [generator.permutation(500)[:300] for _ in range(2)]
    counting = FaultInjector([])
    with opened("packed", table, buffer_rows=own_rows(table, 300, 0), injector=counting) as store:
        look_ahead(store, batches)
        num_before = counting.count("reads")
    # The heads and rows of both.
    for nth in range(num_before + 1, num_before + 5):
        injector = FaultInjector([FaultRule(kind, "reads", nth)])
        with opened("packed", table, buffer_rows=own_rows(table, 300, 0), injector=injector) as store:
            look_ahead(store, batches)
            with pytest.raises(ReadError, match=r"chunks-0\.bin: .* at offset \d+"):
                submit_and_collect(store, batches)
            fetch_all(store, batches, expected)


def test_batches_wait_for_room_in_their_turn(tmp_path: Path) -> None:
    """A small one does not pass a large one that waits, and each begins as soon as there is room."""
    table, expected = write_table(tmp_path / "features.bin", 4096, 512, 512)
    generator = np.random.default_rng(0)
    batches = [generator.permutation(np.arange(50, 4096))[:length] for length in (400, 400, 600, 8, 0)]
    with opened("packed", table, buffer_rows=800) as store:
        look_ahead(store, batches)
        tickets = [store.submit(batch_of(ids, number), no_limit) for number, ids in enumerate(batches)]
        arrived: list[int] = []

        def collect(number: int) -> None:
            rows = store.collect(tickets[number])
            (segment,) = rows.segments
            np.testing.assert_array_equal(segment.buffer[segment.from_rows], expected[batches[number]])
            arrived.append(number)

        waiting = [threading.Thread(target=collect, args=(number,)) for number in range(5)]
        for thread in waiting:
            thread.start()
        waiting[0].join(20)
        waiting[1].join(20)
        time.sleep(0.05)
        assert sorted(arrived) == [0, 1]
        store.release(tickets[1])
        time.sleep(0.05)
        assert sorted(arrived) == [0, 1]
        store.release(tickets[0])
        for thread in waiting:
            thread.join(20)
        assert sorted(arrived) == [0, 1, 2, 3, 4]
        for ticket in tickets:
            store.release(ticket)


def test_rows_held_are_read_once_and_others_once_a_batch(tmp_path: Path) -> None:
    table, expected = write_table(tmp_path / "features.bin", 2000, 512, 512)
    generator = np.random.default_rng(0)
    for pinned in (None, np.sort(generator.permutation(2000)[:300])):
        held = np.arange(300) if pinned is None else pinned
        batches = [generator.permutation(2000)[:700], generator.permutation(held)]
        with opened("packed", table, cache_rows=300, pinned=pinned) as store:
            look_ahead(store, batches)
            for number, ids in enumerate(batches):
                ticket = store.submit(batch_of(ids, number), no_limit)
                counts = store.collect(ticket).counts
                num_held = int(np.isin(ids, held).sum())
                assert (counts.rows_requested, counts.rows_hit) == (len(ids), num_held)
                rows_bytes = (len(ids) - num_held) * 512
                # A block for the head, one for the slots.
                assert counts.bytes_read == 8192 + -(-rows_bytes // 4096) * 4096
                store.release(ticket)
            store.start_pass()  # type: ignore[attr-defined]
            fetch_all(store, batches, expected)
            assert len(chunk_files(table)) == 1, "a file whose batches are done with is written over"
            store.free_disk()  # type: ignore[attr-defined]
            assert not chunk_files(table)
            fetch_all(store, batches, expected)


def test_passes_broken_off_at_any_point_leave_room_and_disk_as_they_were(tmp_path: Path) -> None:
    table, expected = write_table(tmp_path / "features.bin", 500, 60, 60)
    generator = np.random.default_rng(0)
    with opened("packed", table, buffer_rows=2 * own_rows(table, 150, 0)) as store:
        for num_submitted, num_collected in ((0, 0), (1, 0), (6, 2), (4, 1), (3, 2), (2, 2)):
            store.start_pass()  # type: ignore[attr-defined]
            batches = [generator.permutation(500)[:150] for _ in range(6)]
            look_ahead(store, batches[:4])
            look_ahead(store, batches[4:], 4)
            store.make_room(batch_of(batches[0], 6))  # type: ignore[attr-defined]
            assert len(chunk_files(table)) == 3, "those of passes before are written over"
            tickets = [store.submit(batch_of(ids, n), no_limit) for n, ids in enumerate(batches[:num_submitted])]
            for ticket in tickets[:num_collected]:
                store.collect(ticket)
            for ticket in tickets:
                store.release(ticket)
        fetch_all(store, batches, expected)


@pytest.mark.parametrize("store_name", ["belady", "packed"])
def test_batches_that_nobody_looked_over_are_refused(tmp_path: Path, store_name: str) -> None:
    table, _ = write_table(tmp_path / "features.bin", 50, 60, 60)
    with (
        opened(store_name, table) as store,
        pytest.raises(PipelineError, match="batch 4 was submitted before"),
    ):
        store.submit(batch_of(np.arange(5), 4), no_limit)


def test_another_batch_than_the_one_packed_is_refused(tmp_path: Path) -> None:
    table, _ = write_table(tmp_path / "features.bin", 50, 60, 60)
    with opened("packed", table) as store:
        look_ahead(store, [np.arange(5), np.arange(7)])
        with pytest.raises(PipelineError, match="batch 1 was submitted before look_ahead"):
            store.submit(batch_of(np.arange(7), 1), no_limit)


def test_a_table_of_more_rows_than_ids_on_the_disk_can_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "features.bin"
    path.write_bytes(bytes(4096))
    table = Table(path=path, num_rows=2**32 + 1, row_bytes=1, row_stride=1)
    told = rf"^{re.escape(str(path))}: has 4294967297 rows, --store packed takes at most 4294967296; use --store static"
    with pytest.raises(ConfigError, match=told), opened("packed", table, buffer_rows=1):
        pass
