"""Charts that runs share: losses and validations by epoch, and the time of an epoch.

Different datasets, losses, metrics or protocols never share an axis: each gets its own chart. Runs that differ only in
their seed are one line, their mean, with a band from the lowest to the highest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop.reporting.figures import TIME_PARTS, Figure
from diskhop.reporting.groups import RunGroup
from diskhop.reporting.palette import SERIES, translucent
from diskhop.reporting.records import RunRecord


class _Kind(NamedTuple):
    """Lines that can be compared: of one metric, on one content of a dataset; with its name."""

    kind: str
    content: str
    dataset: str


class _Series(NamedTuple):
    """The line of a group. values: float64 (runs, epochs); of several runs only the epochs that all of them have."""

    title: str
    color: str
    epochs: list[int]
    values: NDArray[np.float64]
    is_cut: bool


def course_figures(groups: Sequence[RunGroup]) -> list[Figure]:
    """Losses and validations by epoch: all runs of a kind on one chart."""
    losses = _by_kind(groups, lambda run: run.loss, "loss")
    metrics = _by_kind(groups, lambda run: run.valid_metric, "valid")
    return [
        *(
            _lines(f"Training loss on {kind.dataset}", f"{kind.kind}, mean of each epoch", "loss", series)
            for kind, series in losses.items()
        ),
        *(_lines(f"Validation on {kind.dataset}", kind.kind, "", series) for kind, series in metrics.items()),
    ]


def time_figure(groups: Sequence[RunGroup]) -> Figure | None:
    """The mean epoch of each group, by what the training loop did; None for one group, whose runs have their epochs."""
    done = [(group, [run for run in group.runs if run.epochs]) for group in groups]
    done = [(group, runs) for group, runs in done if runs]
    if len(done) < 2:
        return None
    x = [group.title for group, _ in done]
    data = []
    for part in TIME_PARTS:
        values = [float(np.mean([np.mean([*map(part.value, run.epochs)]) for run in runs])) for _, runs in done]
        data.append({"type": "bar", "name": part.name, "x": x, "y": values, "marker": {"color": part.color}})
    layout = {"barmode": "stack", "xaxis": {"title": "", "type": "category"}, "yaxis": {"title": "seconds"}}
    return Figure("Time of an epoch", "the mean of each run: what the training loop did", data, layout)


def _by_kind(
    groups: Sequence[RunGroup], kind_of: Callable[[RunRecord], str | None], value: str
) -> dict[_Kind, list[_Series]]:
    """Group lines by what they measured."""
    found: dict[_Kind, list[_Series]] = {}
    datasets: dict[str, str] = {}
    for number, group in enumerate(groups):
        kind = next((kind for kind in map(kind_of, group.runs) if kind is not None), None)
        series = _series(group, value, SERIES[number % len(SERIES)])
        if series is not None and kind is not None:
            content = str(group.first.config.get("dataset_hash"))
            compared = _Kind(kind, content, datasets.setdefault(content, group.first.dataset))
            found.setdefault(compared, []).append(series)
    return found


def _series(group: RunGroup, value: str, color: str) -> _Series | None:
    """Return the line of a group; None if no run has a value."""
    of_runs = [
        {epoch["epoch"] + 1: epoch[value] for epoch in run.epochs if epoch.get(value) is not None} for run in group.runs
    ]
    of_runs = [points for points in of_runs if points]
    if not of_runs:
        return None
    epochs = sorted(set.intersection(*map(set, of_runs)))
    if not epochs:
        return None
    values = np.array([[points[epoch] for epoch in epochs] for points in of_runs], np.float64)
    return _Series(group.title, color, epochs, values, any(len(points) > len(epochs) for points in of_runs))


def _lines(title: str, note: str, axis: str, series: Sequence[_Series]) -> Figure:
    data: list[dict[str, Any]] = []
    for each in series:
        line = {"type": "scatter", "x": each.epochs, "legendgroup": each.title}
        mean, name = each.values.mean(axis=0).tolist(), each.title
        if len(each.values) > 1:
            name = f"{each.title}, mean"
            edge = {**line, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
            data += [
                {**edge, "name": f"{each.title}, lowest", "y": each.values.min(axis=0).tolist()},
                {
                    **edge, "name": f"{each.title}, highest", "y": each.values.max(axis=0).tolist(),
                    "fill": "tonexty", "fillcolor": translucent(each.color, 0.2),
                },
            ]  # fmt: skip
        data.append(
            {
                **line, "mode": "lines+markers" if len(each.epochs) <= 60 else "lines", "name": name, "y": mean,
                "line": {"color": each.color, "width": 2}, "marker": {"size": 5},
            }
        )  # fmt: skip
    notes = [note]
    if any(len(each.values) > 1 for each in series):
        notes.append("bands from the lowest to the highest seed")
    notes += [f"{each.title} up to epoch {each.epochs[-1]}, which all its runs have" for each in series if each.is_cut]
    return Figure(title, "; ".join(notes), data, {"xaxis": {"title": "epoch"}, "yaxis": {"title": axis}})
