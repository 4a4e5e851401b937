"""Embeddings of all nodes by a trained link model, with all edges of the graph, kept in the RUN folder by first use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.config.link import LinkConfig
from diskhop.dataset.dataset import Dataset
from diskhop.embedding.partitions.layout import NodePermutation
from diskhop.io.destinations import new_file
from diskhop.nn.reproducible import reproducible
from diskhop.runs.embedding.export import NodeVectors
from diskhop.runs.embedding.places import Places
from diskhop.runs.links.tables import open_embeddings, open_links
from diskhop.runs.nodes.opened import OpenClassifier
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import WorkFolder

_BLOCK_ROWS = 4096


def link_vectors(run: Path | str, progress: Progress = silent) -> NodeVectors:
    """Return the embeddings of a run on links, computed where the model's are not there yet.

    Raises ConfigError, BudgetError, and PredictionError for values that are not finite.
    """
    opened, config = open_links(run)
    dataset = opened.open_dataset()
    opened.require_fit(dataset)
    with reproducible(config.threads):
        table = stored_embeddings(opened, config, dataset, progress)
    places = Places(dataset, NodePermutation(dataset.num_nodes, "input", 0))
    return NodeVectors(places.names(), table.shape[1], config.memory_bytes, lambda ranks: table[places.of(ranks)])


def stored_embeddings(
    opened: OpenClassifier, config: LinkConfig, dataset: Dataset, progress: Progress
) -> NDArray[np.float32]:
    """Map the embeddings of all nodes, by row, after computing them where the model's are not there yet."""
    digest = xxhash.xxh3_64(dataset.hash.encode())
    for name, tensor in opened.parameters.items():
        digest.update(name.encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    path = opened.path / f"embeddings-{digest.hexdigest()}.npy"
    if not path.exists():
        budget = Budget(config.memory_bytes)
        with WorkFolder(path) as work, new_file(path, overwrite=True) as partial:
            with open_embeddings(
                opened, dataset, budget, threads=config.threads, later={}, work=work, progress=progress
            ) as table:
                _write_rows(partial, table.blocks(_BLOCK_ROWS), (table.num_rows, table.dim))
            work.remove()
    mapped: NDArray[np.float32] = np.load(path, mmap_mode="r")
    return mapped


def _write_rows(path: Path, blocks: Iterator[NDArray[np.float32]], shape: tuple[int, int]) -> None:
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks:
            file.write(np.ascontiguousarray(block, "<f4").data)
