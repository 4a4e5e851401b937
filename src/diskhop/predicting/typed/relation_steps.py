"""The steps that make the tables of a network over relations: what each loads, and how it writes rows.

A block of a source type's columns is in memory, while the lists of each relation from it are streamed past; means are
written. Rows of a node type are then computed from means and the type's own rows, part by part. Bytes depend neither on
memory nor on threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from diskhop._native import Engine
from diskhop.dataset.type_map import EdgeEnds
from diskhop.errors import PredictionError
from diskhop.hops.make.lists import dataset_lists
from diskhop.hops.make.passes import Lists
from diskhop.hops.stream.lists import Stretch
from diskhop.hops.stream.parts import BandReader, Rows
from diskhop.hops.stream.scan import ScannedLists
from diskhop.planning.passes_plan import PassesPlan
from diskhop.predicting.batched.batches import not_finite
from diskhop.predicting.streamed.layout import Layout
from diskhop.predicting.streamed.passes import (
    Block,
    BlockMemory,
    NeighborSums,
    Streaming,
    degrees_of,
    sum_parts,
)
from diskhop.predicting.streamed.row_products import RowProduct
from diskhop.predicting.streamed.row_step import FeatureRows, HiddenRows, RowsOfTable
from diskhop.predicting.streamed.rows_job import Output
from diskhop.predicting.streamed.split_columns import SplitColumns
from diskhop.predicting.streamed.tables import LayerTable
from diskhop.predicting.streamed.workers import Share, WriteRows
from diskhop.predicting.typed.relation_tables import MeansKey, RelationTables, RowsKey, TableKey
from diskhop.predicting.typed.relations import RelationLayer
from diskhop.runtime.jobs import Share as JobShare


class RelationSums(NeighborSums):
    """Sums of a block's rows over lists whose sources are merged rows. first_source: merged row of the first one."""

    def __init__(self, block: Block, streaming: Streaming, first_source: int) -> None:
        super().__init__(block, streaming, adds_own=False)
        self._first_source = first_source

    def add(self, stretch: Stretch, sums: Rows) -> None:
        """See Summer."""
        np.subtract(stretch.indices, stretch.indices.dtype.type(self._first_source), out=stretch.indices)
        super().add(stretch, sums)


@dataclass(frozen=True, slots=True, eq=False)
class RelationRows(HiddenRows):
    """Output of a layer for nodes of a type. means, own: see RelationLayer.after(), of the part."""

    layer: RelationLayer
    node_type: str
    means: Sequence[SplitColumns]
    own: SplitColumns

    def of(self, which: slice) -> Tensor:
        """See HiddenRows."""
        return self.layer.after(self.node_type, [each.of(which) for each in self.means], self.own.of(which))


@dataclass(frozen=True, slots=True)
class RelationStep:
    """A step: it makes a table, or of a table of means one band of one relation.

    key: the table. ends: the relation; () for rows. band: number of the band.
    """

    key: TableKey
    ends: EdgeEnds | tuple[()] = ()
    band: int = 0


@dataclass(slots=True, eq=False, kw_only=True)
class RelationSteps:
    """The steps of a network over relations (see Steps).

    tables: which there are.
    layouts: layout of every table; of means, that of each relation's file.
    files: the file of every table; of means, one per relation.
    plan: blocks and sizes.
    engine: I/O engine.
    copy: what a worker process opens the same steps by (see jobs.py).
    """

    tables: RelationTables
    layouts: Mapping[TableKey, Layout]
    files: Mapping[TableKey, Sequence[LayerTable]]
    plan: PassesPlan
    engine: Engine
    copy: Callable[[JobShare], partial[RelationSteps]]
    # Memory of the blocks of a table of means, and the band that it has.
    _memory: tuple[MeansKey, BlockMemory] | None = field(init=False, default=None)
    _block: tuple[int, Block] | None = field(init=False, default=None)

    def for_workers(self, share: JobShare) -> partial[RelationSteps]:
        """See jobs.py."""
        return self.copy(share)

    def output(self, step: RelationStep) -> Output:
        """See Steps."""
        if len(step.key) == 3:
            assert step.ends, "means are of relations"
            table = self.files[step.key][self.tables.means_of(step.key).index(step.ends)]
            return Output(table=table, first_band=step.band, end_band=step.band + 1, part_rows=self.plan.summed_rows)
        (table,) = self.files[step.key]
        return Output(table=table, first_band=0, end_band=table.shape.num_tiles, part_rows=self.plan.part_rows)

    def open(self, step: RelationStep) -> WriteRows:
        """See Steps."""
        if len(step.key) == 3:
            assert step.ends, "means are of relations"
            return partial(self._write_means, step.ends, self._block_of(step.key, step.band, step.ends))
        name = self.name(step.key)
        if step.key[0] == 0:
            return partial(self._write_first, step.key[1], self._rows_of(step.key, name), self._mapping(step.key[1]))
        return partial(self._write_rows, step.key, self._rows_of(step.key, name))

    def name(self, key: TableKey) -> str:
        """Return the name of the work on a table."""
        if len(key) == 3:
            return f"layer {key[0]}: means over {key[1]}"
        return f"features ({key[1]})" if key[0] == 0 else f"layer {key[0]} ({key[1]})"

    def num_bands(self, key: MeansKey) -> int:
        """Return the bands of each file of a table of means."""
        return self.files[key][0].shape.num_tiles

    def release(self) -> None:
        """Free the memory of blocks."""
        self._memory = self._block = None

    def _write_first(
        self, node_type: str, rows: RowsOfTable, map_rows: Callable[[Tensor], Tensor], share: Share
    ) -> None:
        """Make rows of table 0 of a node type of its features."""
        parts = self.tables.first(node_type).parts(share.firsts, share.stop, self.plan.part_rows, self.engine)
        for first, part in zip(share.firsts, parts, strict=True):
            rows.make(first, share.rows(len(part)), FeatureRows(map_rows, part))
            share.write(first, len(part))

    def _block_of(self, key: MeansKey, band: int, ends: EdgeEnds) -> Block:
        """Load a band of the rows that means are taken of, unless it is loaded."""
        number, source, group = key
        below = number - 1, source
        table, (first_band, end_band) = self.files[below][0], self.layouts[below].bands([group])
        widths = table.shape.widths[first_band:end_band]
        if self._memory is None or self._memory[0] != key:
            self.release()
            self._memory = key, BlockMemory(table.shape.num_rows, max(widths))
        if self._block is None or self._block[0] != band:
            block = Block(self._memory[1], table.shape.num_rows, widths[band])
            block.fill(table.bands(first_band + band, first_band + band + 1), self._streaming(ends))
            self._block = band, block
        return self._block[1]

    def _write_means(self, ends: EdgeEnds, block: Block, share: Share) -> None:
        """Write means over a relation of a block's rows."""
        streaming = self._streaming(ends)
        sums = RelationSums(block, streaming, self.tables.types.first_row(ends[0]))
        for part in sum_parts(
            sums, streaming, share.firsts, share.stop, lambda num_rows: share.rows(num_rows)[0], share.pool
        ):
            torch.from_numpy(part.sums).div_(degrees_of(part.indptr).clamp_(min=1))
            share.write(part.first_row, len(part.sums))

    def _write_rows(self, key: RowsKey, rows: RowsOfTable, share: Share) -> None:
        """Make rows of a table of means and of the type's own rows."""
        number, node_type = key
        layer, threads = self.tables.layers[number - 1], self.plan.threads_per_worker
        own_layout, own_group = self.layouts[number - 1, node_type], layer.own_group(node_type)
        first_own, end_own = own_layout.bands([own_group])
        means = [
            (self.layouts[each], each[2], self.files[each][self.tables.means_of(each).index(ends)])
            for each, ends in self.tables.means_into(key)
        ]
        bands = [file.bands(0, file.shape.num_tiles) for _, _, file in means]
        bands.append(self.files[number - 1, node_type][0].bands(first_own, end_own))
        readers = [BandReader(each, self.plan.part_rows, self.engine, share.pool) for each in bands]
        parts: list[Iterator[list[Rows]]] = [each.parts(share.firsts, share.stop) for each in readers]
        for first, *of_means, own in zip(share.firsts, *parts, strict=True):
            hidden = RelationRows(
                layer,
                node_type,
                [
                    layout.columns(part, [group], threads)
                    for (layout, group, _), part in zip(means, of_means, strict=True)
                ],
                own_layout.columns(own, [own_group], threads, first_own),
            )
            rows.make(first, share.rows(len(own[0])), hidden)
            share.write(first, len(own[0]))

    def _streaming(self, ends: EdgeEnds) -> Streaming:
        lists = lists_of(self.tables, ends)
        num_sources = self.tables.types.num_nodes[ends[0]]
        return Streaming(
            lists=lists,
            scanned=ScannedLists(num_sources, 0, lists.indices_path),  # no sum leaves out loops
            part_rows=self.plan.part_rows,
            stretch_edges=self.plan.stretch_edges,
            engine=self.engine,
            threads=self.plan.threads_per_worker,
        )

    def _rows_of(self, key: RowsKey, name: str) -> RowsOfTable:
        (number, node_type), layers = key, self.tables.layers
        put_before = partial(layers[number].put_before, node_type) if number < len(layers) else None
        nodes = self.tables.dataset.nodes[node_type]

        def bad_rows(rows: Sequence[int]) -> PredictionError:
            return not_finite(nodes, name, rows[0])

        return RowsOfTable(
            self.layouts[key], put_before, self.plan.product_rows, bad_rows, self.plan.threads_per_worker
        )

    def _mapping(self, node_type: str) -> Callable[[Tensor], Tensor]:
        """Return what maps rows of features to the hidden width."""
        network = self.tables.network
        if node_type not in network.inputs:
            return lambda rows: rows
        linear = network.inputs[node_type]
        product = RowProduct(network.products, linear.weight, linear.bias)
        if network.rectifies_inputs:
            return lambda rows: functional.relu(product.of_rows(rows))
        return product.of_rows


def lists_of(tables: RelationTables, ends: EdgeEnds) -> Lists:
    """Return the neighbour lists of a relation, whose edges keep their numbers in the merged lists."""
    types, lists = tables.types, dataset_lists(tables.dataset.topology)
    place = [edges.ends for edges in types.edges].index(ends)
    return Lists(
        indptr_path=lists.indptr_path,
        indptr_offset=8 * int(types.list_starts[place]),
        indices_path=lists.indices_path,
        indices_offset=lists.indices_offset,
        index_bytes=lists.index_bytes,
        num_nodes=types.num_nodes[ends[2]],
        num_edges=types.edges[place].num_edges,
    )
