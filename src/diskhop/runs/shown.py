"""Parts of a finished run for people: its values, and the curves of loss and validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from diskhop.budget import format_bytes
from diskhop.display import Curves, Facts, Part, Row

_MOST_TESTS = 4


def run_title(result: Mapping[str, Any]) -> str:
    """Return the title of a run. result: the content of result.json."""
    return f"Run of {result['model']} on {result['dataset']}"


def run_parts(result: Mapping[str, Any]) -> Sequence[Part]:
    """Return the parts of a run. result: the content of result.json."""
    epochs = result["epochs"]
    seconds = sum(record["seconds"] for record in epochs)
    ended = ", stopped early" if result["stopped_early"] else ""
    rows: list[Row] = [("epochs", f"{len(epochs)} in {seconds:.1f} s{ended}")]
    if "best_valid" in result:
        rows.append(("best validation", f"{result['best_valid']:.4f} {result['metric']}"))
    tests = [(name, value) for name, value in result.get("test", {}).items() if isinstance(value, float)]
    if tests:
        rows.append(("test", ", ".join(f"{value:.4f} {name}" for name, value in tests[:_MOST_TESTS])))
    rows.append(("peak memory", f"{format_bytes(result['peak_rss_bytes'])} of the process"))
    curves = {name: [record[name] for record in epochs if record.get(name) is not None] for name in ("loss", "valid")}
    return [Facts(rows), Curves(curves)]
