"""Finds the error in a text of edges: the rules of text/layout in plain Python, for slices that DuckDB refused."""

from __future__ import annotations

import io
import re
from pathlib import Path

from diskhop.errors import SourceError
from diskhop.importing.evidence.rows import is_integer, is_whole
from diskhop.importing.numbering.pairs import ENDS
from diskhop.importing.shorten import shorten
from diskhop.importing.text.layout import RowLayout, columns_rule
from diskhop.importing.text.sample import is_blank
from diskhop.importing.text.streams import at_line, decode_line

MOST_ID = 2**63 - 1
# Larger whole numbers are not exact as floats.
MOST_FLOAT = 2**53 - 1


def find_fault(content: bytes, layout: RowLayout, num_nodes: int | None, shown: Path, first_line: int) -> SourceError:
    """Return the error of the first line that breaks a rule. first_line: line number where the content begins."""
    for number, line in enumerate(io.BytesIO(content), first_line):
        if is_blank(line, layout.comments):
            continue
        place = at_line(shown, number)
        try:
            rule = _broken_rule(decode_line(line, place), layout, num_nodes)
        except SourceError as error:
            return error
        if rule is not None:
            return SourceError(f"{place}: {rule}")
    last_line = first_line + content.count(b"\n") - 1
    return SourceError(
        f"{shown}, lines {first_line} to {last_line}: cannot be parsed; save them as plain columns without quotes"
    )


def _broken_rule(text: str, layout: RowLayout, num_nodes: int | None) -> str | None:
    try:
        fields = layout.fit(layout.split(text))
    except ValueError as broken:
        return str(broken)
    if len(fields) != layout.num_columns:
        if layout.num_columns == 2 and not layout.are_columns_given:
            return columns_rule(len(fields), text)
        return f"a row must have {layout.num_columns} columns, as the first have, got {len(fields)}; fix the line"
    for end, column in zip(ENDS, layout.columns, strict=True):
        rule = _broken_id_rule(fields[column], layout, num_nodes)
        if rule is not None:
            return f"the {end} {rule}"
    return None


def _broken_id_rule(field: str, layout: RowLayout, num_nodes: int | None) -> str | None:
    if not field.strip() if layout.ids == "integer" else not field:
        return "is missing; give both ids, or remove the line"
    if layout.ids == "string":
        return None
    shown = shorten(field)
    # Characters that strip() takes for spaces, and neither float() nor the parser does, are left to the rules below.
    is_plain = field.strip() == field.strip(" \t")
    if layout.are_floats and is_plain and is_whole(field) and not is_integer(field) and 0 <= float(field) <= MOST_FLOAT:
        return None
    if re.fullmatch(r"[0-9]+\.0*", field.strip()):
        field = field.strip().partition(".")[0]
    if not is_integer(field):
        return f"must be a whole number, as in the first row, got {shown}; fix it, or import ids as names: --ids string"
    if field.strip().startswith("-"):
        return f"must be 0 or more, got {shown}; number the nodes from 0, or import ids as names: --ids string"
    digits = field.strip().lstrip("+0") or "0"
    # Python refuses to convert thousands of digits.
    if len(digits) > len(str(MOST_ID)) or int(digits) > MOST_ID:
        return f"must be less than 2^63, got {shown}; import ids as names: --ids string"
    if not field.strip(" \t").isdecimal():
        return f"must be digits alone, got {shown}; fix it, or import ids as names: --ids string"
    if num_nodes is not None and int(digits) >= num_nodes:
        return f"must be less than {num_nodes}, the number of nodes, got {shown}; fix it, or leave --nodes out"
    return None
