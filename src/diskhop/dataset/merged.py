"""Merged lists: the neighbour lists of all edge types of a dataset as one pair of files, so that it is sampled as one.

The numbers of nodes, lists and edges are those of type_map.py; `indices` has merged rows. The files are derived from
the dataset, in one pass over its lists. For *reversed* edge types, the opposite type is added (PyG's ToUndirected): its
lists are sorted in bounded memory, and a file says which edge of the dataset each of its edges is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edge_set import ReverseEdges, TopologyFiles
from diskhop.dataset.summed_files import check_files
from diskhop.dataset.type_map import MergedEdges, TypeMap, reverse_ends
from diskhop.derived.clean import MERGED_FILE
from diskhop.errors import ConfigError, FormatError
from diskhop.io.locks import keep_directory
from diskhop.io.manifests import read_manifest

VERSION = 2
_WHAT, _REMEDY = "merged lists", "remove the folder, and it is made again"
INDPTR, INDICES, REVERSED = "indptr.bin", "indices.bin", "reversed.bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedSpec:
    """Everything that determines merged lists.

    dataset_hash: of the graph.
    reversed_types: edge types whose opposites are added, by their names in the dataset.
    """

    dataset_hash: str
    reversed_types: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Text that is the same for equal lists alone."""
        return json.dumps({"dataset": self.dataset_hash, "reversed": list(self.reversed_types)}, sort_keys=True)

    def folder(self, scratch: Path) -> Path:
        """Return the folder of the lists in a folder of derived files."""
        return scratch / f"merged-{xxhash.xxh3_64_intdigest(self.key.encode()):016x}"


def merged_spec(dataset: Dataset, reversed_types: Iterable[str] = ()) -> MergedSpec:
    """Return the merged lists of a dataset. reversed_types: names of edge types, as in the dataset or as PyG's.

    Raises ConfigError for unknown types.
    """
    by_name = {name: name for name in dataset.edges}
    by_name |= {"__".join(edges.ends): name for name, edges in dataset.edges.items()}
    names = []
    for given in reversed_types:
        if given not in by_name:
            raise ConfigError(f"{dataset.path}: has no edge type '{given}' to reverse, only {', '.join(dataset.edges)}")
        names.append(by_name[given])
    # In the order of the dataset, each once.
    in_order = tuple(name for name in dataset.edges if name in {*names})
    return MergedSpec(dataset_hash=dataset.hash, reversed_types=in_order)


def merged_types(dataset: Dataset, spec: MergedSpec) -> TypeMap:
    """Return the types of merged lists: those of the dataset, then the opposites.

    Raises ConfigError for an opposite that the dataset has already.
    """
    forward = [MergedEdges(name, edges.ends, edges.num_edges) for name, edges in dataset.edges.items()]
    backward = [
        MergedEdges(edges.name, reverse_ends(edges.ends), edges.num_edges, is_reverse=True)
        for edges in forward
        if edges.name in spec.reversed_types
    ]
    taken = {edges.ends for edges in forward}
    for edges in backward:
        if edges.ends in taken:
            raise ConfigError(
                f"{dataset.path}: has the edge type {'__'.join(edges.ends)} already, so '{edges.name}' cannot be "
                "reversed; leave it out of the types to reverse"
            )
    return TypeMap({name: nodes.num_nodes for name, nodes in dataset.nodes.items()}, (*forward, *backward))


def index_dtype(types: TypeMap) -> np.dtype[Any]:
    """Return the dtype of merged `indices`, which have rows of all types."""
    return np.dtype("<u4" if types.total_nodes < 2**32 else "<i8")


def position_dtype(types: TypeMap) -> np.dtype[Any]:
    """Return the dtype of positions of edges in the dataset."""
    return np.dtype("<u4" if max((edges.num_edges for edges in types.edges), default=0) < 2**32 else "<i8")


def file_sizes(types: TypeMap) -> dict[str, int]:
    """Return the bytes of each file."""
    num_reversed = sum(edges.num_edges for edges in types.edges if edges.is_reverse)
    sizes = {
        INDPTR: 8 * (types.num_lists + 1),
        INDICES: index_dtype(types).itemsize * types.num_edges,
        REVERSED: position_dtype(types).itemsize * num_reversed,
    }
    return {name: num_bytes for name, num_bytes in sizes.items() if name != REVERSED or num_reversed}


def open_merged(folder: Path, spec: MergedSpec, types: TypeMap) -> TopologyFiles:
    """Open merged lists and lock their folder. Raises ReadError, and FormatError for damaged ones."""
    lock = keep_directory(folder)
    content = read_manifest(folder / MERGED_FILE, VERSION, _WHAT, _REMEDY)
    if content.get("of") != spec.key:
        raise FormatError(f"{folder}: has other merged lists than its name says; {_REMEDY}")
    for name, num_bytes in file_sizes(types).items():
        path = folder / name
        if not path.exists() or path.stat().st_size != num_bytes:
            raise FormatError(f"{path}: is missing or not {num_bytes} bytes; {_REMEDY}")
    check_files(folder / MERGED_FILE, content, _REMEDY)
    is_reversed = any(edges.is_reverse for edges in types.edges)
    reverse = ReverseEdges(path=folder / REVERSED, dtype=position_dtype(types)) if is_reversed else None
    return TopologyFiles(
        indptr_path=folder / INDPTR,
        indices_path=folder / INDICES,
        index_dtype=index_dtype(types),
        num_nodes=types.total_nodes,
        num_edges=types.num_edges,
        types=types,
        reverse=reverse,
        lock=lock,
    )
