"""What can be asked of an import; None everywhere: as the source looks, or the default."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

from diskhop.dataset.encoding import check_feature_dtype
from diskhop.dataset.manifest import MOST_COLUMNS
from diskhop.errors import ConfigError

IdKind = Literal["integer", "string"]
Keep = Literal["keep", "drop"]
Order = Literal["input", "hot"]

# What sources take, by what they have: FORMATS puts them together.
OF_EDGES = ("undirected", "self_loops", "duplicates", "order", "random_features")
OF_FEATURES = ("dtype",)
OF_TEXT = ("delimiter", "header", "columns", "ids", "nodes")
OF_TABLES = ("edge_columns", "id", "features", "label", "split", "weight", "time", "ids")

_CHOICES = {
    "ids": get_args(IdKind),
    "self_loops": get_args(Keep),
    "duplicates": get_args(Keep),
    "order": get_args(Order),
}
_DELIMITER_NAMES = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " "}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Checked when made. Fields are the command line's options; as_option() has their spelling.

    Of features: dtype: as they are stored. random_features: so many normal values for each node, where there are none.
    Of edges: undirected: store each both ways. order: hot: nodes by how often
    they are read. Of edges in text: delimiter: a character or its name. columns: the two with ids, by number from 1 or
    by header. ids: whole numbers, or names. nodes: ids are 0 to nodes - 1 as they are, and those that do not occur are
    isolated nodes. Of tables: edge_columns: source and destination, by name; id, features: columns of the nodes;
    weight, time: columns of the edges. split, label: columns of the nodes; of a folder that has several, the one.
    """

    dtype: str | None = None
    random_features: int | None = None
    undirected: bool | None = None
    self_loops: Keep | None = None
    duplicates: Keep | None = None
    order: Order | None = None
    delimiter: str | None = None
    header: bool | None = None
    columns: tuple[str, ...] | None = None
    ids: IdKind | None = None
    nodes: int | None = None
    split: str | None = None
    label: str | None = None
    edge_columns: tuple[str, ...] | None = None
    id: str | None = None
    features: tuple[str, ...] | None = None
    weight: str | None = None
    time: str | None = None

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in choices:
                raise ConfigError(f"{as_option(name)} '{value}' is unknown; choose one of {', '.join(choices)}")
        if self.dtype is not None:
            check_feature_dtype(self.dtype)
        if self.random_features is not None and not 1 <= self.random_features <= MOST_COLUMNS:
            raise ConfigError(
                f"--random-features {self.random_features} must be from 1 to {MOST_COLUMNS}; give values a node"
            )
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", _checked_delimiter(self.delimiter))
        if self.columns is not None and (len(self.columns) != 2 or self.columns[0] == self.columns[1]):
            raise ConfigError(
                f"--columns '{','.join(self.columns)}' must name two columns, source and destination, as --columns 1,2"
            )
        if self.edge_columns is not None and len(self.edge_columns) != 2:
            raise ConfigError(
                f"--edge-columns '{','.join(self.edge_columns)}' must name two columns, source and destination"
            )
        if self.features is not None and len(set(self.features)) != len(self.features):
            raise ConfigError(f"--features '{','.join(self.features)}' must name each column once")
        if self.nodes is not None and self.nodes < 1:
            raise ConfigError(f"--nodes {self.nodes} must be 1 or more; give the number of nodes")
        if self.nodes is not None and self.ids == "string":
            raise ConfigError("--nodes numbers nodes as they are, and --ids string numbers names; leave one out")

    def given(self) -> list[str]:
        """The names of those that are not None."""
        return [field.name for field in fields(self) if getattr(self, field.name) is not None]


def as_option(name: str) -> str:
    """A field as the command line spells it."""
    return "--" + name.replace("_", "-")


def _checked_delimiter(text: str) -> str:
    delimiter = _DELIMITER_NAMES.get(text, text)
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter.isalnum() or delimiter in '\r\n"#+-.\0':
        raise ConfigError(
            f"--delimiter '{text}' must be one character that is in no id, or tab, comma, semicolon or space"
        )
    return delimiter
