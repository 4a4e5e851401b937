"""Exporting the embeddings of a finished run of any kind that has embeddings of nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from diskhop.runs.embedding.export import require_new_export, vectors_of, write_vectors
from diskhop.runs.embedding.opened import OpenRun, open_run
from diskhop.runs.links.stored import link_vectors
from diskhop.runs.neighbors import is_link_run
from diskhop.runtime.progress import Progress, silent


def export_embeddings(
    run: Path | str | OpenRun,
    path: Path | str,
    progress: Progress = silent,
    *,
    overwrite: bool = False,
    by: str | None = None,
    ann: bool = False,
    memory: int | str | None = None,
    threads: int | None = None,
) -> Path:
    """Write a run's embeddings to a file, in the format of its suffix; the file appears whole.

    run: of embeddings, which are read once per block of nodes, a quarter of the memory that an index leaves; or of
        links, whose encoder computes them from all edges of the graph, and which are kept in the run's folder.
    progress: called with a description, nodes done and in total.
    overwrite: whether a file that is there is replaced.
    memory: bytes, or a size such as '2GB', for blocks and for an approximate index; default: that of the run.

    Of an index, .faiss or .usearch:
    by: nearness: cosine (default), dot or l2.
    ann: write an approximate index, HNSW, to .faiss, instead of an exact one; .usearch always is one.
    threads: threads that build it; default: all cores.

    Raises ConfigError for an unknown suffix, an option that does not apply and a package that is missing, BudgetError
    for an approximate index beyond the memory, DestinationError, ReadError; TrainingError for a run without a commit.
    """
    path = Path(path)
    require_new_export(path, overwrite=overwrite, by=by, ann=ann)
    if not isinstance(run, OpenRun) and is_link_run(run):
        vectors = link_vectors(run, progress)
    else:
        vectors = vectors_of(run if isinstance(run, OpenRun) else open_run(run))
    write: Callable[[int, int], None] = partial(progress, "writing embeddings")
    return write_vectors(vectors, path, write, overwrite=overwrite, by=by, ann=ann, memory=memory, threads=threads)
