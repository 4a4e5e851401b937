"""Facts of an import that an update must know: what the user says, and what the dataset tells."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.importing.options import ImportOptions

# Options of an import that apply to a delta; all others are as the dataset is.
OF_DELTAS = (
    *("undirected", "self_loops", "duplicates"),
    *("edge_columns", "id", "features", "label", "split", "weight", "time"),
    *("delimiter", "header", "comments", "skip_lines"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeRules:
    """How added edges are stored.

    undirected: each in both directions. drops_loops: edges from a node to itself are left out. drops_repeats: edges
    that the graph has, and repeated ones, are left out.
    """

    undirected: bool
    drops_loops: bool
    drops_repeats: bool

    @classmethod
    def of(cls, options: ImportOptions, dataset: Dataset) -> EdgeRules:
        """Return the rules. Raises ConfigError if only the user knows whether the graph is undirected."""
        undirected = options.undirected
        if undirected is None and dataset.only_edges.reciprocal_share() == 1:
            raise ConfigError(
                f"{dataset.path}: seems to have each edge in both directions; add --undirected if it was imported so, "
                "and added edges are stored in both directions too, else --directed"
            )
        return cls(
            undirected=bool(undirected),
            drops_loops=options.self_loops == "drop",
            drops_repeats=options.duplicates == "drop",
        )


def require_plain(dataset: Dataset) -> None:
    """Raise ConfigError for a dataset that cannot be updated: it has several types, or triples."""
    what = (
        "several types of nodes or edges"
        if dataset.has_several_types
        else "triples"
        if dataset.manifest.triples is not None
        else "types of nodes and edges"
        if dataset.is_typed
        else ""
    )
    if what:
        shown = shlex.quote(str(dataset.path))
        raise ConfigError(
            f"{dataset.path}: has {what}, and only graphs of one type can be updated; import the whole graph again: "
            f"diskhop import SOURCE {shown} --overwrite"
        )
