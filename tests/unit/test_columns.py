"""Columns that batches read: from memory, from the disk and from bits, all as indexing the whole array would give."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diskhop._native import BufferPool, Engine
from diskhop.dataset.attribute_info import AttributeInfo
from diskhop.dataset.attribute_set import stored_column
from diskhop.errors import ReadError
from diskhop.pipeline.columns import READING_BYTES, DiskColumn, EmptyColumn, HeldColumn, MaskColumn, tensor_of

ROWS = 5000


@given(st.data())
def test_masks_are_those_of_the_splits(data: st.DataObject) -> None:
    num_nodes = data.draw(st.integers(1, 70))
    rows = st.lists(st.integers(0, num_nodes - 1), unique=True).map(lambda ids: np.array(ids, np.int64))
    splits = data.draw(st.lists(rows, min_size=1, max_size=3))
    shape = (len(splits),) if len(splits) > 1 else ()
    wanted = np.array(data.draw(st.lists(st.integers(0, num_nodes - 1), max_size=9)), np.int64)
    masks = np.zeros((num_nodes, len(splits)), np.bool_)
    for number, ids in enumerate(splits):
        masks[ids, number] = True
    found = MaskColumn(splits, num_nodes, shape).rows(wanted)
    assert found.dtype == np.bool_
    np.testing.assert_array_equal(found, masks[wanted].reshape(len(wanted), *shape))


@pytest.mark.parametrize("shape", [(), (1,), (3, 2), (1500,)])
@pytest.mark.parametrize("dtype", ["int8", "float64", "bool"])
def test_rows_from_disk_are_those_from_memory(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    info = AttributeInfo(dtype=dtype, shape=shape)
    values = np.random.default_rng(0).integers(0, 2, (ROWS, *shape)).astype(info.stored_dtype)
    column = stored_column(tmp_path, "nodes/node", "pos", info, ROWS, np.dtype(np.int64))
    column.table.path.parent.mkdir(parents=True)
    values.tofile(column.table.path)
    on_disk = DiskColumn(column, Engine("threads", 4), BufferPool(READING_BYTES), threading.Lock(), 4096)
    for ids in (np.array([7, 3, 3, ROWS - 1, 0]), np.arange(ROWS), np.empty(0, np.int64)):
        np.testing.assert_array_equal(on_disk.rows(ids), values[ids])
        np.testing.assert_array_equal(HeldColumn(values).rows(ids), values[ids])
    np.testing.assert_array_equal(column.map(), values)


def test_a_file_that_became_shorter_is_named(tmp_path: Path) -> None:
    column = stored_column(tmp_path, "nodes/node", "pos", AttributeInfo(dtype="int64"), ROWS, np.dtype(np.int64))
    column.table.path.parent.mkdir(parents=True)
    np.arange(ROWS // 2).tofile(column.table.path)
    on_disk = DiskColumn(column, Engine("threads", 4), BufferPool(READING_BYTES), threading.Lock(), 4096)
    with pytest.raises(ReadError, match=r"pos\.bin"):
        on_disk.rows(np.array([ROWS - 1]))


def test_values_without_numbers_have_their_shape(tmp_path: Path) -> None:
    info = AttributeInfo(dtype="float32", shape=(0, 3))
    column = stored_column(tmp_path, "nodes/node", "pos", info, ROWS, np.dtype(np.int64))
    assert EmptyColumn(column).rows(np.arange(4)).shape == (4, 0, 3)


@pytest.mark.parametrize(
    ("stored", "info", "expected"),
    [
        (np.array([1, -1]), AttributeInfo(dtype="float32", stored_as="labels"), torch.tensor([1.0, float("nan")])),
        (np.array([1, -1]), AttributeInfo(dtype="int16", stored_as="labels"), torch.tensor([1, -1], dtype=torch.int16)),
        (np.array([0.5], np.float32), AttributeInfo(dtype="float64"), torch.tensor([0.5], dtype=torch.float64)),
        (np.array([0x3F80], np.uint16), AttributeInfo(dtype="bfloat16"), torch.tensor([1.0], dtype=torch.bfloat16)),
    ],
)
def test_tensors_have_the_dtype_of_the_source(stored: Any, info: AttributeInfo, expected: torch.Tensor) -> None:
    found = tensor_of(stored, info)
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
