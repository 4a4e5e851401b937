"""Reads numbers in text, plain or gzip: one row per line, commas between columns, no header.

NumPy parses a slice of whole lines at once. Text that it would misread (a lone - as 0) never reaches it. The lines of a
slice that it refuses are read again in plain Python, to name the line and the rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.errors import SourceError
from diskhop.importing.source_file import file_identity, source_errors
from diskhop.importing.text.streams import BOM, MOST_LINE_BYTES, at_line, decode_line, open_text, read_text
from diskhop.importing.tools import ImportTools

_READ_BYTES = 1 << 19
# Reserved while columns are read: they are read one after the other, so that one slice is enough.
NUMBERS = "numbers in text"
NUMBERS_BYTES = 8 * (_READ_BYTES + MOST_LINE_BYTES)
# NumPy parses larger numbers as 2^63 - 1.
_MOST_INTEGER = 10**18 - 1
_INTEGER = re.compile("0*[0-9]{1,18}")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_GAP = re.compile("[+-]?nan", re.I)
_SHOWN_CHARACTERS = 40


class NumberText:
    """Column of numbers in a text file. Its blocks raise SourceError with file and line.

    path: the file.
    dtype: int64 for whole numbers from 0, float64 for finite numbers.
    num_rows: rows that the file must have; None: the file is a list with one number per line, and shape is (-1).
    count_source: name of the file that states num_rows, for errors.
    has_gaps: whether NaN is allowed.
    """

    def __init__(
        self,
        path: Path,
        dtype: type[np.int64 | np.float64],
        *,
        num_rows: int | None = None,
        count_source: str = "",
        has_gaps: bool = False,
    ) -> None:
        self.where = str(path)
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self._path = path
        self._num_rows = num_rows
        self._count_source = count_source
        self._has_gaps = has_gaps
        self._is_integer = dtype is np.int64
        self._characters = b"0123456789,\n" + (b"" if self._is_integer else b"+-.eE") + (b"nNaA" if has_gaps else b"")
        with source_errors(self.where):
            self._identity = file_identity(path)
        self._columns = 1 if num_rows is None else 1 + next(read_lines(path), "").count(",")
        self.shape: tuple[int, ...] = (-1,) if num_rows is None else (num_rows, self._columns)

    @property
    def identity(self) -> str:
        """See Column."""
        return f"{self._identity}, as {self.dtype}"

    def blocks(self) -> Iterator[NDArray[Any]]:
        """See Column."""
        num_rows = 0
        for first_line, lines in _slices(self._path):
            content = lines.replace(b"\r\n", b"\n") if b"\r" in lines else lines
            rows = self._parse(content)
            if rows is None:
                raise self._fault(content, first_line)
            num_rows += len(rows)
            if self._num_rows is not None and num_rows > self._num_rows:
                break  # the file may be much longer
            yield rows.reshape(-1) if self._num_rows is None else rows
        if self._num_rows is not None and num_rows != self._num_rows:
            raise SourceError(
                f"{self.where}: has {num_rows} rows, {self._count_source} says {self._num_rows}; "
                "download the folder again"
            )

    def _parse(self, content: bytes) -> NDArray[Any] | None:
        """Parse lines; None: one of them breaks a rule."""
        if content.translate(None, self._characters):
            return None
        characters = np.frombuffer(content, np.uint8)
        ends = np.flatnonzero(characters == ord("\n"))
        begins = np.concatenate([[0], ends[:-1] + 1])
        if (np.add.reduceat(characters == ord(","), begins, dtype=np.int32) != self._columns - 1).any():
            return None
        try:
            values = np.fromstring(content[:-1].replace(b"\n", b","), self.dtype, sep=",")
        except ValueError:
            return None
        if len(values) != len(ends) * self._columns or not self._are_fit(values):
            return None
        return values.reshape(-1, self._columns)

    def _are_fit(self, values: NDArray[Any]) -> bool:
        if self._is_integer:
            return bool((values <= _MOST_INTEGER).all())
        return not np.isinf(values).any() if self._has_gaps else bool(np.isfinite(values).all())

    def _fault(self, content: bytes, first_line: int) -> SourceError:
        lines = content.split(b"\n")[:-1]
        for number, line in enumerate(lines, first_line):
            place = at_line(self._path, number)
            try:
                fields = decode_line(line, place).split(",")
            except SourceError as error:
                return error
            if len(fields) != self._columns:
                wanted = "1 number" if self._columns == 1 else f"{self._columns} numbers, as the first has"
                return SourceError(f"{place}: a row must have {wanted}, got {len(fields)}; fix the line")
            for field in fields:
                rule = self._broken_rule(field)
                if rule:
                    return SourceError(f"{place}: {rule}, got {field[:_SHOWN_CHARACTERS]!r}; fix the line")
        return SourceError(
            f"{self.where}, lines {first_line} to {first_line + len(lines) - 1}: cannot be parsed; "
            "save them as plain numbers with commas between"
        )

    def _broken_rule(self, field: str) -> str | None:
        if self._is_integer:
            return None if _INTEGER.fullmatch(field) else f"must be a whole number from 0 to {_MOST_INTEGER}"
        if self._has_gaps and _GAP.fullmatch(field):
            return None
        if _FLOAT.fullmatch(field) and abs(float(field)) != float("inf"):
            return None
        return "must be a finite number, or nan for none" if self._has_gaps else "must be a finite number"


def reserve_numbers(work: ImportTools) -> None:
    """Reserve the memory to read columns of numbers, one at a time, until the dataset is finished."""
    work.held.enter_context(work.budget.reserve(NUMBERS, NUMBERS_BYTES))


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a short text, without their line ends."""
    for first_line, content in _slices(path):
        for number, line in enumerate(content.split(b"\n")[:-1], first_line):
            yield decode_line(line, at_line(path, number))


def _slices(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield slices of whole lines: the number of the first line, and the lines with their line ends."""
    with source_errors(str(path)):
        text = open_text(path)
    with text:
        num_lines, rest = 0, b""
        while block := read_text(text, _READ_BYTES, path, num_lines):
            rest += block if num_lines or rest else block.removeprefix(BOM)
            end = rest.rfind(b"\n") + 1
            lines, rest = rest[:end], rest[end:]
            if lines:
                yield num_lines + 1, lines
            num_lines += lines.count(b"\n")
            if len(rest) > MOST_LINE_BYTES:
                raise SourceError(
                    f"{at_line(path, num_lines + 1)}: must be at most {MOST_LINE_BYTES} bytes long; "
                    "give a text with one row per line"
                )
        if rest:
            yield num_lines + 1, rest + b"\n"
