"""Lists of edges on their way into a dataset: pairs of ids, by number, before they are sorted into lists."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray


class EdgeSource(Protocol):
    """Edges that can be read anywhere, in any order, and by several threads at once."""

    @property
    def num_edges(self) -> int:
        """How many there are."""

    @property
    def identity(self) -> str:
        """Text that differs wherever an edge differs: what a build that is resumed compares."""

    def read(self, first: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Sources and destinations (count each, integers of one dtype) of edges first, first + 1, ...

        Ids are not checked yet. Raises SourceError or ReadError.
        """


class ArrayEdges:
    """Edges in memory: integers (2, edges), sources then destinations."""

    def __init__(self, pairs: NDArray[Any]) -> None:
        self._pairs = pairs

    @property
    def num_edges(self) -> int:
        """See EdgeSource."""
        return int(self._pairs.shape[1])

    @property
    def identity(self) -> str:
        """See EdgeSource. Nothing of an array outlives its process, so no two need to be told apart."""
        return f"array of {self.num_edges} edges at {id(self._pairs)}"

    def read(self, first: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """See EdgeSource."""
        return self._pairs[0, first : first + count], self._pairs[1, first : first + count]
