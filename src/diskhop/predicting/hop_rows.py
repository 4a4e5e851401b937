"""Hop models on all nodes: rows of hop tables, in the order of the dataset, through the model once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.hops.read.placement import loader_bytes
from diskhop.hops.tables import HopTables, open_hop_tables
from diskhop.loaders.hops import HopLoader
from diskhop.nn.models import Hoga, HopNetwork, Sign
from diskhop.nn.reproducible import reproducible
from diskhop.predicting.batched.batches import not_finite
from diskhop.predicting.row_files import WRITING_BYTES, AppendRows, MakeRows, RowFile
from diskhop.predicting.rows import RowTable
from diskhop.predicting.shared_network import SharedNetwork
from diskhop.protocols import NodeRows
from diskhop.runtime.jobs import Share
from diskhop.runtime.progress import Progress
from diskhop.runtime.tasks import TaskTools

# Rows of all tables per batch: their number depends on the widths alone, since products round by their shapes.
_BATCH_BYTES = 4 << 20
_MOST_ROWS, _LEAST_ROWS = 4096, 64
_LAST_LAYER = "the last layer"
# Names of memory.
_WRITING, _OTHERS = "writing rows", "rows in other processes"


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
    """A hop model to compute for all nodes (see RowMaker).

    dataset: the dataset.
    tables: hop tables with a row for every node.
    which: first and last + 1 of the tables that the model reads.
    network: the model, in evaluation mode.
    num_outputs: number of its outputs.
    hidden_dim: width of the last hidden layer; 0 leaves it out.
    budget: memory to reserve from, of this process.
    threads: threads of this process.
    """

    dataset: Dataset
    tables: HopTables
    which: tuple[int, int]
    network: SharedNetwork[HopNetwork]
    num_outputs: int
    hidden_dim: int
    budget: Budget
    threads: int

    def compute(self, folder: Path, done: Path, tools: TaskTools, progress: Progress) -> dict[str, RowTable]:
        """Compute the rows that are missing, in all processes of an executor. Raises BudgetError."""
        others = tools.processes_per_machine - 1
        others_bytes = others * sum(self._held.values())
        self.budget.require({**self._held, **({_OTHERS: others_bytes} if others else {})})
        out = RowFile("rows", folder, done, self.dataset.num_nodes, self.num_outputs + self.hidden_dim)
        with self.budget.reserve(_OTHERS, others_bytes) if others else nullcontext():
            out.write(self, tools, progress, "predicting", processes=tools.processes)
        found: dict[str, RowTable] = {"logits": SomeColumns(out, 0, self.num_outputs)}
        if self.hidden_dim:
            found["embedding"] = SomeColumns(out, self.num_outputs, self.hidden_dim)
        return found

    @contextmanager
    def open(self, engine: Engine) -> Iterator[MakeRows]:
        """See RowMaker."""
        last = _last_linear(self.network.network) if self.hidden_dim else None
        with (
            self.budget.reserve(_WRITING, WRITING_BYTES),
            reproducible(self.threads),
            self._loader(engine) as loader,
        ):
            yield partial(self._write, loader, last)

    def for_workers(self, _share: Share) -> partial[HopRows]:
        """See jobs.py."""
        model = self.network, self.num_outputs, self.hidden_dim
        held_bytes = sum(self._held.values())
        return partial(_open_again, self.dataset, self.tables.path, self.which, *model, held_bytes, self.threads)

    @property
    def _held(self) -> dict[str, int]:
        """Memory of one process by name, in bytes."""
        loader = loader_bytes(self.tables.shape, len(range(*self.which)), self._batch_rows, "disk")
        return {_WRITING: WRITING_BYTES, **loader}

    @property
    def _batch_rows(self) -> int:
        row_bytes = 4 * self.tables.dim * len(range(*self.which))
        return min(_MOST_ROWS, max(_LEAST_ROWS, 1 << (max(1, _BATCH_BYTES // row_bytes).bit_length() - 1)))

    def _loader(self, engine: Engine) -> HopLoader:
        return HopLoader(
            self.tables,
            node_rows=NodeRows(np.empty(0, np.int64)),  # each pass names its own
            batch_size=self._batch_rows,
            shuffle="none",
            which=range(*self.which),
            place="disk",
            memory=self.budget,
            engine=engine,
            threads=self.threads,
        )

    def _write(self, loader: HopLoader, last: nn.Module | None, first: int, end: int, append: AppendRows) -> None:
        """Append rows first to end. Batches begin where ranges do, wherever a run resumes."""
        with torch.no_grad(), _LastInput(last) as inputs, loader.run(np.arange(first, end)) as batches:
            for batch in batches:
                rows: Tensor = self.network.network(batch.x)
                if last is not None:
                    rows = torch.cat([rows, inputs[-1].float()], dim=1)
                is_finite = torch.isfinite(rows).all(dim=1)
                if not is_finite.all():
                    row = int(batch.node_rows[int(is_finite.logical_not().nonzero()[0])])
                    raise not_finite(self.dataset.only_nodes, _LAST_LAYER, row)
                append(rows.numpy())


def _open_again(
    dataset: Dataset,
    tables: Path,
    which: tuple[int, int],
    network: SharedNetwork[HopNetwork],
    num_outputs: int,
    hidden_dim: int,
    memory_bytes: int,
    threads: int,
) -> HopRows:
    return HopRows(
        dataset=dataset,
        tables=open_hop_tables(tables, dataset.hash),
        which=which,
        network=network,
        num_outputs=num_outputs,
        hidden_dim=hidden_dim,
        budget=Budget(memory_bytes),
        threads=threads,
    )


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
