"""Warm start: embeddings initialised from another run, matched by the names of nodes and relations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from diskhop.config.embed import EmbedConfig
from diskhop.dataset.dataset import Dataset
from diskhop.embedding.graph_edges import embedded_nodes
from diskhop.errors import ConfigError
from diskhop.planning.embeddings.partitions import permutation_of
from diskhop.runs.embedding.matching import match
from diskhop.runs.embedding.opened import OpenRun, open_run
from diskhop.runs.embedding.places import Places, relation_names

_BLOCK_NODES = 1 << 20
# Options that the embeddings of both runs must have in common.
SHARED_OPTIONS = ("model", "dim", "reciprocal")


class WarmStart:
    """Initial embeddings from another run. num_kept: the number of nodes that the other run has too.

    Needs 8 bytes per node, and 48 more while names are matched (planning/embeddings/partitions.py).
    """

    def __init__(self, dataset: Dataset, config: EmbedConfig) -> None:
        """Open the other run. Raises ConfigError for another model, dim or reciprocal."""
        self._run = open_run(Path(config.warm_start))
        _require_same_kind(self._run, config)
        self._dataset = dataset
        self._is_reciprocal = config.reciprocal
        num_nodes = embedded_nodes(dataset).num_nodes
        new = Places(dataset, permutation_of(config, num_nodes))
        old = Places(self._run.dataset, self._run.permutation)
        old_ranks = match(new.names(), old.names(), "--warm-start")
        self.num_kept = int((old_ranks >= 0).sum())
        # Indexed by place in the new run.
        self._old_places = np.full(num_nodes, -1, np.int64)
        for start in range(0, num_nodes, _BLOCK_NODES):
            ranks = np.arange(start, min(start + _BLOCK_NODES, num_nodes))
            ranks = ranks[old_ranks[ranks] >= 0]
            self._old_places[new.of(ranks)] = old.of(old_ranks[ranks])

    def fill(self, first_place: int, values: NDArray[np.float32]) -> None:
        """Overwrite rows of nodes that the other run has. values: (nodes, dim), of places from first_place on."""
        old = self._old_places[first_place : first_place + len(values)]
        kept = np.flatnonzero(old >= 0)
        values[kept] = self._run.reader.gather(old[kept]).numpy()

    def fill_relations(self, values: NDArray[np.float32]) -> None:
        """Overwrite rows of relations that the other run has. values: (relations, dim), twice that if reciprocal."""
        old_values = self._run.reader.relations
        directions = 2 if self._is_reciprocal else 1
        count, old_count = len(values) // directions, len(old_values) // directions
        old_numbers = match(relation_names(self._dataset), relation_names(self._run.dataset), "--warm-start")
        kept = np.flatnonzero(old_numbers >= 0)
        for direction in range(directions):
            rows = torch.from_numpy(direction * old_count + old_numbers[kept])
            values[direction * count + kept] = old_values[rows].numpy()


def _require_same_kind(run: OpenRun, config: EmbedConfig) -> None:
    for name in SHARED_OPTIONS:
        old, new = getattr(run.config, name), getattr(config, name)
        if old != new:
            raise ConfigError(
                f"{run.path}: has {name} {old}, this run {new}: --warm-start needs the same; "
                f"remove it, or use --{name} {old}"
            )
