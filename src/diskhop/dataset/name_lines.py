r"""Lines of a file of names: a name each, in which a backslash is `\\` and a line feed is `\n`.

So a name may have both, and a name without them is the line itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.files import read_blocks
from diskhop.errors import ConfigError, FormatError

_ESCAPE = re.compile(rb"\\(.?)", re.S)
_ESCAPED = {b"\\": b"\\", b"n": b"\n"}
_BACKSLASH = b"\\"


def name_line(name: str) -> str:
    """Return the line of a name, without the line end."""
    return name.replace("\\", "\\\\").replace("\n", "\\n") if "\\" in name or "\n" in name else name


def name_of(line: str) -> str:
    """Return the name on a line. Raises ValueError for a backslash that escapes neither a backslash nor a line feed."""
    return _unescaped(line.encode()).decode() if "\\" in line else line


def to_lines(names: Iterable[str]) -> NDArray[np.uint8]:
    """Return names as lines of UTF-8."""
    return np.frombuffer("".join(f"{name_line(name)}\n" for name in names).encode(), np.uint8)


def escape_plain(lines: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a block of plain lines, each of which is a name, as lines of this format."""
    content = lines.tobytes()
    return np.frombuffer(content.replace(_BACKSLASH, b"\\\\"), np.uint8) if _BACKSLASH in content else lines


def damaged_names(path: Path) -> FormatError:
    """Return the error of a file that does not have this format."""
    return FormatError(f"{path}: is damaged; 'diskhop verify' names the blocks: copy or import the dataset again")


def read_plain(path: Path) -> Iterator[NDArray[np.uint8]]:
    """Yield the names of a file as plain lines, in blocks. Raises FormatError.

    Raises ConfigError for a name with a line feed, which a plain line cannot have.
    """
    waiting = b""
    num_lines = 0
    for block in read_blocks(path):
        if not waiting and not (block == ord(_BACKSLASH)).any():
            num_lines += int(np.count_nonzero(block == ord("\n")))
            yield block
            continue
        content = waiting + block.tobytes()
        num_last = len(content) - len(content.rstrip(_BACKSLASH))
        content, waiting = (content[:-1], content[-1:]) if num_last % 2 else (content, b"")
        try:
            plain = _unescaped(content)
        except ValueError:
            raise damaged_names(path) from None
        num_ends = content.count(b"\n")
        if plain.count(b"\n") != num_ends:
            number = num_lines + content.count(b"\n", 0, _first_feed(content))
            raise ConfigError(f"{path}: name {number} has a line feed, which plain lines cannot have; use Parquet")
        num_lines += num_ends
        yield np.frombuffer(plain, np.uint8)
    if waiting:
        raise damaged_names(path)


def _first_feed(content: bytes) -> int:
    """Return the offset of the first escaped line feed."""
    return next(found.start() for found in _ESCAPE.finditer(content) if found[1] == b"n")


def _unescaped(content: bytes) -> bytes:
    def meant(found: re.Match[bytes]) -> bytes:
        if found[1] not in _ESCAPED:
            raise ValueError(f"a backslash before {found[1]!r} is no escape")
        return _ESCAPED[found[1]]

    return _ESCAPE.sub(meant, content)
