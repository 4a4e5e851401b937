"""Plots of paper_results.py as SVG: bars in groups, or lines, with axes and a legend."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_WIDTH, _HEIGHT = 680, 332
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 190, 30, 58
_PLOT_WIDTH, _PLOT_HEIGHT = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
# Told apart also without colours: dark and light alternate.
_COLOURS = ("#1b4f72", "#f5b041", "#7d3c98", "#7dcea0", "#922b21", "#85c1e9", "#424949", "#f1948a")
_MOST_TICKS = 6


def draw(plot: Mapping[str, Any]) -> str:
    """Return an SVG document of a Plot's fields."""
    return "\n".join(_elements(plot)) + "\n"


def _elements(plot: Mapping[str, Any]) -> Iterator[str]:
    points, series = plot["points"], plot["series"]
    values = [value for row in series.values() for value in row if math.isfinite(value)]
    ticks = _log_ticks(values) if plot["is_logarithmic"] else _ticks(max(values, default=1.0))
    low, high = ticks[0], ticks[-1]

    def y_of(value: float) -> float:
        share = math.log(max(value, low) / low) / math.log(high / low) if plot["is_logarithmic"] else value / high
        return _TOP + _PLOT_HEIGHT * (1 - share)

    box = f'viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-family="sans-serif" font-size="11">'
    yield f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
    title = f"{plot['figure']}, {plot['part']}" if plot["part"] else plot["figure"]
    yield _text(_LEFT, 16, f"{title}: {plot['y']}", "start", ' font-weight="bold"')
    for tick in ticks:
        y = y_of(tick)
        yield f'<path d="M{_LEFT} {y:.1f}h{_PLOT_WIDTH}" stroke="#d5d8dc"/>'
        yield _text(_LEFT - 6, y + 4, f"{tick:g}", "end")
    step = _PLOT_WIDTH / max(1, len(points))
    for number, point in enumerate(points):
        for line, part in enumerate(point.split(", ")):
            yield _text(_LEFT + step * (number + 0.5), _TOP + _PLOT_HEIGHT + 14 + 12 * line, part)
    yield _text(_LEFT + _PLOT_WIDTH / 2, _HEIGHT - 8, plot["x"])
    for number, (name, row) in enumerate(series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        if plot["kind"] == "bars":
            width = 0.8 * step / len(series)
            for place, value in enumerate(row):
                if math.isfinite(value):
                    x, y = _LEFT + step * (place + 0.1) + width * number, y_of(value)
                    yield (
                        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
                        f'height="{_TOP + _PLOT_HEIGHT - y:.1f}" fill="{colour}"/>'
                    )
        else:
            places = [
                (_LEFT + step * (place + 0.5), y_of(value)) for place, value in enumerate(row) if math.isfinite(value)
            ]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
            yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places)
        y = _TOP + 14 * number
        yield f'<rect x="{_WIDTH - _RIGHT + 12}" y="{y}" width="10" height="10" fill="{colour}"/>'
        yield _text(_WIDTH - _RIGHT + 26, y + 9, name, "start")
    yield f'<path d="M{_LEFT} {_TOP}v{_PLOT_HEIGHT}h{_PLOT_WIDTH}" fill="none" stroke="black"/>'
    yield "</svg>"


def _text(x: float, y: float, text: str, anchor: str = "middle", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'


def _ticks(most: float) -> list[float]:
    """Return round numbers from 0 to at least the largest value."""
    rough = (most or 1.0) / (_MOST_TICKS - 1)
    power = 10 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [round(step * number, 12) for number in range(math.ceil((most or 1.0) / step) + 1)]


def _log_ticks(values: list[float]) -> list[float]:
    """Return powers of 10 around all values above 0."""
    above = [value for value in values if value > 0] or [1.0]
    first, last = math.floor(math.log10(min(above))), math.ceil(math.log10(max(above)))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]
