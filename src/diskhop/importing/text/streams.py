"""Opens texts, plain or compressed, and turns damage into errors that name the line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from diskhop.errors import SourceError
from diskhop.importing.source_file import SourceFile, source_errors
from diskhop.importing.text.packing import DamageError, packing_of, unpacked, unpacked_bytes

MOST_LINE_BYTES = 1 << 20
BOM = b"\xef\xbb\xbf"
_SAMPLE_BYTES = 1 << 18


def text_bytes(file: SourceFile) -> int:
    """Estimate the unpacked bytes of a file."""
    with source_errors(str(file.path)), damage_errors(file.path):
        packing = packing_of(file.path)
        return file.num_bytes if packing is None else unpacked_bytes(file.path, packing)


def texts_bytes(files: Sequence[SourceFile]) -> tuple[int, int]:
    """Estimate the unpacked bytes of all files, and how many of them are from compressed files."""
    num_bytes = [text_bytes(file) for file in files]
    packed = sum(each for each, file in zip(num_bytes, files, strict=True) if packing_of(file.path) is not None)
    return sum(num_bytes), packed


def row_bytes(path: Path, rows_begin: int = 0) -> float:
    """Estimate the bytes per row of a file."""
    with source_errors(str(path)), damage_errors(path), open_text(path) as text:
        _skip(text, rows_begin)
        start = text.read1(_SAMPLE_BYTES)
    return max(2.0, len(start) / max(1, start.count(b"\n")))


def open_text(path: Path) -> BufferedReader:
    """Open the text of a file, unpacked. Raises SourceError for an archive; reading can raise DamageError."""
    packing = packing_of(path)
    stream = path.open("rb")
    return stream if packing is None else unpacked(stream, packing, path)


def read_text(text: BufferedReader, num_bytes: int, path: Path, num_lines: int) -> bytes:
    """Read at most num_bytes of a text that open_text opened. num_lines: complete lines that were read before.

    Raises SourceError, with the first incomplete line, for a damaged file.
    """
    with source_errors(str(path)), damage_errors(path, num_lines):
        # read1 returns what was unpacked before the damage first, so that its lines are counted.
        return text.read1(num_bytes)


@contextmanager
def damage_errors(path: Path, num_lines: int = 0) -> Iterator[None]:
    """Turn damage of compressed files into SourceError with the first incomplete line."""
    try:
        yield
    except DamageError as error:
        raise SourceError(f"{at_line(path, num_lines + 1)}: {error.rule}") from error


def require_unpacks(path: Path) -> None:
    """Raise SourceError, with the first incomplete line, for a damaged or truncated compressed file."""
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


def _skip(text: BufferedReader, num_bytes: int) -> None:
    """Move forward from the start of a text."""
    if text.seekable():
        text.seek(num_bytes)
        return
    while num_bytes > 0 and (block := text.read1(min(num_bytes, _SAMPLE_BYTES))):
        num_bytes -= len(block)
