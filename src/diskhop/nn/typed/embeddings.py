"""Learned rows for node types without features, in memory, updated by Adagrad where a batch has read them.

A model takes the rows of a batch as it takes features, with a gradient. Only rows that were read are updated, so a
step costs what the batch is large, whatever the number of nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop._native import RowUpdater
from diskhop.budget import Budget
from diskhop.errors import ConfigError
from diskhop.protocols import NodeIds

DEFAULT_LR = 0.05
_EPSILON = 1e-10
_FLOAT_BYTES = 4
# Rows that are drawn at a time.
_BLOCK_ROWS = 1 << 16


def embedding_bytes(num_rows: int, dim: int) -> int:
    """Return the memory of a type's embeddings and of their Adagrad state, in bytes."""
    return num_rows * (dim + 1) * _FLOAT_BYTES


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
    """

    def __init__(self, num_rows: int, dim: int, *, seed: int, key: int = 0) -> None:
        self.values: NDArray[np.float32] = np.empty((num_rows, dim), np.float32)
        self.squares: NDArray[np.float32] = np.zeros((num_rows, 1), np.float32)
        for number, start in enumerate(range(0, num_rows, _BLOCK_ROWS)):
            block = self.values[start : start + _BLOCK_ROWS]
            random = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, key, number])))
            random.standard_normal(out=block, dtype=np.float32)
            block *= dim**-0.5
        self._reads: list[_Read] = []
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

    def step(self, lr: float = DEFAULT_LR) -> None:
        """Update the rows that were read since the last step, by their gradients, with synchronous Adagrad."""
        reads = [(each.ids, each.rows.grad) for each in self._reads if each.rows.grad is not None]
        self._reads = []
        if reads:
            ids, grads = np.concatenate([ids for ids, _ in reads]), torch.cat([grad for _, grad in reads])
            self._updater.update(self.values, self.squares, torch.from_numpy(ids), grads, lr, _EPSILON)

    def state(self) -> dict[str, Tensor]:
        """Return embeddings and Adagrad state for a checkpoint, without a copy."""
        return {"values": torch.from_numpy(self.values), "squares": torch.from_numpy(self.squares)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take the values of a checkpoint. Raises ConfigError for those of another number of nodes or width."""
        for name, own in self.state().items():
            if state[name].shape != own.shape:
                raise ConfigError(
                    f"embeddings of the checkpoint are {tuple(state['values'].shape)}, this model needs "
                    f"{self.values.shape}; start a new run: the dataset or --hidden is another"
                )
            own.copy_(state[name])
        self._reads = []


class EmbeddingGroup:
    """Embeddings of all node types without features. A context: memory is reserved until it ends."""

    def __init__(self, counts: Mapping[str, int], dim: int, *, seed: int, budget: Budget) -> None:
        """Reserve memory and draw initial values. Raises BudgetError with the bytes that are needed.

        counts: number of nodes by type.
        dim: columns, the hidden width of the model.
        """
        self.types: dict[str, NodeEmbeddings] = {}
        needed = {f"embeddings of {name}": embedding_bytes(count, dim) for name, count in counts.items()}
        budget.require(needed)
        with ExitStack() as reserved:
            for name, num_bytes in needed.items():
                reserved.enter_context(budget.reserve(name, num_bytes))
            for key, (name, count) in enumerate(counts.items()):
                self.types[name] = NodeEmbeddings(count, dim, seed=seed, key=key)
            self._reserved = reserved.pop_all()

    def step(self, lr: float = DEFAULT_LR) -> None:
        """Update all types; see NodeEmbeddings."""
        for each in self.types.values():
            each.step(lr)

    def state(self) -> dict[str, Tensor]:
        """Return the state of all types, by `type/values` and `type/squares`."""
        return {f"{name}/{part}": tensor for name, each in self.types.items() for part, tensor in each.state().items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take the values of a checkpoint."""
        for name, each in self.types.items():
            each.load({part: state[f"{name}/{part}"] for part in each.state()})

    def __enter__(self) -> EmbeddingGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reserved.close()
