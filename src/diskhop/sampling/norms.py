"""Norms of GraphSAINT: how much each node and edge of a batch counts, so that expected sums are those of the graph.

The probability p of a node or edge to be in a batch is counted in many batches (Zeng et al., 2020, section 3.3), which
differ from those of training. Of a node, the *node norm* is 1 / (p N): a sum over a batch's nodes is then, on average,
the mean over all N nodes. Of an edge from u to v, the *edge norm* is p of v / p of the edge: where v is in a batch, a
sum over its in-edges there is, on average, the sum over all of its in-edges. (PyG divides p of u.)

What no counted batch has counts as if one had it. PyG takes 10^4 for such an edge; a batch of training that has one
would learn of little else.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.dataset.attribute_info import AttributeInfo
from diskhop.dataset.attribute_set import StoredColumn
from diskhop.dataset.summed_files import FILES, check_files, sum_files
from diskhop.derived.clean import NORMS_FILE
from diskhop.derived.make import make_derived
from diskhop.errors import FormatError
from diskhop.io.atomic import Injector, require_free_space, syncing, write_file
from diskhop.io.locks import SharedLock, keep_directory
from diskhop.io.manifests import encode_manifest, read_manifest
from diskhop.protocols import Purpose, SampledBatch, Sampler, SamplerSpec, Table
from diskhop.runtime.blocks import map_in_order, row_ranges
from diskhop.runtime.progress import Progress, silent
from diskhop.sampling.cached_topology import AnyTopology

VERSION = 2
_WHAT, _REMEDY = "norms of GraphSAINT", "remove the folder, and it is made again"
_NODES, _EDGES = "node_norm", "edge_norm"
_FLOAT = AttributeInfo(dtype="float32")
# A count, the norm, and its bytes as they are written.
_BYTES_PER_NODE = 12
_BLOCK = 1 << 18
_BLOCK_BYTES = 40 * _BLOCK
_FEWEST_EDGES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NormsSpec:
    """Everything that determines norms.

    dataset_hash: of the graph.
    sampler: draws the batches.
    coverage: nodes of all counted batches, as a multiple of the graph's; at least 1.
    """

    dataset_hash: str
    sampler: SamplerSpec
    coverage: int

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {"dataset": self.dataset_hash, "coverage": self.coverage, **self.sampler.to_dict()}

    @property
    def key(self) -> str:
        """Text that is the same for equal norms alone."""
        return json.dumps(self.to_dict(), sort_keys=True)

    def folder(self, scratch: Path) -> Path:
        """Return the folder of the norms in a folder of derived files."""
        return scratch / f"saint-{xxhash.xxh3_64_intdigest(self.key.encode()):016x}"


@dataclass(frozen=True, slots=True, eq=False)
class Norms:
    """Norms on disk, float32.

    node: by row.
    edge: in the order of `indices`.
    num_batches: number of counted batches.
    lock: keeps `diskhop clean` from the folder as long as it is held.
    """

    node: StoredColumn
    edge: StoredColumn
    num_batches: int
    lock: SharedLock


def open_norms(folder: Path, spec: NormsSpec, num_nodes: int, num_edges: int) -> Norms:
    """Open norms and lock their folder. Raises ReadError, and FormatError for damaged ones."""
    lock = keep_directory(folder)
    content = read_manifest(folder / NORMS_FILE, VERSION, _WHAT, _REMEDY)
    if content.get("of") != spec.to_dict():
        raise FormatError(f"{folder}: has other norms than its name says; {_REMEDY}")
    columns = []
    for name, num_rows in ((_NODES, num_nodes), (_EDGES, num_edges)):
        path = folder / f"{name}.bin"
        if not path.exists() or path.stat().st_size != 4 * num_rows:
            raise FormatError(f"{path}: is missing or not {4 * num_rows} bytes; {_REMEDY}")
        table = Table(path=path, num_rows=num_rows, row_bytes=4, row_stride=4)
        columns.append(StoredColumn(table=table, relative=path.name, dtype=np.dtype("<f4"), info=_FLOAT))
    check_files(folder / NORMS_FILE, content, _REMEDY)
    return Norms(columns[0], columns[1], int(content["batches"]), lock)


def make_norms(
    spec: NormsSpec,
    folder: Path,
    topology: AnyTopology,
    sampler: Sampler,
    budget: Budget,
    *,
    threads: int,
    progress: Progress = silent,
    injector: Injector | None = None,
    fewest_edges: int = _FEWEST_EDGES,
) -> None:
    """Count batches and write the norms.

    Counters of edges take what the budget has left; where that is too little for all edges, the same batches are
    sampled again for each range of at least `fewest_edges`. Raises BudgetError, DestinationError, and what the sampler
    raises.
    """
    counting = _Counting(spec, topology, sampler, threads, progress)
    num_nodes, num_edges = topology.num_nodes, topology.num_edges
    with budget.reserve("counting nodes", _BYTES_PER_NODE * num_nodes + _BLOCK_BYTES):
        window = max(min(num_edges, fewest_edges), min(num_edges, budget.available_bytes // 4))
        with budget.reserve("counting edges", 4 * window):
            make_derived(folder, spec.key, lambda made, _work: counting.write(made, window, injector), injector)


class _Counting:
    """Counts in how many batches each node and edge is."""

    def __init__(
        self, spec: NormsSpec, topology: AnyTopology, sampler: Sampler, threads: int, progress: Progress
    ) -> None:
        self._spec = spec
        self._topology = topology
        self._sampler = sampler
        self._threads = threads
        self._progress = progress
        self._of_nodes = np.zeros(topology.num_nodes, np.uint32)
        self._num_batches = 0

    def write(self, folder: Path, window: int, injector: Injector | None) -> None:
        """Write all files. window: edges that are counted in one pass over the batches."""
        num_nodes, num_edges = self._topology.num_nodes, self._topology.num_edges
        require_free_space(folder, 4 * (num_nodes + num_edges), "norms")
        path = folder / f"{_EDGES}.bin"
        write_file(path, b"", injector)
        with syncing(path, injector), path.open("wb") as file:
            for first, end in list(row_ranges(num_edges, window)) or [(0, 0)]:
                of_edges = self._count(first, end)
                for start, stop in row_ranges(end - first, _BLOCK):
                    file.write(self._edge_norms(first + start, of_edges[start:stop]).tobytes())
        norms = np.maximum(self._of_nodes, 1).astype("<f4")
        np.divide(np.float32(self._num_batches / max(1, num_nodes)), norms, out=norms)
        write_file(folder / f"{_NODES}.bin", norms.tobytes(), injector)
        files = sum_files(folder, (f"{_NODES}.bin", f"{_EDGES}.bin"))
        content = {"of": self._spec.to_dict(), "batches": self._num_batches, FILES: files}
        write_file(folder / NORMS_FILE, encode_manifest(content, VERSION), injector)

    def _count(self, first: int, end: int) -> NDArray[np.uint32]:
        """Count the edges of a range in all batches; the first call also counts nodes, and how many batches to take."""
        of_edges = np.zeros(end - first, np.uint32)
        is_first, wanted = self._num_batches == 0, self._spec.coverage * self._topology.num_nodes
        numbers = count() if is_first else range(self._num_batches)
        num_drawn = 0
        with closing(map_in_order(self._sample, numbers, self._threads)) as batches:
            for batch in batches:
                positions = batch.edge_positions
                if end - first < self._topology.num_edges:
                    positions = positions[(positions >= first) & (positions < end)]
                of_edges[positions - first] += 1
                if is_first:
                    self._of_nodes[batch.node_ids] += 1
                    num_drawn += max(1, batch.num_nodes)
                    self._num_batches += 1
                    self._progress("counting for norms", min(num_drawn, wanted), wanted)
                    if num_drawn >= wanted:
                        break
        return of_edges

    def _sample(self, number: int) -> SampledBatch:
        return self._sampler.sample(np.empty(0, np.int64), purpose=Purpose.INFER, epoch=0, number=number)

    def _edge_norms(self, first: int, of_edges: NDArray[np.uint32]) -> NDArray[np.float32]:
        positions = np.arange(first, first + len(of_edges))
        targets = np.searchsorted(self._topology.indptr, positions, "right") - 1
        norms = np.maximum(self._of_nodes[targets], 1).astype("<f4")
        norms /= np.maximum(of_edges, 1)
        return norms
