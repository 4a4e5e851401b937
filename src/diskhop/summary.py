"""A run's result in a few lines for people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from diskhop.budget import format_bytes


def summarize(result: Mapping[str, Any], out: Path | None) -> list[tuple[str, str]]:
    """Name and text of each line, from the content of result.json."""
    epochs = result["epochs"]
    plan = result["plan"]

    def total(name: str) -> Any:
        return sum(epoch.get(name, 0) for epoch in epochs)

    rows = [
        (name.replace("_", " "), f"{result[name]:.4f} {result['metric']}")
        for name in ("best_valid", "test")
        if result.get(name) is not None
    ]
    seconds = total("seconds")
    rows.append(("epochs", f"{len(epochs)} in {seconds:.1f} s, waiting for data {total('stall_seconds'):.1f} s"))
    requested = total("rows_requested")
    if requested:
        from_disk = requested - total("rows_hit")
        rows.append(("rows", f"{requested:,} requested, {from_disk / requested:.0%} from disk"))
        needed, read = total("bytes_needed"), total("bytes_read")
        rows.append(("bytes", f"{format_bytes(needed)} needed, {format_bytes(read)} read, {total('reads'):,} reads"))
    reserved = ", ".join(f"{name} {format_bytes(num_bytes)}" for name, num_bytes in plan["reserved"].items())
    rows.append(("budget", f"{format_bytes(plan['memory_bytes'])}: {reserved}"))
    peak, overhead = format_bytes(result["peak_rss_bytes"]), format_bytes(result["overhead_bytes"])
    rows.append(("peak memory", f"{peak}, of it {overhead} for the program, parameters and activations"))
    if out is not None:
        rows.append(("written to", str(out)))
    return rows
