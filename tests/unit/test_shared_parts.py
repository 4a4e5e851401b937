"""Parts that workers take: each by one worker, in order, and in the same order by all its readers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, pairwise
from pathlib import Path

import pytest

from diskhop._native import BufferPool
from diskhop.hops.stream.parts import Bands, BandShape
from diskhop.hops.tables import TILE_ROWS
from diskhop.predicting.streamed.workers import Share, SharedParts, TakenParts, Workers, mixed_parts
from tests.graphs import threads_engine

NUM_ROWS, PART_ROWS = 100_000, 128


def test_every_part_is_taken_once_and_in_order() -> None:
    shared, start = SharedParts(range(3, 5000)), threading.Barrier(4)

    def take_all(_: int) -> list[int]:
        taken = TakenParts(shared)
        start.wait()
        found = list(taken)
        assert list(taken) == found
        return found

    with ThreadPoolExecutor(4) as executor:
        found = list(executor.map(take_all, range(4)))
    assert all(parts == sorted(parts) for parts in found)
    assert sorted(first for parts in found for first in parts) == list(range(3, 5000))


def test_readers_of_a_worker_see_the_same_parts_whoever_is_ahead() -> None:
    shared = SharedParts(range(10))
    one, other = TakenParts(shared), TakenParts(shared)
    ahead, behind = iter(one), iter(one)
    assert list(islice(ahead, 3)) == [0, 1, 2]
    assert list(islice(other, 2)) == [3, 4]
    assert list(islice(behind, 4)) == [0, 1, 2, 5]
    assert list(islice(ahead, 2)) == [5, 6]
    shared.stop()
    assert list(behind) == [6]
    assert list(ahead) == []
    assert list(other) == [3, 4]


@pytest.mark.parametrize(("start", "stop", "part_rows"), [(0, 1, 8), (8192, 100_000, 64), (0, 1_000_000, 65_536)])
def test_parts_of_both_ends_are_mixed(start: int, stop: int, part_rows: int) -> None:
    firsts = list(mixed_parts(start, stop, part_rows))
    assert sorted(firsts) == list(range(start, stop, part_rows))
    groups = list(dict.fromkeys((first - start) // max(part_rows, TILE_ROWS) for first in firsts))
    last = len(groups) - 1
    assert groups[:5] == [0, last, last - 1, last - 2, 1][: len(groups)]
    # Small parts stay next to one another.
    assert sum(b - a != part_rows for a, b in pairwise(firsts)) <= len(groups)


@pytest.fixture
def bands(tmp_path: Path) -> Bands:
    shape = BandShape(NUM_ROWS, (8,))
    path = tmp_path / "rows"
    path.write_bytes(bytes(shape.num_bytes))
    return Bands(path, shape, 0, 1)


def written(bands: Bands, write_part: Iterator[None] | None = None) -> list[int]:
    """Return the rows of each part, as two workers reported them; the first call of a part may fail."""
    workers = Workers(count=2, threads=1, part_rows=PART_ROWS, engine=threads_engine(), pool=BufferPool(0))
    rows: list[int] = []

    def write(share: Share) -> None:
        for first in share.firsts:
            if write_part is not None:
                next(write_part)
            num_rows = min(PART_ROWS, share.stop - first)
            share.rows(num_rows)[0][:] = first
            share.write(first, num_rows)

    writers = workers.open(bands)
    try:
        workers.write(write, 0, NUM_ROWS, writers, rows.append)
    finally:
        for writer in writers:
            writer.__exit__(None, None, None)
    return rows


def test_workers_write_all_rows(bands: Bands) -> None:
    assert sum(written(bands)) == NUM_ROWS


def test_after_an_error_no_more_parts_are_taken(bands: Bands) -> None:
    lock, calls = threading.Lock(), 0

    class Failing(Iterator[None]):
        def __next__(self) -> None:
            nonlocal calls
            with lock:
                calls += 1
                if calls == 5:
                    raise ValueError("the fifth part")

    with pytest.raises(ValueError, match="the fifth part"):
        written(bands, Failing())
    assert calls < NUM_ROWS // PART_ROWS // 2
