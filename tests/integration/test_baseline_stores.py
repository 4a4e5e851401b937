"""The stores that stand for other systems in the papers' scripts deliver the table's rows, and read as those do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baseline_stores
from baseline_stores import PAGE_BYTES, OneByOne, reading_pages
from diskhop._native import BufferPool
from diskhop.counters import FetchCounts
from diskhop.io.engine import open_engine
from diskhop.plans import StoreShare
from diskhop.protocols import Bytes, FeatureStore, NodeIds
from diskhop.stores.resources import StoreResources, assemble
from diskhop.stores.stores import STORES
from marius_system import NUM_RESIDENT, PartitionBuffer, partitions_within
from tests.integration.test_stores import batch_of, no_limit, write_table


def _resources(cache_rows: int) -> StoreResources:
    return StoreResources(
        engine=open_engine("threads", 32).engine,
        pool=BufferPool(1 << 26),
        max_gap_bytes=4096,
        max_read_bytes=1 << 16,
        staging_bytes=1 << 22,
        threads=2,
        share=StoreShare(cache_rows=cache_rows),
    )


def _fetch(store: FeatureStore[Any], ids: NodeIds) -> tuple[Bytes, FetchCounts]:
    rows = store.collect(ticket := store.submit(batch_of(ids), no_limit))
    out = np.empty((len(ids), store.table.row_bytes), np.uint8)
    assemble(rows, out, 1)
    store.release(ticket)
    return out, rows.counts


def test_a_row_is_read_with_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baseline_stores, "_PAGES_AT_ONCE", 3)  # so that requests are read in pieces
    table, values = write_table(tmp_path / "rows", 1024, 512, 512)
    store = reading_pages(STORES["static"], "pages").open(table, _resources(cache_rows=8))
    ids = np.array([900, 3, 17, 100, 200, 300, 400, 500, 1023])
    out, counts = _fetch(store, ids)
    np.testing.assert_array_equal(out, values[ids])
    assert counts.rows_hit == 1
    assert (counts.reads, counts.bytes_read) == (8, 8 * PAGE_BYTES)
    store.close()
    wide, _ = write_table(tmp_path / "wide", 8, 3072, 3072)
    with pytest.raises(ValueError, match="rows of 3072 bytes"):
        reading_pages(STORES["static"], "pages").open(wide, _resources(cache_rows=8))


def test_one_pread_for_each_row(tmp_path: Path) -> None:
    table, values = write_table(tmp_path / "rows", 100, 40, 64)
    store = OneByOne(table, _resources(cache_rows=0))
    ids = np.array([99, 0, 7, 8, 9])
    out, counts = _fetch(store, ids)
    np.testing.assert_array_equal(out, values[ids])
    assert (counts.reads, counts.bytes_read) == (5, 5 * 40)
    store.close()


@pytest.mark.parametrize(("fraction", "count"), [(0.1, 40), (0.3, 14), (0.5, 8)])
def test_partitions_stay_within_a_fraction_of_the_rows(fraction: float, count: int) -> None:
    partitions = partitions_within(fraction, 1000)
    assert partitions.num_partitions == count
    assert partitions.resident_rows <= fraction * 1000 + NUM_RESIDENT


def test_a_partition_replaces_the_one_needed_longest_ago(tmp_path: Path) -> None:
    table, values = write_table(tmp_path / "rows", 95, 512, 512)
    partitions = partitions_within(0.4, 95)  # ten of 10 rows, the last of 5
    store = PartitionBuffer(table, _resources(partitions.resident_rows), partitions)
    filled = []
    for numbers in ([0, 1, 2, 3], [3, 1, 0], [9, 3], [0, 1, 3, 9], [2]):
        ids = np.array([10 * number + step for number in numbers for step in (4, 0, 3)])
        out, counts = _fetch(store, ids)
        np.testing.assert_array_equal(out, values[ids])
        filled.append(counts.rows_filled)
    # Partition 2 is the first to leave, for 9, and partition 0 replaces nothing that is needed later.
    assert filled == [40, 0, 5, 0, 10]
    assert len(store.load_seconds) == 6
    # A batch of more partitions than are resident takes turns: 0, 1 and 9 leave last.
    ids = np.array([94, 0, 10, 20, 30, 40, 50, 60, 11])
    out, counts = _fetch(store, ids)
    np.testing.assert_array_equal(out, values[ids])
    assert (counts.rows_filled, counts.rows_hit) == (40, 5)
    store.close()
