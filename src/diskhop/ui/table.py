"""Tables of what diskhop chose for a run or decided about a source: what, value, why."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

from diskhop.importing.evidence.decisions import Decision
from diskhop.runs.choices import Choice

_HEADER = Choice("option", "value", "why")
_DECISION_HEADER = Decision("found", "taken as", "why")
# Wider values push their reason to the right instead of widening the column for all.
_WIDEST_VALUE = 24
_NARROWEST_WHY = 30
# A reason of a plan such as 'In-flight batches: 229 MB (up to 36.9 MB each)'.
_TOPIC = re.compile(r"(?P<topic>[^:;()]{1,40}): (?P<rest>.+)", re.DOTALL)
# A topic that names what was chosen, such as 'store direct'.
_NAMED = re.compile(r"(?P<option>store|engine|order|placement) (?P<value>\w+)")
_VALUE = re.compile(rf"(?P<value>[^()]{{1,{_WIDEST_VALUE}}}) \((?P<why>.+)\)", re.DOTALL)


def plan_choices(reasons: Iterable[str]) -> list[Choice]:
    """Split a plan's reasons, plain text, into option, value and reason, as far as they have these parts."""
    found = []
    for reason in reasons:
        topic = _TOPIC.fullmatch(reason)
        option, rest = (topic["topic"], topic["rest"]) if topic else ("plan", reason)
        named, value = _NAMED.fullmatch(option), _VALUE.fullmatch(rest)
        if named:
            found.append(Choice(named["option"], named["value"], rest))
        else:
            found.append(Choice(option, value["value"], value["why"]) if value else Choice(option, "", rest))
    return found


def table_lines(choices: Sequence[Choice], width: int | None) -> list[str]:
    """Return the lines of a table of options. width: wrap reasons to this many columns; None: one line per choice."""
    return _lines([_HEADER, *(Choice(_shown(each.option), each.value, each.why) for each in choices)], width)


def decision_lines(decisions: Sequence[Decision], width: int | None) -> list[str]:
    """Return the lines of a table of decisions about a source."""
    return _lines([_DECISION_HEADER, *decisions], width) if decisions else []


def _lines(rows: Sequence[tuple[str, str, str]], width: int | None) -> list[str]:
    subject_width = max(len(subject) for subject, _, _ in rows)
    value_width = max(len(value) for _, value, _ in rows if len(value) <= _WIDEST_VALUE)
    lines = []
    for subject, value, why in rows:
        start = f"{subject:{subject_width}}  {value:{value_width}}  "
        indent = " " * (subject_width + value_width + 4)
        room = len(why) if width is None else max(_NARROWEST_WHY, width - len(start))
        first, *others = textwrap.wrap(why, max(1, room)) or [""]
        lines += [(start + first).rstrip(), *(indent + other for other in others)]
    return lines


def _shown(option: str) -> str:
    return option.removesuffix("_bytes").replace("_", "-")
