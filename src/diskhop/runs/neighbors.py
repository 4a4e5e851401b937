"""The nearest nodes by a finished run of any kind that has embeddings of nodes to compare."""

from __future__ import annotations

from pathlib import Path

from diskhop.run_files import CONFIG_FILE, LINK_RUN, read_kind
from diskhop.runs.embedding.opened import OpenRun
from diskhop.runs.embedding.queries import Answer
from diskhop.runs.embedding.queries import neighbors as embedding_neighbors
from diskhop.runs.links.neighbors import DECODER, link_neighbors

_COSINE = "cosine"


def neighbors(run: Path | str | OpenRun, node: str | int, *, top: int = 10, by: str | None = None) -> list[Answer]:
    """Return the nodes nearest to one, nearest first.

    run: of embeddings, whose nearest nodes are alike, or of links, whose nearest ones most likely have an edge.
    node: its name, or its id in the source where nodes have no names.
    by: 'cosine', 'dot' or 'l2' of embeddings; 'decoder' for the score of a run on links; None: usual_similarity().
    Raises ConfigError for an unknown node or similarity. `is_known` is of runs on links alone.
    """
    by = by or usual_similarity(run)
    if not isinstance(run, OpenRun) and is_link_run(run):
        return link_neighbors(run, node, top=top, by=by)
    return embedding_neighbors(run, node, top=top, by=by)


def usual_similarity(run: Path | str | OpenRun) -> str:
    """Return the similarity that a run is asked by unless another is named."""
    return DECODER if not isinstance(run, OpenRun) and is_link_run(run) else _COSINE


def is_link_run(run: Path | str) -> bool:
    """Whether a folder is a run on links, whose neighbours say which of them have an edge already."""
    path = Path(run) / CONFIG_FILE
    return path.exists() and read_kind(path) == LINK_RUN
