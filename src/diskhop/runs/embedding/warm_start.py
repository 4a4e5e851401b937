"""Embeddings that begin as another run left them: the graph has grown, old nodes and relations keep theirs by name."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from diskhop.config.embed import EmbedConfig
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.names import Names
from diskhop.embedding.graph_edges import embedded_nodes
from diskhop.errors import ConfigError
from diskhop.planning.embeddings.partitions import dealing_of
from diskhop.runs.embedding.opened import OpenRun, open_run
from diskhop.runs.embedding.places import Places, node_names, relation_names

_BLOCK_NODES = 1 << 20


class WarmStart:
    """What a run begins with instead of draws. num_kept: nodes that the other run has, too.

    It takes 8 bytes a node, and while names are matched 48 more (planning/embeddings/partitions.py).
    """

    def __init__(self, dataset: Dataset, config: EmbedConfig) -> None:
        """Raises ConfigError for a run whose embeddings are of another kind."""
        self._run = open_run(Path(config.warm_start))
        _require_same_kind(self._run, config)
        self._dataset = dataset
        self._is_reciprocal = config.reciprocal
        num_nodes = embedded_nodes(dataset).num_nodes
        old_ids = _match(node_names(dataset), node_names(self._run.dataset))
        self.num_kept = int((old_ids >= 0).sum())
        # By place in the new run.
        self._old_places = np.full(num_nodes, -1, np.int64)
        new = Places(dataset, dealing_of(config, num_nodes))
        old = Places(self._run.dataset, self._run.dealing)
        for start in range(0, num_nodes, _BLOCK_NODES):
            ids = np.arange(start, min(start + _BLOCK_NODES, num_nodes))
            ids = ids[old_ids[ids] >= 0]
            self._old_places[new.of(ids)] = old.of(old_ids[ids])

    def fill(self, first_place: int, values: NDArray[np.float32]) -> None:
        """Write the old embeddings over those of nodes from a place on, (nodes, dim), that had some."""
        old = self._old_places[first_place : first_place + len(values)]
        kept = np.flatnonzero(old >= 0)
        values[kept] = self._run.reader.gather(old[kept]).numpy()

    def fill_relations(self, values: NDArray[np.float32]) -> None:
        """Write the old embeddings over those of relations, (relations or twice as many, dim), that had some."""
        old_values = self._run.reader.relations
        directions = 2 if self._is_reciprocal else 1
        count, old_count = len(values) // directions, len(old_values) // directions
        old_numbers = _match(relation_names(self._dataset), relation_names(self._run.dataset))
        kept = np.flatnonzero(old_numbers >= 0)
        for direction in range(directions):
            rows = torch.from_numpy(direction * old_count + old_numbers[kept])
            values[direction * count + kept] = old_values[rows].numpy()


def _require_same_kind(run: OpenRun, config: EmbedConfig) -> None:
    for name in ("model", "dim", "reciprocal"):
        old, new = getattr(run.config, name), getattr(config, name)
        if old != new:
            raise ConfigError(
                f"{run.path}: has {name} {old}, this run {new}: --warm-start takes embeddings of the same kind; "
                f"leave it out, or take the run's {name}"
            )


def _match(new: Names, old: Names) -> NDArray[np.int64]:
    """(new names): the id that each new one had, -1 for those that are new. By names; without any, ids stay."""
    if new.are_given != old.are_given:
        raise ConfigError("--warm-start: one of the graphs has names and the other has none; import both alike")
    if not new.are_given:
        ids = np.arange(len(new))
        return np.where(ids < len(old), ids, -1)
    hashes = _hashes(old)
    order = np.argsort(hashes[:, 0], kind="stable")
    wanted = _hashes(new)
    found = order[np.minimum(np.searchsorted(hashes[order, 0], wanted[:, 0]), len(order) - 1)]
    return np.where((hashes[found] == wanted).all(axis=1), found, -1)


def _hashes(names: Names) -> NDArray[np.uint64]:
    """(names, 2): 16 bytes for each, so that no two of any number have the same."""
    hashes = np.empty((len(names), 2), np.uint64)
    for number, name in enumerate(names):
        hashes[number] = np.frombuffer(blake2b(name.encode(), digest_size=16).digest(), np.uint64)
    return hashes
