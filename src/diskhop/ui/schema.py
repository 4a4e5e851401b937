"""The types of a graph as a small picture in a terminal: a box per node type, an arrow per edge type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_GAP = "  "
# Below the boxes there is a line per edge type; graphs of thousands of relations are not drawn whole.
_MOST_EDGE_TYPES = 40


def draw_schema(description: Mapping[str, Any], width: int) -> list[str]:
    """Return the lines of the picture. description: of describe(). width: columns of the terminal."""
    boxes = [_box(name, nodes) for name, nodes in description["nodes"].items()]
    return [*_side_by_side(boxes, width), *_arrows(description["schema"]["edges"])]


def _box(name: str, nodes: Mapping[str, Any]) -> list[str]:
    lines = [name, f"{nodes['count']:,} nodes"]
    if "features" in nodes:
        features = nodes["features"]
        lines.append(f"{features['dim']} {features['dtype']} features")
    else:
        lines.append("no features")
    if "labels" in nodes:
        kind, count = next(iter(nodes["labels"].items()))
        lines.append(f"{count:,} {kind}")
    inner = max(map(len, lines))
    rows = [f"│ {line:<{inner}} │" for line in lines]
    return [f"┌{'─' * (inner + 2)}┐", *rows, f"└{'─' * (inner + 2)}┘"]


def _side_by_side(boxes: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield the lines of boxes, as many in a row as the width has room for."""
    row: list[Sequence[str]] = []
    for box in boxes:
        if row and sum(len(each[0]) + len(_GAP) for each in row) + len(box[0]) > width:
            yield from _joined(row)
            row = []
        row.append(box)
    yield from _joined(row)


def _joined(row: Sequence[Sequence[str]]) -> Iterator[str]:
    for number in range(max(map(len, row), default=0)):
        parts = [box[number] if number < len(box) else " " * len(box[0]) for box in row]
        yield _GAP.join(parts).rstrip()


def _arrows(edges: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    shown = edges[:_MOST_EDGE_TYPES]
    if not shown:
        return
    sources, relations, destinations = (
        max(len(each[end]) for each in shown) for end in ("source", "relation", "destination")
    )
    counts = max(len(f"{each['count']:,}") for each in shown)
    for each in shown:
        line = f"── {each['relation']} ".ljust(relations + 6, "─")
        ends = f"{each['source']:>{sources}} {line}▶ {each['destination']:<{destinations}}"
        yield f"{ends}  {each['count']:>{counts},} edges"
    if len(edges) > len(shown):
        yield f"and {len(edges) - len(shown):,} more edge types"
