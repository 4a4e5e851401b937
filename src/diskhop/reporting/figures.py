"""Charts of a run as data for plotly.js; a chart without values is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diskhop.budget import format_bytes
from diskhop.reporting.palette import BLUE, GRAY, GREEN, VERMILION, VIOLET
from diskhop.reporting.records import RunRecord

_COMPUTE, _WAITING, _OTHER = GREEN, VERMILION, GRAY
_SAMPLE, _FETCH = VIOLET, BLUE
_MOST_BARS = 60


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with title and note; data and layout are plotly's."""

    title: str
    note: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a stacked bar: its name, its colour, and its height from an epoch's record."""

    name: str
    color: str
    value: Callable[[Mapping[str, Any]], float]


def run_figures(run: RunRecord) -> list[Figure]:
    """Return charts of one run: time by epoch, reads and memory."""
    figures = [_stack(run, "Time of an epoch", "what the training loop did", "seconds", TIME_PARTS)]
    figures += [] if run.is_embedding else [_background(run)]
    figures += [_partition_bytes(run)] if run.is_embedding else [_rows(run), _bytes(run), _read_sizes(run)]
    return [figure for figure in (*figures, _memory(run)) if figure is not None]


def map_figure(title: str, axes: Sequence[Sequence[float]], names: Sequence[str], colors: Sequence[str]) -> Figure:
    """A sample of embeddings in the plane in which they differ most."""
    points = {
        "type": "scatter", "mode": "markers", "text": list(names), "hoverinfo": "text",
        "x": [round(point[0], 4) for point in axes], "y": [round(point[1], 4) for point in axes],
        "marker": {"color": list(colors), "size": 5, "opacity": 0.7},
    }  # fmt: skip
    plain = {"showticklabels": False, "zeroline": False, "showgrid": False}
    return Figure("Embeddings", title, [points], {"xaxis": plain, "yaxis": plain, "height": 480})


def _stack(run: RunRecord, title: str, note: str, axis: str, parts: Iterable[Part]) -> Figure | None:
    """Return a bar per epoch, or per n-th epoch of a long run; None where all values are 0."""
    step = -(-len(run.epochs) // _MOST_BARS) or 1
    epochs = run.epochs[::step]
    data: list[dict[str, Any]] = []
    for part in parts:
        values = [part.value(epoch) for epoch in epochs]
        if any(values):
            x = [epoch["epoch"] + 1 for epoch in epochs]
            data.append({"type": "bar", "name": part.name, "x": x, "y": values, "marker": {"color": part.color}})
    if not data:
        return None
    if step > 1:
        note += f"; every {step}th epoch"
    return Figure(title, note, data, {"barmode": "stack", "xaxis": {"title": "epoch"}, "yaxis": {"title": axis}})


def _compute_seconds(epoch: Mapping[str, Any]) -> float:
    """Return seconds of computing; for embeddings, everything but waiting."""
    return float(epoch.get("compute_seconds", epoch["seconds"] - epoch["stall_seconds"]))


TIME_PARTS = (
    Part("model", _COMPUTE, _compute_seconds),
    Part("waiting for data", _WAITING, lambda epoch: epoch["stall_seconds"]),
    Part("other", _OTHER, lambda epoch: max(0, epoch["seconds"] - _compute_seconds(epoch) - epoch["stall_seconds"])),
)


def _background(run: RunRecord) -> Figure | None:
    parts = (
        Part("sampling", _SAMPLE, lambda epoch: epoch.get("sample_seconds", 0)),
        Part("bringing rows", _FETCH, lambda epoch: epoch.get("fetch_seconds", 0)),
        Part("packing", _OTHER, lambda epoch: epoch.get("packing_seconds", 0)),
    )
    return _stack(run, "Work ahead of the model", "on other threads: their seconds, added up", "seconds", parts)


def _rows(run: RunRecord) -> Figure | None:
    def from_disk(epoch: Mapping[str, Any]) -> float:
        in_memory: float = epoch.get("rows_hit", 0) + epoch.get("rows_shared", 0)
        return float(epoch.get("rows_requested", 0) - in_memory)

    parts = (
        Part("from memory", _COMPUTE, lambda epoch: epoch.get("rows_hit", 0)),
        Part("shared with a batch in flight", _SAMPLE, lambda epoch: epoch.get("rows_shared", 0)),
        Part("from disk", _WAITING, from_disk),
    )
    return _stack(run, "Rows of features", "that batches asked for, and where they came from", "rows", parts)


def _bytes(run: RunRecord) -> Figure | None:
    parts = (
        Part("needed", _COMPUTE, lambda epoch: epoch.get("bytes_needed", 0)),
        Part("read", _FETCH, lambda epoch: epoch.get("bytes_read", 0)),
    )
    return _grouped(_stack(run, "Bytes", "of the rows that batches asked for, and read from the disk", "bytes", parts))


def _partition_bytes(run: RunRecord) -> Figure | None:
    parts = (
        Part("read", _FETCH, lambda epoch: epoch.get("bytes_read", 0)),
        Part("written", _WAITING, lambda epoch: epoch.get("bytes_written", 0)),
    )
    return _grouped(_stack(run, "Bytes of partitions", "moved between disk and memory", "bytes", parts))


def _grouped(figure: Figure | None) -> Figure | None:
    """Place bars next to each other, for values that do not add up."""
    if figure is not None:
        figure.layout["barmode"] = "group"
    return figure


def _read_sizes(run: RunRecord) -> Figure | None:
    parts = [
        Part("bytes per read", _FETCH, lambda epoch: epoch["bytes_read"] / epoch["reads"] if epoch["reads"] else 0)
    ]
    if not all("reads" in epoch for epoch in run.epochs):
        return None
    return _stack(run, "Size of reads", "the mean of each epoch: few large ones are fast", "bytes", parts)


def _memory(run: RunRecord) -> Figure | None:
    """Resident memory from the first epoch on, with what was there before, with the budget on top, as bounds."""
    seconds: list[float] = []
    num_bytes: list[int] = []
    before = 0.0
    for epoch in run.epochs:
        samples = epoch.get("memory", [])
        if samples and seconds and before + samples[0][0] < seconds[-1]:  # resumed by another process
            before = seconds[-1]
        seconds += [round(before + at, 3) for at, _ in samples]
        num_bytes += [resident for _, resident in samples]
    if not seconds:
        return None
    data: list[dict[str, Any]] = [
        {
            "type": "scatter", "mode": "lines", "name": "resident", "x": seconds, "y": num_bytes,
            "fill": "tozeroy", "line": {"color": _FETCH, "width": 2},
        }
    ]  # fmt: skip
    note = "of the whole process"
    if run.result is not None and run.plan is not None:
        overhead, budget = run.result["overhead_bytes"], run.plan["memory_bytes"]
        bounds = [("overhead", overhead, "dot")]
        if (predicted := run.result.get("predicted_overhead_bytes")) is not None:
            bounds.append(("predicted overhead", predicted, "dashdot"))
            note += f"; overhead {format_bytes(overhead)}, predicted {format_bytes(predicted)}"
        # A budget far above what was used would press the rest flat.
        if overhead + budget < 3 * max(num_bytes):
            bounds.append(("overhead + budget", overhead + budget, "dash"))
        else:
            note += f"; overhead and budget together are {format_bytes(overhead + budget)}, far above"
        data += [
            {
                "type": "scatter", "mode": "lines", "name": name, "x": [seconds[0], seconds[-1]],
                "y": [height, height], "line": {"color": _WAITING, "dash": dash},
            }
            for name, height, dash in bounds
        ]  # fmt: skip
    layout = {"xaxis": {"title": "seconds"}, "yaxis": {"title": "bytes", "rangemode": "tozero"}}
    return Figure("Memory", note, data, layout)
