"""Streams arrays in .npy files and members of .npz files. Arrays of objects, which are pickles, are refused."""

from __future__ import annotations

import ast
import contextlib
import io
import math
import os
import re
import struct
import zipfile
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from diskhop.errors import SourceError
from diskhop.importing.lzma_limits import open_member
from diskhop.importing.source_file import file_identity, source_errors
from diskhop.runtime.blocks import row_ranges

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# A file of an array, or its member of an archive.
ByteFile = io.FileIO | io.BufferedReader

_MAGIC = b"\x93NUMPY"
_MOST_HEADER_BYTES = 1 << 16
_BLOCK_BYTES = 4 << 20
_MOST_TEXT_BYTES = 1 << 16
# Unpacked at once: first a header, then enough that a thread does it ahead, and little next to a block.
_LEAST_CHUNK_BYTES, _CHUNK_BYTES = 1 << 12, 1 << 20
_PLAIN_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248])")
# Highest compression ratio of deflate.
_MOST_COMPRESSION = 1032


class StoredArray:
    """An array of a source. Its header was read and checked, its content was not.

    where: file (and archive member), for errors.
    dtype: plain booleans, integers or floats, of any byte order.
    shape: lengths.
    by_columns: whether elements are in Fortran order, as in a transposed array.
    header_bytes: offset of the first element.
    packed_bytes: bytes in an archive; None: the array is a file.
    """

    def __init__(
        self,
        where: str,
        open_stream: Callable[[], ByteFile],
        num_bytes: int,
        identity: str,
        packed_bytes: int | None = None,
    ) -> None:
        self.where = where
        self._identity = identity
        self.packed_bytes = packed_bytes
        self._open_stream = open_stream
        with source_errors(where), open_stream() as stream:
            header, self.header_bytes = _read_header(stream, where)
        self.dtype, self.shape, self.by_columns = _parse_header(header, where)
        expected = self.header_bytes + math.prod(self.shape) * self.dtype.itemsize
        if num_bytes != expected:
            raise SourceError(
                f"{where}: holds {num_bytes} bytes, its header (shape {self.shape}, {self.dtype}) says {expected}; "
                "it is damaged: save it again"
            )

    @property
    def identity(self) -> str:
        """Text that changes when an element does, as far as the file's time or length shows."""
        return f"{self._identity}: {self.dtype.str} {self.shape}, {'by columns' if self.by_columns else 'by rows'}"

    @property
    def num_items(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def open(self, *, any_order: bool = False) -> ArrayStream:
        """Open a stream of the elements in C order. any_order: in stored order."""
        if self.by_columns and not any_order:
            raise SourceError(f"{self.where}: is stored in Fortran order; save it with numpy.ascontiguousarray")
        stream = ArrayStream(self)
        stream.skip_bytes(self.header_bytes)
        return stream

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Yield the array in blocks of consecutive rows, a few MiB each."""
        with self.open() as stream:
            yield from self._rest(stream, self.shape[0])

    def require(self, kinds: str, shape: tuple[int | None, ...]) -> None:
        """Raise SourceError unless the dtype's kind is in `kinds` and the shape matches; None matches any length."""
        fits = len(self.shape) == len(shape) and all(
            wanted in (None, length) for wanted, length in zip(shape, self.shape, strict=True)
        )
        # An empty list of edges is often float64, because that is NumPy's default dtype.
        if not fits or (self.dtype.kind not in kinds and self.num_items > 0):
            wanted_shape = ", ".join("any" if wanted is None else str(wanted) for wanted in shape)
            wanted_kind = {"b": "booleans", "iuf": "numbers"}.get(kinds, "integers")
            raise SourceError(
                f"{self.where}: must be {wanted_kind} of shape ({wanted_shape}), got shape {self.shape} of "
                f"{self.dtype}; {_conversion(self, kinds, shape)}"
            )

    def scalar(self, least: int, most: int) -> int:
        """Read the only element, an integer in [least, most]."""
        if self.num_items != 1 or self.dtype.kind not in "iu":
            raise SourceError(
                f"{self.where}: must be one whole number, got shape {self.shape} of {self.dtype}; save one"
            )
        with self.open() as stream:
            value = int(stream.take(1)[0])
            stream.finish()
        if not least <= value <= most:
            raise SourceError(f"{self.where}: is {value}, must be from {least} to {most}; correct it")
        return value

    def _rest(self, stream: ArrayStream, num_rows: int) -> Iterator[NDArray[Any]]:
        """Yield the rows that are left in a stream."""
        row_items = math.prod(self.shape[1:])
        at_once = max(1, _BLOCK_BYTES // max(1, row_items * self.dtype.itemsize))
        for start, stop in row_ranges(num_rows, at_once):
            yield stream.take((stop - start) * row_items).reshape(stop - start, *self.shape[1:])
        stream.finish()


def _conversion(array: StoredArray, kinds: str, shape: tuple[int | None, ...]) -> str:
    """Return what makes an array of another shape or dtype what it must be, as NumPy spells it."""

    def fits(found: tuple[int, ...]) -> bool:
        return len(found) == len(shape) and all(
            each in (None, length) for each, length in zip(shape, found, strict=True)
        )

    calls = "" if fits(array.shape) else ".T" if fits(array.shape[::-1]) else ".reshape(-1)"
    if calls == ".reshape(-1)" and not (len(shape) == 1 and fits((array.num_items,))):
        return "save one of that shape"
    if array.dtype.kind not in kinds:
        calls += {"b": ".astype(bool)", "iuf": ".astype(np.float32)"}.get(kinds, ".astype(np.int64)")
    return f"save it as array{calls}"


class FileArray(StoredArray):
    """A StoredArray in a .npy file, which can be read from any row."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(str(path), partial(_open_file, path), path.stat().st_size, file_identity(path))

    def blocks_from(self, first_row: int) -> Iterator[NDArray[Any]]:
        """See Seekable."""
        with self.open() as stream:
            stream.skip(first_row * math.prod(self.shape[1:]))
            yield from self._rest(stream, self.shape[0] - first_row)


def _open_file(path: Path) -> io.FileIO:
    return io.FileIO(path)


class ArrayStream:
    """Stream of an array's elements; a context manager that closes the file."""

    def __init__(self, array: StoredArray) -> None:
        self._where = array.where
        self._dtype = array.dtype
        with source_errors(array.where):
            self._stream = array._open_stream()

    def take(self, num_items: int) -> NDArray[Any]:
        """Return the next elements (num_items)."""
        return self._take_bytes(num_items * self._dtype.itemsize).view(self._dtype)

    def skip(self, num_items: int) -> None:
        """Skip the next elements."""
        self.skip_bytes(num_items * self._dtype.itemsize)

    def skip_bytes(self, num_bytes: int) -> None:
        """Skip the next bytes."""
        if isinstance(self._stream, io.FileIO):
            self._stream.seek(num_bytes, os.SEEK_CUR)
            return
        for start, stop in row_ranges(num_bytes, _BLOCK_BYTES):
            self._take_bytes(stop - start)

    def finish(self) -> None:
        """Check that nothing follows; this also compares the checksum of an archive member."""
        with source_errors(self._where):
            rest = self._stream.read(1)
        if rest:
            raise SourceError(f"{self._where}: is longer than its header says; it is damaged: save it again")

    def __enter__(self) -> ArrayStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()

    def _take_bytes(self, num_bytes: int) -> NDArray[np.uint8]:
        content = np.empty(num_bytes, np.uint8)
        filled = 0
        with source_errors(self._where):
            while filled < num_bytes:
                count = self._stream.readinto(content.data[filled:])
                if not count:
                    raise SourceError(f"{self._where}: ends before its header says; it is damaged: save it again")
                filled += count
        return content


def list_arrays(source: Path) -> dict[str, StoredArray]:
    """Open the arrays of a .npz or .npy file, or of a folder with data.npz or .npy files, by name."""
    if source.is_dir():
        archive = source / "data.npz"
        files = sorted(source.glob("*.npy"))
        if archive.exists() and files:
            raise SourceError(f"{source}: has data.npz and {files[0].name}; keep one or the other")
        if archive.exists():
            return archive_arrays(archive)
        return {path.stem: file_array(path) for path in files}
    if source.suffix == ".npz":
        return archive_arrays(source)
    return {source.stem: file_array(source)}


def file_array(path: Path) -> FileArray:
    """Open the array of a .npy file."""
    if not path.is_file():
        raise SourceError(f"{path}: is not a regular file; give a .npy file")
    return FileArray(path)


def archive_arrays(path: Path, names: Collection[str] | None = None) -> dict[str, StoredArray]:
    """Open the arrays of a .npz file, by name. names: those to open; default: all."""
    arrays: dict[str, StoredArray] = {}
    members = _members(path)
    file_bytes = path.stat().st_size
    for name, member in members:
        if names is not None and name not in names:
            continue
        where = _shown_member(path, name)
        if name in arrays:
            raise SourceError(f"{where}: is in the archive twice; save it again")
        # A damaged directory of the archive must not lead to huge reservations.
        if member.compress_size > file_bytes or (
            member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
            and member.file_size > _MOST_COMPRESSION * (member.compress_size + 1)
        ):
            raise SourceError(
                f"{where}: cannot hold {member.file_size} bytes, as the archive says; it is damaged: save it again"
            )
        arrays[name] = StoredArray(
            where,
            partial(_open_member, path, member),
            member.file_size,
            f"{file_identity(path)}: {name}",
            packed_bytes=member.compress_size,
        )
    return arrays


def archive_names(path: Path) -> list[str]:
    """List the names of the arrays of a .npz file, which are not opened."""
    return [name for name, _ in _members(path)]


def archive_text(path: Path, name: str) -> str:
    """Read an array of a .npz file that is one short text. Raises SourceError for anything else."""
    where = _shown_member(path, name)
    (member,) = (member for each, member in _members(path) if each == name)
    with source_errors(where), _open_member(path, member) as stream:
        content = stream.read(_MOST_TEXT_BYTES + 1)
        is_short = len(content) <= _MOST_TEXT_BYTES
        # NumPy raises ValueError for objects, before it reads any.
        array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False) if is_short else np.empty(0)
    if array.size != 1 or array.dtype.kind not in "US":
        raise SourceError(f"{where}: must be one short text, got shape {array.shape} of {array.dtype}; save one")
    text = array.reshape(-1)[0]
    return str(text.decode(errors="replace") if isinstance(text, bytes) else text)


def _members(path: Path) -> list[tuple[str, zipfile.ZipInfo]]:
    if not path.is_file():
        raise SourceError(f"{path}: is not a regular file; give a .npz file")
    with source_errors(str(path)), zipfile.ZipFile(path) as archive:
        return [(member.filename.removesuffix(".npy"), member) for member in archive.infolist()]


def _shown_member(path: Path, name: str) -> str:
    return f"{path}: {name}" if name.isprintable() else f"{path}: {name!r}"


def _open_member(path: Path, member: zipfile.ZipInfo) -> io.BufferedReader:
    """Open an archive member with a file handle of its own, because threads read members concurrently."""
    return io.BufferedReader(_Member(path, member))


class _Member(io.RawIOBase):
    """Bytes of an archive member, which a thread unpacks ahead, since that takes longer than what is done with them."""

    def __init__(self, path: Path, member: zipfile.ZipInfo) -> None:
        with contextlib.ExitStack() as opened:
            archive = opened.enter_context(zipfile.ZipFile(path))
            self._stream = opened.enter_context(open_member(archive, member))
            self._opened = opened.pop_all()
        self._chunk = memoryview(b"")
        self._num_bytes = _LEAST_CHUNK_BYTES
        self._unpacker: ThreadPoolExecutor | None = None
        self._next: Future[bytes] | None = None

    def readable(self) -> bool:
        """Whether it can be read."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read the next bytes; none at the end."""
        if not self._chunk:
            self._chunk = memoryview(self._next.result() if self._next is not None else self._unpack())
            self._unpack_ahead()
        num_bytes = min(len(memoryview(buffer)), len(self._chunk))
        memoryview(buffer)[:num_bytes] = self._chunk[:num_bytes]
        self._chunk = self._chunk[num_bytes:]
        return num_bytes

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            if self._unpacker is not None:
                self._unpacker.shutdown(cancel_futures=True)
            self._opened.close()
        super().close()

    def _unpack(self) -> bytes:
        return self._stream.read(self._num_bytes)

    def _unpack_ahead(self) -> None:
        """Begin with the next chunk, unless only the header may be wanted."""
        if self._num_bytes == _CHUNK_BYTES:
            self._unpacker = self._unpacker or ThreadPoolExecutor(max_workers=1, thread_name_prefix="unpacking")
            self._next = self._unpacker.submit(self._unpack)
        self._num_bytes = _CHUNK_BYTES


def _read_header(stream: ByteFile, where: str) -> tuple[str, int]:
    start = stream.read(8)
    if start[:6] != _MAGIC or len(start) < 8 or start[6] not in (1, 2, 3):
        raise SourceError(f"{where}: is not a NumPy array (.npy, version 1 to 3); save it with numpy.save or savez")
    length_format = "<H" if start[6] == 1 else "<I"
    length_bytes = struct.calcsize(length_format)
    (num_bytes,) = struct.unpack(length_format, stream.read(length_bytes))
    if num_bytes > _MOST_HEADER_BYTES:
        raise SourceError(
            f"{where}: has a header of {num_bytes} bytes; "
            f"plain arrays have less than {_MOST_HEADER_BYTES}; save it again"
        )
    header = stream.read(num_bytes)
    if len(header) != num_bytes:
        raise SourceError(f"{where}: ends within its header; it is damaged: save it again")
    return header.decode("utf-8" if start[6] == 3 else "latin1"), 8 + length_bytes + num_bytes


def _parse_header(text: str, where: str) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    try:
        header = ast.literal_eval(text.strip())
        descr, is_fortran, shape = header["descr"], header["fortran_order"], header["shape"]
    except (ValueError, TypeError, KeyError, SyntaxError, RecursionError, MemoryError):
        raise SourceError(f"{where}: has a header that is not NumPy's; it is damaged: save it again") from None
    if not isinstance(descr, str) or not _PLAIN_DTYPE.fullmatch(descr):
        kind = "objects, which only a pickle can hold" if "O" in str(descr) else f"dtype {str(descr)[:40]!r}"
        raise SourceError(f"{where}: holds {kind}; save it as plain booleans, integers or floats")
    if not isinstance(shape, tuple) or not all(type(length) is int and length >= 0 for length in shape):
        raise SourceError(f"{where}: has the shape {str(shape)[:40]}; it is damaged: save it again")
    return np.dtype(descr), shape, bool(is_fortran) and len(shape) > 1
