"""Labels in columns of a table: one column of classes, by number or by name, or columns of tasks or of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from diskhop.dataset.manifest import CLASSES, TASKS, VALUES
from diskhop.errors import SourceError
from diskhop.importing.columns import NumberColumn, count_tasks
from diskhop.importing.source import Column, NameList
from diskhop.importing.tables.class_names import find_class_names
from diskhop.importing.tables.files import TableColumn
from diskhop.importing.tables.rows import TableNumbers, TableRows, TableValues
from diskhop.importing.tables.values import label_value
from diskhop.importing.tools import ImportTools
from diskhop.runtime.duck import Duck

CLASS_NAMES = "classes"


@dataclass(frozen=True, slots=True)
class OpenLabels:
    """Labels that can be read.

    column: their numbers.
    num_classes: number of classes; None: it is not known.
    names: names of the classes, by CLASS_NAMES; empty where classes are numbers.
    """

    column: Column
    num_classes: int | None = None
    names: Mapping[str, NameList] = field(default_factory=dict)


def open_labels(
    rows: TableRows, columns: Sequence[TableColumn], wanted: str | None, duck: Duck, work: ImportTools, key: TableColumn
) -> OpenLabels:
    """Return the labels in some columns, read strictly.

    wanted: one of LABEL_KINDS; None: as the values are. key: column of ids, for errors. Raises SourceError for several
    columns of classes, and for a value that cannot be a label of the kind.
    """
    texts = [column for column in columns if column.kind == "text"]
    if texts and (len(columns) > 1 or wanted not in (None, CLASSES)):
        raise SourceError(
            f"{rows.table.shown}: column '{texts[0].name}' is text, which names classes, and must then be the only "
            "label; " + ("remove --label-kind" if len(columns) == 1 else f"use --label {texts[0].name}")
        )
    if texts:
        found = find_class_names(rows, texts[0], duck, work)
        values = TableValues(rows, found.sql(), "int64", work, column=texts[0])
        # A dataset has one class at least.
        return OpenLabels(values, max(1, len(found.names)), {CLASS_NAMES: found.lines()} if found.names else {})
    kind = wanted or _find_kind(rows, columns, duck)
    if kind == CLASSES:
        if len(columns) > 1 or columns[0].kind == "numbers":
            raise SourceError(
                f"{rows.table.shown}: --label-kind classes needs one column of whole numbers, got "
                f"{', '.join(column.name for column in columns)}; use --label-kind tasks or values"
            )
        return OpenLabels(TableValues(rows, label_value(columns[0]), "int64", work, column=columns[0]))
    dims = {}
    for column in columns:
        if column.kind == "numbers":
            (lengths,) = duck.fetch(f"SELECT coalesce(max(len({column.sql})), 0) FROM {rows.sql}")
            dims[column.name] = int(lengths[0])
    labels = NumberColumn(
        TableNumbers(rows, columns, dims, work, key=key, what="label", takes_missing=True), are_values=kind == VALUES
    )
    count_tasks(labels)
    return OpenLabels(labels)


def _find_kind(rows: TableRows, columns: Sequence[TableColumn], duck: Duck) -> str:
    """Return the kind of labels: values if any number is not whole, else classes in one column, tasks in several."""
    is_single = len(columns) == 1 and columns[0].kind != "numbers"
    if is_single and columns[0].kind != "number":
        return CLASSES
    tests = []
    for column in columns:
        value = f"TRY_CAST({column.sql} AS DOUBLE)"
        test = f"isfinite({value}) AND {value} <> trunc({value})"
        if column.kind == "numbers":
            value = f"CAST({column.sql} AS DOUBLE[])"
            test = f"len(list_filter({value}, lambda x: isfinite(x) AND x <> trunc(x))) > 0"
        tests.append(f"coalesce({test}, false)")
    (found,) = duck.fetch(f"SELECT coalesce(bool_or({' OR '.join(tests)}), false) FROM {rows.sql}")
    return VALUES if bool(found[0]) else CLASSES if is_single else TASKS
