"""Where nodes' embeddings lie: between the ids that users see and places."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diskhop._native import invert_order
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.names import Names
from diskhop.embed_config import EmbedConfig
from diskhop.embedding.partitions import assign_places
from diskhop.training.embed_edges import embedded_nodes

_BLOCK_NODES = 1 << 20


class Places:
    """Of a dataset's nodes in a run with this configuration."""

    def __init__(self, dataset: Dataset, config: EmbedConfig) -> None:
        nodes = embedded_nodes(dataset)
        self.num_nodes = nodes.num_nodes
        self._config = config
        self._original_ids = nodes.original_ids()
        self._internal = None if self._original_ids is None else invert_order(self._original_ids)

    def rows(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of nodes in the dataset's tables, by the ids that users see."""
        return ids if self._internal is None else self._internal[ids].astype(np.int64)

    def of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of nodes by the ids that users see."""
        return self._assign(self.rows(ids))

    def ids(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The ids of nodes by their places: looked for among all, a block at a time."""
        found = np.zeros(len(places), np.int64)
        for start in range(0, self.num_nodes, _BLOCK_NODES):
            nodes = np.arange(start, min(start + _BLOCK_NODES, self.num_nodes))
            at = self._assign(nodes)
            order = np.argsort(at)
            rows = order[np.minimum(np.searchsorted(at, places, sorter=order), len(at) - 1)]
            is_here = at[rows] == places
            found[is_here] = nodes[rows[is_here]]
        return found if self._original_ids is None else self._original_ids[found]

    def _assign(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        return assign_places(nodes, self.num_nodes, self._config.assignment, self._config.seed)


def node_names(dataset: Dataset) -> Names:
    """Of the nodes that get embeddings."""
    kind = "nodes" if dataset.manifest.triples is None else "entities"
    return Names(dataset, kind, embedded_nodes(dataset).num_nodes)


def relation_names(dataset: Dataset) -> Names:
    """Of the relations between them."""
    return Names(dataset, "relations", dataset.num_relations)
