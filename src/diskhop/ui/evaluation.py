"""Tables for people of a model's metrics by part. Values that are missing are '-'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from diskhop.ui.summary import Row

# Keys of a part's metrics, and their titles, by kind of outputs.
_OF_LABELS = {
    "nodes": "nodes",
    "accuracy": "accuracy",
    "f1_macro": "macro F1",
    "f1_micro": "micro F1",
    "roc_auc": "ROC-AUC",
    "average_precision": "average precision",
    "ece": "ECE",
}
_OF_VALUES = {"nodes": "nodes", "rmse": "RMSE", "mae": "MAE", "r2": "R2"}
_OF_LINKS = {
    "edges": "edges",
    "auc": "ROC-AUC",
    "ap": "average precision",
    "mrr": "MRR",
    "hits_at_1": "hits at 1",
    "hits_at_10": "hits at 10",
}
# Kind of the outputs of a link model.
LINKS = "links"
METRICS = {"classes": _OF_LABELS, "tasks": _OF_LABELS, "values": _OF_VALUES, LINKS: _OF_LINKS}
_OF_LABEL = {
    "support": "nodes",
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
    "roc_auc": "ROC-AUC",
    "average_precision": "average precision",
}
_OF_VALUE = {"labels": "nodes", "rmse": "RMSE", "mae": "MAE", "r2": "R2", "mean": "mean", "deviation": "std. deviation"}
_OF_COLUMN = {"classes": _OF_LABEL, "tasks": _OF_LABEL, "values": _OF_VALUE}
_NOUNS = {"classes": "class", "tasks": "task", "values": "value"}
_MOST_COLUMNS, _MOST_CONFUSIONS = 20, 5


class TextTable(NamedTuple):
    """Names of columns, and rows of texts below them."""

    names: list[str]
    rows: list[list[str]]


def part_table(result: Mapping[str, Any]) -> TextTable:
    """Return the metrics of all parts, a row per part. result: as evaluate_classifier() or
    evaluate_links() returns it."""
    metrics = METRICS[result["outputs"]["kind"]]
    rows = [[name, *(_shown(part[key]) for key in metrics)] for name, part in result["parts"].items()]
    return TextTable(["part", *metrics.values()], rows)


def shown_part(result: Mapping[str, Any]) -> str:
    """Return the part whose classes are shown: test if it was measured, else the last."""
    parts = list(result["parts"])
    return "test" if "test" in parts else str(parts[-1])


def column_table(result: Mapping[str, Any], part: str) -> TextTable:
    """Return the metrics of the largest classes, or of the first tasks or values, in a part."""
    kind = result["outputs"]["kind"]
    columns = result["parts"][part][kind]
    if kind == "classes":
        # Stable: equal ones stay in their order.
        columns = sorted(columns, key=lambda column: -column["support"])
    titles = _OF_COLUMN[kind]
    rows = [[title_of(column), *(_shown(column[key]) for key in titles)] for column in columns[:_MOST_COLUMNS]]
    return TextTable([_NOUNS[kind], *titles.values()], rows)


def evaluation_rows(result: Mapping[str, Any], part: str) -> list[Row]:
    """Return names and texts of lines below the tables: what is left out of them, confusions, and notes."""
    found = result["parts"][part]
    kind = result["outputs"]["kind"]
    rows: list[Row] = []
    if len(found[kind]) > _MOST_COLUMNS:
        what = "largest classes" if kind == "classes" else f"first {kind}"
        rows.append((kind, f"the {_MOST_COLUMNS} {what} of {len(found[kind])} in {part}; --json has all"))
    if found.get("confusion") is not None:
        rows += _confusions(found["confusion"], found["classes"], part)
    return [*rows, *(("note", note) for note in notes_of(result))]


def notes_of(result: Mapping[str, Any]) -> list[str]:
    """Return the lines about values that are missing in any part, each once."""
    notes = [note for part in result["parts"].values() for note in part.get("notes", ())]
    return list(dict.fromkeys([*result["notes"], *notes]))


def title_of(column: Mapping[str, Any]) -> str:
    """Return the name of a class, or the number of a class, task or value."""
    return str(column.get("name") or next(column[noun] for noun in _NOUNS.values() if noun in column))


def _confusions(matrix: Sequence[Sequence[int]], classes: Sequence[Mapping[str, Any]], part: str) -> list[Row]:
    """Return the most frequent confusions."""
    wrong = [
        (count, true, predicted)
        for true, counts in enumerate(matrix)
        for predicted, count in enumerate(counts)
        if count and true != predicted
    ]
    rows: list[Row] = []
    for count, true, predicted in sorted(wrong, key=lambda each: (-each[0], *each[1:]))[:_MOST_CONFUSIONS]:
        of_class = f"{count / classes[true]['support']:.0%} of the class"
        text = f"{count:,} of class {title_of(classes[true])} taken for {title_of(classes[predicted])} ({of_class})"
        rows.append((f"confused in {part}" if not rows else "", text))
    return rows


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
