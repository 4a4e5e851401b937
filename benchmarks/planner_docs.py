"""Results of benchmarks/planner.py for the docs: a table with machine and date for docs/measured.md, and a chart."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from diskhop.system.machine import describe_machine

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
PICTURE = ROOT / "docs" / "guides" / "strategies.svg"
_STORES = ("memory", "static", "direct", "shared", "belady", "packed", "packed ahead", "pread", "mapped")
_TAKEN, _OTHER, _PREDICTED, _TEXT = "#0072B2", "#B8C4D0", "#D55E00", "#333333"
_WIDTH, _NAME_WIDTH, _BAR_HEIGHT, _GAP, _HEAD = 760, 110, 14, 4, 34


def update_docs(cases: Sequence[dict[str, Any]]) -> None:
    """Write the table into docs/measured.md, between its marks, and the chart next to the guide."""
    page = ROOT / "docs" / "measured.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{comparison_table(cases)}\n{END}{after}", encoding="utf-8")
    PICTURE.write_text(picture(cases), encoding="utf-8")


def comparison_table(cases: Sequence[dict[str, Any]]) -> str:
    """Markdown: of each case the seconds of a run by every store, the planner's choice set off."""
    machine = describe_machine()
    stores = [store for store in _STORES if any(store in _runs(case) for case in cases)]
    lines = [
        f"Seconds of a whole run of SAGE (3 layers, 20 batches per epoch) on {machine['cores']} cores "
        f"({machine['processor']}, {time.strftime('%Y-%m-%d')}). The planner's choice is in bold. Every store has "
        "the same budget; `mapped` runs in a memory cgroup of that size:",
        "",
        "| graph, rows, cache | " + " | ".join(f"`{store}`" for store in stores) + " |",
        "|---|" + "---|" * len(stores),
    ]
    for case in cases:
        runs = _runs(case)
        cells = [_cell(runs.get(store), store == case["choice"]) for store in stores]
        lines.append(f"| {case['case']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _runs(case: dict[str, Any]) -> dict[str, float]:
    return {row["store"]: row["run"] for row in case["options"]}


def _cell(seconds: float | None, is_choice: bool) -> str:
    if seconds is None:
        return ""
    text = f"{seconds:.1f}" if seconds < 100 else f"{seconds:.0f}"
    return f"**{text}**" if is_choice else text


def picture(cases: Sequence[dict[str, Any]]) -> str:
    """SVG: bars of what an epoch took by each store, and a mark where the planner said that it would end."""
    parts: list[str] = []
    y = 10
    for case in cases:
        rows = sorted(case["options"], key=lambda row: float(row["epoch"]))
        # What is far slower than the rest would press the others flat.
        longest = 1.15 * max(row["epoch"] for row in rows if row["store"] not in ("pread", "mapped"))
        parts.append(_text(0, y + 14, case["case"], "font-weight='600'"))
        y += _HEAD - 10
        for row in rows:
            scale = (_WIDTH - _NAME_WIDTH - 60) / longest
            width = min(row["epoch"], longest) * scale
            color = _TAKEN if row["store"] == case["choice"] else _OTHER
            parts.append(_text(0, y + 11, row["store"]))
            parts.append(f"<rect x='{_NAME_WIDTH}' y='{y}' width='{width:.1f}' height='{_BAR_HEIGHT}' fill='{color}'/>")
            predicted = row["predicted_epoch"]
            if predicted <= longest:
                x = _NAME_WIDTH + predicted * scale
                parts.append(
                    f"<line x1='{x:.1f}' y1='{y - 1}' x2='{x:.1f}' y2='{y + _BAR_HEIGHT + 1}' stroke='{_PREDICTED}' "
                    "stroke-width='2'/>"
                )
            more = " →" if row["epoch"] > longest else ""
            parts.append(_text(_NAME_WIDTH + width + 6, y + 11, f"{row['epoch']:.2f} s{more}"))
            y += _BAR_HEIGHT + _GAP
        y += 12
    legend = "seconds of an epoch; blue: the planner's choice; orange: what it predicted"
    parts.append(_text(0, y + 10, legend, "fill='#666666'"))
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {y + 20}' width='{_WIDTH}'"
    style = "font-family='system-ui, sans-serif' font-size='12'"
    body = "\n".join(parts)
    return f"{head} {style}>\n<rect width='100%' height='100%' fill='white'/>\n{body}\n</svg>\n"


def _text(x: float, y: float, text: str, more: str = f"fill='{_TEXT}'") -> str:
    return f"<text x='{x:.1f}' y='{y}' {more}>{escape(text)}</text>"
