"""The chart of an epoch batch by batch: where the training loop waited, and how long the model computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from diskhop.reporting.figures import Figure
from diskhop.reporting.palette import AMBER, BLUE, GRAY, GREEN, VIOLET
from diskhop.reporting.records import RunRecord

# Names of result.json, and what is shown, from the bottom to the top.
_PARTS = {
    "computing": ("model", GREEN),
    "sampling": ("waiting for sampling", VIOLET),
    "reading": ("waiting for rows", BLUE),
    "transfer": ("waiting for the copy to the device", AMBER),
    "other": ("other", GRAY),
}
_WAITS = ("sampling", "reading", "transfer")


def batch_figure(run: RunRecord) -> Figure | None:
    """Return the batches of the epoch that a run kept; None for runs that kept none, and for fewer than two batches."""
    epoch = next((epoch for epoch in run.epochs if "batch_seconds" in epoch), None)
    if epoch is None:
        return None
    seconds: Mapping[str, Any] = epoch["batch_seconds"]
    parts: dict[str, Sequence[float]] = {name: seconds[name] for name in _PARTS if any(seconds.get(name, ()))}
    count = max(map(len, parts.values()), default=0)
    if count < 2:
        return None
    x = [seconds["first"] + number + 1 for number in range(count)]
    data = [
        {
            "type": "bar", "name": _PARTS[name][0], "x": x, "y": list(values),
            "marker": {"color": _PARTS[name][1], "line": {"width": 0}},
        }
        for name, values in parts.items()
    ]  # fmt: skip
    total = sum(map(sum, parts.values()))
    shares = {_PARTS[name][0]: sum(values) / total for name, values in parts.items() if name in _WAITS}
    waited = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    which = f"batches {x[0]:,} to {x[-1]:,} of {epoch['batches']:,} in epoch {epoch['epoch'] + 1}"
    if (run.plan or {}).get("num_processes", 1) > 1:
        which += ", those of one process"
    note = "; ".join([f"the training loop, {which}", *([waited] if waited else [])])
    layout = {"barmode": "stack", "bargap": 0.1, "xaxis": {"title": "batch"}, "yaxis": {"title": "seconds"}}
    return Figure("Batch by batch", note, data, layout)
