"""Edges of the next generation: merged lists, and the columns that are in their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.attribute_info import attribute_file
from diskhop.dataset.build.files import SIDE_WRITER_BYTES, WRITER_BYTES
from diskhop.dataset.manifest import EdgeType, edge_id_dtype, index_dtype
from diskhop.errors import SourceError
from diskhop.importing.tools import ImportTools
from diskhop.runtime.progress import tracked
from diskhop.updating.delta import TIMES, WEIGHTS, DeltaEdges
from diskhop.updating.generation import NewGeneration
from diskhop.updating.lists import EDGE_BYTES, ListMerge, SortedPairs
from diskhop.updating.options import EdgeRules
from diskhop.updating.splice import BLOCK_BYTES, Splice, as_rows, stored_rows, stored_values

_RESERVED = "merging edges"
# A block as read, with what is inserted, and masks.
_BLOCKS_BYTES = 16 * BLOCK_BYTES
_INDPTR, _INDICES, _EDGE_IDS = "indptr.bin", "indices.bin", "edge_ids.bin"


def merge_bytes(num_edges: int) -> int:
    """Return the memory of merging a delta of num_edges, each direction counted, besides the delta itself."""
    return num_edges * EDGE_BYTES + _BLOCKS_BYTES + WRITER_BYTES + SIDE_WRITER_BYTES


class EdgeUpdate:
    """Writes the edges of the next generation. num_nodes: number of nodes, the new ones too."""

    def __init__(
        self,
        new: NewGeneration,
        added: DeltaEdges,
        removed: DeltaEdges,
        num_nodes: int,
        rules: EdgeRules,
        work: ImportTools,
    ) -> None:
        self._new, self._added, self._removed = new, added, removed
        self._num_nodes = num_nodes
        self._rules = rules
        self._work = work
        self._edges = new.dataset.only_edges
        self._folder = f"edges/{self._edges.name}"
        self.info: EdgeType = new.dataset.manifest.edge_types[self._edges.name]
        self.num_added = self.num_removed = 0

    def write(self) -> EdgeType:
        """Write the lists and all columns, and return what the manifest says of them.

        Raises SourceError for an edge to remove that the graph does not have, BudgetError.
        """
        info, dtype = self.info, index_dtype(self._num_nodes)
        is_same = not len(self._added) and not len(self._removed) and dtype == info.index_dtype
        if is_same and self._num_nodes == self._new.dataset.num_nodes:
            for relative in self._new.dataset.manifest.files:
                if relative.startswith(f"{self._folder}/"):
                    self._new.share(relative)
            return info
        ways = 2 if self._rules.undirected else 1
        with self._work.budget.reserve(_RESERVED, merge_bytes(ways * (len(self._added) + len(self._removed)))):
            merge = self._merge()
            # Attributes without values have empty files, which stay.
            with self._new.files.open(f"{self._folder}/{_INDICES}", SIDE_WRITER_BYTES) as file:
                old = tracked(
                    self._stored(_INDICES, info.index_dtype), self._work.progress, "merging edges", info.count
                )
                for block in merge.indices(old, np.dtype(dtype)):
                    file.append(block)
            self._new.files.write(f"{self._folder}/{_INDPTR}", merge.indptr(self._num_nodes))
            self.num_added, self.num_removed = len(merge.splice.inserted_at), len(merge.splice.removed_at)
            self.info = replace(info, index_dtype=dtype, count=info.count + merge.splice.change)
            self._write_columns(merge)
        return self.info

    def _merge(self) -> ListMerge:
        rules = self._rules
        added = SortedPairs.of(
            self._added.sources,
            self._added.destinations,
            both_ways=rules.undirected,
            drop_loops=rules.drops_loops,
            drop_repeats=rules.drops_repeats,
        )
        removed = SortedPairs.of(
            self._removed.sources, self._removed.destinations, both_ways=rules.undirected, drop_repeats=True
        )
        return ListMerge(
            added,
            removed,
            num_edges=self.info.count,
            starts=lambda: self._stored(_INDPTR, "<i8"),
            drop_repeats=rules.drops_repeats,
            unknown=self._removed.unknown,
        )

    def _write_columns(self, merge: ListMerge) -> None:
        numbers = merge.kept.numbers
        if self.info.weights:
            values = self._finite(self._column(WEIGHTS, "<f4"))
            self._write_column("weights.bin", merge.splice, values[numbers])
        if self.info.times:
            self._write_column("times.bin", merge.splice, self._column(TIMES, "<i8")[numbers])
        for name, attribute in self.info.attributes.items():
            relative = attribute_file(self._folder, name)
            if attribute.stored_as:
                continue
            if not attribute.row_bytes or not (len(self._added) or len(self._removed)):
                self._new.share(relative)
                continue
            shape = (len(self._added), *attribute.shape)
            values = self._added.columns.get(name, np.empty(shape, attribute.stored_dtype))
            rows = as_rows(values, attribute.row_bytes)
            old = stored_rows(self._path(relative), self._files[relative], attribute.row_bytes)
            self._new.files.write(relative, merge.splice.blocks(old, rows[numbers]))
        if self.info.edge_id_dtype:
            self._write_edge_ids(merge)

    def _write_edge_ids(self, merge: ListMerge) -> None:
        """Write the numbers of edges: those behind a removed edge move up, and new ones follow, as in an import.

        The numbers of all edges are those of the source, of which the removed rows are gone and the added ones come
        last.
        """
        dtype, splice = self.info.edge_id_dtype, merge.splice
        highest, gone = -1, []
        for first, block in _numbered(self._stored(_EDGE_IDS, dtype)):
            highest = max(highest, int(block.max(initial=0)))
            begin, end = np.searchsorted(splice.removed_at, [first, first + len(block)])
            gone.append(block[splice.removed_at[begin:end] - first].astype(np.int64))
        removed = np.unique(np.concatenate(gone)) if gone else np.empty(0, np.int64)
        first_new = highest + 1 - len(removed)
        new_ids = first_new + merge.kept.numbers
        new_dtype = edge_id_dtype(max(first_new + len(self._added), 1))
        self.info = replace(self.info, edge_id_dtype=new_dtype)
        moved = (
            (block.astype(np.int64) - np.searchsorted(removed, block)).astype(new_dtype) if len(removed) else block
            for block in self._stored(_EDGE_IDS, dtype)
        )
        blocks = splice.blocks(moved, new_ids.astype(new_dtype))
        self._new.files.write(f"{self._folder}/{_EDGE_IDS}", (block.astype(new_dtype, copy=False) for block in blocks))

    def _write_column(self, name: str, splice: Splice, values: NDArray[Any]) -> None:
        relative = f"{self._folder}/{name}"
        self._new.files.write(relative, splice.blocks(self._stored(name, values.dtype), values))

    def _column(self, name: str, dtype: str) -> NDArray[Any]:
        return self._added.columns.get(name, np.empty(0)).astype(dtype)

    def _finite(self, weights: NDArray[Any]) -> NDArray[Any]:
        bad = np.flatnonzero(~np.isfinite(weights))
        if len(bad):
            raise SourceError(f"added edges: weight of edge {bad[0]} is {weights[bad[0]]}; weights must be finite")
        return weights

    def _stored(self, name: str, dtype: str | np.dtype[Any]) -> Iterator[NDArray[Any]]:
        relative = f"{self._folder}/{name}"
        return stored_values(self._path(relative), self._files[relative], dtype)

    def _path(self, relative: str) -> Any:
        return self._new.dataset.content / relative

    @property
    def _files(self) -> Any:
        return self._new.dataset.manifest.files


def _numbered(blocks: Iterator[NDArray[Any]]) -> Iterator[tuple[int, NDArray[Any]]]:
    first = 0
    for block in blocks:
        yield first, block
        first += len(block)
