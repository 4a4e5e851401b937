"""Learned rows for node types without features, in memory, updated by Adagrad where a batch has read them.

A model takes the rows of a batch as it takes features, with a gradient. Only rows that were read are updated, so a
step costs what the batch is large, whatever the number of nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from diskhop._native import RowUpdater
from diskhop.protocols import NodeIds

DEFAULT_LR = 0.05
# Name of the rows in a state_dict().
VALUES = "values"
EPSILON = 1e-10
_FLOAT_BYTES = 4
# Copies of a run with checkpoints: the model's, the one that is written, and that of the best model.
COPIES = 3
# Rows with a random generator of their own.
_BLOCK_ROWS = 1 << 16
# Rows of them that are drawn at a time.
_DRAWN_ROWS = 1 << 12


# Bytes of gradients that processes send to each other at a time, and copies of them while they travel.
PIECE_BYTES = 1 << 20
_COPIES_SENT = 4
# Rows that a step of summed gradients updates at a time.
_UPDATED_ROWS = 1 << 14
# int64 (rows), which may repeat, and float32 (rows, dim).
RowGradients = tuple[NodeIds, Tensor]


def embedding_bytes(num_rows: int, dim: int) -> int:
    """Return the memory of a type's embeddings and of their Adagrad state, in bytes."""
    return num_rows * (dim + 1) * _FLOAT_BYTES


def sums_bytes(num_rows: int, dim: int) -> int:
    """Return the memory of the sums of a type's gradients over the batches of a step, in bytes."""
    updated = min(num_rows, _UPDATED_ROWS) * (_FLOAT_BYTES * dim + np.dtype(np.int64).itemsize)
    return num_rows * (_FLOAT_BYTES * dim + 1) + updated + _COPIES_SENT * PIECE_BYTES


def initial_blocks(num_rows: int, dim: int, seed: int, key: int, rows_at_once: int) -> Iterator[NDArray[np.float32]]:
    """Yield the initial values of all rows in blocks (rows_at_once, dim), of which the last may be shorter.

    They are normal with variance 1 / dim, and do not depend on rows_at_once. A block is valid until the next one.
    """
    block = np.empty((min(rows_at_once, num_rows), dim), np.float32)
    random = np.random.default_rng()
    for first in range(0, num_rows, rows_at_once):
        stop = min(first + rows_at_once, num_rows)
        start = first
        while start < stop:
            number, within = divmod(start, _BLOCK_ROWS)
            if within == 0:
                random = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, key, number])))
            end = min(stop, (number + 1) * _BLOCK_ROWS)
            random.standard_normal(out=block[start - first : end - first], dtype=np.float32)
            start = end
        block *= dim**-0.5
        yield block[: stop - first]


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """Rows that a batch has read, and the tensor that collects their gradient."""

    ids: NodeIds
    rows: Tensor


class NodeEmbeddings:
    """Embeddings of one node type: float32 (rows, dim), and a mean of squared gradients per row.

    Initial values are normal with variance 1 / dim. They depend on the seed, the key and the row alone, so that runs
    repeat.

    key: number that tells types with one seed apart.
    is_summed: steps have several batches, whose gradients are added up as they come and take sums_bytes().
    """

    def __init__(self, num_rows: int, dim: int, *, seed: int, key: int = 0, is_summed: bool = False) -> None:
        self.values: NDArray[np.float32] = np.empty((num_rows, dim), np.float32)
        self.squares: NDArray[np.float32] = np.zeros((num_rows, 1), np.float32)
        first = 0
        for block in initial_blocks(num_rows, dim, seed, key, _DRAWN_ROWS):
            self.values[first : first + len(block)] = block
            first += len(block)
        self._reads: list[_Read] = []
        # Rows and their gradients, which the next step applies in this order.
        self._gradients: list[RowGradients] = []
        self._sums = GradientRows(num_rows, dim) if is_summed else None
        self._updater = RowUpdater(torch.get_num_threads())

    def rows(self, ids: NodeIds) -> Tensor:
        """Return a batch's rows, float32 (ids, dim), with a gradient unless torch computes none.

        ids: int64 rows of the type; they may repeat.
        """
        found = torch.from_numpy(self.values).index_select(0, torch.from_numpy(ids))
        if torch.is_grad_enabled():
            found.requires_grad_()
            self._reads.append(_Read(ids, found))
        return found

    def take_gradients(self) -> list[RowGradients]:
        """Return the gradients of the rows that were read; the next step does not know them any more."""
        found = [(each.ids, each.rows.grad) for each in self._reads if each.rows.grad is not None]
        self._reads = []
        return found

    def add_gradients(self, gradients: RowGradients) -> None:
        """Add gradients of rows to the next step, those of this process or of another one."""
        if self._sums is None:
            self._gradients.append(gradients)
        else:
            self._sums.add(*gradients)

    def step(self, lr: float = DEFAULT_LR, weight: float = 1.0) -> None:
        """Update the rows that were read since the last step, by their gradients, with synchronous Adagrad.

        weight: gradients are divided by it.
        """
        for each in self.take_gradients():
            self.add_gradients(each)
        found, self._gradients = self._gradients, []
        if found:
            self._update(np.concatenate([ids for ids, _ in found]), torch.cat([grad for _, grad in found]), lr, weight)
        if self._sums is not None:
            for ids, grads in self._sums.take():
                self._update(ids, grads, lr, weight)

    def _update(self, ids: NodeIds, grads: Tensor, lr: float, weight: float) -> None:
        if weight != 1.0:
            grads /= weight
        self._updater.update(self.values, self.squares, torch.from_numpy(ids), grads, lr, EPSILON)


class GradientRows:
    """Sums of gradients of rows over the batches of a step, float32 (rows, dim). The OS gives memory as rows come."""

    def __init__(self, num_rows: int, dim: int) -> None:
        # Not torch's zeros, which are written.
        self._sums = torch.from_numpy(np.zeros((num_rows, dim), np.float32))
        self._has = np.zeros(num_rows, np.bool_)

    def add(self, ids: NodeIds, grads: Tensor) -> None:
        """Add gradients (ids, dim). ids: int64, which may repeat."""
        self._sums.index_add_(0, torch.from_numpy(ids), grads)
        self._has[ids] = True

    def take(self) -> Iterator[RowGradients]:
        """Yield the rows that have a sum, some at a time in their order; they have none then."""
        for first in range(0, len(self._has), _UPDATED_ROWS):
            ids = np.flatnonzero(self._has[first : first + _UPDATED_ROWS]) + first
            if len(ids):
                sums = self._sums[torch.from_numpy(ids)]
                self._sums[torch.from_numpy(ids)] = 0
                self._has[ids] = False
                yield ids, sums


class LearnedRows(nn.Module):
    """Embeddings of one node type as a part of a model, whose state_dict() has them and their Adagrad state."""

    def __init__(self, num_rows: int, dim: int, *, seed: int, key: int = 0, is_summed: bool = False) -> None:
        super().__init__()
        self._piece_rows = max(1, PIECE_BYTES // (_FLOAT_BYTES * dim))
        self._embeddings = NodeEmbeddings(num_rows, dim, seed=seed, key=key, is_summed=is_summed)
        # Views: what is loaded into them is loaded into the embeddings.
        self.register_buffer(VALUES, torch.from_numpy(self._embeddings.values))
        self.register_buffer("squares", torch.from_numpy(self._embeddings.squares))

    def _apply(self, _function: Any, _recurse: bool = True) -> LearnedRows:
        """Stay in memory, wherever the rest of the model computes: the rows are the embeddings' own."""
        return self

    def forward(self, ids: NodeIds) -> Tensor:
        """Return a batch's rows; see NodeEmbeddings.rows()."""
        return self._embeddings.rows(ids)

    def hold_batches(self, held: bool) -> None:
        """See FollowsBatches: rows change in steps alone."""

    def take_batch(self) -> list[RowGradients]:
        """See FollowsBatches."""
        return [
            (ids[first : first + self._piece_rows], grads[first : first + self._piece_rows])
            for ids, grads in self._embeddings.take_gradients()
            for first in range(0, len(ids), self._piece_rows)
        ]

    def add_piece(self, piece: RowGradients) -> None:
        """See FollowsBatches."""
        self._embeddings.add_gradients(piece)

    def end_step(self) -> None:
        """See FollowsBatches: step() comes after it."""

    def step(self, lr: float = DEFAULT_LR, weight: float = 1.0) -> None:
        """Update the rows that were read; see NodeEmbeddings.step()."""
        self._embeddings.step(lr, weight)
