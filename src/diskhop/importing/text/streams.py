"""Opens texts, plain or gzip, and turns damage into errors that name the line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from diskhop.errors import SourceError
from diskhop.importing.source_file import SourceFile, source_errors

MOST_LINE_BYTES = 1 << 20
BOM = b"\xef\xbb\xbf"
_SAMPLE_BYTES = 1 << 18
# zlib's code for data in gzip format.
_GZIP_BITS = 31


def text_bytes(file: SourceFile) -> int:
    """Estimate the unpacked bytes of a file."""
    with source_errors(str(file.path)), gzip_errors(file.path):
        if not is_gzip(file.path):
            return file.num_bytes
        with file.path.open("rb") as raw:
            packed = raw.read(_SAMPLE_BYTES)
        # Not GzipFile: it reads a whole buffer to unpack a few bytes, so that the ratio would look too small.
        unpacking = zlib.decompressobj(wbits=_GZIP_BITS)
        start = len(unpacking.decompress(packed, _SAMPLE_BYTES))
    taken = len(packed) - len(unpacking.unconsumed_tail) - len(unpacking.unused_data)
    return max(start, file.num_bytes * start // max(1, taken))


def texts_bytes(files: Sequence[SourceFile]) -> tuple[int, int]:
    """Estimate the unpacked bytes of all files, and how many of them are from gzip files."""
    num_bytes = [text_bytes(file) for file in files]
    packed = sum(each for each, file in zip(num_bytes, files, strict=True) if is_gzip(file.path))
    return sum(num_bytes), packed


def row_bytes(path: Path, rows_begin: int = 0) -> float:
    """Estimate the bytes per row of a file."""
    with source_errors(str(path)), gzip_errors(path), open_text(path) as text:
        text.seek(rows_begin)
        start = text.read1(_SAMPLE_BYTES)
    return max(2.0, len(start) / max(1, start.count(b"\n")))


def open_text(path: Path) -> gzip.GzipFile | BufferedReader:
    """Open the text of a file, unpacking gzip."""
    return gzip.GzipFile(path) if is_gzip(path) else path.open("rb")


def read_text(text: gzip.GzipFile | BufferedReader, num_bytes: int, path: Path, num_lines: int) -> bytes:
    """Read at most num_bytes of a text that open_text opened. num_lines: complete lines that were read before.

    Raises SourceError, with the first incomplete line, for a damaged file.
    """
    try:
        with gzip_errors(path, num_lines):
            # read1 returns what was unpacked before the damage first, so that its lines are counted.
            return text.read1(num_bytes)
    except OSError:
        with source_errors(str(path)):
            raise


@contextmanager
def gzip_errors(path: Path, num_lines: int = 0) -> Iterator[None]:
    """Turn errors of damaged or truncated gzip into SourceError with the first incomplete line."""
    try:
        yield
    except EOFError:
        rule = "gzip must end with its checksum, this file ends before it: it is truncated; download it again"
    except (gzip.BadGzipFile, zlib.error):
        rule = "gzip must match its checksum, this file does not: it is damaged; download it again"
    else:
        return
    raise SourceError(f"{at_line(path, num_lines + 1)}: {rule}")


def require_unpacks(path: Path) -> None:
    """Raise SourceError, with the first incomplete line, for damaged or truncated gzip."""
    num_lines = 0
    with source_errors(str(path)), open_text(path) as text:
        while block := read_text(text, _SAMPLE_BYTES, path, num_lines):
            num_lines += block.count(b"\n")


def at_line(path: Path, number: int) -> str:
    """Name the place of an error; lines are numbered from 1."""
    return f"{path}, line {number}"


def decode_line(line: bytes, place: str) -> str:
    """Decode a line, without its line end. Raises SourceError if it is not UTF-8, or too long for a row."""
    if len(line) > MOST_LINE_BYTES:
        raise SourceError(f"{place}: must be at most {MOST_LINE_BYTES} bytes long; give a text with one edge per line")
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise SourceError(
            f"{place}: text must be UTF-8, got byte 0x{line[error.start]:02x}; save the file as UTF-8"
        ) from None


def is_gzip(path: Path) -> bool:
    """Check whether a file is gzip, by its first bytes."""
    with path.open("rb") as stream:
        return stream.read(2) == b"\x1f\x8b"
