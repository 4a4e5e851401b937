"""An evaluation in a report: a table, the confusion matrix and the calibration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.manifest import VALUES
from diskhop.reporting.figures import Figure
from diskhop.reporting.palette import BLUE, VERMILION
from diskhop.ui.evaluation import LINKS, notes_of, part_table, shown_part, title_of

_ACCURACY, _IDEAL = BLUE, VERMILION
# More classes than this cannot be read on one chart.
_MOST_CLASSES = 30
_OTHER = "other"


def evaluation_table(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of all parts, with what was measured, as the page's template shows them."""
    names, rows = part_table(evaluation)
    note = f"{evaluation['dataset']}, all neighbours of every node"
    if evaluation["dataset_hash"] != evaluation["trained_on"]:
        note += "; another dataset than the run was trained on"
    return {"names": names, "rows": rows, "note": note, "notes": notes_of(evaluation)}


def evaluation_figures(evaluation: Mapping[str, Any]) -> list[Figure]:
    """Return charts of the test part, or of the last part that was measured; none for models of values or links."""
    name = shown_part(evaluation)
    part = evaluation["parts"][name]
    if evaluation["outputs"]["kind"] in (VALUES, LINKS):
        return []
    matrix = part["confusion"]
    drawn = [] if matrix is None else [_confusion(name, np.array(matrix), [title_of(each) for each in part["classes"]])]
    return [*drawn, _calibration(name, part)]


def _confusion(part: str, matrix: NDArray[np.int64], titles: list[str]) -> Figure:
    """Return a heat map: the share of each class's nodes by predicted class."""
    note = f"of each class in {part}, the share of nodes by predicted class"
    if len(matrix) > _MOST_CLASSES:
        note += f"; the {_MOST_CLASSES} largest of {len(matrix)} classes, the others together"
        matrix, titles = _merge_others(matrix, titles)
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


def _merge_others(matrix: NDArray[np.int64], titles: list[str]) -> tuple[NDArray[np.int64], list[str]]:
    """Keep the classes with the most nodes, in their order, and add up the others in a last row and column."""
    largest = np.sort(np.argsort(-matrix.sum(axis=1), kind="stable")[:_MOST_CLASSES])
    group = np.full(len(matrix), _MOST_CLASSES)
    group[largest] = np.arange(_MOST_CLASSES)
    merged = np.zeros((_MOST_CLASSES + 1, _MOST_CLASSES + 1), np.int64)
    np.add.at(merged, (group[:, None], group[None, :]), matrix)
    return merged, [*(titles[each] for each in largest), _OTHER]


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
