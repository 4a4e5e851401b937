"""The edge type of the links of a loader: which nodes its ends are, and where their rows begin in a merged graph."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edge_set import EdgeSet
from diskhop.dataset.id_map import IdMap
from diskhop.dataset.type_map import EdgeEnds
from diskhop.errors import ConfigError
from diskhop.loaders.typed_data import TypedLoaderData

_ARGUMENT = "edge_label_index"


@dataclass(frozen=True, slots=True, eq=False)
class EndNodes:
    """The nodes that one end of the links is of.

    ids: their ids. first_row: row of the first of them in the graph that is sampled. num_nodes: how many there are.
    """

    ids: IdMap
    first_row: int
    num_nodes: int


@dataclass(frozen=True, slots=True, eq=False)
class LinkType:
    """The edge type of links. edges: None for a graph without edge lists. ends: its name; None without types."""

    dataset: Dataset
    edges: EdgeSet | None
    source: EndNodes
    destination: EndNodes
    ends: EdgeEnds | None = None

    @property
    def is_between_types(self) -> bool:
        """Whether the two ends are nodes of different types."""
        return self.ends is not None and self.ends[0] != self.ends[-1]


def find_link_type(dataset: Dataset, id_map: IdMap | Mapping[str, IdMap], given: Any) -> tuple[LinkType, Any]:
    """Return the edge type of links, and the links: pairs of ids, or None for all edges of the type.

    given: as users give them: links, an edge type, or (edge type, links); None for all edges. Raises ConfigError.
    """
    named, index = _split(given)
    if isinstance(dataset, TypedLoaderData):
        assert not isinstance(id_map, IdMap)
        return _of_several(dataset, id_map, named, given), index
    assert isinstance(id_map, IdMap)
    if named is not None and not dataset.is_typed:
        raise ConfigError(
            f"{_ARGUMENT} {reprlib.repr(given)} is of an edge type, and the edges of {dataset.path} have none; "
            "pass pairs of ids, or None for all edges"
        )
    edges = dataset.only_edges if dataset.edges else None
    ends = edges.ends if dataset.is_typed and edges is not None else None
    if named is not None and (ends is None or named not in (ends, (ends[0], ends[-1]))):
        raise ConfigError(
            f"{_ARGUMENT} is of the edge type {named}, and the edges of {dataset.path} are {ends}; pass {ends}"
        )
    nodes = EndNodes(id_map, 0, dataset.num_nodes)
    return LinkType(dataset, edges, nodes, nodes, ends), index


def _of_several(
    dataset: TypedLoaderData, id_maps: Mapping[str, IdMap], named: tuple[str, ...] | None, given: Any
) -> LinkType:
    known = {edges.ends: edges for edges in dataset.edges.values()}
    if named is None:
        first = next(iter(known))
        raise ConfigError(
            f"{_ARGUMENT} must name an edge type, because {dataset.path} has several, {_listed(known)}; pass {first}, "
            f"or ({first}, pairs of ids)"
        )
    fitting = [ends for ends in known if named in (ends, (ends[0], ends[-1]))]
    if len(fitting) != 1:
        what = "is no edge type" if not fitting else "is several edge types"
        raise ConfigError(
            f"{_ARGUMENT} {reprlib.repr(given)}: {named} {what} of {dataset.path}; the edge types are {_listed(known)}"
        )
    (ends,) = fitting

    def nodes_of(name: str) -> EndNodes:
        return EndNodes(id_maps[name], dataset.type_map.first_row(name), dataset.nodes[name].num_nodes)

    return LinkType(dataset, known[ends], nodes_of(ends[0]), nodes_of(ends[-1]), ends)


def _listed(known: Mapping[EdgeEnds, EdgeSet]) -> str:
    return ", ".join(map(str, known))


def _split(given: Any) -> tuple[tuple[str, ...] | None, Any]:
    """Return the edge type and the links of what PyG takes as a type or (type, links)."""
    if not isinstance(given, tuple | list) or len(given) == 0:
        return None, given
    if all(isinstance(each, str) for each in given):
        return tuple(given), None
    if len(given) == 2 and isinstance(given[0], tuple | list) and all(isinstance(each, str) for each in given[0]):
        return tuple(given[0]), given[1]
    return None, given
