"""One step of training: scores, loss, gradients and Adagrad of a batch of edges, synchronously.

All that a batch reads is read before anything is changed, and rows that it has several times are changed once. Each
chunk of edges is one thread's from beginning to end: no thread waits for another's share of a product, and the same
batch gives the same bits, however many threads there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop._native import RowUpdater
from diskhop.embedding.partitions.edges import EdgeRows
from diskhop.embedding.step.gradients import Batch, Draws, StepOptions, choose_gradients, gradients_bytes
from diskhop.embedding.step.known_edges import KnownBatch

_EPSILON = 1e-10


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows of embeddings and Adagrad's sums of squares, float32 (rows, dim) and (rows, dim or 1); of this memory."""

    values: NDArray[np.float32]
    squares: NDArray[np.float32]


class Step:
    """Steps with the same options, by as many threads as torch has; holds memory for a batch's gradients."""

    def __init__(self, options: StepOptions, nodes: Table, relations: Table | None) -> None:
        self._options = options
        self._nodes = nodes
        self._relations = relations
        dim = nodes.values.shape[1]
        self._grads = torch.empty(options.most_rows, dim)
        self._rows = torch.empty(options.most_rows, dtype=torch.int64)
        num_relation_rows = 0 if relations is None else 2 * options.batch_size
        self._relation_grads = torch.empty(num_relation_rows, 0 if relations is None else relations.values.shape[1])
        self._updater = RowUpdater(torch.get_num_threads())
        relation_values = None if relations is None else torch.from_numpy(relations.values)
        self._gradients = choose_gradients(options, torch.from_numpy(nodes.values), relation_values)

    def run(
        self,
        edges: EdgeRows,
        negatives: NDArray[np.int64],
        draws: Draws,
        fixed: Sequence[range] = (),
        known: KnownBatch | None = None,
        lr_share: float = 1.0,
    ) -> float:
        """Train a batch of at most batch_size edges. Returns the sum of its losses before.

        negatives: (2, chunks, num_negatives), rows for destinations and for sources; those that are the node wanted, or
        known to be as right, do not count. fixed: rows that negatives may have and that are not changed. lr_share: of
        the learning rate.
        """
        num_edges = len(edges)
        num_rows = 2 * num_edges + negatives.size
        rows, grads = self._rows[:num_rows], self._grads[:num_rows]
        ends = torch.from_numpy(edges.sources), torch.from_numpy(edges.destinations)
        torch.cat([*ends, torch.from_numpy(negatives).flatten()], out=rows)
        relation_rows, relation_grads = self._relation_rows(edges), self._relation_grads[: 2 * num_edges]
        loss = self._gradients(Batch(num_edges, rows, relation_rows, known, grads, relation_grads), draws)
        if not np.isfinite(loss):
            return loss
        for each in fixed:
            # Rows whose gradients are 0 stay as they are.
            drawn = rows[2 * num_edges :]
            grads[2 * num_edges :][(drawn >= each.start) & (drawn < each.stop)] = 0
        self._update(self._nodes, rows, grads, lr_share)
        if self._relations is not None and relation_rows is not None:
            self._update(self._relations, relation_rows, relation_grads, lr_share)
        return loss

    def _update(self, table: Table, rows: Tensor, grads: Tensor, lr_share: float) -> None:
        self._updater.update(table.values, table.squares, rows, grads, self._options.lr * lr_share, _EPSILON)

    def _relation_rows(self, edges: EdgeRows) -> Tensor | None:
        """The relation's row of each edge, for its tail query and then for its head query."""
        if self._relations is None or edges.relations is None:
            return None
        numbers = torch.from_numpy(edges.relations).long()
        reverse = numbers + len(self._relations.values) // 2 if self._options.reciprocal else numbers
        return torch.cat([numbers, reverse])


def step_bytes(options: StepOptions, dim: int, relation_dim: int, threads: int) -> int:
    """Memory of a Step: gradients and rows of a batch, and what finding them takes."""
    gradients = options.most_rows * (4 * dim + 3 * 8) + 2 * options.batch_size * (4 * relation_dim + 8)
    return gradients + gradients_bytes(options, dim, threads)
