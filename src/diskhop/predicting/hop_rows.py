"""Hop models on all nodes: rows of hop tables, in the order of the dataset, through the model once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.hops.tables import HopTables
from diskhop.loaders.hops import HopLoader
from diskhop.nn.models import Hoga, HopNetwork, Sign
from diskhop.nn.reproducible import reproducible
from diskhop.predicting.batched.batches import not_finite
from diskhop.predicting.row_files import WRITING_BYTES, AppendRows, RowFile
from diskhop.predicting.rows import RowTable
from diskhop.protocols import NodeRows
from diskhop.runtime.progress import Progress
from diskhop.runtime.tasks import TaskTools

# Rows of all tables per batch: their number depends on the widths alone, since products round by their shapes.
_BATCH_BYTES = 4 << 20
_MOST_ROWS, _LEAST_ROWS = 4096, 64
_LAST_LAYER = "the last layer"


@dataclass(frozen=True, slots=True)
class SomeColumns:
    """Adjacent columns of a table; see RowTable."""

    table: RowTable
    first: int
    dim: int

    @property
    def num_rows(self) -> int:
        """See RowTable."""
        return self.table.num_rows

    def blocks(self, block_rows: int, start: int = 0, stop: int | None = None) -> Iterator[NDArray[np.float32]]:
        """See RowTable."""
        for block in self.table.blocks(block_rows, start, stop):
            yield np.ascontiguousarray(block[:, self.first : self.first + self.dim])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HopRows:
    """A hop model to compute for all nodes.

    dataset: the dataset.
    tables: hop tables with a row for every node.
    which: numbers of the tables that the model reads.
    network: the model, in evaluation mode.
    budget, threads, tools, progress: as usual.
    """

    dataset: Dataset
    tables: HopTables
    which: range
    network: HopNetwork
    budget: Budget
    threads: int
    tools: TaskTools
    progress: Progress

    def compute(self, folder: Path, done: Path, hidden_dim: int, num_outputs: int) -> dict[str, RowTable]:
        """Compute the rows that are missing. hidden_dim: width of the last hidden layer; 0 leaves it out."""
        out = RowFile("rows", folder, done, self.dataset.num_nodes, num_outputs + hidden_dim)
        last = _last_linear(self.network) if hidden_dim else None
        with self.budget.reserve("writing rows", WRITING_BYTES), reproducible(self.threads), self._loader() as loader:
            out.write(
                lambda first, end, append: self._write(loader, last, first, end, append),
                self.tools,
                lambda ranges, total: self.progress("predicting", ranges, total),
            )
        found: dict[str, RowTable] = {"logits": SomeColumns(out, 0, num_outputs)}
        if hidden_dim:
            found["embedding"] = SomeColumns(out, num_outputs, hidden_dim)
        return found

    def _loader(self) -> HopLoader:
        row_bytes = 4 * self.tables.dim * len(self.which)
        rows = min(_MOST_ROWS, max(_LEAST_ROWS, 1 << (max(1, _BATCH_BYTES // row_bytes).bit_length() - 1)))
        return HopLoader(
            self.tables,
            node_rows=NodeRows(np.arange(self.dataset.num_nodes)),
            batch_size=rows,
            shuffle="none",
            which=self.which,
            place="disk",
            memory=self.budget,
            engine=self.tools.engine,
            threads=self.threads,
        )

    def _write(self, loader: HopLoader, last: nn.Module | None, first: int, end: int, append: AppendRows) -> None:
        """Append rows first to end. Batches begin where ranges do, wherever a run resumes."""
        with torch.no_grad(), _LastInput(last) as inputs, loader.run(np.arange(first, end)) as batches:
            for batch in batches:
                rows: Tensor = self.network(batch.x)
                if last is not None:
                    rows = torch.cat([rows, inputs[-1].float()], dim=1)
                is_finite = torch.isfinite(rows).all(dim=1)
                if not is_finite.all():
                    row = int(batch.node_rows[int(is_finite.logical_not().nonzero()[0])])
                    raise not_finite(self.dataset.only_nodes, _LAST_LAYER, row)
                append(rows.numpy())


class _LastInput:
    """Collects the input of a module while the context lasts; the last one is kept."""

    def __init__(self, module: nn.Module | None) -> None:
        self._module = module
        self._inputs: list[Tensor] = []
        self._remove: Callable[[], None] = lambda: None

    def __enter__(self) -> list[Tensor]:
        if self._module is not None:
            handle = self._module.register_forward_pre_hook(self._keep)
            self._remove = handle.remove
        return self._inputs

    def __exit__(self, *_error: object) -> None:
        self._remove()

    def _keep(self, _module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        self._inputs[:] = [arguments[0]]


def _last_linear(network: HopNetwork) -> nn.Module:
    """Return the module whose input is the last hidden layer."""
    assert isinstance(network.model, Sign | Hoga), "other models have no hidden layer"
    return network.model.mlp[-1]
