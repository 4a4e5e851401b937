"""The types of a graph, as its models know them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from diskhop.dataset.type_map import EdgeEnds


@dataclass(frozen=True, slots=True)
class TypedSchema:
    """Node and edge types.

    feature_dims: columns of features by node type, in the order of the types' numbers; 0: rows are learned, have the
        hidden width and need no map.
    relations: edge types as (source type, relation, destination type), in the order of their numbers.
    """

    feature_dims: Mapping[str, int]
    relations: tuple[EdgeEnds, ...]

    @property
    def node_types(self) -> tuple[str, ...]:
        """Names of the node types."""
        return tuple(self.feature_dims)

    def into(self, node_type: str) -> list[EdgeEnds]:
        """Return the relations into a node type."""
        return [each for each in self.relations if each[2] == node_type]

    @property
    def destinations(self) -> tuple[str, ...]:
        """Node types that some relation leads to."""
        return tuple(name for name in self.feature_dims if self.into(name))
