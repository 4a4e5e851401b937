"""Computes the tables of a network over relations within a plan.

A block of a source type's columns is in memory, while the lists of each relation from it are streamed past; means are
written. Rows of a node type are then computed from means and the type's own rows, part by part. Every table resumes
after a crash, and its bytes depend neither on memory nor on threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from diskhop.dataset.type_map import EdgeEnds
from diskhop.errors import PredictionError
from diskhop.hops.make.lists import dataset_lists
from diskhop.hops.make.passes import Lists
from diskhop.hops.stream.lists import Stretch
from diskhop.hops.stream.parts import BandReader, Rows
from diskhop.hops.stream.scan import ScannedLists
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
from diskhop.predicting.streamed.split_columns import SplitColumns
from diskhop.predicting.streamed.table_work import TableWork
from diskhop.predicting.streamed.tables import LayerTable
from diskhop.predicting.streamed.workers import Share
from diskhop.predicting.typed.relation_tables import MeansKey, RelationTables, RowsKey, TableKey
from diskhop.predicting.typed.relations import RelationLayer


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


@dataclass(slots=True, eq=False, kw_only=True)
class RelationPasses:
    """Computes tables.

    tables: which there are.
    layouts: layout of every table; of means, that of each relation's file.
    files: the file of every table; of means, one per relation.
    work: writes them, by a plan.
    """

    tables: RelationTables
    layouts: Mapping[TableKey, Layout]
    files: Mapping[TableKey, Sequence[LayerTable]]
    work: TableWork

    def run(self) -> None:
        """Compute what is missing."""
        order = self.tables.order
        missing = order.missing(lambda key: all(file.is_complete for file in self.files[key]))
        self._drop(order.unused(missing[0] if missing else None))  # left by an interrupted run
        for key in missing:
            with torch.no_grad():
                if len(key) == 3:
                    self._write_means(key)
                elif key[0] == 0:
                    self._write_first(key)
                else:
                    self._write_rows(key)
            for file in self.files[key]:
                file.settle()
            self._drop(order.unused(order.after(key)))
        kept = (file for key in order.wanted for file in self.files[key])
        self.work.spares.clear({file.path: file.shape.num_bytes for file in kept})

    def _drop(self, keys: Sequence[TableKey]) -> None:
        for key in keys:
            for file in self.files[key]:
                self.work.drop(file)

    def _write_first(self, key: RowsKey) -> None:
        """Make table 0 of a node type of its features."""
        first_table, name = self.tables.first(key[1]), f"features ({key[1]})"
        rows, map_rows = self._rows_of(key, name), self._mapping(key[1])

        def write(share: Share) -> None:
            parts = first_table.parts(share.firsts, share.stop, self.work.plan.part_rows, self.work.engine)
            for first, part in zip(share.firsts, parts, strict=True):
                rows.make(first, share.rows(len(part)), FeatureRows(map_rows, part))
                share.write(first, len(part))

        with self.work.step(name, 0):
            self.work.write_table(self.files[key][0], name, write)

    def _write_means(self, key: MeansKey) -> None:
        """Write means over the relations of a group of a source type's rows, block by block."""
        number, source, group = key
        files, below, num_rows = self.files[key], (number - 1, source), self.tables.types.num_nodes[source]
        table, (first_band, end_band) = self.files[below][0], self.layouts[below].bands([group])
        name, widths = f"layer {number}: means over {source}", table.shape.widths[first_band:end_band]
        memory = BlockMemory(num_rows, max(widths))
        with self.work.step(name, len(widths) * len(files)):
            for band, width in enumerate(widths):
                pairs = zip(self.tables.means_of(key), files, strict=True)
                relations = [(ends, file) for ends, file in pairs if band in file.missing_bands()]
                if not relations:
                    continue
                block = Block(memory, num_rows, width)
                block.fill(table.bands(first_band + band, first_band + band + 1), self._streaming(relations[0][0]))
                for ends, file in relations:
                    stage = f"layer {number}: means over {'-'.join(ends)}"
                    self.work.write_band(file, band, stage, partial(self._write_part_means, ends, block))

    def _write_part_means(self, ends: EdgeEnds, block: Block, share: Share) -> None:
        streaming = self._streaming(ends)
        sums = RelationSums(block, streaming, self.tables.types.first_row(ends[0]))
        for part in sum_parts(
            sums, streaming, share.firsts, share.stop, lambda num_rows: share.rows(num_rows)[0], share.pool
        ):
            torch.from_numpy(part.sums).div_(degrees_of(part.indptr).clamp_(min=1))
            share.write(part.first_row, len(part.sums))

    def _write_rows(self, key: RowsKey) -> None:
        """Make a table of means and of the type's own rows."""
        number, node_type = key
        layer, name = self.tables.layers[number - 1], f"layer {number} ({node_type})"
        own_layout, own_group = self.layouts[number - 1, node_type], layer.own_group(node_type)
        first_own, end_own = own_layout.bands([own_group])
        means = [
            (self.layouts[each], each[2], self.files[each][self.tables.means_of(each).index(ends)])
            for each, ends in self.tables.means_into(key)
        ]
        own_file, rows, threads = (
            self.files[number - 1, node_type][0],
            self._rows_of(key, name),
            self.work.plan.threads_per_worker,
        )

        def write(share: Share) -> None:
            bands = [file.bands(0, file.shape.num_tiles) for _, _, file in means]
            bands.append(own_file.bands(first_own, end_own))
            readers = [BandReader(each, self.work.plan.part_rows, self.work.engine, share.pool) for each in bands]
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

        with self.work.step(name, 0):
            self.work.write_table(self.files[key][0], name, write)

    def _streaming(self, ends: EdgeEnds) -> Streaming:
        lists = lists_of(self.tables, ends)
        num_sources = self.tables.types.num_nodes[ends[0]]
        return Streaming(
            lists=lists,
            scanned=ScannedLists(num_sources, 0, lists.indices_path),  # no sum leaves out loops
            part_rows=self.work.plan.part_rows,
            stretch_edges=self.work.plan.stretch_edges,
            engine=self.work.engine,
            threads=self.work.plan.threads_per_worker,
        )

    def _rows_of(self, key: RowsKey, name: str) -> RowsOfTable:
        (number, node_type), layers = key, self.tables.layers
        put_before = partial(layers[number].put_before, node_type) if number < len(layers) else None
        nodes = self.tables.dataset.nodes[node_type]

        def bad_rows(rows: Sequence[int]) -> PredictionError:
            return not_finite(nodes, name, rows[0])

        return RowsOfTable(
            self.layouts[key], put_before, self.work.plan.product_rows, bad_rows, self.work.plan.threads_per_worker
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
