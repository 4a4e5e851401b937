"""Triples of a knowledge graph, streamed: how often each relation and each entity occurs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.files import read_rows
from diskhop.dataset.statistics.doubling import DoublingHistogram
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.progress import Progress, silent

TRIPLES = "triples"
_BLOCK_NODES = 1 << 18


@dataclass(frozen=True, slots=True)
class Relations:
    """Triples.

    by_part: triples of each relation, by part of the split.
    degrees: triples by entity, at either end; None if the counts do not fit the memory.
    """

    by_part: Mapping[str, NDArray[np.int64]]
    degrees: DoublingHistogram | None

    @property
    def totals(self) -> NDArray[np.int64]:
        """Triples of each relation."""
        total: NDArray[np.int64] = np.sum(list(self.by_part.values()), axis=0)
        return total


def triple_blocks(dataset: Dataset, part: str) -> Iterator[NDArray[np.int64]]:
    """Yield the triples of a part by row, in blocks (triples, 3); none if it is missing."""
    info = dataset.manifest.triples
    if info is None or part not in info.parts:
        return
    for block in read_rows(dataset.content / "triples" / f"{part}.bin", 24, info.parts[part]):
        yield block.view(np.int64)


def count_relations(dataset: Dataset, budget: Budget, progress: Progress = silent) -> Relations | None:
    """Count the triples of a knowledge graph; None for other graphs."""
    info = dataset.manifest.triples
    if info is None:
        return None
    num_nodes = dataset.nodes[info.node_type].num_nodes
    fits = 8 * num_nodes <= budget.available_bytes
    with budget.reserve("triples by entity", 8 * num_nodes if fits else 0):
        entities = np.zeros(num_nodes if fits else 0, np.int64)
        by_part, done = {}, 0
        for part in info.parts:
            counts = np.zeros(info.num_relations, np.int64)
            for triples in triple_blocks(dataset, part):
                np.add.at(counts, triples[:, 1], 1)
                if fits:
                    np.add.at(entities, triples[:, 0], 1)
                    np.add.at(entities, triples[:, 2], 1)
                done += len(triples)
                progress(TRIPLES, done, sum(info.parts.values()))
            by_part[part] = counts
        degrees = DoublingHistogram()
        for start, stop in row_ranges(len(entities), _BLOCK_NODES):
            degrees.add(entities[start:stop])
    return Relations(by_part, degrees if fits else None)
