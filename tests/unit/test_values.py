"""Numbers of a file are read whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from diskhop.errors import ReadError
from diskhop.io.values import read_bytes, read_values


def test_values_are_read_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "numbers.bin"
    np.arange(10, dtype="<i8").tofile(path)
    np.testing.assert_array_equal(read_values(path, "<i8"), np.arange(10))
    np.testing.assert_array_equal(read_values(path, "<i8", 3, 16), [2, 3, 4])
    assert len(read_values(path, "<i8", 0, 80)) == 0
    with pytest.raises(ReadError, match=r"numbers\.bin: ends, or cannot be read, after byte 80"):
        read_values(path, "<i8", 4, 56)
    with pytest.raises(ReadError, match="none: cannot be read: No such file"):
        read_values(tmp_path / "none", "<i8")


def test_bytes_come_in_several_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(100)))
    pread = os.pread
    monkeypatch.setattr("diskhop.io.values.os.pread", lambda file, count, offset: pread(file, min(count, 7), offset))
    with path.open("rb") as file:
        assert read_bytes(file, 50, 10) == bytes(range(10, 60))
        with pytest.raises(ReadError, match="ends at byte 100"):
            read_bytes(file, 50, 60)
