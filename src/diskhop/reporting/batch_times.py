"""The chart of an epoch batch by batch, of embeddings state by state: where the loop waited, how long it trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diskhop.reporting.figures import Figure
from diskhop.reporting.palette import AMBER, BLUE, GRAY, GREEN, VIOLET
from diskhop.reporting.records import RunRecord

# Names of result.json, and what is shown, from the bottom to the top.
_OF_BATCHES = {
    "computing": ("model", GREEN),
    "sampling": ("waiting for sampling", VIOLET),
    "reading": ("waiting for rows", BLUE),
    "transfer": ("waiting for the copy to the device", AMBER),
    "other": ("other", GRAY),
}
_OF_STATES = {"training": ("training", GREEN), "waiting": ("waiting for partitions", BLUE)}
_Parts = Mapping[str, tuple[str, str]]


def batch_figure(run: RunRecord) -> Figure | None:
    """Return the batches, or states of partitions, of the epoch that a run kept.

    None for runs that kept none, and for fewer than two.
    """
    for epoch in run.epochs:
        if "batch_seconds" in epoch:
            return _figure(run, epoch, epoch["batch_seconds"], _OF_BATCHES, "batch", "batches", epoch["batches"])
        if "state_seconds" in epoch:
            return _figure(run, epoch, epoch["state_seconds"], _OF_STATES, "state", "states", None)
    return None


def _figure(
    run: RunRecord,
    epoch: Mapping[str, Any],
    seconds: Mapping[str, Any],
    known: _Parts,
    one: str,
    many: str,
    of: int | None,
) -> Figure | None:
    """Draw what was kept of an epoch. of: number of batches of the epoch, where it is known."""
    parts = {name: seconds[name] for name in known if any(seconds.get(name, ()))}
    count = max(map(len, parts.values()), default=0)
    if count < 2:
        return None
    x = [seconds["first"] + number + 1 for number in range(count)]
    data = [
        {
            "type": "bar", "name": known[name][0], "x": x, "y": list(values),
            "marker": {"color": known[name][1], "line": {"width": 0}},
        }
        for name, values in parts.items()
    ]  # fmt: skip
    total = sum(map(sum, parts.values()))
    shares = {known[name][0]: sum(values) / total for name, values in parts.items()}
    waited = ", ".join(f"{name} {share:.0%}" for name, share in shares.items() if name.startswith("waiting"))
    of_all = "" if of is None else f" of {of:,}"
    which = f"{many} {x[0]:,} to {x[-1]:,}{of_all} in epoch {epoch['epoch'] + 1}"
    if (run.plan or {}).get("num_processes", 1) > 1:
        which += ", those of one process"
    note = "; ".join([f"the training loop, {which}", *([waited] if waited else [])])
    layout = {"barmode": "stack", "bargap": 0.1, "xaxis": {"title": one}, "yaxis": {"title": "seconds"}}
    return Figure(f"{one.capitalize()} by {one}", note, data, layout)
