"""diskhop.neighbors(), score() and map(): the commands that use embeddings."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diskhop.dataset.names import as_shown
from diskhop.display import Display, Facts, Part, Row
from diskhop.errors import ConfigError
from diskhop.runs.embedding.map import draw_map
from diskhop.runs.embedding.opened import OpenRun
from diskhop.runs.embedding.queries import ANY, Answer, complete
from diskhop.runs.embedding.queries import score as score_edge
from diskhop.runs.neighbors import neighbors as find_neighbors


class Answers(Display, tuple[Answer, ...]):
    """Nodes that answer a query, best first."""

    __slots__ = ()

    def _title(self) -> str:
        return f"{len(self)} answer{'s' * (len(self) != 1)}"

    def rows(self) -> list[Row]:
        """Return a row per node: its score and name, and whether it has the edge already."""
        return [(f"{each.score:.4f}", as_shown(each.name) + ("  (known)" if each.is_known else "")) for each in self]

    def _parts(self) -> Sequence[Part]:
        return [Facts(self.rows())]


@dataclass(frozen=True, slots=True, repr=False)
class Drawn(Display):
    """A map that was drawn.

    path: the picture.
    variance_share: fraction of the sample's variance along its two axes.
    """

    path: Path
    variance_share: float

    def rows(self) -> list[Row]:
        """Return names and texts of lines for people."""
        return [("drawn", f"{self.path}: two axes with {self.variance_share:.0%} of the variance of the sample")]

    def _title(self) -> str:
        return "Map"

    def _parts(self) -> Sequence[Part]:
        return [Facts(self.rows())]


def neighbors(run: Path | str | OpenRun, node: str | int, *, top: int = 10, by: str | None = None) -> Answers:
    """Return the nodes with the most similar embeddings, or the likeliest partners of a node by a link model.

    run: the folder of a run of embed(), or of train(task="link").
    node: its name, or its id in the source where nodes have no names.
    top: number of results.
    by: similarity: cosine, dot or l2; for links also decoder, the run's own score. Default: cosine, for links decoder.

    Raises ConfigError for an unknown node or similarity.

    >>> print(diskhop.neighbors("embedded", 7, top=2))
    2 answers...
    """
    return Answers(find_neighbors(_opened(run), node, top=top, by=by))


def score(run: Path | str | OpenRun, *edge: Any, top: int = 10) -> Any:
    """Return how likely an edge is, an EdgeScore, or Answers, the likeliest ends of one with head or tail '?'.

    run: the folder of a run of embed().
    edge: head, relation and tail, or head and tail where edges have no relations: names, or ids of nodes without names.
    top: number of results.

    Raises ConfigError for unknown names.

    >>> print(diskhop.score("embedded", 7, 8))
    Score of an edge...
    """
    if len(edge) not in (2, 3):
        raise ConfigError(
            f"an edge is HEAD TAIL, or HEAD RELATION TAIL where edges have relations, got {len(edge)} words; "
            f"for example: diskhop score {shlex.quote(str(_opened(run)))} HEAD '?'"
        )
    head, relation, tail = edge[0], edge[1] if len(edge) == 3 else None, edge[-1]
    if any(isinstance(end, str) and end == ANY for end in (head, tail)):
        return Answers(complete(_opened(run), head, relation, tail, top=top))
    return score_edge(_opened(run), head, relation, tail)


def map(
    run: Path | str | OpenRun,
    file: Path | str,
    *,
    by: str = "degree",
    nodes: int = 2000,
    seed: int = 0,
    overwrite: bool = False,
) -> Drawn:
    """Draw a sample of embeddings in the plane in which they differ most.

    run: the folder of a run of embed().
    file: the .svg to write.
    by: what colours nodes: degree or label.
    nodes: number of nodes to draw, at most.
    seed: random seed of the sample.
    overwrite: whether a file that is there is replaced.

    Raises ConfigError, DestinationError.

    >>> drawn = diskhop.map("embedded", "map.svg")
    """
    share = draw_map(_opened(run), Path(file), by=by, nodes=nodes, seed=seed, overwrite=overwrite)
    return Drawn(Path(file), share)


def _opened(run: Path | str | OpenRun) -> Path | OpenRun:
    return run if isinstance(run, OpenRun) else Path(run)
