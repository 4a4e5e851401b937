"""Inputs made from others, by a seed: bytes and numbers changed, parts copied, cut, or taken from another input."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

_MOST_BYTES = 1 << 16
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_JSON = [
    b"null",
    b"true",
    b"[]",
    b"{}",
    b'""',
    b'"\\u0000"',
    b'"\\u202e"',
    b"1e400",
    b"NaN",
    b"-0",
    b"1.5",
    b"[" * 3000,
]
_TEXT = [
    b"\0",
    b"\n",
    b"\r",
    b"\r\n",
    b"\t",
    b'"',
    b"\\",
    b"\xff",
    b"\xe2\x80\xae",
    b"\xef\xbb\xbf",
    b"..",
    b"/",
    b"#",
    b"%",
]
_POWERS = (7, 8, 15, 16, 31, 32, 47, 48, 53, 62, 63, 64)


class Mutator:
    """Makes inputs from a corpus. words: parts to insert, in addition to those of every format."""

    def __init__(self, seed: int, words: Sequence[bytes] = ()) -> None:
        self._random = random.Random(seed)
        self._words = [*_JSON, *_TEXT, *words]

    def next(self, corpus: Sequence[bytes]) -> bytes:
        """Return a new input."""
        content = bytearray(self._random.choice(corpus))
        for _ in range(1 << self._random.randrange(4)):
            content = self._change(content, corpus)
        return bytes(content[:_MOST_BYTES])

    def _change(self, content: bytearray, corpus: Sequence[bytes]) -> bytearray:
        draw = self._random
        place = draw.randrange(len(content) + 1)
        end = min(len(content), place + draw.randrange(1, 64))
        match draw.randrange(10):
            case 0 if place < len(content):
                content[place] ^= 1 << draw.randrange(8)
            case 1 if place < len(content):
                content[place] = draw.randrange(256)
            case 2:
                width = draw.choice((1, 2, 4, 8))
                content[place : place + width] = (self._number() % (1 << 8 * width)).to_bytes(width, "little")
            case 3:
                content[place:place] = draw.choice(self._words)
            case 4:
                del content[place:end]
            case 5:
                content[place:place] = content[place:end] * draw.choice((1, 1, 2, 40))
            case 6:
                other = draw.choice(corpus)
                begin = draw.randrange(len(other) + 1)
                content[place:end] = other[begin : begin + draw.randrange(1, 64)]
            case 7:
                del content[place:]
            case _:
                self._replace_number(content)
        return content

    def _number(self) -> int:
        power = self._random.choice(_POWERS)
        return self._random.choice((1 << power, (1 << power) - 1, -(1 << power), 0, -1, self._random.randrange(256)))

    def _replace_number(self, content: bytearray) -> None:
        """Replace a number of a text by an odd one, or by another value."""
        found = list(_NUMBER.finditer(content))
        if not found:
            return
        begin, end = self._random.choice(found).span()
        number = str(self._number()).encode()
        content[begin:end] = self._random.choice((number, number, number, self._random.choice(self._words)))
