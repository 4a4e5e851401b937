"""Results that show themselves: a few lines of text in a terminal, tables and a curve in a notebook.

A result returns its parts: facts (names and values), a grid (rows below the names of their columns) or curves. Names
come from files of users, so that everything in HTML is escaped.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite

Row = tuple[str, str]
_WIDTH, _HEIGHT, _MARGIN = 360, 90, 4
_COLORS = ("#3366cc", "#dc3912", "#109618", "#990099")


def visible_text(text: str, keep: str = "") -> str:
    """Return a text whose control characters and marks of direction are spelt out, as \\n or \\u202e.

    keep: characters that are left as they are. Names come from files, and would otherwise move a terminal's cursor,
    or show a text in another order.
    """
    return text if text.isprintable() else "".join(each if each in keep else _spelt(each) for each in text)


def _spelt(character: str) -> str:
    # Cc: control, Cf: format, such as marks of direction, Cs: half of a pair, Zl and Zp: ends of lines and paragraphs.
    if unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character, f"\\u{ord(character):04x}")


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values, one line each."""

    rows: Sequence[Row]

    def lines(self) -> list[str]:
        """Return the lines of text."""
        width = max((len(name) for name, _ in self.rows), default=0)
        return [f"{name:<{width}}  {value}".rstrip() for name, value in self.rows]

    def html(self) -> str:
        """Return a table of two columns."""
        rows = (f"<tr><th style='text-align:left'>{escape(n)}</th><td>{escape(v)}</td></tr>" for n, v in self.rows)
        return f"<table>{''.join(rows)}</table>"


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows below the names of their columns."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def lines(self) -> list[str]:
        """Return the lines of text, columns aligned."""
        table = [self.columns, *self.rows]
        widths = [max(len(row[place]) for row in table) for place in range(len(self.columns))]
        return [
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
        ]

    def html(self) -> str:
        """Return a table with a head."""
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        rows = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in self.rows)
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(f'<tr>{row}</tr>' for row in rows)}</tbody></table>"
        )


@dataclass(frozen=True, slots=True)
class Curves:
    """Values by epoch, each curve scaled to its own range. Values that are not finite are left out."""

    values: Mapping[str, Sequence[float]]

    def lines(self) -> list[str]:
        """Return nothing: facts say where a curve ended."""
        return []

    def html(self) -> str:
        """Return a picture of all curves, with their first and last values below it."""
        curves = {name: [each for each in values if isfinite(each)] for name, values in self.values.items()}
        drawn = {name: values for name, values in curves.items() if len(values) > 1}
        if not drawn:
            return ""
        colors = dict(zip(drawn, _COLORS, strict=False))
        lines = (
            f"<polyline fill='none' stroke='{colors[name]}' stroke-width='1.5' points='{_points(drawn[name])}'/>"
            for name in colors
        )
        texts = [f"{name} {drawn[name][0]:.4g} to {drawn[name][-1]:.4g}" for name in colors]
        legend = ", ".join(
            f"<span style='color:{colors[name]}'>{escape(text)}</span>"
            for name, text in zip(colors, texts, strict=True)
        )
        label = escape(", ".join(texts), quote=True)
        return (
            f"<svg role='img' aria-label='{label}' width='{_WIDTH}' height='{_HEIGHT}' "
            f"viewBox='0 0 {_WIDTH} {_HEIGHT}' xmlns='http://www.w3.org/2000/svg'>{''.join(lines)}</svg>"
            f"<div>{legend}</div>"
        )


Part = Facts | Grid | Curves


class Display:
    """A result with parts to show. Subclasses say what they are by `_title` and `_parts`."""

    __slots__ = ()

    def _title(self) -> str:
        return type(self).__name__

    def _parts(self) -> Sequence[Part]:
        return ()

    def __repr__(self) -> str:
        lines = [line for part in self._parts() for line in part.lines()]
        return "\n".join([self._title(), *(f"  {line}" for line in lines)])

    def _repr_html_(self) -> str:
        return html_of(self._title(), self._parts())


def html_of(title: str, parts: Sequence[Part]) -> str:
    """Return a title and parts as HTML."""
    return f"<div><b>{escape(title)}</b>{''.join(part.html() for part in parts)}</div>"


def _points(values: Sequence[float]) -> str:
    lowest, highest = min(values), max(values)
    range_of_values = highest - lowest or 1.0
    across, down = _WIDTH - 2 * _MARGIN, _HEIGHT - 2 * _MARGIN
    return " ".join(
        f"{_MARGIN + across * place / (len(values) - 1):.1f},{_MARGIN + down * (highest - value) / range_of_values:.1f}"
        for place, value in enumerate(values)
    )
