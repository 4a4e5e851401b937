"""Segments of packed layouts against brute force: what they take on the disk, what a pass reads, how long they are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskhop.errors import ConfigError, DiskBudgetError
from diskhop.policies.minhash import minhash_order
from diskhop.policies.segments import OrderRows, SegmentSize, choose_segment_size, count_rows, simulate_segments
from diskhop.protocols import NodeIds

NUM_ROWS = 9
PAGE_BYTES = 16


@dataclass
class ListedTrace:
    """An access trace that remembers which batches it was asked for."""

    batches: list[list[int]]
    asked: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.batches)

    def node_ids(self, index: int) -> NodeIds:
        self.asked.append(index)
        return np.array(self.batches[index], np.int64)


@dataclass
class Case:
    """Batches of rows, some of which are held."""

    batches: list[list[int]]
    held: set[int]

    @property
    def is_held(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return np.array([row in self.held for row in range(NUM_ROWS)])

    @property
    def wanted(self) -> list[list[int]]:
        return [[row for row in batch if row not in self.held] for batch in self.batches]

    @property
    def num_distinct(self) -> int:
        return len({row for batch in self.wanted for row in batch})


def cases() -> st.SearchStrategy[Case]:
    rows = st.integers(0, NUM_ROWS - 1)
    batches = st.lists(st.lists(rows, unique=True, max_size=NUM_ROWS), min_size=1, max_size=10)
    return st.builds(Case, batches, st.sets(rows, max_size=3))


def counted(batches: list[list[int]], num_batches: int) -> SegmentSize:
    shared_rows = packed_rows = 0
    for first in range(0, len(batches), num_batches):
        counts = Counter(row for batch in batches[first : first + num_batches] for row in batch)
        shared_rows += sum(count > 1 for count in counts.values())
        packed_rows += sum(count == 1 for count in counts.values())
    return SegmentSize(num_batches, shared_rows, packed_rows)


def predicted_rows(batches: list[list[int]], num_batches: int) -> int:
    """The first segment over and over, cut to as many batches as there are."""
    like_first = [batches[number % num_batches] for number in range(len(batches))]
    return counted(like_first, num_batches).disk_rows


@given(cases(), st.integers(1, 11))
def test_rows_are_counted(case: Case, num_batches: int) -> None:
    trace = ListedTrace(case.batches)
    size = count_rows(trace, case.is_held, num_batches)
    assert size == counted(case.wanted, num_batches)
    assert size.disk_rows == size.shared_rows + size.packed_rows
    assert trace.asked == list(range(len(trace)))
    assert size.disk_rows == simulate_segments(trace, case.is_held, num_batches, row_bytes=8).disk_rows


@given(cases(), st.integers(0, 60))
def test_the_search_finds_the_shortest_that_is_predicted_to_fit_and_does(case: Case, most_rows: int) -> None:
    trace = ListedTrace(case.batches)
    predicted = [size for size in range(1, len(trace) + 1) if predicted_rows(case.wanted, size) <= most_rows]
    fitting = [size for size in predicted if counted(case.wanted, size).disk_rows <= most_rows]
    if fitting:
        assert choose_segment_size(trace, case.is_held, most_rows) == counted(case.wanted, fitting[0])
        num_counted = predicted.index(fitting[0]) + 1
    else:
        with pytest.raises(DiskBudgetError, match=f"at least {case.num_distinct} rows .* {most_rows} are") as caught:
            choose_segment_size(trace, case.is_held, most_rows)
        assert isinstance(caught.value, ConfigError)
        assert caught.value.smallest_rows == case.num_distinct > most_rows
        num_counted = len(predicted)
    assert max(Counter(trace.asked).values()) <= 1 + num_counted


@given(cases())
def test_more_disk_never_gives_longer_segments(case: Case) -> None:
    enough_rows = len(case.batches) * NUM_ROWS
    found = [
        choose_segment_size(ListedTrace(case.batches), case.is_held, rows)
        for rows in range(case.num_distinct, enough_rows + 1)
    ]
    assert all(more.num_batches <= fewer.num_batches for fewer, more in pairwise(found))
    assert found[-1] == SegmentSize(1, 0, sum(map(len, case.wanted)))


def simulated(
    case: Case, num_batches: int, row_bytes: int, most_shared_rows: int | None, order_rows: OrderRows
) -> tuple[int, int, int]:
    """Rows on the disk, packed rows and pages read, by laying every shared row's bytes out."""
    disk_rows = num_packed = num_pages = 0
    for first in range(0, len(case.wanted), num_batches):
        batches = case.wanted[first : first + num_batches]
        counts = Counter(row for batch in batches for row in batch)
        by_count = sorted(counts, key=lambda row: (-counts[row], row))
        shared = sorted(
            (row for row in counts if counts[row] > 1) if most_shared_rows is None else by_count[:most_shared_rows]
        )
        shared_batches = [np.array([shared.index(row) for row in batch if row in shared], int) for batch in batches]
        order = order_rows(shared_batches, len(shared)).tolist()
        pages_of = {
            row: {(order.index(shared.index(row)) * row_bytes + byte) // PAGE_BYTES for byte in range(row_bytes)}
            for row in shared
        }
        packed = sum(count for row, count in counts.items() if row not in pages_of)
        disk_rows += len(shared) + packed
        num_packed += packed
        num_pages += sum(len(set().union(*(pages_of.get(row, set()) for row in batch))) for batch in batches)
    return disk_rows, num_packed, num_pages


def by_id(_: object, num_rows: int) -> NodeIds:
    return np.arange(num_rows)


@given(
    cases(),
    st.integers(1, 11),
    st.sampled_from([1, 3, 8, 16, 20, 37]),
    st.none() | st.integers(0, NUM_ROWS),
    st.sampled_from([minhash_order, by_id]),
)
def test_what_a_layout_takes_and_reads(
    case: Case, num_batches: int, row_bytes: int, most_shared_rows: int | None, order_rows: OrderRows
) -> None:
    trace = ListedTrace(case.batches)
    reads = simulate_segments(
        trace,
        case.is_held,
        num_batches,
        row_bytes=row_bytes,
        page_bytes=PAGE_BYTES,
        most_shared_rows=most_shared_rows,
        order_rows=order_rows,
    )
    disk_rows, num_packed, num_pages = simulated(case, num_batches, row_bytes, most_shared_rows, order_rows)
    assert reads.disk_rows == disk_rows
    assert reads.bytes_needed == row_bytes * sum(map(len, case.wanted))
    assert reads.bytes_packed == row_bytes * num_packed
    assert reads.bytes_of_pages == PAGE_BYTES * num_pages
    assert reads.amplification >= 1
    assert trace.asked == list(range(len(trace)))


@given(cases(), st.integers(1, 11))
def test_packed_rows_are_read_without_a_byte_too_many(case: Case, num_batches: int) -> None:
    for length, most_shared_rows in ((1, None), (num_batches, 0)):
        reads = simulate_segments(
            ListedTrace(case.batches), case.is_held, length, row_bytes=8, most_shared_rows=most_shared_rows
        )
        assert reads.amplification == 1
        assert reads.disk_rows == sum(map(len, case.wanted))


def test_segments_of_a_random_trace_trade_disk_for_reads() -> None:
    generator = np.random.default_rng(0)
    batches = [np.flatnonzero(generator.random(4000) < 0.05).tolist() for _ in range(60)]
    is_held = np.zeros(4000, np.bool_)
    found = [
        simulate_segments(ListedTrace(batches), is_held, num_batches, row_bytes=512) for num_batches in (1, 5, 20, 60)
    ]
    assert all(longer.disk_rows < shorter.disk_rows for shorter, longer in pairwise(found))
    assert all(longer.amplification > shorter.amplification for shorter, longer in pairwise(found))
    for reads in found:
        assert 0.9 * reads.disk_rows < choose_segment_size(ListedTrace(batches), is_held, reads.disk_rows).disk_rows
