"""Numbers in text: what Python reads is what is read, and what is no number is one line with its place."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from diskhop.errors import SourceError
from diskhop.importing.text import numbers as number_text
from diskhop.importing.text.numbers import NUMBERS_BYTES, NumberText
from tests.graphs import memory_folder


def text(folder: Path, content: bytes, *, packed: bool = False) -> Path:
    path = folder / ("numbers.csv.gz" if packed else "numbers.csv")
    path.write_bytes(gzip.compress(content) if packed else content)
    return path


def numbers(path: Path, rows: int | None, dtype: Any = np.float64, **options: Any) -> Any:
    column = NumberText(path, dtype, num_rows=rows, count_source="num-node-list.csv.gz", **options)
    blocks = list(column.blocks())
    assert all(block.dtype == column.dtype and block.shape[1:] == column.shape[1:] for block in blocks)
    return np.concatenate(blocks)


@given(
    table=arrays(
        np.float64,
        array_shapes(min_dims=2, max_dims=2, max_side=8),
        elements=st.floats(allow_nan=False, allow_infinity=False),
    ),
    slice_bytes=st.integers(1, 40),
    end=st.sampled_from(["\n", "\r\n"]),
    ends_whole=st.booleans(),
    packed=st.booleans(),
)
def test_every_float_that_python_writes_is_read_bit_by_bit(
    tmp_path_factory: pytest.TempPathFactory, table: Any, slice_bytes: int, end: str, ends_whole: bool, packed: bool
) -> None:
    lines = end.join(",".join(map(repr, row)) for row in table.tolist()) + (end if ends_whole else "")
    with memory_folder(tmp_path_factory.getbasetemp()) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(number_text, "_READ_BYTES", slice_bytes)
        path = text(folder, b"\xef\xbb\xbf" * (slice_bytes > 2) + lines.encode(), packed=packed)
        np.testing.assert_array_equal(numbers(path, len(table)).view(np.int64), table.view(np.int64))


@given(fields=st.lists(st.text("0123456789+-.eEnaNif_x ,", min_size=1, max_size=6), min_size=1, max_size=4))
def test_nothing_is_taken_for_a_number_that_python_does_not_take(
    tmp_path_factory: pytest.TempPathFactory, fields: list[str]
) -> None:
    with memory_folder(tmp_path_factory.getbasetemp()) as folder:
        path = text(folder, "".join(f"{field}\n" for field in fields).encode())
        try:
            values = numbers(path, len(fields), has_gaps=True)
        except SourceError:
            return
        for row, line in zip(values, fields, strict=True):
            np.testing.assert_array_equal(row, [float(field) for field in line.split(",")])


def test_lists_of_ids_are_flat(tmp_path: Path) -> None:
    path = text(tmp_path, b"3\n1\n0002\n", packed=True)
    assert numbers(path, None, np.int64).tolist() == [3, 1, 2]


@pytest.mark.parametrize(
    ("content", "rows", "options", "words"),
    [
        (b"1,2\n3\n", 2, {}, "numbers.csv, line 2: a row must have 2 numbers, as the first has, got 1; fix the line"),
        (b"1,2\n3,4,5\n", 2, {}, "line 2: a row must have 2 numbers, as the first has, got 3"),
        # As many in all as there must be.
        (b"1,2\n3,4,5\n6\n", 3, {}, "line 2: a row must have 2 numbers, as the first has, got 3"),
        (b"1,2\n3,\n", 2, {}, "line 2: must be a finite number, got ''"),
        (b"1\n\n2\n", 3, {}, "line 2: must be a finite number, got ''"),
        (b"1,2\n3,x\n", 2, {}, "line 2: must be a finite number, got 'x'; fix the line"),
        (b"1,1_0\n", 1, {}, "line 1: must be a finite number, got '1_0'"),
        (b"1,0x10\n", 1, {}, "line 1: must be a finite number, got '0x10'"),
        (b"1, 2\n", 1, {}, "line 1: must be a finite number, got ' 2'"),
        (b"1,2\n3,nan\n", 2, {}, "line 2: must be a finite number, got 'nan'"),
        (b"inf\n", 1, {}, "line 1: must be a finite number, got 'inf'"),
        (b"inf\n", 1, {"has_gaps": True}, "line 1: must be a finite number, or nan for none, got 'inf'"),
        (b"1e400\n", 1, {}, "line 1: must be a finite number, got '1e400'"),
        (
            b"1\n-1\n",
            None,
            {"dtype": np.int64},
            "line 2: must be a whole number from 0 to 999999999999999999, got '-1'",
        ),
        (b"1\n-\n", None, {"dtype": np.int64}, "line 2: must be a whole number from 0 to"),
        (b"1\n1.5\n", None, {"dtype": np.int64}, "line 2: must be a whole number from 0 to"),
        (b"1\n9223372036854775808\n", None, {"dtype": np.int64}, "line 2: must be a whole number from 0 to"),
        (b"1\n" + b"9" * 5000, None, {"dtype": np.int64}, "line 2: must be a whole number from 0 to"),
        (b"1\n1,2\n", None, {"dtype": np.int64}, "line 2: a row must have 1 number, got 2"),
        (b"1\n2\n", 3, {}, "has 2 rows, num-node-list.csv.gz says 3; download the folder again"),
        (b"1\n2\n", 1, {}, "has 2 rows, num-node-list.csv.gz says 1; download the folder again"),
        (b"", 1, {}, "has 0 rows, num-node-list.csv.gz says 1"),
        (b"1\n\xff\n", 2, {}, "line 2: text must be UTF-8, got byte 0xff"),
        (b"1\n" + b"1" * (2 << 20), 2, {}, "line 2: must be at most 1048576 bytes long"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_bad_text_is_one_line_with_its_place(
    tmp_path: Path, content: bytes, rows: int | None, options: Any, words: str, packed: bool
) -> None:
    path = text(tmp_path, content, packed=packed)
    with pytest.raises(SourceError) as caught:
        numbers(path, rows, **options)
    assert words.replace("numbers.csv,", f"{path.name},") in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_damaged_gzip_names_the_line_that_is_not_whole(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    content = b"".join(b"%d\n" % number for number in generator.integers(0, 10**9, 200_000))
    path = text(tmp_path, content, packed=True)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(SourceError, match=r"numbers.csv.gz, line \d{5,}: gzip must end with its checksum"):
        numbers(path, None, np.int64)
    path.write_bytes(whole[:-8] + b"\0\0\0\0" + whole[-4:])
    with pytest.raises(SourceError, match=r"numbers.csv.gz, line \d+: gzip must match its checksum"):
        numbers(path, None, np.int64)


def test_a_text_that_unpacks_to_any_length_is_left_early(tmp_path: Path) -> None:
    path = text(tmp_path, b"1,2\n" * (5 << 20), packed=True)
    with pytest.raises(SourceError, match=r"has \d+ rows, num-node-list.csv.gz says 3") as caught:
        numbers(path, 3)
    assert int(str(caught.value).split("has ")[1].split()[0]) < 1 << 20


def test_a_fault_deep_in_a_file_has_its_line(tmp_path: Path) -> None:
    lines = [b"1.5,2.5"] * 300_000
    lines[270_001] = b"1.5,2.5.1"
    with pytest.raises(SourceError, match=r"numbers.csv, line 270002: must be a finite number, got '2\.5\.1'"):
        numbers(text(tmp_path, b"\n".join(lines)), len(lines))


@pytest.mark.fast(1)
@pytest.mark.parametrize("row", [b"1\n", b"0," * 500_000 + b"0\n", b"-1.2345678,0.3456789,3e-5\n"])
def test_a_slice_takes_no_more_than_is_reserved(tmp_path: Path, row: bytes) -> None:
    count = max(2, (12 << 20) // len(row))
    column = NumberText(text(tmp_path, row * count, packed=True), np.float64, num_rows=count)
    tracemalloc.start()
    for block in column.blocks():
        del block
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes <= NUMBERS_BYTES
