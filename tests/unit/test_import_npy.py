"""Arrays that are damaged, or that lie about themselves, are one SourceError naming file and member."""

from __future__ import annotations

import io
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib import format as npy_format

from diskhop.dataset.build.feature_ranges import Seekable
from diskhop.errors import SourceError
from diskhop.importing.arrays.npy import file_array, list_arrays


def npy_bytes(array: np.ndarray, **header: object) -> bytes:
    """A .npy file whose header says what it is told to."""
    stream = io.BytesIO()
    described = npy_format.header_data_from_array_1_0(array) | header
    npy_format.write_array_header_1_0(stream, described)
    return stream.getvalue() + array.tobytes()


def read_all(path: Path) -> dict[str, np.ndarray]:
    return {
        name: np.concatenate([np.zeros((0, *array.shape[1:]), array.dtype), *array.blocks()])
        for name, array in list_arrays(path).items()
    }


ARRAY = np.arange(12, dtype=np.int32).reshape(4, 3)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_the_header_is_read(tmp_path: Path, version: tuple[int, int]) -> None:
    with (tmp_path / "a.npy").open("wb") as file:
        npy_format.write_array(file, ARRAY, version)
    np.testing.assert_array_equal(read_all(tmp_path / "a.npy")["a"], ARRAY)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not a NumPy array"),
        (b"\x93NUMPY\x04\x00\x00\x00", "is not a NumPy array"),
        (b"PK\x03\x04 no array", "is not a NumPy array"),
        (b"\x93NUMPY\x01\x00", "cannot be read"),
        (b"\x93NUMPY\x01\x00\x50\x00{'descr'", "ends within its header"),
        (b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31), "has a header of 2147483648 bytes"),
        (b"\x93NUMPY\x01\x00\x04\x00oops", "has a header that is not NumPy's"),
        (b"\x93NUMPY\x01\x00\x02\x00[]", "has a header that is not NumPy's"),
        (npy_bytes(ARRAY)[:-1], "holds 175 bytes, its header (shape (4, 3), int32) says 176"),
        (npy_bytes(ARRAY) + b"x", "holds 177 bytes, its header"),
        (npy_bytes(ARRAY, shape=(4, 4)), "its header (shape (4, 4), int32) says"),
        (npy_bytes(ARRAY, shape=(2**62, 2**62)), "its header (shape"),
        (npy_bytes(ARRAY, shape=(-4, -3)), "has the shape (-4, -3)"),
        (npy_bytes(ARRAY, shape=(True, 12)), "has the shape (True, 12)"),
        (npy_bytes(ARRAY, descr="|O"), "holds objects, which only a pickle can hold"),
        (npy_bytes(ARRAY, descr=[("a", "<i4")]), "holds dtype"),
        (npy_bytes(ARRAY, descr="<U3"), "holds dtype '<U3'"),
        (npy_bytes(ARRAY, fortran_order=True), "is stored in Fortran order"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(SourceError) as caught:
        read_all(tmp_path / "a.npy")
    assert str(caught.value).startswith(f"{tmp_path}/a.npy: ")
    assert words in str(caught.value)


def archive_bytes(compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        archive.writestr(zipfile.ZipInfo("a.npy"), npy_bytes(ARRAY), compression)
        archive.writestr(zipfile.ZipInfo("b.npy"), npy_bytes(np.arange(1000.0)), compression)
    return stream.getvalue()


def test_a_changed_byte_of_a_member_is_found_and_the_member_named(tmp_path: Path) -> None:
    content = bytearray(archive_bytes(zipfile.ZIP_STORED))
    content[content.index(ARRAY.tobytes()) + 9] ^= 1
    (tmp_path / "data.npz").write_bytes(content)
    with pytest.raises(SourceError, match=r"data.npz: a: cannot be read: Bad CRC-32"):
        read_all(tmp_path)


def test_a_directory_that_promises_the_impossible_is_not_believed(tmp_path: Path) -> None:
    content = bytearray(archive_bytes())
    # The central directory's entry of the first member: its uncompressed length is at byte 24.
    entry = content.index(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = struct.pack("<I", 2**32 - 2)
    (tmp_path / "data.npz").write_bytes(content)
    with pytest.raises(SourceError, match=r"a: cannot hold 4294967294 bytes, as the archive says"):
        read_all(tmp_path)


def test_a_member_twice_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        archive.writestr("a.npy", npy_bytes(ARRAY))
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a.npy", npy_bytes(ARRAY))
    with pytest.raises(SourceError, match="a: is in the archive twice"):
        read_all(tmp_path)


@given(cut=st.integers(0, len(archive_bytes()) - 1))
def test_an_archive_cut_anywhere_is_refused(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("cut") / "data.npz"
    path.write_bytes(archive_bytes()[:cut])
    with pytest.raises(SourceError, match=r"data\.npz"):
        read_all(path)


@given(data=st.data(), compression=st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
def test_an_archive_with_changed_bytes_is_refused_or_reads_the_same(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, compression: int
) -> None:
    content = bytearray(archive_bytes(compression))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("changed") / "data.npz"
    path.write_bytes(content)
    try:
        arrays = read_all(path)
    except SourceError as refusal:
        message = str(refusal)
    else:
        # Names and times in the archive's own tables may change, contents may not.
        for array in arrays.values():
            assert array.tobytes() in (ARRAY.tobytes(), np.arange(1000.0).tobytes())
        return
    assert "\n" not in message


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "data.npz")
    with pytest.raises(SourceError, match="not a regular file"):
        read_all(tmp_path)


@pytest.mark.parametrize("first_row", [0, 1, 21_000, 59_999, 60_000])
def test_a_file_of_rows_is_read_from_any_on(tmp_path: Path, first_row: int) -> None:
    rows = np.arange(60_000 * 50, dtype=np.int32).reshape(60_000, 50)
    np.save(tmp_path / "x.npy", rows)
    array = file_array(tmp_path / "x.npy")
    found = np.concatenate([rows[:0], *array.blocks_from(first_row)])
    np.testing.assert_array_equal(found, rows[first_row:])
    assert isinstance(array, Seekable)
    np.savez(tmp_path / "x.npz", x=rows)
    assert not isinstance(list_arrays(tmp_path / "x.npz")["x"], Seekable)


def test_a_file_that_was_cut_meanwhile_is_one_line_from_any_row_on(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((60_000, 50), np.int32))
    array = file_array(tmp_path / "x.npy")
    os.truncate(tmp_path / "x.npy", 2_000_000)
    for first_row in (0, 50_000):
        with pytest.raises(SourceError, match=r"x\.npy: ends before its header says; it is damaged: save it again"):
            list(array.blocks_from(first_row))
