"""Lists of names in a folder of arrays: `entities.txt.gz`, one plain line per id."""

from __future__ import annotations

import codecs
import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.name_lines import escape_plain
from diskhop.errors import SourceError
from diskhop.importing.source_file import source_errors
from diskhop.importing.text.packing import unpacked
from diskhop.importing.text.streams import damage_errors


def name_lines(path: Path, count: int) -> Iterator[NDArray[np.uint8]]:
    """Yield the lines (see dataset/name_lines.py) of a list of names, which must be `count` plain lines of UTF-8."""
    where = str(path)
    decoder = codecs.getincrementaldecoder("utf-8")()
    num_lines = 0
    last = b"\n"
    with contextlib.ExitStack() as opened:
        with source_errors(where), damage_errors(path):
            file = opened.enter_context(unpacked(path.open("rb"), "gzip", path))
        while True:
            with source_errors(where), damage_errors(path, num_lines):
                block = file.read(1 << 20)
                decoder.decode(block, final=not block)
            if not block:
                break
            num_lines += block.count(b"\n")
            last = block[-1:]
            if num_lines > count:
                break  # the list may be much longer
            yield escape_plain(np.frombuffer(block, np.uint8))
    if last != b"\n":
        num_lines += 1
        yield np.frombuffer(b"\n", np.uint8)
    if num_lines != count:
        raise SourceError(f"{where}: has {num_lines} names for {count} ids; give one line per id")
