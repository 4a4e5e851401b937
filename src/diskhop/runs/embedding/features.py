"""Embeddings of a run as the features of a graph without any, matched by the ids or names of the source.

    from_embeddings("embedding-run", "graph-with-features")

The graph is the run's, or another one: its nodes may come in another order, be new, or be fewer. A node that the run
does not have gets zeros. The graph's files become hard links, so that only the features take disk space.
"""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.config.options import require_known
from diskhop.dataset.build.extended import ExtendedDataset
from diskhop.dataset.dataset import Dataset, as_dataset
from diskhop.dataset.encoding import FEATURE_DTYPES, row_bytes
from diskhop.embedding.graph_edges import embedded_nodes
from diskhop.errors import ConfigError
from diskhop.io.engine import open_engine
from diskhop.loaders.checks import budget_of
from diskhop.runs.embedding.matching import BYTES_PER_NODE, match
from diskhop.runs.embedding.opened import OpenRun, open_run
from diskhop.runs.embedding.places import Places, Ranks
from diskhop.runtime.blocks import in_blocks, row_ranges
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import TaskTools
from diskhop.system.memory import default_threads

# Memory of a block of rows: those that are read, their copy, and the rows as they are encoded; and at least this much.
_ROOM, _LEAST_BLOCK_BYTES = 4, 1 << 20


def from_embeddings(
    run: PathLike[str] | str | OpenRun,
    path: PathLike[str] | str,
    dataset: Dataset | PathLike[str] | str | None = None,
    *,
    name: str | None = None,
    dtype: str = "float32",
    memory: Budget | int | str | None = None,
    threads: int | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
    on_facts: Callable[[Mapping[str, Any]], None] | None = None,
    tools: TaskTools | None = None,
) -> Dataset:
    """Make a dataset at `path` from a graph and the embeddings of a run of embed() as its features, and open it.

    dataset: a graph without features; default: the one that the run was trained on.
    name: the dataset's name; default: the graph's.
    dtype: features are stored as float32, float16, bfloat16 or int8.
    memory: a Budget, bytes, or a size such as '2GB'; default: half of the free memory.
    threads: default: all cores.
    overwrite: whether a dataset at path is replaced.
    on_facts: receives the numbers of nodes with and without embeddings; default: a warning if some have none.
    tools: I/O engine and fault injector; default: an engine of its own.

    Nodes are matched by their ids, or by their names where both graphs have names. Nodes without an embedding get
    zeros. Raises ConfigError for a graph with features or several node types, and if no node matches.

    >>> dataset = diskhop.from_embeddings("embedded", "with-embeddings", "no-features", memory="200MB")
    >>> dataset.feature_dim
    8
    """
    opened = run if isinstance(run, OpenRun) else open_run(Path(run))
    graph = opened.dataset if dataset is None else as_dataset(dataset)
    require_known("dtype", dtype, FEATURE_DTYPES)
    _require_plain(graph)
    nodes, budget, path = embedded_nodes(graph), budget_of(memory), Path(path)
    dim = opened.reader.layout.dim
    held = {"matching nodes": BYTES_PER_NODE * (nodes.num_nodes + opened.reader.layout.num_nodes)}
    budget.require({**held, "reading embeddings": _block_bytes(dim, 0)})
    with budget.reserve("matching nodes", held["matching nodes"]):
        places = _matched_places(opened, graph)
        num_known = int(np.count_nonzero(places >= 0))
    if num_known == 0:
        raise ConfigError(
            f"{graph.path}: no node has an id or name that {opened.path} was trained on, which are those of "
            f"{opened.dataset.path}; name a run that was trained on these nodes with --features-from"
        )
    tools = tools or TaskTools(open_engine("auto").engine)
    builder = ExtendedDataset(
        path,
        name=name or graph.name,
        engine=tools.engine,
        injector=tools.injector,
        budget=budget,
        threads=threads or default_threads(),
        progress=progress,
        overwrite=overwrite,
    )
    with budget.reserve("places of nodes", places.nbytes), builder:
        builder.require_space(nodes.num_nodes * row_bytes(dtype, dim), "the table of features")
        builder.add_dataset(graph)
        with builder.naming(str(opened.path)):
            values = EmbeddedFeatures(opened, places, budget)
            builder.add_feature_column(nodes.name, values, dtype=dtype)
        made = builder.finish()
    facts = {"with_embedding": num_known, "without_embedding": nodes.num_nodes - num_known}
    if on_facts is not None:
        on_facts(facts)
    elif num_known < nodes.num_nodes:
        warnings.warn(f"{nodes.num_nodes - num_known} nodes have no embedding; their features are 0", stacklevel=2)
    return made


class EmbeddedFeatures:
    """Features (nodes, dim) from the embeddings of a run (see Column).

    run: the run.
    places: place of each node's embedding, by row; -1 for none.
    budget: memory for blocks.
    """

    dtype: np.dtype[Any] = np.dtype(np.float32)

    def __init__(self, run: OpenRun, places: NDArray[np.int64], budget: Budget) -> None:
        layout = run.reader.layout
        self.where = str(run.path)
        self.shape = (len(places), layout.dim)
        self.identity = f"embeddings of {run.dataset.hash}, versions {run.reader.store.record()}"
        self._run = run
        self._places = places
        self._budget = budget

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        """Yield rows in order. Partitions are read once per block, so blocks fill a share of the memory."""
        num_rows, dim = self.shape
        num_bytes = _block_bytes(dim, self._budget.available_bytes // 2)
        step = max(1, num_bytes // (_ROOM * 4 * dim))
        with self._budget.reserve("reading embeddings", num_bytes):
            for start, stop in row_ranges(num_rows, step):
                places = self._places[start:stop]
                rows = np.zeros((stop - start, dim), np.float32)
                known = np.flatnonzero(places >= 0)
                rows[known] = self._run.reader.gather(places[known]).numpy()
                # Writing takes memory in proportion to a block.
                yield from in_blocks(rows)


def _require_plain(graph: Dataset) -> None:
    if len(graph.nodes) != 1:
        raise ConfigError(
            f"{graph.path}: has node types {', '.join(graph.nodes)}; embeddings as features need one node type"
        )
    if embedded_nodes(graph).feature_dim:
        raise ConfigError(
            f"{graph.path}: has features, and embeddings stand in for missing ones; train on it as it is: "
            f"diskhop train {shlex.quote(str(graph.path))}, or import the graph again without features"
        )


def _block_bytes(dim: int, share_bytes: int) -> int:
    return max(_LEAST_BLOCK_BYTES, _ROOM * 4 * dim, share_bytes)


def _matched_places(run: OpenRun, graph: Dataset) -> NDArray[np.int64]:
    """Return the place of each node's embedding by the node's row, -1 for none."""
    new, old = Ranks(graph), Places(run.dataset, run.permutation)
    old_ranks = match(new.names(), old.names(), "--features-from")
    places = np.full(len(old_ranks), -1, np.int64)
    known = np.flatnonzero(old_ranks >= 0)
    places[new.rows(known)] = old.of(old_ranks[known])
    return places
