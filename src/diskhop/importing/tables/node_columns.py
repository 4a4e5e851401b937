"""Columns of a table of nodes by their roles: features, labels and splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from diskhop.importing.columns import check_features
from diskhop.importing.source import Column
from diskhop.importing.tables.labels import OpenLabels, open_labels
from diskhop.importing.tables.roles import NodeRoles
from diskhop.importing.tables.rows import TableNumbers, TableRows, TableValues, open_duck
from diskhop.importing.tables.values import SPLIT_CODES, mask_value, split_value
from diskhop.importing.tools import ImportTools
from diskhop.runtime.duck import Duck


@dataclass(frozen=True, slots=True)
class OpenNodes:
    """Columns of nodes that can be read; None: the table has none."""

    features: Column | None = None
    labels: OpenLabels | None = None
    splits: Mapping[str, Sequence[Column]] = field(default_factory=dict)


def open_node_columns(rows: TableRows, roles: NodeRoles, label_kind: str | None, work: ImportTools) -> OpenNodes:
    """Open the columns. label_kind: kind that labels are imported as; None: as their values are."""
    features: Column | None = None
    labels: OpenLabels | None = None
    with open_duck(work, 0) as duck, rows.faults():
        dims = {}
        for column in roles.features:
            if column.kind == "numbers":
                (lengths,) = duck.fetch(f"SELECT coalesce(len({column.sql}), 0) FROM {rows.sql} LIMIT 1")
                dims[column.name] = int(lengths[0])
        splits = _open_splits(rows, roles, duck, work)
    if roles.features:
        features = TableNumbers(rows, roles.features, dims, work, key=roles.id)
        check_features(features)
    if roles.labels:
        with open_duck(work, 0) as duck, rows.faults():
            labels = open_labels(rows, roles.labels, label_kind, duck, work, roles.id)
    return OpenNodes(features, labels, splits)


def _open_splits(rows: TableRows, roles: NodeRoles, duck: Duck, work: ImportTools) -> dict[str, list[Column]]:
    splits: dict[str, list[Column]] = {}
    if roles.split is not None:
        value = split_value(roles.split)
        (codes,) = duck.fetch(f"SELECT DISTINCT {value} FROM {rows.sql}")
        splits = {
            part: [TableValues(rows, value, "int64", work, column=roles.split, where_sql=f"value = {code}")]
            for part, code in SPLIT_CODES.items()
            if code in codes
        }
    for part, masks in roles.masks.items():
        splits[part] = [
            TableValues(rows, mask_value(mask), "int64", work, column=mask, where_sql="value = 1") for mask in masks
        ]
    return splits
