"""Claims about stores of a graph with types: a store per type, all of one kind, in one budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop._native import BufferPool
from diskhop.errors import BudgetError
from diskhop.io.engine import open_engine
from diskhop.plans import StoreShare
from diskhop.protocols import GroupRows, TableGroup, TablePart
from diskhop.stores.group_share import GroupShare, PartShare, split_bytes
from diskhop.stores.packed.sizes import own_rows
from diskhop.stores.resources import StoreResources, assemble
from diskhop.stores.stores import STORES, store_kind
from tests.integration.test_stores import batch_of, submit_all, write_table

# Rows of each type, and bytes of each row; the second type has no features.
_TYPES = {"author": (300, 12), "venue": (40, 0), "paper": (500, 600), "term": (7, 4)}


def make_group(folder: Path) -> tuple[TableGroup, dict[str, NDArray[np.uint8]]]:
    parts, raw, first_row = [], {}, 0
    for name, (num_rows, row_bytes) in _TYPES.items():
        if row_bytes:
            table, raw[name] = write_table(folder / f"{name}.bin", num_rows, row_bytes, row_bytes)
            parts.append(TablePart(name=name, first_row=first_row, table=table, dtype="float32", dim=row_bytes // 4))
        first_row += num_rows
    largest = max((part.table for part in parts), key=lambda table: table.num_rows * table.row_bytes)
    group = TableGroup(
        path=largest.path,
        num_rows=first_row,
        row_bytes=largest.row_bytes,
        row_stride=largest.row_stride,
        parts=tuple(parts),
    )
    return group, raw


def open_group(name: str, group: TableGroup, scratch: Path) -> Any:
    def share_of(part: TablePart) -> PartShare:
        num_rows = part.table.num_rows
        buffer_rows = 8 * own_rows(part.table, num_rows, 0) if name == "packed" else num_rows
        share = StoreShare(cache_rows=num_rows // 4, buffer_rows=buffer_rows, partition_bytes=1 << 17)
        return PartShare(share=share, staging_bytes=1 << 22)

    resources = StoreResources(
        engine=open_engine("threads", 32).engine,
        pool=BufferPool(1 << 26),
        max_gap_bytes=4096,
        max_read_bytes=1 << 16,
        staging_bytes=1 << 22,
        threads=2,
        share=GroupShare(parts={part.name: share_of(part) for part in group.parts}),
        memory_bytes=1_000_000,
        scratch=scratch,
    )
    return store_kind(name, group).open(group, resources)


@pytest.mark.parametrize("name", STORES)
def test_rows_by_type_equal_indexing(tmp_path: Path, name: str) -> None:
    group, raw = make_group(tmp_path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    generator = np.random.default_rng(3)
    batches = [generator.permutation(group.num_rows)[:count].astype(np.int64) for count in (600, 1, 0, 300, 847, 50)]
    asked: list[int] = []
    store = open_group(name, group, scratch)
    try:
        for ids, ticket in zip(batches, submit_all(store, batches), strict=True):
            rows = store.collect(ticket)
            assert isinstance(rows, GroupRows)
            asked.append(rows.counts.rows_requested)
            for part in group.parts:
                _, wanted = part.find(ids)
                out = np.full((len(wanted), part.table.row_bytes), 0xA5, np.uint8)
                assemble(rows.parts[part.name], out, 1)
                np.testing.assert_array_equal(out, raw[part.name][wanted])
            store.release(ticket)
    finally:
        store.close()
    has_features = np.concatenate([np.full(num_rows, row_bytes > 0) for num_rows, row_bytes in _TYPES.values()])
    assert asked == [int(has_features[ids].sum()) for ids in batches]


@pytest.mark.parametrize("name", [name for name, kind in STORES.items() if not kind.looks_ahead])
def test_room_is_asked_for_once_for_all_types(tmp_path: Path, name: str) -> None:
    group, _ = make_group(tmp_path)
    store = open_group(name, group, tmp_path)
    batch = batch_of(np.arange(group.num_rows, dtype=np.int64))
    asked: list[int] = []

    def refuse(_num_bytes: int) -> None:
        raise BudgetError("no room")

    try:
        store.release(store.submit(batch, asked.append))
        assert len(asked) == 1
        with pytest.raises(BudgetError, match="no room"):
            store.submit(batch, refuse)
        # Nothing stays submitted: the same batch is served afterwards.
        ticket = store.submit(batch, asked.append)
        assert store.collect(ticket).num_rows == sum(part.table.num_rows for part in group.parts)
        store.release(ticket)
    finally:
        store.close()


@given(
    left=st.integers(0, 10_000),
    sizes=st.lists(st.tuples(st.integers(0, 100), st.integers(0, 5000), st.integers(1, 50)), min_size=1, max_size=5),
)
def test_memory_is_divided_by_weight_within_bounds(left: int, sizes: list[tuple[int, int, int]]) -> None:
    smallest = {str(number): each[0] for number, each in enumerate(sizes)}
    most = {str(number): each[0] + each[1] for number, each in enumerate(sizes)}
    weights = {str(number): float(each[2]) for number, each in enumerate(sizes)}
    slices = split_bytes(left, smallest, most, weights)
    given_bytes = sum(slices.values()) - sum(smallest.values())
    assert given_bytes <= left
    assert all(smallest[name] <= slices[name] <= most[name] for name in slices)
    # What is left over is less than a byte per type, unless every type has its most.
    assert given_bytes > left - len(sizes) - 1 or slices == most or left < len(sizes)
    more = split_bytes(2 * left, smallest, most, weights)
    assert all(more[name] >= slices[name] - 1 for name in slices)
