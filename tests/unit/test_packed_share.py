"""The share of the budget that the store `packed` takes."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from diskhop.protocols import Table
from diskhop.stores.packed.packer import packing_bytes
from diskhop.stores.packed.share import partition_bytes_for


@given(st.integers(1, 3000), st.integers(0, 200 << 20), st.integers(0, 1 << 13))
def test_partitions_never_take_more_than_is_left(row_bytes: int, left_bytes: int, padding: int) -> None:
    table = Table(path=Path("rows"), num_rows=10**7, row_bytes=row_bytes, row_stride=row_bytes + padding)
    smallest = packing_bytes(table, partition_bytes_for(table, 0))
    taken = packing_bytes(table, partition_bytes_for(table, left_bytes)) - smallest
    assert 0 <= taken <= left_bytes
