"""Writing a split of edges: the numbers of the positives of each part, and the graphs that messages may use.

Messages of training and validation use the training edges, those of test the validation edges too: the rule of PyG's
RandomLinkSplit. A graph is lists without the other edges, with their weights, in the layout of a dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edge_lists import EdgeLists
from diskhop.dataset.manifest import FileEntry
from diskhop.derived.clean import SPLIT_FILE
from diskhop.io.atomic import Injector, destination_errors, make_directories, sync_file, write_file
from diskhop.io.checksums import BlockHasher
from diskhop.io.destinations import FolderKind, StagedDirectory
from diskhop.io.manifests import encode_manifest
from diskhop.runtime.progress import Progress
from diskhop.sampling.edge_split.blocks import EdgeBlock, block_bytes, read_edges
from diskhop.sampling.edge_split.rules import PARTS, TEST, TRAIN, VALID, EdgeCounts, SplitRule, is_positive

# Of split.json; version 1 had no checksum.
VERSION = 2
# Graphs by name, with the parts of the split that messages use.
GRAPHS: Mapping[str, tuple[int, ...]] = {"train": (TRAIN,), "test": (TRAIN, VALID)}
FOLDER_KIND = FolderKind("a split of edges", SPLIT_FILE, (SPLIT_FILE, "*.bin", *GRAPHS))


def positives_file(part: int) -> str:
    """Return the file with the numbers of the positives of a part, int64, ascending."""
    return f"{PARTS[part]}.bin"


def graph_file(graph: str, edge_type: str, name: str) -> str:
    """Return a file of a graph: indptr, indices or weights."""
    return f"{graph}/edges/{edge_type}/{name}.bin"


def graphs_of(counts: EdgeCounts) -> tuple[str, ...]:
    """Return the graphs to write: one where there are no validation edges that tell them apart."""
    return tuple(GRAPHS) if counts.edges[VALID] and counts.edges[TEST] else ("train",)


def writing_bytes(dataset: Dataset) -> int:
    """Bytes of memory that write_split() takes: the lengths of the lists of each graph, and a block of edges."""
    return len(GRAPHS) * 16 * dataset.num_nodes + block_bytes(dataset.num_edges)


# Writes the files of a split to a folder, and returns them with further entries of the split's manifest.
WriteFiles = Callable[[Path], tuple[dict[str, FileEntry], Mapping[str, Any]]]


def write_split(
    path: Path, write_files: WriteFiles, facts: Mapping[str, Any], injector: Injector | None = None
) -> None:
    """Write a split to a new folder, which appears whole. facts: further entries of its manifest.

    Reads all edges once. Raises DestinationError, ReadError.
    """
    make_directories(path.parent, injector)
    with StagedDirectory(path, FOLDER_KIND, injector=injector) as staged:
        with destination_errors(path):
            files, found = write_files(staged.path)
        for name in files:
            sync_file(staged.path / name, injector)
        manifest = {**facts, **found, "files": {name: entry.to_json() for name, entry in files.items()}}
        write_file(staged.path / SPLIT_FILE, encode_manifest(manifest, VERSION), injector)
        staged.publish()


def write_files(
    folder: Path, dataset: Dataset, rule: SplitRule, counts: EdgeCounts, progress: Progress
) -> tuple[dict[str, FileEntry], Mapping[str, Any]]:
    """Write the positives of each part and the graphs of a dataset with one edge type; see WriteFiles."""
    (edges,) = dataset.edges.values()
    topology, weights = edges.topology, edges.edge_weights()
    writer = SplitWriter(folder, counts, edges.name, topology.num_nodes)
    for block in read_edges(EdgeLists.of(topology)):
        parts = rule.parts(block)
        of_block = None if weights is None else weights[block.first : block.first + len(block)]
        writer.add_positives(block, parts)
        writer.add_messages(parts, block.sources.astype(topology.index_dtype), block.destinations, of_block)
        progress("splitting edges", block.first + len(block), topology.num_edges)
    return writer.close(), {}


class SplitWriter:
    """Writes the positives of each part and the graphs of a split, whose edges come a block at a time.

    edge_type: folder of the lists of each graph. num_lists: of a graph.
    """

    def __init__(self, folder: Path, counts: EdgeCounts, edge_type: str, num_lists: int) -> None:
        self.graphs = [_GraphWriter(folder, name, edge_type, num_lists) for name in graphs_of(counts)]
        self._is_undirected = counts.is_undirected
        self._positives = [_HashedFile(folder / positives_file(part)) for part in range(len(PARTS))]

    def add_positives(self, block: EdgeBlock, parts: NDArray[np.uint8]) -> None:
        """Append the edges of a block that count as positives. parts: of its edges."""
        counted = is_positive(block, is_undirected=self._is_undirected)
        for part, file in enumerate(self._positives):
            file.write(block.numbers[counted & (parts == part)])

    def add_messages(
        self,
        parts: NDArray[np.uint8],
        sources: NDArray[Any],
        places: NDArray[np.int64],
        weights: NDArray[np.float32] | None = None,
    ) -> None:
        """Append edges to the graphs that use their parts. places: of their lists."""
        for graph in self.graphs:
            graph.add(np.isin(parts, GRAPHS[graph.name]), sources, places, weights)

    def close(self) -> dict[str, FileEntry]:
        """Complete and return the files."""
        found = {positives_file(part): file.close() for part, file in enumerate(self._positives)}
        for graph in self.graphs:
            found |= graph.close()
        return found


@dataclass(slots=True, eq=False)
class _HashedFile:
    """A new file, written from front to back, with its checksum."""

    path: Path
    _file: BinaryIO = field(init=False)
    _hasher: BlockHasher = field(default_factory=BlockHasher)

    def __post_init__(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("wb")

    def write(self, values: NDArray[Any]) -> None:
        """Append values."""
        content = np.ascontiguousarray(values).view(np.uint8)
        self._hasher.update(content)
        self._file.write(content.data)

    def close(self) -> FileEntry:
        """Return length and checksum of the file."""
        self._file.close()
        return FileEntry.of(self._hasher.finish())


class _GraphWriter:
    """Writes the lists of one graph, whose edges come in the order of the lists. num_edges: kept so far."""

    def __init__(self, folder: Path, name: str, edge_type: str, num_lists: int) -> None:
        self.name = name
        self.num_edges = 0
        self._edge_type = edge_type
        self._folder = folder
        self._lengths = np.zeros(num_lists, np.int64)
        self._indices = self._open("indices")
        self._weights: _HashedFile | None = None

    def add(
        self,
        is_kept: NDArray[np.bool_],
        sources: NDArray[Any],
        places: NDArray[np.int64],
        weights: NDArray[np.float32] | None,
    ) -> None:
        """Append the edges that are kept. places: of their lists."""
        self._indices.write(sources[is_kept])
        first, kept = int(places[0]), places[is_kept]
        lengths = np.bincount(kept - first)
        self._lengths[first : first + len(lengths)] += lengths
        self.num_edges += len(kept)
        if weights is not None:
            self._weights = self._weights or self._open("weights")
            self._weights.write(weights[is_kept])

    def close(self) -> dict[str, FileEntry]:
        """Write where each list starts, and return the files."""
        indptr = self._open("indptr")
        indptr.write(np.zeros(1, np.int64))
        indptr.write(np.cumsum(self._lengths, out=self._lengths))
        files = {"indices": self._indices, "indptr": indptr}
        files |= {} if self._weights is None else {"weights": self._weights}
        return {graph_file(self.name, self._edge_type, name): file.close() for name, file in files.items()}

    def _open(self, name: str) -> _HashedFile:
        return _HashedFile(self._folder / graph_file(self.name, self._edge_type, name))
