"""An evaluation in a report: a table, the confusion matrix and the calibration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.manifest import VALUES
from diskhop.predicting.metrics.confusion import MOST_CLASSES, largest_classes, merge_others
from diskhop.reporting.figures import Figure
from diskhop.reporting.palette import BLUE, VERMILION
from diskhop.reporting.values import Table
from diskhop.ui.evaluation import LINKS, notes_of, part_table, shown_part, title_of

_ACCURACY, _IDEAL = BLUE, VERMILION
_OTHER = "other"


def evaluation_table(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of all parts, with what was measured, as the page's template shows them."""
    names, rows = part_table(evaluation)
    note = f"{evaluation['dataset']}, all neighbours of every node"
    if evaluation["dataset_hash"] != evaluation["trained_on"]:
        note += "; another dataset than the run was trained on"
    return {"table": Table(names, rows), "note": note, "notes": notes_of(evaluation)}


def evaluation_figures(evaluation: Mapping[str, Any]) -> list[Figure]:
    """Return charts of the test part, or of the last part that was measured; none for models of values or links."""
    name = shown_part(evaluation)
    part = evaluation["parts"][name]
    if evaluation["outputs"]["kind"] in (VALUES, LINKS):
        return []
    if part["confusion"] is None:
        return [_calibration(name, part)]
    matrix, titles = np.array(part["confusion"]), [title_of(each) for each in part["classes"]]
    num_classes = len(titles)
    if num_classes > MOST_CLASSES:
        shown = largest_classes(matrix.sum(axis=1))
        matrix, titles = merge_others(matrix, shown), [titles[each] for each in shown]
    return [_confusion(name, matrix, titles, num_classes), _calibration(name, part)]


def confusion_figure(confusion: Mapping[str, Any]) -> Figure:
    """Return the chart of the confusion matrix that a run counted on its test nodes."""
    matrix = np.array(confusion["counts"])
    return _confusion("test", matrix, [str(each) for each in confusion["classes"]], confusion["num_classes"])


def _confusion(part: str, matrix: NDArray[np.int64], titles: list[str], num_classes: int) -> Figure:
    """Return a heat map: the share of each class's nodes by predicted class.

    titles: of the classes with rows of their own; those of the other classes are added up in the last row and column.
    """
    note = f"of each class in {part}, the share of nodes by predicted class"
    if num_classes > len(titles):
        note += f"; the {len(titles)} largest of {num_classes} classes, the others together"
        titles = [*titles, _OTHER]
    support = matrix.sum(axis=1, keepdims=True)
    shares = np.divide(matrix, support, out=np.zeros(matrix.shape), where=support > 0)
    text = [
        [f"{count:,} of {total:,} nodes" for count in counts]
        for counts, total in zip(matrix.tolist(), support[:, 0].tolist(), strict=True)
    ]
    # Numbers would make an axis of numbers, where classes are placed by their value.
    data = {
        "type": "heatmap", "x": titles, "y": titles, "z": shares.round(4).tolist(), "text": text, "zmin": 0, "zmax": 1,
        "hovertemplate": "class %{y} taken for %{x}: %{z:.1%}, %{text}<extra></extra>",
        "colorscale": [[0, "#FFFFFF"], [1, _ACCURACY]], "colorbar": {"tickformat": ".0%", "thickness": 12},
    }  # fmt: skip
    axis = {"type": "category", "showgrid": False, "dtick": 1}
    layout = {
        "xaxis": {**axis, "title": "predicted"},
        "yaxis": {**axis, "title": "class", "autorange": "reversed"},
        "height": 240 + 14 * len(titles),
    }
    return Figure("Confusion matrix", note, [data], layout)


def _calibration(name: str, part: Mapping[str, Any]) -> Figure:
    """Return a reliability diagram: accuracy by predicted probability."""
    bins = [each for each in part["calibration"] if each["predictions"]]
    bars = {
        "type": "bar", "name": "accuracy", "marker": {"color": _ACCURACY},
        "x": [each["probability"] for each in bins], "y": [each["accuracy"] for each in bins],
        "width": [0.05] * len(bins), "text": [f"{each['predictions']:,} predictions" for each in bins],
        "textposition": "none", "hovertemplate": "probability %{x:.3f}, accuracy %{y:.3f}, %{text}<extra></extra>",
    }  # fmt: skip
    ideal = {
        "type": "scatter", "mode": "lines", "name": "perfect calibration", "x": [0, 1], "y": [0, 1],
        "line": {"color": _IDEAL, "dash": "dash"},
    }  # fmt: skip
    layout = {
        "xaxis": {"title": "predicted probability", "range": [0, 1.03]},
        "yaxis": {"title": "accuracy", "range": [0, 1.03]},
    }
    note = f"of predictions in {name}, by their probability; expected calibration error {part['ece']:.4f}"
    return Figure("Calibration", note, [bars, ideal], layout)
