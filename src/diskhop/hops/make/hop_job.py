"""The blocks of columns of one hop: parts of a job that any process can run (runtime/jobs.py), in any order.

A block is loaded into memory, then each step of the hop is a pass over the lists, which writes the block's columns of
a table. A block takes all memory and threads of its process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diskhop._native import Engine
from diskhop.hops.make.cold_edges import make_values_file
from diskhop.hops.make.passes import ColdEdges, Columns, Lists, Product, aligned_memory
from diskhop.hops.make.work_tables import Part, WorkTables
from diskhop.hops.operators import Hop, Step
from diskhop.hops.tables import TILE_COLUMNS, TableShape
from diskhop.runtime.process import process_name
from diskhop.runtime.tasks import TaskTools, writer_name


class NotFiniteError(Exception):
    """Rows of a hop whose values the dtype cannot represent: their numbers are the argument."""


@dataclass(slots=True, kw_only=True, eq=False)
class HopJob:
    """See the module.

    hop: the hop.
    blocks: (first tile, last tile + 1) of each block.
    outputs: tables that miss the columns of a block, by its first tile.
    folder, done: see WorkTables.
    shape: layout of the tables.
    lists: neighbour lists.
    scale: file of the rows' scales.
    self_weight: weight of the node itself in each sum.
    columns: columns of the widest block; cold edges are those of it.
    block_bytes: memory of a block.
    staging_bytes: other memory of a pass.
    threads: threads of a pass.
    num_sources: highest source in the lists + 1, as far as known; updated.
    cold: edges from rows that are not in the widest blocks; None for none.
    engine: I/O engine.
    memory: memory for blocks, float32; None: allocated with the first block.
    """

    hop: Hop
    blocks: Sequence[tuple[int, int]]
    outputs: Mapping[int, frozenset[str]]
    folder: Path
    done: Path
    shape: TableShape
    lists: Lists
    scale: Path
    self_weight: float
    columns: int
    block_bytes: int
    staging_bytes: int
    threads: int
    num_sources: int
    cold: ColdEdges | None
    engine: Engine
    memory: NDArray[np.float32] | None = None
    _product: Product | None = field(default=None, init=False)

    @property
    def num_parts(self) -> int:
        """See Job."""
        return len(self.blocks)

    def run(self, number: int, count: Callable[[int], None]) -> None:
        """Make a block durable (see Job). Raises NotFiniteError."""
        if self.cold is not None and self._product is None:
            # Values of a block are a file, of which each process needs its own.
            own = self.cold.values_path.with_name(f"{self.cold.values_path.name}-{process_name()}")
            make_values_file(own, 4 * self.columns * self.cold.num_edges, TaskTools(self.engine))
            self.cold = replace(self.cold, values_path=own)
        tools = TaskTools(self.engine, writer=writer_name())
        with WorkTables(self.folder, self.done, self.shape, tools) as tables:
            self.write(number, tables)
            tables.settle()

    def write(self, number: int, tables: WorkTables[TableShape]) -> None:
        """Write a block into the tables; the last part becomes durable in the background. Raises NotFiniteError."""
        first, end = self.blocks[number]
        product, info = self._open_product(), self.hop.operator.info
        product.load(
            Columns(path=tables.path(self.hop.source), shape=self.shape, first_tile=first),
            end - first,
            self.scale if info.is_symmetric else None,
            all_rows=info.self_weight != 0,
            cold=self.cold_edges(number),
        )
        part = Part(first, end, 0, self.shape.num_groups)
        for step in self.steps(number):
            addend = tables.path(step.addend) if step.addend else None
            tables.write(step.output, part, partial(self._pass, product, part, step, addend))
        self.num_sources = product.num_sources

    def steps(self, number: int) -> list[Step]:
        """Return the steps of a block: those whose columns are missing."""
        return [step for step in self.hop.steps if step.output in self.outputs[self.blocks[number][0]]]

    def cold_edges(self, number: int) -> ColdEdges | None:
        """Return the cold edges of a block: narrower ones have all rows."""
        first, end = self.blocks[number]
        return self.cold if TILE_COLUMNS * (end - first) == self.columns else None

    def _open_product(self) -> Product:
        if self._product is None:
            if self.memory is None:
                self.memory = aligned_memory(self.block_bytes).view(np.float32)
            self._product = Product(
                self.engine, self.lists, self.threads, self.staging_bytes, self.memory, self.num_sources
            )
        return self._product

    def _pass(self, product: Product, part: Part, step: Step, addend: Path | None, path: Path) -> int:
        """Write a part of a table. Returns what its pages add to the checksum."""
        written = product.run(
            Columns(path=path, shape=self.shape, first_tile=part.first_tile),
            row_scale=self.scale,
            product_scale=step.product_scale,
            self_weight=self.self_weight,
            addend=addend,
            addend_scale=step.addend_scale,
        )
        if len(written.bad_rows):
            raise NotFiniteError(written.bad_rows)
        return written.sum
