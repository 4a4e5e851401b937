"""Roles of a table's columns: by options, else by name, else by place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diskhop.dataset.attribute_info import ATTRIBUTE_NAME
from diskhop.errors import SourceError
from diskhop.importing.evidence.columns import find_end_columns
from diskhop.importing.evidence.decisions import Decision, listed
from diskhop.importing.evidence.names import LABELS, joined_name, mask_of, role_of
from diskhop.importing.options import IdKind, ImportOptions
from diskhop.importing.tables.files import Kind, Table, TableColumn

_FEATURE_KINDS: tuple[Kind, ...] = ("integer", "number", "numbers")
_LABEL_KINDS: tuple[Kind, ...] = ("integer", "number", "boolean", "numbers", "nothing")
# A text by one of these names may be what to call the node, and is no class unless --label says so.
_MAY_BE_NAMES = ("label", "labels", "nodelabel")
_SPLIT_KINDS: tuple[Kind, ...] = ("text", "nothing")
_ATTRIBUTE_KINDS: tuple[Kind, ...] = ("integer", "number", "boolean", "time")
_MASK_KINDS: tuple[Kind, ...] = ("integer", "number", "boolean", "text", "nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeRoles:
    """Columns of the table of edges by role; None: no column.

    attributes: columns to keep by their names.
    why: how source and destination were found.
    """

    source: TableColumn
    destination: TableColumn
    weight: TableColumn | None
    time: TableColumn | None
    attributes: tuple[TableColumn, ...]
    why: str

    @classmethod
    def find(cls, table: Table, options: ImportOptions) -> EdgeRoles:
        """Find the columns by options, else by name. Raises SourceError for a column that does not fit its role."""
        names, why = options.edge_columns, "--edge-columns"
        if names is None:
            columns = list(table.columns)
            filled = [place for place, each in enumerate(table.columns.values()) if each.kind != "nothing"]
            found = find_end_columns(
                columns if table.has_names else None,
                filled,
                str(table.shown),
                "--edge-columns",
                by_place=table.has_names,
            )
            names, why = (columns[found.ends.source], columns[found.ends.destination]), found.why
        source, destination = (table.column(name, "--edge-columns") for name in names)
        weight = _of_kind(table, options.weight, "--weight", ("integer", "number", "boolean"), "numbers")
        time = _of_kind(table, options.time, "--time", ("integer", "time"), "whole numbers or timestamps")
        attributes = _find_attributes(table, options.edge_attributes, "--edge-attributes")
        return cls(source=source, destination=destination, weight=weight, time=time, attributes=attributes, why=why)

    @property
    def columns(self) -> list[TableColumn]:
        """All columns that have a role."""
        roles = (self.source, self.destination, self.weight, self.time, *self.attributes)
        return [*dict.fromkeys(each for each in roles if each is not None)]

    def names(self) -> dict[str, Any]:
        """Return the names of the columns by role, for people."""
        roles = {"source": self.source, "destination": self.destination, "weight": self.weight, "time": self.time}
        names: dict[str, Any] = {role: column.name for role, column in roles.items() if column is not None}
        return names | ({"attributes": [each.name for each in self.attributes]} if self.attributes else {})

    def decisions(self, table: Table) -> Iterator[Decision]:
        """Describe the columns for people."""
        for role, column in (("source", self.source), ("destination", self.destination)):
            yield Decision(_shown(column), role, self.why)
        for role, value in (("weight", self.weight), ("time", self.time)):
            if value is not None:
                yield Decision(_shown(value), role, f"--{role}")
        for column in self.attributes:
            yield Decision(_shown(column), "attribute", "--edge-attributes")
        taken = self.columns
        for column in table.columns.values():
            if column not in taken:
                role = role_of(column.name) or ""
                hints = {"weight": f"--weight {column.name} takes it", "time": f"--time {column.name} takes it"}
                why = {"index": "row numbers by name", "id": "the edge's own id by name"}
                yield Decision(_shown(column), "not imported", hints.get(role, why.get(role, "no role")))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRoles:
    """Columns of the table of nodes by role; None: no column.

    labels: one column of classes, or several of tasks or values.
    attributes: columns to keep by their names.
    masks: by part, columns that tell which nodes are in it, one for each split.
    reasons: why a column was taken or not, by name.
    """

    id: TableColumn
    features: tuple[TableColumn, ...]
    labels: tuple[TableColumn, ...]
    split: TableColumn | None
    attributes: tuple[TableColumn, ...]
    masks: Mapping[str, tuple[TableColumn, ...]]
    reasons: Mapping[str, str]

    @classmethod
    def find(cls, table: Table, options: ImportOptions) -> NodeRoles:
        """Find the columns by options, else by name and kind. Raises SourceError for a column that does not fit."""
        roles = {name: role_of(name) for name in table.columns} if table.has_names else {}
        reasons: dict[str, str] = {}
        key = _find_id(table, options, roles, reasons)
        labels = _find_labels(table, options, roles, reasons, key)
        split_name = options.split or _first_of(table, [name for name, role in roles.items() if role == "split"], key)
        split = _of_kind(table, split_name, "--split", _SPLIT_KINDS, "train, valid, test or none")
        masks = {} if split is not None else _find_masks(table, roles, options)
        taken = [key, *labels, split, *(column for columns in masks.values() for column in columns)]
        if options.features is None:
            features = [
                each
                for each in table.columns.values()
                if each.kind in _FEATURE_KINDS and each not in taken and _may_be_feature(each.name, roles)
            ]
        else:
            found = (
                _of_kind(table, name, "--features", (*_FEATURE_KINDS, "boolean"), "numbers")
                for name in options.features
            )
            features = [column for column in found if column is not None]
        attributes = _find_attributes(table, options.node_attributes, "--node-attributes")
        if options.features is None:
            features = [column for column in features if column not in attributes]
        return cls(
            id=key,
            attributes=attributes,
            features=tuple(features),
            labels=labels,
            split=split,
            masks=masks,
            reasons=reasons,
        )

    @property
    def columns(self) -> list[TableColumn]:
        """All columns that have a role."""
        masks = [column for columns in self.masks.values() for column in columns]
        roles = (self.id, *self.features, *self.labels, self.split, *masks, *self.attributes)
        return [*dict.fromkeys(each for each in roles if each is not None)]

    def names(self) -> dict[str, Any]:
        """Return the names of the columns by role, for people."""
        label = self.labels[0] if len(self.labels) == 1 else None
        roles = {"id": self.id, "label": label, "split": self.split}
        names: dict[str, Any] = {role: column.name for role, column in roles.items() if column is not None}
        if len(self.labels) > 1:
            names["labels"] = [column.name for column in self.labels]
        if self.attributes:
            names["attributes"] = [column.name for column in self.attributes]
        masks = [column.name for columns in self.masks.values() for column in columns]
        return {**names, **({"masks": masks} if masks else {}), "features": [column.name for column in self.features]}

    def decisions(self, table: Table, options: ImportOptions) -> Iterator[Decision]:
        """Describe the columns for people."""
        for role, column in (("id", self.id), *(("label", each) for each in self.labels), ("split", self.split)):
            if column is not None:
                given = getattr(options, role) is not None
                yield Decision(_shown(column), role, f"--{role}" if given else self.reasons.get(column.name, "by name"))
        for column in self.attributes:
            yield Decision(_shown(column), "attribute", "--node-attributes")
        for part, columns in self.masks.items():
            yield Decision(listed([_shown(each) for each in columns]), f"mask: {part}", "by name")
        if self.features:
            why = "--features" if options.features is not None else "numbers, and no other role by name"
            count = len(self.features)
            yield Decision(listed([_shown(each) for each in self.features]), "features", f"{why} ({count})")
        taken = self.columns
        for column in table.columns.values():
            if column not in taken:
                yield Decision(_shown(column), "not imported", self.reasons.get(column.name) or _why_not(column))


def _find_attributes(table: Table, names: Sequence[str] | None, option: str) -> tuple[TableColumn, ...]:
    """Find the columns that an option names. Raises SourceError for columns that are no attributes."""
    columns = tuple(table.column(name, option) for name in names or ())
    for column in columns:
        if column.kind not in _ATTRIBUTE_KINDS:
            raise SourceError(
                f"{table.shown}: {option} must name columns of numbers, '{column.name}' is {type_of(column)}; "
                "choose other columns"
            )
        if not ATTRIBUTE_NAME.fullmatch(column.name):
            raise SourceError(
                f"{table.shown}: names of attributes are letters, digits and _ . + = -, at most 96, {option} names "
                f"'{column.name}'; rename the column"
            )
    return columns


def _find_id(
    table: Table, options: ImportOptions, roles: Mapping[str, str | None], reasons: dict[str, str]
) -> TableColumn:
    if options.id is not None:
        return table.column(options.id, "--id")
    names = list(table.columns)
    known = [name for name in names if roles.get(name) == "id"]
    exact = [name for name in known if joined_name(name) == "id"]
    if exact or len(known) == 1:
        return table.columns[(exact or known)[0]]
    indexes = [name for name in names if roles.get(name) == "index"]
    if indexes and len(names) > 1:
        raise SourceError(
            f"{table.shown}: no column is named id, and '{indexes[0]}' may have ids or row numbers; name the column of "
            f"ids: --id {indexes[0] or names[1]}"
        )
    reasons[names[0]] = "by place: the first"
    return table.columns[names[0]]


def _find_labels(
    table: Table,
    options: ImportOptions,
    roles: Mapping[str, str | None],
    reasons: dict[str, str],
    key: TableColumn,
) -> tuple[TableColumn, ...]:
    wanted = "numbers, or of text that names classes"
    if options.label is not None:
        given = (_of_kind(table, name, "--label", (*_LABEL_KINDS, "text"), wanted) for name in options.label)
        return tuple(column for column in given if column is not None)
    known = [name for name, role in roles.items() if role == "label" and table.columns[name] != key]
    known.sort(key=lambda name: LABELS.index(joined_name(name)) if joined_name(name) in LABELS else len(LABELS))
    kinds = {name: table.columns[name].kind for name in known}
    fitting = [name for name in known if kinds[name] in _LABEL_KINDS]
    fitting += [name for name in known if kinds[name] == "text" and joined_name(name) not in _MAY_BE_NAMES]
    for name in known:
        if name not in fitting and kinds[name] == "text":
            reasons[name] = f"text, perhaps what to call the nodes; --label {name} makes its texts classes"
        elif name not in fitting:
            reasons[name] = "named as labels are, but neither numbers nor text"
        elif name != fitting[0]:
            reasons[name] = f"named as labels are, and {fitting[0]} is taken; --label {name} takes it instead"
    if not fitting and not table.has_names and table.has_labels and len(table.columns) == 2:
        second = list(table.columns.values())[1]
        reasons[second.name] = "by place, in a file of labels"
        return (second,) if second.kind in (*_LABEL_KINDS, "text") else ()
    return (table.columns[fitting[0]],) if fitting else ()


def _find_masks(
    table: Table, roles: Mapping[str, str | None], options: ImportOptions
) -> dict[str, tuple[TableColumn, ...]]:
    """Find the masks of all parts. Raises SourceError where parts have other numbers of them."""
    found: dict[str, dict[int, TableColumn]] = {}
    for name, role in roles.items():
        mask = mask_of(name) if role == "mask" else None
        if mask is None or name in (options.features or ()) or table.columns[name].kind not in _MASK_KINDS:
            continue
        part, number = mask
        if number in found.setdefault(part, {}):
            raise SourceError(
                f"{table.shown}: columns '{found[part][number].name}' and '{name}' are both masks of {part}; remove one"
            )
        found[part][number] = table.columns[name]
    if len({tuple(sorted(columns)) for columns in found.values()}) > 1:
        raise SourceError(
            f"{table.shown}: masks must be as many for each part, got "
            f"{', '.join(f'{len(columns)} of {part}' for part, columns in found.items())}; add or remove columns"
        )
    return {part: tuple(columns[number] for number in sorted(columns)) for part, columns in found.items()}


def _may_be_feature(name: str, roles: Mapping[str, str | None]) -> bool:
    return roles.get(name) not in ("id", "index", "label", "split", "mask") and not name.startswith("~")


def _why_not(column: TableColumn) -> str:
    named = {
        "id": "an id by its name",
        "index": "row numbers by their name",
        "label": "a label by its name",
        "split": "a split by its name, which must be train, valid, test or none",
        "mask": "a mask by its name",
    }
    why = named.get(role_of(column.name) or "")
    if why is not None and column.kind in _FEATURE_KINDS:
        return f"{why}; --features takes it"
    if why is None and column.kind in (*_FEATURE_KINDS, "boolean"):
        return "not in --features" if column.kind != "boolean" else "a flag; --features takes it"
    return why or f"no numbers, but {type_of(column)}"


def find_id_kind(columns: Sequence[tuple[Table, TableColumn]], wanted: IdKind | None) -> IdKind:
    """Find the kind of ids that all these columns have. Raises SourceError if they differ."""
    kinds: dict[Kind, tuple[Table, TableColumn]] = {}
    for table, column in columns:
        kind: Kind = "integer" if column.is_whole else column.kind
        if kind not in ("integer", "text") and not (wanted and column.stored == "VARCHAR"):
            raise SourceError(
                f"{table.shown}: ids must be whole numbers or text, column '{column.name}' is {type_of(column)}; "
                "choose another column, or cast it"
            )
        if wanted == "integer" and kind == "text" and column.stored != "VARCHAR":
            raise SourceError(
                f"{table.shown}: column '{column.name}' is {type_of(column)}, and --ids integer requires "
                "whole numbers; use --ids string"
            )
        kinds[kind] = table, column
    if wanted is not None:
        return wanted
    if len(kinds) > 1:
        found = " and ".join(
            f"'{column.name}' of the {table.what} {type_of(column)}" for table, column in kinds.values()
        )
        raise SourceError(
            f"{columns[0][0].shown}: ids must be of one kind, got {found}; save them alike, or use --ids string"
        )
    return "integer" if "integer" in kinds else "string"


def _first_of(table: Table, names: Sequence[str], key: TableColumn) -> str | None:
    """Find the first of some columns that can have a split; None: there is none."""
    fitting = (table.columns[name] for name in names)
    return next((column.name for column in fitting if column.kind in _SPLIT_KINDS and column != key), None)


def _of_kind(table: Table, name: str | None, option: str, kinds: Sequence[Kind], wanted: str) -> TableColumn | None:
    if name is None:
        return None
    column = table.column(name, option)
    if column.kind not in kinds:
        raise SourceError(
            f"{table.shown}: {option} must name a column of {wanted}, '{name}' is {type_of(column)}; "
            "choose another column"
        )
    return column


def type_of(column: TableColumn) -> str:
    """Describe what a column has, for errors."""
    if column.kind == "nothing":
        return "empty"
    return f"of {column.kind}s in CSV" if column.stored == "VARCHAR" and column.kind != "text" else column.stored


def _shown(column: TableColumn) -> str:
    return f"column {column.name}"
