"""The graph that benchmarks share: R-MAT with NumPy alone, generated once and kept as raw files in a folder.

`indptr.bin` int64 and `indices.bin` uint32 are CSC, lists sorted; `train_ids.bin` int64 are a tenth of the nodes in
random order. The generator is not part of the package, so that the package does not generate its own test.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.dataset.edge_set import TopologyFiles
from diskhop.io.engine import open_engine
from diskhop.sampling.topology import Topology, open_topology, topology_bytes

DEFAULT_FOLDER = Path(__file__).parent / "data"
TRAIN_FRACTION = 0.1
_EDGES_PER_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFiles:
    """A graph made by make_rmat: its lists, as open_topology takes them, and its training nodes."""

    topology: TopologyFiles
    train_ids: NDArray[np.int64]


def make_rmat(
    folder: Path = DEFAULT_FOLDER, *, num_nodes: int = 2_000_000, num_edges: int = 30_000_000, seed: int = 1
) -> GraphFiles:
    """Find the graph in the folder, or generate it there.

    Quadrants .45 .22 .22 .11 over 2^ceil(log2 num_nodes) ids, pairs with an id that is not a node drawn again,
    duplicates and self-loops kept, ids permuted. Takes little more than 16 bytes of memory per edge.
    """
    graph_folder = folder / f"rmat-{num_nodes}-{num_edges}-{seed}"
    if not graph_folder.exists():
        unfinished = graph_folder.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        rng = np.random.Generator(np.random.SFC64(seed))
        keys = _sorted_edges(num_nodes, num_edges, rng)
        degrees = np.bincount((keys >> np.uint64(32)).view(np.int64), minlength=num_nodes)
        np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64).tofile(unfinished / "indptr.bin")
        keys.astype(np.uint32).tofile(unfinished / "indices.bin")
        rng.permutation(num_nodes)[: int(num_nodes * TRAIN_FRACTION)].tofile(unfinished / "train_ids.bin")
        unfinished.rename(graph_folder)
    topology = TopologyFiles(
        indptr_path=graph_folder / "indptr.bin",
        indices_path=graph_folder / "indices.bin",
        index_dtype=np.dtype(np.uint32),
        num_nodes=num_nodes,
        num_edges=num_edges,
    )
    return GraphFiles(topology=topology, train_ids=np.fromfile(graph_folder / "train_ids.bin", np.int64))


@contextmanager
def open_in_memory(files: TopologyFiles) -> Iterator[Topology]:
    """Open the lists in huge pages, as a run with enough memory does."""
    engine = open_engine("auto").engine
    with open_topology(files, "memory", engine, Budget(topology_bytes(files, "memory"))) as topology:
        yield topology


def _sorted_edges(num_nodes: int, num_edges: int, rng: np.random.Generator) -> NDArray[np.uint64]:
    """Generate edges sorted by destination, then source: destination << 32 | source."""
    new_ids = rng.permutation(num_nodes).astype(np.uint64)
    keys = np.empty(num_edges, np.uint64)
    num_made = 0
    while num_made < num_edges:
        destinations, sources = _rmat_block(num_nodes, rng)
        block = (new_ids[destinations] << np.uint64(32)) | new_ids[sources]
        block = block[: num_edges - num_made]
        keys[num_made : num_made + len(block)] = block
        num_made += len(block)
    keys.sort()
    return keys


def _rmat_block(num_nodes: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    destinations = np.zeros(_EDGES_PER_BLOCK, np.int64)
    sources = np.zeros(_EDGES_PER_BLOCK, np.int64)
    for _ in range((num_nodes - 1).bit_length()):
        draws = rng.random(_EDGES_PER_BLOCK, np.float32)
        # The quadrants in order: (0, 0), (0, 1), (1, 0), (1, 1), of (destination, source).
        destinations = 2 * destinations + (draws >= 0.67)
        sources = 2 * sources + (((draws >= 0.45) & (draws < 0.67)) | (draws >= 0.89))
    are_nodes = (destinations < num_nodes) & (sources < num_nodes)
    return destinations[are_nodes], sources[are_nodes]


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None).parse_args()
    files = make_rmat()
    print(
        f"{files.topology.indices_path.parent}: {files.topology.num_nodes:,} nodes, {files.topology.num_edges:,} edges"
    )


if __name__ == "__main__":
    main()
