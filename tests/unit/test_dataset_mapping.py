"""A mapped file is the file's bytes, or one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from diskhop.errors import ReadError
from diskhop.io.mapping import map_file


@pytest.mark.parametrize("num_bytes", [0, 1, 4096, 10_000])
def test_a_map_is_the_start_of_the_file_read_only(tmp_path: Path, num_bytes: int) -> None:
    content = np.random.default_rng(0).integers(0, 256, 10_000).astype(np.uint8)
    content.tofile(tmp_path / "file")
    mapped = map_file(tmp_path / "file", num_bytes)
    np.testing.assert_array_equal(mapped, content[:num_bytes])
    with pytest.raises(ValueError, match="read-only"):
        mapped[:] = 0


def test_what_cannot_be_mapped_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"123")
    with pytest.raises(ReadError, match=r"file: is 3 bytes, must have at least 4 to be mapped; run 'diskhop verify'"):
        map_file(tmp_path / "file", 4)
    with pytest.raises(ReadError, match=r"missing: cannot be mapped: No such file"):
        map_file(tmp_path / "missing", 4)
    with pytest.raises(ReadError, match=r"cannot be mapped: Is a directory"):
        map_file(tmp_path, 4)
