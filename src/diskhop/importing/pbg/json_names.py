"""Streams lists of names in JSON files, each a list of strings."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.name_lines import to_lines
from diskhop.errors import SourceError
from diskhop.importing.source_file import source_errors

_BLOCK_BYTES = 256 << 10
# Longest incomplete name, in characters; between names there are only blanks and a comma.
_MOST_WAITING = 256 << 10
# No possessive quantifiers: Python 3.11.0 to 3.11.4 match a part of the text with them that must not be taken.
_BLANK = "[ \t\r\n]*"
_STRINGS = re.compile(rf'(?:{_BLANK}"[^"\\]*(?:\\.[^"\\]*)*"{_BLANK},)*', re.S)


def json_lines(path: Path, count: int, *, block_bytes: int = _BLOCK_BYTES) -> Iterator[NDArray[np.uint8]]:
    """Yield the names of a file, which must be `count`, as lines (see dataset/name_lines.py).

    block_bytes: bytes of the file in memory at a time.
    """
    num_names = 0
    for names in _blocks_of_names(path, block_bytes):
        num_names += len(names)
        with source_errors(str(path)):  # JSON allows half of a surrogate pair, which UTF-8 does not
            lines = to_lines(names)
        yield lines
    if num_names != count:
        raise SourceError(f"{path}: has {num_names} names for {count} ids; give one name per id")


def _blocks_of_names(path: Path, block_bytes: int) -> Iterator[list[str]]:
    """Yield the names in order, in blocks of at least one."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    text, is_open, is_comma_last = "", False, False
    with source_errors(str(path)), path.open("rb") as file:
        while block := file.read(block_bytes):
            text += decoder.decode(block)
            if not is_open:
                text = text.lstrip(" \t\r\n")
                if text and text[0] != "[":
                    raise _no_list(path)
                is_open, text = bool(text), text[1:]
            strings = _STRINGS.match(text)
            assert strings is not None, "it matches nothing, too"
            if strings.end():
                yield json.loads(f"[{text[: strings.end() - 1]}]")
                is_comma_last, text = True, text[strings.end() :]
            if len(text) > _MOST_WAITING:
                raise _no_list(path)
        text += decoder.decode(b"", final=True)
        last = json.loads(f"[{text}") if is_open else None
    # The last name has no comma after it; an empty list has no names.
    if last is None or not all(isinstance(name, str) for name in last) or (is_comma_last and not last):
        raise _no_list(path)
    if last:
        yield last


def _no_list(path: Path) -> SourceError:
    return SourceError(
        f"{path}: must be a JSON list of names, each at most {_MOST_WAITING} characters between quotes; fix the file"
    )
