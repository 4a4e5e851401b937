"""Makes lines of text uniform: line ends, spaces between columns, delimiters at the end."""

from __future__ import annotations

import re

# Quoted fields, which stay as they are, and runs of spaces.
_SPACES = re.compile(rb'((?:^|(?<= ))"[^"\n]*(?:""[^"\n]*)*")|(?:^ +| +$)|  +', re.M)


def with_line_feeds(content: bytes) -> bytes:
    """Replace CR LF by LF."""
    return content.replace(b"\r\n", b"\n") if b"\r" in content else content


def with_one_space(content: bytes, has_numbers: bool) -> bytes:
    """Leave one space between columns and none around a line. has_numbers: tabs are spaces too."""
    if has_numbers and b"\t" in content:
        content = content.replace(b"\t", b" ")
    if not (b"  " in content or b" \n" in content or b"\n " in content or content.startswith(b" ")):
        return content
    if b'"' in content:
        return _SPACES.sub(lambda found: found[1] or (b"" if _is_at_end(found) else b" "), content)
    while b"  " in content:
        content = content.replace(b"  ", b" ")
    return content.replace(b"\n ", b"\n").replace(b" \n", b"\n").removeprefix(b" ")


def without_last(content: bytes, delimiter: bytes) -> bytes:
    """Leave out delimiters at the ends of lines."""
    surplus = delimiter + b"\n"
    while surplus in content:
        content = content.replace(surplus, b"\n")
    return content


def _is_at_end(found: re.Match[bytes]) -> bool:
    begin, end = found.span()
    return begin == 0 or found.string[begin - 1 : begin] == b"\n" or found.string[end : end + 1] in b"\n"
