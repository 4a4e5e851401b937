"""A graph's in-neighbour lists, ready to sample from.

`indptr` int64 (lists + 1) and `indices` (edges) are the two arrays of CSC: the in-neighbours of node v are
indices[indptr[v] : indptr[v + 1]]. A graph with types has merged lists (dataset/merged.py). `memory` reads both files
whole; `mapped` leaves them to the page cache.
cached_topology.py keeps some of the lists in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from diskhop._native import (
    BudgetOptions,
    Engine,
    GraphTypes,
    ImportanceOptions,
    NeighborOptions,
    NeighborSampler,
    make_neighbor_sampler,
)
from diskhop.budget import Budget
from diskhop.config.options import require_known
from diskhop.dataset.edge_set import ClusterFiles, TopologyFiles
from diskhop.dataset.type_map import TypeMap
from diskhop.errors import FormatError
from diskhop.sampling.columns import Columns, open_columns
from diskhop.sampling.whole_files import FileMode, open_bytes
from diskhop.system.resident import ResidentMemory

Indices = NDArray[np.uint32] | NDArray[np.int64]
SamplerOptions = NeighborOptions | ImportanceOptions | BudgetOptions

# Checking indptr in blocks avoids a second copy in memory.
_CHECK_BLOCK = 1 << 18


@dataclass(frozen=True, slots=True, eq=False)
class Topology:
    """The lists of an open graph, checked: indptr ascends from 0 to the number of edges. The arrays are read-only.

    columns: weights and times, by use.
    clusters: clusters of nodes; None for none.
    types: types of merged lists; None for a graph without.
    """

    indices_path: Path
    indptr: NDArray[np.int64]
    indices: Indices
    columns: Columns = field(default_factory=dict)
    clusters: ClusterFiles | None = None
    types: TypeMap | None = None

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.indptr) - 1 if self.types is None else self.types.total_nodes

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return len(self.indices)

    def make_sampler(self, fanouts: Sequence[int], options: SamplerOptions | None = None) -> NeighborSampler:
        """Make a native sampler of these lists.

        fanouts: one per hop; of a graph with types, those of all edge types for each hop. By budget: counts of nodes.
        options: None for uniform draws along drawn edges.
        """
        return make_neighbor_sampler(self.indptr, self.indices, fanouts, options, native_types(self.types))


def native_types(types: TypeMap | None) -> GraphTypes | None:
    """Return the types for a native sampler; None for those of a graph with one type of nodes and of edges."""
    return None if types is None or types.is_single else types.native()


def topology_bytes(files: TopologyFiles, mode: FileMode) -> int:
    """Bytes that the mode reserves as "topology", without columns; 0 for `mapped`, which only uses the page cache."""
    if mode == "mapped":
        return 0
    return 8 * (files.num_lists + 1) + np.dtype(files.index_dtype).itemsize * files.num_edges


@contextmanager
def open_topology(
    files: TopologyFiles, mode: FileMode, engine: Engine, budget: Budget, memory: ResidentMemory | None = None
) -> Iterator[Topology]:
    """Open the lists and their columns for sampling; `memory` reserves their bytes until the context ends.

    memory: where `memory` reads them to, if processes share it; None: memory of this process alone.

    Raises ConfigError for an unknown mode, BudgetError, ReadError, and FormatError for damaged lists.
    """
    require_known("topology mode", mode, get_args(FileMode))
    index_dtype = index_dtype_of(files)
    with (
        budget.reserve("topology", topology_bytes(files, mode), is_shared=memory is not None),
        open_columns(files.columns, mode, engine, budget, memory=memory) as columns,
    ):
        indptr = open_indptr(files, mode, engine, memory)
        indices_bytes = open_bytes(files.indices_path, index_dtype.itemsize * files.num_edges, mode, engine, memory)
        indices = indices_bytes.view(index_dtype)
        yield Topology(files.indices_path, indptr, indices, columns, files.clusters, files.types)


def index_dtype_of(files: TopologyFiles) -> np.dtype[Any]:
    """Return the dtype of `indices`. Raises FormatError for one that cannot be sampled."""
    index_dtype = np.dtype(files.index_dtype)
    if index_dtype not in (np.dtype(np.uint32), np.dtype(np.int64)):
        raise FormatError(
            f"{files.indices_path}: indices must be uint32 or int64, got {index_dtype}; run 'diskhop import' again"
        )
    return index_dtype


def open_indptr(
    files: TopologyFiles, mode: FileMode, engine: Engine, memory: ResidentMemory | None = None
) -> NDArray[np.int64]:
    """Open and check indptr. memory: see open_topology(). Raises ReadError or FormatError."""
    indptr = open_bytes(files.indptr_path, 8 * (files.num_lists + 1), mode, engine, memory).view(np.int64)
    _check_indptr(files.indptr_path, indptr, files.num_edges)
    return indptr


def _check_indptr(path: Path, indptr: NDArray[np.int64], num_edges: int) -> None:
    if indptr[0] != 0 or indptr[-1] != num_edges:
        raise FormatError(
            f"{path}: indptr must run from 0 to the {num_edges} edges, got {indptr[0]} to {indptr[-1]}; "
            "run 'diskhop verify', then 'diskhop import' again"
        )
    for first in range(0, len(indptr) - 1, _CHECK_BLOCK):
        block = indptr[first : first + _CHECK_BLOCK + 1]
        descents = np.flatnonzero(block[1:] < block[:-1])
        if len(descents):
            node = first + int(descents[0])
            raise FormatError(
                f"{path}: indptr must ascend, but node {node} has {indptr[node]} and node {node + 1} has "
                f"{indptr[node + 1]}; run 'diskhop verify', then 'diskhop import' again"
            )
