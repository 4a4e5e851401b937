"""Colours of charts: each has a contrast of at least 3 to 1 on white and on dark cards, as WCAG AA asks for graphics.

They are those of Okabe and Ito, which most people can distinguish, with darker ones in place of those too bright.
"""

from __future__ import annotations

BLUE, VERMILION, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
AMBER, VIOLET, GRAY = "#A87000", "#8C6BD1", "#7A7A7A"
SERIES = (BLUE, VERMILION, GREEN, PINK, AMBER, VIOLET, GRAY)


def translucent(color: str, opacity: float) -> str:
    """Return a colour that lets others shine through, as plotly takes it."""
    red, green, blue = (int(color[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"
