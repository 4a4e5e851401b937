"""Training step of a batch of edges: scores, loss, gradients and a synchronous Adagrad update.

All embeddings are read before any is updated. Gradients of repeated rows are added up, so each row is updated once.
One thread processes a chunk of edges from beginning to end, so results do not depend on the number of threads.
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

# Added to Adagrad's roots.
EPSILON = 1e-10


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Embeddings with their Adagrad state, updated in place.

    values: embeddings, float32 (rows, dim).
    squares: sums of squares, float32 (rows, dim) or (rows, 1).
    """

    values: NDArray[np.float32]
    squares: NDArray[np.float32]


class Step:
    """Trains batches with the same options, with torch's number of threads. Owns memory for a batch's gradients."""

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
        """Train a batch of up to batch_size edges. Returns the sum of its losses before the update.

        Negatives that are the answer or a known answer of an edge are excluded for it.
        If the loss is not finite, nothing is updated.

        edges: edges of the batch.
        negatives: rows of negatives for destinations and for sources, (2, chunks, num_negatives).
        draws: returns the dropout generator of a chunk.
        fixed: ranges of rows that are not updated; only negatives may be in them.
        known: known answers of the batch, or None.
        lr_share: factor of the learning rate.
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
            # Gradients of 0 leave a row unchanged.
            drawn = rows[2 * num_edges :]
            grads[2 * num_edges :][(drawn >= each.start) & (drawn < each.stop)] = 0
        self._update(self._nodes, rows, grads, lr_share)
        if self._relations is not None and relation_rows is not None:
            self._update(self._relations, relation_rows, relation_grads, lr_share)
        return loss

    def _update(self, table: Table, rows: Tensor, grads: Tensor, lr_share: float) -> None:
        self._updater.update(table.values, table.squares, rows, grads, self._options.lr * lr_share, EPSILON)

    def _relation_rows(self, edges: EdgeRows) -> Tensor | None:
        """Return each edge's relation row for tail queries, then for head queries."""
        if self._relations is None or edges.relations is None:
            return None
        numbers = torch.from_numpy(edges.relations).long()
        reverse = numbers + len(self._relations.values) // 2 if self._options.reciprocal else numbers
        return torch.cat([numbers, reverse])


def step_bytes(options: StepOptions, dim: int, relation_dim: int, threads: int) -> int:
    """Return the memory of a Step in bytes: rows and gradients of a batch, and temporaries of computing them."""
    gradients = options.most_rows * (4 * dim + 3 * 8) + 2 * options.batch_size * (4 * relation_dim + 8)
    return gradients + gradients_bytes(options, dim, threads)
