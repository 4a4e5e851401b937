"""Table 0 of each node type: its features, learned rows or made features, mapped to the hidden width once.

Layers then read narrow rows of one width for all types, whatever the width of the features.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray
from torch import Tensor

from diskhop._native import Engine
from diskhop.config.sampled import ALL_NEIGHBORS
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.made_features import MadeFeatures
from diskhop.embedding.rows.versions import RowsOfVersion
from diskhop.hops.stream.features import FeatureReader, reading_features_bytes
from diskhop.nn.reproducible import reproducible
from diskhop.nn.typed.embeddings import embedding_bytes
from diskhop.nn.typed.network import TypedNetwork
from diskhop.pipeline.made_rows import make_rows
from diskhop.predicting.batched.batches import LayerRun, not_finite
from diskhop.predicting.batched.row_batches import ListsOfRows
from diskhop.predicting.row_files import WRITING_BYTES, AppendRows, MakeRows, RowFile
from diskhop.predicting.shared_network import SharedNetwork
from diskhop.runtime.blocks import map_in_order, threads_that_fit
from diskhop.runtime.jobs import Share
from diskhop.runtime.progress import Progress

# Bytes of the rows that are mapped together: they depend on the widths alone, since products round by their shapes.
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class GivenRows:
    """Rows of node types whose features are not stored.

    learned: rows that the model has learned, float32 (nodes, hidden), by type, in memory or on disk.
    made: features that stand in for those of other types.
    """

    learned: Mapping[str, Tensor | RowsOfVersion]
    made: Mapping[str, MadeFeatures]

    def for_workers(self, _share: Share) -> partial[GivenRows]:
        """See jobs.py: of rows in memory, others know the shapes alone."""
        learned = {name: tuple(rows.shape) if isinstance(rows, Tensor) else rows for name, rows in self.learned.items()}
        return partial(_given_again, learned, dict(self.made))

    def stays(self, node_type: str) -> bool:
        """Return whether only this process has the rows of a type."""
        return isinstance(self.learned.get(node_type), Tensor)

    @property
    def learned_bytes(self) -> int:
        """Memory of the learned rows, as the run has them."""
        return sum(embedding_bytes(*rows.shape) for rows in self.learned.values() if isinstance(rows, Tensor))


def _given_again(learned: dict[str, tuple[int, ...] | RowsOfVersion], made: dict[str, MadeFeatures]) -> GivenRows:
    rows = {
        name: torch.empty(each, device="meta") if isinstance(each, tuple) else each for name, each in learned.items()
    }
    return GivenRows(rows, made)


def digest_of(rows: Tensor | RowsOfVersion) -> str:
    """Return a checksum of learned rows. Raises ReadError for a damaged file."""
    if isinstance(rows, RowsOfVersion):
        rows.check()
        return f"{rows.checksum:016x}"
    return xxhash.xxh3_64_hexdigest(rows.contiguous().numpy().data)


@dataclass(frozen=True, slots=True, eq=False)
class FirstTable:
    """Table 0 of one node type.

    dataset: the graph of all types.
    given: rows that are not stored.
    shared: the network, which maps them to the hidden width.
    """

    dataset: Dataset
    node_type: str
    given: GivenRows
    shared: SharedNetwork[TypedNetwork]

    @property
    def network(self) -> TypedNetwork:
        """The network."""
        return self.shared.network

    @property
    def read_bytes(self) -> int:
        """Bytes that are read of the disk."""
        table = self.dataset.nodes[self.node_type].feature_table()
        return 0 if table is None else table.num_rows * table.row_stride

    def held(self, threads: int) -> dict[str, int]:
        """Return the memory of computing it by name, in bytes."""
        nodes, dim = self.dataset.nodes[self.node_type], self.dim
        table = nodes.feature_table()
        reading = 0 if table is None else reading_features_bytes(table.row_stride, dim, self._block_rows)
        # A block as it is read and in the dtype of products, and its result, twice while it is copied.
        computing = (threads + 1) * self._block_rows * 8 * (dim + self.network.table_dim(0))
        return {"mapping features": reading + computing, "writing rows": WRITING_BYTES}

    def compute(self, out: RowFile, run: LayerRun, progress: Progress) -> None:
        """Write the missing rows, in all processes of an executor.

        Raises BudgetError, and PredictionError for a result that is not finite.
        """
        one, tools = run.of_one_process, run.tools
        threads = threads_that_fit(one.threads, one.budget.available_bytes, lambda each: sum(self.held(each).values()))
        held_bytes = tools.processes_per_machine * sum(self.held(threads).values())
        # Learned rows are copied from memory as they are, which needs no others.
        processes = 1 if self.given.stays(self.node_type) else tools.processes
        with run.budget.reserve("mapping features", held_bytes):
            stage = f"features ({self.node_type})"
            out.write(_MappedRows(self, threads), tools, progress, stage, processes=processes)

    def require_memory(self, run: LayerRun) -> None:
        """Raise BudgetError with the smallest budget that works."""
        run.budget.require({**run.held, **self.held(1)})

    @property
    def dim(self) -> int:
        """Columns of the rows before they are mapped."""
        name = self.node_type
        if name in self.given.learned:
            return self.network.table_dim(0)
        made = self.given.made.get(name)
        return self.dataset.nodes[name].feature_dim if made is None else made.dim

    @property
    def _block_rows(self) -> int:
        return max(1, _BLOCK_BYTES // (4 * max(self.dim, self.network.table_dim(0))))

    def parts(self, firsts: Iterable[int], stop: int, part_rows: int, engine: Engine) -> Iterator[Tensor]:
        """Yield rows before they are mapped, given the first row of each part, up to row stop: (part_rows, columns).

        A part is valid until the next one is requested.
        """
        nodes = self.dataset.nodes[self.node_type]
        table = nodes.feature_table()
        if table is not None:
            reader = FeatureReader(table, nodes.feature_dtype, nodes.feature_dim, part_rows, engine)
            yield from map(torch.from_numpy, reader.parts(firsts, stop))
            return
        learned = self.given.learned.get(self.node_type)
        lists = ListsOfRows.of(self.dataset.topology, self.node_type)
        for first in firsts:
            end = min(first + part_rows, stop)
            if learned is not None:
                yield learned[first:end]
            else:
                degrees = torch.from_numpy(lists.lengths(first, end, ALL_NEIGHBORS))
                yield make_rows(self.given.made[self.node_type], np.arange(first, end), degrees)

    def blocks(self, first: int, end: int, engine: Engine) -> Iterator[Tensor]:
        """Yield rows first to end in blocks that are mapped together, before that."""
        block_rows = self._block_rows
        for rows in self.parts(range(first, end, block_rows), end, block_rows, engine):
            yield rows.clone()  # for threads that map several blocks


@dataclass(frozen=True, slots=True, eq=False)
class _MappedRows:
    """The rows of a table 0 in one process (see RowMaker). threads: of the process."""

    table: FirstTable
    threads: int

    @contextmanager
    def open(self, engine: Engine) -> Iterator[MakeRows]:
        """See RowMaker."""
        node_type = self.table.node_type

        def make(first: int, end: int, append: AppendRows) -> None:
            row = first
            for rows in map_in_order(self._mapped, self.table.blocks(first, end, engine), self.threads):
                is_finite = np.isfinite(rows).all(axis=1)
                if not is_finite.all():
                    row += int(np.argmin(is_finite))
                    raise not_finite(self.table.dataset.nodes[node_type], f"features of {node_type}", row)
                append(rows)
                row += len(rows)

        with reproducible(1):
            yield make

    def _mapped(self, rows: Tensor) -> NDArray[np.float32]:
        node_type = self.table.node_type
        with torch.no_grad():
            mapped: NDArray[np.float32] = self.table.network.project({node_type: rows})[node_type].numpy()
        return mapped
