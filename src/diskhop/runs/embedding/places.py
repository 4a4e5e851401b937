"""Translation between node ids, as in the source, and places in partitions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diskhop._native import invert_order
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.names import Names
from diskhop.embedding.graph_edges import embedded_nodes
from diskhop.embedding.partitions.layout import NodePermutation


class Places:
    """Places of a dataset's nodes. permutation: the assignment of nodes to places."""

    def __init__(self, dataset: Dataset, permutation: NodePermutation) -> None:
        nodes = embedded_nodes(dataset)
        self.num_nodes = nodes.num_nodes
        self._permutation = permutation
        self._original_ids = nodes.original_ids()
        self._internal = None if self._original_ids is None else invert_order(self._original_ids)

    def rows(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of nodes in the dataset's tables. ids: as in the source."""
        return ids if self._internal is None else self._internal[ids].astype(np.int64)

    def of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of nodes. ids: as in the source."""
        return self._permutation.places(self.rows(ids))

    def ids(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return ids, as in the source, of the nodes at some places."""
        nodes = self._permutation.nodes(places)
        return nodes if self._original_ids is None else self._original_ids[nodes]


def node_names(dataset: Dataset) -> Names:
    """Return the names of the nodes that have embeddings."""
    kind = "nodes" if dataset.manifest.triples is None else "entities"
    return Names(dataset, kind, embedded_nodes(dataset).num_nodes)


def relation_names(dataset: Dataset) -> Names:
    """Return the names of the relations."""
    return Names(dataset, "relations", dataset.num_relations)
