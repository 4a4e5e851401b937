"""The node type whose labels a run learns, and the edge types that messages follow in both directions."""

from __future__ import annotations

from collections.abc import Sequence

from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edge_set import EdgeSet
from diskhop.errors import ConfigError

ALL, NONE = "all", "none"
# Of an edge type within one node type, every edge has its opposite.
_SYMMETRIC = 1.0


def find_target(dataset: Dataset, wanted: str | None) -> str:
    """Return the node type whose labels are learned. Raises ConfigError for none, several, or another one.

    wanted: the option, if it is given.
    """
    labelled = [name for name, nodes in dataset.nodes.items() if nodes.has_labels]
    known = ", ".join(dataset.nodes)
    if wanted is not None:
        if wanted not in dataset.nodes:
            way = "; to learn edges of a type add --task link" if "," in wanted or "__" in wanted else ""
            raise ConfigError(f"--target {wanted}: {dataset.path} has no such node type, only {known}{way}")
        if wanted not in labelled:
            way = f"use --target {labelled[0]}" if labelled else "import a source with labels"
            raise ConfigError(f"--target {wanted}: the nodes of this type have no labels, which training needs; {way}")
        return wanted
    if not labelled:
        raise ConfigError(
            f"{dataset.path}: none of its node types has labels, which training needs; import a source with labels"
        )
    if len(labelled) > 1:
        raise ConfigError(
            f"{dataset.path}: several node types have labels, {', '.join(labelled)}; add --target {labelled[0]}"
        )
    return labelled[0]


def find_reversed(dataset: Dataset, wanted: Sequence[str] | None) -> tuple[str, ...]:
    """Return the edge types whose opposites are added, by name. Raises ConfigError for an unknown one.

    wanted: the option, if it is given. Without it, a type is reversed if no other one leads from its destination to its
    source; one within a node type, if some of its edges have no opposite.
    """
    if wanted is None:
        return tuple(name for name, edges in dataset.edges.items() if not _has_opposite(dataset, edges))
    if list(wanted) == [NONE]:
        return ()
    if list(wanted) == [ALL]:
        return tuple(dataset.edges)
    by_name = {name: name for name in dataset.edges}
    by_name |= {"__".join(edges.ends): name for name, edges in dataset.edges.items()}
    for name in wanted:
        if name not in by_name:
            raise ConfigError(
                f"--reverse {name}: {dataset.path} has no such edge type, only {', '.join(dataset.edges)}; or use "
                f"{ALL} or {NONE}"
            )
    return tuple(name for name in dataset.edges if name in {by_name[each] for each in wanted})


def reversed_types(option: tuple[str, ...]) -> tuple[str, ...]:
    """Return the edge types whose opposites are added, by name. option: what the complete configuration has."""
    return () if option == (NONE,) else option


def _has_opposite(dataset: Dataset, edges: EdgeSet) -> bool:
    if edges.source == edges.destination:
        share = edges.reciprocal_share()
        return share is None or share == _SYMMETRIC
    opposite = edges.destination, edges.source
    return any((other.source, other.destination) == opposite for other in dataset.edges.values())
