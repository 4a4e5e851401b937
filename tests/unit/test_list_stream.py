"""Row pointers in parts, of a whole file and of one that ends early."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from diskhop.errors import ReadError
from diskhop.hops.make.passes import Lists
from diskhop.hops.stream.lists import indptr_parts

NUM_NODES, PART_ROWS, OFFSET = 10_000, 4096, 24


@pytest.fixture
def lists(tmp_path: Path) -> Lists:
    """Lists whose row pointers are behind a header; indices are never read."""
    indptr = np.arange(0, 3 * (NUM_NODES + 1), 3, dtype="<i8")
    (tmp_path / "indptr.bin").write_bytes(bytes(OFFSET) + indptr.tobytes())
    return Lists(
        indptr_path=tmp_path / "indptr.bin",
        indptr_offset=OFFSET,
        indices_path=tmp_path / "indices.bin",
        indices_offset=0,
        index_bytes=4,
        num_nodes=NUM_NODES,
        num_edges=3 * NUM_NODES,
    )


def test_parts_in_any_order_have_their_row_pointers(lists: Lists) -> None:
    firsts = [2 * PART_ROWS, 0, PART_ROWS]
    for (first, indptr), expected in zip(indptr_parts(lists, firsts, NUM_NODES, PART_ROWS), firsts, strict=True):
        stop = min(expected + PART_ROWS, NUM_NODES)
        assert first == expected
        assert np.array_equal(indptr, np.arange(3 * expected, 3 * stop + 1, 3))


def test_a_file_that_ends_early_is_refused(lists: Lists) -> None:
    whole = lists.indptr_path.read_bytes()
    lists.indptr_path.write_bytes(whole[: len(whole) - 8])
    parts = indptr_parts(lists, range(0, NUM_NODES, PART_ROWS), NUM_NODES, PART_ROWS)
    assert [next(parts)[0], next(parts)[0]] == [0, PART_ROWS]
    with pytest.raises(ReadError, match=r"ends before row 10000; run 'diskhop verify' on the dataset, then import"):
        next(parts)
