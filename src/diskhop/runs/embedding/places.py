"""Where nodes' embeddings lie: between the ids that users see and places."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diskhop._native import invert_order
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.names import Names
from diskhop.embedding.graph_edges import embedded_nodes
from diskhop.embedding.partitions.layout import NodePermutation


class Places:
    """Of a dataset's nodes by how they are dealt."""

    def __init__(self, dataset: Dataset, dealing: NodePermutation) -> None:
        nodes = embedded_nodes(dataset)
        self.num_nodes = nodes.num_nodes
        self._dealing = dealing
        self._original_ids = nodes.original_ids()
        self._internal = None if self._original_ids is None else invert_order(self._original_ids)

    def rows(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of nodes in the dataset's tables, by the ids that users see."""
        return ids if self._internal is None else self._internal[ids].astype(np.int64)

    def of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of nodes by the ids that users see."""
        return self._dealing.places(self.rows(ids))

    def ids(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The ids that users see of nodes by their places."""
        nodes = self._dealing.nodes(places)
        return nodes if self._original_ids is None else self._original_ids[nodes]


def node_names(dataset: Dataset) -> Names:
    """Of the nodes that get embeddings."""
    kind = "nodes" if dataset.manifest.triples is None else "entities"
    return Names(dataset, kind, embedded_nodes(dataset).num_nodes)


def relation_names(dataset: Dataset) -> Names:
    """Of the relations between them."""
    return Names(dataset, "relations", dataset.num_relations)
