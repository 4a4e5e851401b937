"""The table behind a chart: what it shows, for those who cannot see it or want the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from diskhop.budget import format_bytes
from diskhop.config.options import spell
from diskhop.reporting.figures import Figure

# Rows of a table; a page stays small.
_MOST_ROWS = 300


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below the names of their columns, with a note about what is left out."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def values_of(figure: Figure) -> Table:
    """Return the values of a chart: a row for each place on its horizontal axis, a column for each of its series."""
    first = figure.data[0]
    if first["type"] == "heatmap":
        rows = [[str(name), *map(_shown, row)] for name, row in zip(first["y"], first["z"], strict=True)]
        return _cut(Table(["", *map(str, first["x"])], rows))
    if first.get("mode") == "markers":
        points = zip(first["text"], first["x"], first["y"], strict=True)
        return _cut(Table(["name", "across", "up"], [[str(name), _shown(x), _shown(y)] for name, x, y in points]))
    if first.get("orientation") == "h":
        bars = zip(first["y"], first["x"], strict=True)
        columns = [_title(figure, "yaxis"), _title(figure, "xaxis")]
        return _cut(Table(columns, [[str(name), _shown(value)] for name, value in bars]))
    traces = [trace for trace in figure.data if "name" in trace or len(figure.data) == 1]
    columns = [str(trace.get("name") or _title(figure, "yaxis")) for trace in traces]
    by_place: dict[Any, dict[int, Any]] = {}
    for number, trace in enumerate(traces):
        for x, y in zip(trace["x"], trace["y"], strict=True):
            by_place.setdefault(x, {})[number] = y
    rows = [
        [_shown(x), *("" if number not in found else _shown(found[number]) for number in range(len(traces)))]
        for x, found in by_place.items()
    ]
    return _cut(Table([_title(figure, "xaxis"), *columns], rows))


def _cut(table: Table) -> Table:
    if len(table.rows) <= _MOST_ROWS:
        return table
    return Table(table.columns, table.rows[:_MOST_ROWS], f"the first {_MOST_ROWS} of {len(table.rows):,} rows")


def _title(figure: Figure, axis: str) -> str:
    return str(figure.layout.get(axis, {}).get("title") or "")


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | str):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.5g}"


def shown_value(name: str, value: Any) -> str:
    """Return an option of a run, or a fact about a machine, as text. name: as it is stored; `_bytes` ends a size."""
    if name.endswith("_bytes") and isinstance(value, int):
        return format_bytes(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return spell(value)


def texts(rows: Sequence[Sequence[Any]]) -> Iterator[list[str]]:
    """Yield rows of values as texts."""
    for row in rows:
        yield [_shown(value) for value in row]
