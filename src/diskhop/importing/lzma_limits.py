"""Memory for unpacking LZMA: a few bytes of a file may ask for 4 GB, the size of its dictionary."""

from __future__ import annotations

import lzma
import zipfile
from typing import IO, BinaryIO

from diskhop.budget import format_bytes

# `xz -9` needs 65 MB.
MOST_BYTES = 256 << 20
_READ_BYTES = 1 << 16
_MAGIC = b"\xfd7zXZ\0"
# Before the data of a zip archive's member: its local header, and in LZMA's data the version and properties.
_HEADER_BYTES, _NAME_LENGTH, _EXTRA_LENGTH = 30, slice(26, 28), slice(28, 30)
_DATA_BYTES, _DICTIONARY = 9, slice(5, 9)
RULE = (
    f"content must be unpacked with at most {format_bytes(MOST_BYTES)} of memory, this file asks for more; unpack it "
    "yourself if it is right"
)


class TooLargeError(lzma.LZMAError):
    """Content that takes more memory to unpack than is allowed."""

    def __init__(self) -> None:
        super().__init__(f"LZMA {RULE}")


class XzFile:
    """The content of an open .xz file, of one stream or several. Raises TooLargeError, lzma.LZMAError, EOFError."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._stream = _new_stream()

    def read1(self, num_bytes: int) -> bytes:
        """Read some bytes; none at the end."""
        while True:
            packed = b""
            if self._stream.eof:
                packed = self._next_stream()
                if not packed.startswith(_MAGIC):  # what follows the last stream is left alone, as xz and Python do
                    return b""
                self._stream = _new_stream()
            elif self._stream.needs_input:
                packed = self._file.read(_READ_BYTES)
                if not packed:
                    raise EOFError("the stream has no end")
            content = self._unpack(packed, num_bytes)
            if content:
                return content

    def _next_stream(self) -> bytes:
        """Return the beginning of what follows a stream and its padding of zeros."""
        packed = self._stream.unused_data.lstrip(b"\0")
        while len(packed) < len(_MAGIC) and (more := self._file.read(_READ_BYTES)):
            packed = (packed + more).lstrip(b"\0")
        return packed

    def _unpack(self, packed: bytes, num_bytes: int) -> bytes:
        try:
            return self._stream.decompress(packed, num_bytes)
        except lzma.LZMAError as error:
            if "limit" in str(error):
                raise TooLargeError from error
            raise


def _new_stream() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MOST_BYTES)


def open_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> IO[bytes]:
    """Open a member of an archive. Raises TooLargeError, and what zipfile raises."""
    opened = archive.open(member)
    if member.compress_type == zipfile.ZIP_LZMA and archive.fp is not None:
        place = archive.fp.tell()
        archive.fp.seek(member.header_offset)
        header = archive.fp.read(_HEADER_BYTES)
        lengths = (int.from_bytes(header[each], "little") for each in (_NAME_LENGTH, _EXTRA_LENGTH))
        archive.fp.seek(sum(lengths), 1)
        data = archive.fp.read(_DATA_BYTES)
        archive.fp.seek(place)
        if int.from_bytes(data[_DICTIONARY], "little") > MOST_BYTES:
            opened.close()
            raise TooLargeError
    return opened
