"""Compressed files: how they are recognised, and how their content is read.

A *packing* is a way to compress one file: gzip, bz2, xz, zip with one member, or zstd. Files are recognised by their
first bytes, whatever their name. Archives and other compressions are refused with the command that unpacks them.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import shlex
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from diskhop.budget import format_bytes
from diskhop.errors import SourceError
from diskhop.importing.lzma_limits import RULE, TooLargeError, XzFile, open_member

_MAGIC_BYTES = 16
# A tar archive has this word at this offset.
_TAR, _TAR_OFFSET = b"ustar", 257
# Unpacked bytes per read: what comes before damage is returned first.
_READ_BYTES = 1 << 16
_RATIO_BYTES = 1 << 20
_PACKED_SAMPLE_BYTES = 1 << 18
# zlib's code for data in gzip format.
_GZIP_BITS = 31
# Content may be longer than its estimate, which is from the file's start, by this factor and these bytes.
_MOST_TIMES, _MOST_MORE_BYTES = 10, 64 << 20


class DamageError(Exception):
    """Compressed content that ends too early or does not match its checksum. rule: what is broken, for an error."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Packing:
    """A way to compress one file.

    name: word for errors.
    suffix: usual end of a file's name.
    magic: its first bytes.
    unpack: opens the content of an open file.
    """

    name: str
    suffix: str
    magic: bytes
    unpack: Callable[[BinaryIO], Any]


def _unpack_zip(file: BinaryIO) -> Any:
    archive = zipfile.ZipFile(file)
    return open_member(archive, _only_member(archive))


class _ZstdFile:
    """The content of an open .zst file."""

    def __init__(self, file: BinaryIO) -> None:
        import pyarrow  # takes 30 MB, so only files of zstd pay for it

        self._stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(file, mode="r"), "zstd")

    def read1(self, num_bytes: int) -> bytes:
        """Read some bytes."""
        # PyArrow's read() does not free what it has allocated where content is damaged.
        content = bytearray(num_bytes)
        return bytes(memoryview(content)[: self._stream.readinto(content)])


class _LineFeeds:
    """Content of a text whose lines end with CR alone, with LF instead."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read1(self, num_bytes: int) -> bytes:
        """Read some bytes."""
        return self._file.read(num_bytes).replace(b"\r", b"\n")


# A text whose lines end with CR alone, as on old systems, is read as if it were packed.
RETURNS = "CR"
_RETURNS_BYTES = 1 << 16
PACKINGS = {
    each.name: each
    for each in (
        Packing(RETURNS, "", b"", _LineFeeds),
        Packing("gzip", ".gz", b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file)),
        Packing("bz2", ".bz2", b"BZh", bz2.BZ2File),
        Packing("xz", ".xz", b"\xfd7zXZ\0", XzFile),
        Packing("zip", ".zip", b"PK\x03\x04", _unpack_zip),
        Packing("zstd", ".zst", b"\x28\xb5\x2f\xfd", _ZstdFile),
    )
}
SUFFIXES = tuple(packing.suffix for packing in PACKINGS.values() if packing.suffix)
# After "BZh" and a digit, in a file with content and in an empty one; a text may begin with the first four characters.
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")
# First bytes of what is not read, its name, and the command that unpacks it.
_OTHERS = (
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "7z x {path}"),
    (b"Rar!\x1a\x07", "a RAR archive", "unrar x {path}"),
    (b"\x04\x22\x4d\x18", "compressed by lz4", "lz4 -d {path}"),
    (b"LZIP", "compressed by lzip", "lzip -dk {path}"),
    (b"\x1f\x9d", "compressed by compress", "uncompress {path}"),
)


def packing_of(path: Path) -> str | None:
    """Recognise the packing of a file, a key of PACKINGS; None: it is plain.

    Raises SourceError, with the command that unpacks it, for a compression that is not read.
    """
    with path.open("rb") as stream:
        start = stream.read(_MAGIC_BYTES)
    for magic, what, command in _OTHERS:
        if start.startswith(magic):
            raise SourceError(f"{path}: is {what}; unpack it: {command.format(path=shlex.quote(str(path)))}")
    found = next((name for name, each in PACKINGS.items() if each.magic and start.startswith(each.magic)), None)
    if found == "bz2" and start[4:10] not in _BZIP2_BLOCKS:
        found = None
    return RETURNS if found is None and _has_returns_alone(path) else found


def _has_returns_alone(path: Path) -> bool:
    with path.open("rb") as stream:
        start = stream.read(_RETURNS_BYTES)
    return b"\r" in start and b"\n" not in start and b"\0" not in start


def plain_name(name: str) -> str:
    """Return the name of a file without the suffix of its packing."""
    return next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), name)


def inner_name(path: Path) -> str:
    """Return the name of a file's content: without the suffix of its packing, or of the only file in a zip archive."""
    name = plain_name(path.name)
    if not path.name.endswith(".zip") or Path(name).suffix or not path.is_file():
        return name
    try:
        with zipfile.ZipFile(path) as archive:
            return _only_member(archive).filename
    except (SourceError, OSError, ValueError, RuntimeError, struct.error, zipfile.BadZipFile):
        return name


class _Unpacked(io.RawIOBase):
    """Content of a compressed file, which is closed with it. Raises DamageError where it is damaged, or far too long.

    estimate: returns the estimated length of the content.
    """

    def __init__(self, file: BinaryIO, packing: Packing, estimate: Callable[[], int]) -> None:
        self._file = file
        self._packing = packing
        self._estimate = estimate
        self._num_bytes, self._most_bytes = 0, _MOST_MORE_BYTES
        self._content: Any = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _damage_errors(self._packing.name):
            if self._content is None:
                self._content = self._packing.unpack(self._file)
            block = self._content.read1(min(len(buffer), _READ_BYTES))
        self._num_bytes += len(block)
        if self._num_bytes > self._most_bytes:
            self._require_expected()
        buffer[: len(block)] = block
        return len(block)

    def _require_expected(self) -> None:
        """Stop what would fill the disk: a file of zeros is a thousandth of its length when it is compressed."""
        estimate = self._estimate()
        self._most_bytes = _MOST_TIMES * estimate + _MOST_MORE_BYTES
        if self._num_bytes > self._most_bytes:
            raise DamageError(
                f"{self._packing.name} content must be about as long as its start promises, got more than "
                f"{format_bytes(self._most_bytes)} for {format_bytes(estimate)}; unpack it yourself if it is right"
            )

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


@contextmanager
def _damage_errors(packing: str) -> Iterator[None]:
    """Turn the errors of all packings into DamageError; those of the disk pass."""
    try:
        yield
    except TooLargeError as error:
        raise DamageError(f"{packing} {RULE}") from error
    except (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        if isinstance(error, EOFError) or "Truncated" in str(error):
            rule = "must end with its checksum, this file ends before it: it is truncated; download it again"
        else:
            rule = "must match its checksum, this file does not: it is damaged; download it again"
        raise DamageError(f"{packing} {rule}") from error


def unpacked(file: BinaryIO, packing: str, path: Path) -> io.BufferedReader[Any]:
    """Open the content of an open file, which is closed with it.

    Raises SourceError for an archive of several files, and for one that is damaged at its beginning; reading raises
    DamageError.
    """
    content = _Unpacked(file, PACKINGS[packing], partial(unpacked_bytes, path, packing))
    stream: io.BufferedReader[Any] = io.BufferedReader(content, _READ_BYTES)
    try:
        start = stream.peek(_TAR_OFFSET + len(_TAR))
    except DamageError as error:
        stream.close()
        raise SourceError(f"{path}, line 1: {error.rule}") from error
    except BaseException:
        stream.close()
        raise
    if start[_TAR_OFFSET:].startswith(_TAR):
        stream.close()
        raise SourceError(
            f"{path}: is an archive of files; unpack it: tar -xf {shlex.quote(str(path))}, then import the file"
        )
    return stream


def unpacked_bytes(path: Path, packing: str) -> int:
    """Estimate the length of a compressed file's content from its start."""
    num_bytes = path.stat().st_size
    with path.open("rb") as raw:
        if packing == "zip":
            with _damage_errors(packing), zipfile.ZipFile(raw) as archive:
                return _only_member(archive).file_size
        sample = raw.read(_PACKED_SAMPLE_BYTES)
    if packing == RETURNS:
        return num_bytes
    if packing == "gzip":
        return _gzip_bytes(sample, num_bytes)
    packed = io.BytesIO(sample)
    content = PACKINGS[packing].unpack(packed)
    unpacked = 0
    try:
        with _damage_errors(packing):
            while unpacked < _RATIO_BYTES and (block := content.read1(_READ_BYTES)):
                unpacked += len(block)
    except DamageError:
        if len(sample) == num_bytes:
            raise
    return max(unpacked, num_bytes * unpacked // max(1, packed.tell()))


def _gzip_bytes(sample: bytes, num_bytes: int) -> int:
    # Not GzipFile: it reads a whole buffer to unpack a few bytes, so that the ratio would look too small.
    unpacking = zlib.decompressobj(wbits=_GZIP_BITS)
    with _damage_errors("gzip"):
        start = len(unpacking.decompress(sample, _PACKED_SAMPLE_BYTES))
    taken = len(sample) - len(unpacking.unconsumed_tail) - len(unpacking.unused_data)
    return max(start, num_bytes * start // max(1, taken))


def _only_member(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    """Find the only file of a zip archive. Raises SourceError for several, or an encrypted one."""
    path = shlex.quote(str(archive.filename))
    # Not is_dir(): it raises IndexError for a member without a name.
    members = [
        each
        for each in archive.infolist()
        if not each.filename.endswith("/") and not each.filename.startswith(("__MACOSX/", "."))
    ]
    if len(members) != 1:
        raise SourceError(
            f"{archive.filename}: must have one file, got {len(members)}; unpack it: unzip {path} -d FOLDER, "
            "then import the folder"
        )
    if members[0].flag_bits & 1:
        raise SourceError(f"{archive.filename}: is encrypted; unpack it: unzip {path}, then import the file")
    return members[0]
