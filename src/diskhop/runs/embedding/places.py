"""Translation between ranks of nodes, rows of the dataset, and places in partitions.

A node's *rank* is its number in the ascending order of the source's ids, in which embeddings are exported. With ids
from 0 to nodes - 1, ranks are the ids. Names and ids, which users give and get, go by ranks (dataset/names.py).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diskhop._native import invert_order
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.id_map import Ranking, rank_by_id
from diskhop.dataset.names import Names
from diskhop.embedding.graph_edges import embedded_nodes
from diskhop.embedding.partitions.layout import NodePermutation
from diskhop.errors import FormatError
from diskhop.protocols import NodeRows


class Ranks:
    """Ranks of a dataset's nodes."""

    def __init__(self, dataset: Dataset) -> None:
        nodes = embedded_nodes(dataset)
        self.num_nodes = nodes.num_nodes
        self._dataset = dataset
        id_of_row = nodes.original_ids()
        ranking = Ranking(None, None) if id_of_row is None else rank_by_id(id_of_row)
        if ranking is None:
            raise FormatError(f"{dataset.path}: its original ids are damaged; copy or import the dataset again")
        self._ids, self._rows = ranking

    def names(self) -> Names:
        """Return the names of the nodes by their ranks; ids stand in for missing names."""
        kind = "nodes" if self._dataset.manifest.triples is None else "entities"
        return Names(self._dataset, kind, self.num_nodes, self._ids)

    def rows(self, ranks: NDArray[np.int64]) -> NodeRows:
        """Return the rows of nodes in the dataset's tables."""
        return NodeRows(ranks if self._rows is None else self._rows[ranks])


class Places(Ranks):
    """Ranks and places of a dataset's nodes. permutation: the assignment of nodes to places."""

    def __init__(self, dataset: Dataset, permutation: NodePermutation) -> None:
        super().__init__(dataset)
        self._permutation = permutation

    def of(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of nodes."""
        return self._permutation.places(self.rows(ranks))

    def ranks(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ranks of the nodes at some places. Takes a pass over all nodes."""
        rows = self._permutation.nodes(places)
        return rows if self._rows is None else invert_order(self._rows)[rows].astype(np.int64)


def relation_names(dataset: Dataset) -> Names:
    """Return the names of the relations."""
    return Names(dataset, "relations", dataset.num_relations)
