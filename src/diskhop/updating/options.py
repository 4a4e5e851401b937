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
    def of(cls, options: ImportOptions, dataset: Dataset, *, has_edges: bool = True) -> EdgeRules:
        """Return the rules of the dataset, and those of the options where it has none. has_edges: the delta has some.

        Raises ConfigError for an option that the dataset contradicts, or if only the user knows whether a graph whose
        source has each edge in both directions, as PyG's, gets both directions of an added edge too.
        """
        (info,) = dataset.manifest.edge_types.values()
        for is_contradicted, made_with, flag in (
            (info.both_ways and options.undirected is False, "--undirected", "--directed"),
            (info.without_loops and options.self_loops == "keep", "--self-loops drop", "--self-loops keep"),
            (info.without_repeats and options.duplicates == "keep", "--duplicates drop", "--duplicates keep"),
        ):
            if is_contradicted:
                raise ConfigError(
                    f"{dataset.path}: was made with {made_with}, and updates keep to it; leave out {flag}, or import "
                    "the whole graph again"
                )
        is_unsaid = has_edges and options.undirected is None and not info.both_ways
        if is_unsaid and dataset.only_edges.reciprocal_share() == 1:
            raise ConfigError(
                f"{dataset.path}: its source has each edge in both directions; add --undirected to store added edges "
                "so, and to remove both, else --directed"
            )
        return cls(
            undirected=info.both_ways or bool(options.undirected),
            drops_loops=info.without_loops or options.self_loops == "drop",
            drops_repeats=info.without_repeats or options.duplicates == "drop",
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
