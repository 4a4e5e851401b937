"""Hop models on all nodes: rows of hop tables, in the order of the dataset, through the model once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.hops.tables import HopTables, open_hop_tables
from diskhop.loaders.hops import HopLoader
from diskhop.nn.models import Hoga, HopNetwork, Sign
from diskhop.nn.reproducible import reproducible
from diskhop.predicting.batched.batches import not_finite
from diskhop.predicting.hop_work import WRITING, HopWork
from diskhop.predicting.row_files import WRITING_BYTES, AppendRows, MakeRows
from diskhop.predicting.rows import RowTable
from diskhop.predicting.shared_network import SharedNetwork
from diskhop.protocols import NodeRows
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.jobs import Share
from diskhop.runtime.progress import Progress
from diskhop.runtime.tasks import TaskTools

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
    """A hop model to compute for all nodes (see RowMaker).

    dataset: the dataset.
    tables: hop tables with a row for every node.
    which: first and last + 1 of the tables that the model reads.
    network: the model, in evaluation mode.
    num_outputs: number of its outputs.
    hidden_dim: width of the last hidden layer; 0 leaves it out.
    work: rows at a time, and what each process takes.
    """

    dataset: Dataset
    tables: HopTables
    which: tuple[int, int]
    network: SharedNetwork[HopNetwork]
    num_outputs: int
    hidden_dim: int
    work: HopWork

    def compute(
        self, folder: Path, done: Path, budget: Budget, tools: TaskTools, progress: Progress
    ) -> dict[str, RowTable]:
        """Compute the rows that are missing, in all processes of an executor. Raises BudgetError.

        budget: the memory of all of them is reserved there; each takes its part from a budget of its own.
        """
        out = self.work.table(folder, done)
        with ExitStack() as stack:
            for name, num_bytes in self.work.held_by_all.items():
                stack.enter_context(budget.reserve(name, num_bytes))
            out.write(self, tools, progress, "predicting", processes=tools.processes)
        found: dict[str, RowTable] = {"logits": SomeColumns(out, 0, self.num_outputs)}
        if self.hidden_dim:
            found["embedding"] = SomeColumns(out, self.num_outputs, self.hidden_dim)
        return found

    @contextmanager
    def open(self, engine: Engine) -> Iterator[MakeRows]:
        """See RowMaker."""
        budget = Budget(sum(self.work.held.values()))
        last = _last_linear(self.network.network) if self.hidden_dim else None
        with (
            budget.reserve(WRITING, WRITING_BYTES),
            reproducible(1),
            self._loader(engine, budget) as loader,
            _Blocks(self.network.network, last, self.work) as blocks,
        ):
            yield partial(self._write, loader, blocks)

    def for_workers(self, _share: Share) -> partial[HopRows]:
        """See jobs.py."""
        model = self.network, self.num_outputs, self.hidden_dim
        return partial(_open_again, self.dataset, self.tables.path, self.which, *model, self.work)

    def _loader(self, engine: Engine, budget: Budget) -> HopLoader:
        return HopLoader(
            self.tables,
            node_rows=NodeRows(np.empty(0, np.int64)),  # each pass names its own
            batch_size=self.work.batch_rows,
            shuffle="none",
            which=range(*self.which),
            place="disk",
            memory=budget,
            engine=engine,
            threads=self.work.threads_per_process,
        )

    def _write(self, loader: HopLoader, blocks: _Blocks, first: int, end: int, append: AppendRows) -> None:
        """Append rows first to end. Blocks begin where ranges do, wherever a run resumes."""
        with loader.run(np.arange(first, end)) as batches:
            for batch in batches:
                for rows in blocks.compute(batch.x):
                    is_finite = torch.isfinite(rows).all(dim=1)
                    if not is_finite.all():
                        row = first + int(is_finite.logical_not().nonzero()[0])
                        raise not_finite(self.dataset.only_nodes, _LAST_LAYER, row)
                    append(rows.numpy())
                    first += len(rows)


def _open_again(
    dataset: Dataset,
    tables: Path,
    which: tuple[int, int],
    network: SharedNetwork[HopNetwork],
    num_outputs: int,
    hidden_dim: int,
    work: HopWork,
) -> HopRows:
    return HopRows(
        dataset=dataset,
        tables=open_hop_tables(tables, dataset.hash),
        which=which,
        network=network,
        num_outputs=num_outputs,
        hidden_dim=hidden_dim,
        work=work,
    )


class _Blocks:
    """Threads that compute blocks of rows; a context manager.

    Each computes a block alone, with one thread of torch: torch rounds some products and exponentials by how many
    threads share them.
    """

    def __init__(self, network: HopNetwork, last: nn.Module | None, work: HopWork) -> None:
        self._network = network
        self._inputs = None if last is None else _LastInput(last)
        self._block_rows = work.block_rows
        self._pool = ThreadPoolExecutor(
            work.threads_per_process, "rows", initializer=torch.set_num_threads, initargs=(1,)
        )

    def compute(self, x: Tensor) -> list[Tensor]:
        """Compute the blocks of a batch (tables, rows, dim), in order; no thread reads it any more."""
        parts = row_ranges(x.shape[1], self._block_rows)
        blocks = [self._pool.submit(self._rows, x[:, first:end]) for first, end in parts]
        wait(blocks)
        return [block.result() for block in blocks]

    def _rows(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            rows: Tensor = self._network(x)
            if self._inputs is not None:
                rows = torch.cat([rows, self._inputs.take().float()], dim=1)
            return rows

    def __enter__(self) -> _Blocks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()
        if self._inputs is not None:
            self._inputs.close()


class _LastInput:
    """The input of a module in the last call of each thread."""

    def __init__(self, module: nn.Module) -> None:
        self._own = threading.local()
        self._handle = module.register_forward_pre_hook(self._keep)

    def take(self) -> Tensor:
        """Return it, once."""
        found: Tensor = self._own.rows
        del self._own.rows
        return found

    def close(self) -> None:
        """Stop listening."""
        self._handle.remove()

    def _keep(self, _module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        self._own.rows = arguments[0]


def _last_linear(network: HopNetwork) -> nn.Module:
    """Return the module whose input is the last hidden layer."""
    assert isinstance(network.model, Sign | Hoga), "other models have no hidden layer"
    return network.model.mlp[-1]
