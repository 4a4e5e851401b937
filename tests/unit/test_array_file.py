"""Arrays put on the disk and read back: what comes back is what was written, or an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from diskhop._native import BufferPool, FaultInjector, FaultRule
from diskhop.errors import DestinationError, ReadError
from diskhop.io.array_file import ArrayFile
from diskhop.io.engine import open_engine


def array_file(path: Path, injector: FaultInjector | None = None) -> ArrayFile:
    return ArrayFile(path, open_engine("threads", 4, injector).engine, BufferPool(1 << 20))


RECORDS: list[list[NDArray[Any]]] = [
    [np.arange(5, dtype=np.uint32), np.arange(3000, dtype=np.int64)],
    [np.empty(0, np.uint32), np.empty(0, np.uint32)],
    [np.array([7], np.uint8)],
    [np.empty(0, np.int64), np.arange(512, dtype=np.int64)],
]


def test_records_come_back_in_any_order_and_off_the_end(tmp_path: Path) -> None:
    file = array_file(tmp_path / "arrays.bin")
    for record in RECORDS:
        file.append(record)
    for index in (2, 0, 3, 1):
        for found, expected in zip(file.read(index), RECORDS[index], strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
    assert len(file) == 4
    np.testing.assert_array_equal(file.pop()[1], RECORDS[3][1])
    num_bytes = (tmp_path / "arrays.bin").stat().st_size
    file.append(RECORDS[3])  # in the place of the one taken off
    assert (tmp_path / "arrays.bin").stat().st_size == num_bytes
    np.testing.assert_array_equal(file.read(3)[1], RECORDS[3][1])
    file.close()
    assert not list(tmp_path.iterdir())


def test_bytes_that_changed_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "arrays.bin"
    file = array_file(path)
    for record in RECORDS:
        file.append(record)
    content = bytearray(path.read_bytes())
    content[20_000] ^= 1
    path.write_bytes(content)
    with pytest.raises(ReadError, match=r"arrays\.bin: .* at offset 0 do not match their checksum"):
        file.read(0)
    assert file.read(2)[0][0] == 7


def test_room_is_made_ahead(tmp_path: Path) -> None:
    file = array_file(tmp_path / "arrays.bin")
    file.allocate(100)
    file.allocate(0)
    file.allocate(5000)
    assert (tmp_path / "arrays.bin").stat().st_size == 3 * 4096


def test_a_write_that_fails_adds_no_record(tmp_path: Path) -> None:
    file = array_file(tmp_path / "arrays.bin", FaultInjector([FaultRule("no_space", "writes", 2)]))
    file.append(RECORDS[0])
    with pytest.raises(DestinationError, match=r"arrays\.bin"):
        file.append(RECORDS[2])
    assert len(file) == 1
    file.append(RECORDS[2])
    assert file.read(1)[0][0] == 7
