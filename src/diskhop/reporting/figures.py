"""Charts of runs as data for plotly.js; a chart without values is left out.

Different datasets, losses, metrics or protocols never share an axis: each gets its own chart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from diskhop.reporting.palette import BLUE, GRAY, GREEN, SERIES, VERMILION, VIOLET
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
class _Part:
    """A part of a stacked bar: its name, its colour, and its height from an epoch's record."""

    name: str
    color: str
    value: Callable[[Mapping[str, Any]], float]


class _Group(NamedTuple):
    """Runs that can be compared: they share the metric and the dataset's content; with the dataset's name."""

    kind: str
    content: str
    dataset: str


class _Series(NamedTuple):
    """A run's line."""

    name: str
    color: str
    epochs: list[int]
    values: list[float]


def course_figures(runs: Sequence[RunRecord], names: Sequence[str]) -> list[Figure]:
    """Losses and validations by epoch: all runs of a kind on one chart."""
    losses = _by_kind(runs, names, lambda run: run.loss, "loss")
    metrics = _by_kind(runs, names, lambda run: run.valid_metric, "valid")
    return [
        *(
            _lines(f"Training loss on {group.dataset}", f"{group.kind}, mean of each epoch", "loss", series)
            for group, series in losses.items()
        ),
        *(_lines(f"Validation on {group.dataset}", group.kind, "", series) for group, series in metrics.items()),
    ]


def time_figure(runs: Sequence[RunRecord], names: Sequence[str]) -> Figure | None:
    """The mean epoch of each run, by what the training loop did; None for one run, which has its epochs."""
    done = [(run, name) for run, name in zip(runs, names, strict=True) if run.epochs]
    if len(done) < 2:
        return None
    data = []
    for part in _TIME:
        values = [sum(map(part.value, run.epochs)) / len(run.epochs) for run, _ in done]
        x = [name for _, name in done]
        data.append({"type": "bar", "name": part.name, "x": x, "y": values, "marker": {"color": part.color}})
    layout = {"barmode": "stack", "xaxis": {"title": "", "type": "category"}, "yaxis": {"title": "seconds"}}
    return Figure("Time of an epoch", "the mean of each run: what the training loop did", data, layout)


def run_figures(run: RunRecord) -> list[Figure]:
    """Return charts of one run: time by epoch, reads and memory."""
    figures = [_stack(run, "Time of an epoch", "what the training loop did", "seconds", _TIME)]
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


def _by_kind(
    runs: Sequence[RunRecord], names: Sequence[str], kind_of: Callable[[RunRecord], str | None], value: str
) -> dict[_Group, list[_Series]]:
    """Group the runs by what they measured."""
    found: dict[_Group, list[_Series]] = {}
    datasets: dict[str, str] = {}
    for number, (run, name) in enumerate(zip(runs, names, strict=True)):
        points = [(epoch["epoch"] + 1, epoch[value]) for epoch in run.epochs if epoch.get(value) is not None]
        kind = kind_of(run)
        if points and kind is not None:
            epochs, values = zip(*points, strict=True)
            series = _Series(name, SERIES[number % len(SERIES)], list(epochs), list(values))
            content = str(run.config.get("dataset_hash"))
            group = _Group(kind, content, datasets.setdefault(content, run.dataset))
            found.setdefault(group, []).append(series)
    return found


def _lines(title: str, note: str, axis: str, series: Sequence[_Series]) -> Figure:
    data = [
        {
            "type": "scatter", "mode": "lines+markers", "name": each.name, "x": each.epochs, "y": each.values,
            "line": {"color": each.color, "width": 2}, "marker": {"size": 5},
        }
        for each in series
    ]  # fmt: skip
    return Figure(title, note, data, {"xaxis": {"title": "epoch"}, "yaxis": {"title": axis}})


def _stack(run: RunRecord, title: str, note: str, axis: str, parts: Iterable[_Part]) -> Figure | None:
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


_TIME = (
    _Part("model", _COMPUTE, _compute_seconds),
    _Part("waiting for data", _WAITING, lambda epoch: epoch["stall_seconds"]),
    _Part("other", _OTHER, lambda epoch: max(0, epoch["seconds"] - _compute_seconds(epoch) - epoch["stall_seconds"])),
)


def _background(run: RunRecord) -> Figure | None:
    parts = (
        _Part("sampling", _SAMPLE, lambda epoch: epoch.get("sample_seconds", 0)),
        _Part("bringing rows", _FETCH, lambda epoch: epoch.get("fetch_seconds", 0)),
        _Part("packing", _OTHER, lambda epoch: epoch.get("packing_seconds", 0)),
    )
    return _stack(run, "Work ahead of the model", "on other threads: their seconds, added up", "seconds", parts)


def _rows(run: RunRecord) -> Figure | None:
    def from_disk(epoch: Mapping[str, Any]) -> float:
        in_memory: float = epoch.get("rows_hit", 0) + epoch.get("rows_shared", 0)
        return float(epoch.get("rows_requested", 0) - in_memory)

    parts = (
        _Part("from memory", _COMPUTE, lambda epoch: epoch.get("rows_hit", 0)),
        _Part("shared with a batch in flight", _SAMPLE, lambda epoch: epoch.get("rows_shared", 0)),
        _Part("from disk", _WAITING, from_disk),
    )
    return _stack(run, "Rows of features", "that batches asked for, and where they came from", "rows", parts)


def _bytes(run: RunRecord) -> Figure | None:
    parts = (
        _Part("needed", _COMPUTE, lambda epoch: epoch.get("bytes_needed", 0)),
        _Part("read", _FETCH, lambda epoch: epoch.get("bytes_read", 0)),
    )
    return _grouped(_stack(run, "Bytes", "of the rows that batches asked for, and read from the disk", "bytes", parts))


def _partition_bytes(run: RunRecord) -> Figure | None:
    parts = (
        _Part("read", _FETCH, lambda epoch: epoch.get("bytes_read", 0)),
        _Part("written", _WAITING, lambda epoch: epoch.get("bytes_written", 0)),
    )
    return _grouped(_stack(run, "Bytes of partitions", "moved between disk and memory", "bytes", parts))


def _grouped(figure: Figure | None) -> Figure | None:
    """Place bars next to each other, for values that do not add up."""
    if figure is not None:
        figure.layout["barmode"] = "group"
    return figure


def _read_sizes(run: RunRecord) -> Figure | None:
    parts = [
        _Part("bytes per read", _FETCH, lambda epoch: epoch["bytes_read"] / epoch["reads"] if epoch["reads"] else 0)
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
        # A budget far above what was used would press the rest flat.
        if overhead + budget < 3 * max(num_bytes):
            bounds.append(("overhead + budget", overhead + budget, "dash"))
        else:
            note += f"; overhead and budget together are {(overhead + budget) / 1e9:.3g} GB, far above"
        data += [
            {
                "type": "scatter", "mode": "lines", "name": name, "x": [seconds[0], seconds[-1]],
                "y": [height, height], "line": {"color": _WAITING, "dash": dash},
            }
            for name, height, dash in bounds
        ]  # fmt: skip
    layout = {"xaxis": {"title": "seconds"}, "yaxis": {"title": "bytes", "rangemode": "tozero"}}
    return Figure("Memory", note, data, layout)
