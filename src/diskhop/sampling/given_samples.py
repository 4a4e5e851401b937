"""Batches that were sampled elsewhere (PyTorch Geometric, DGL, GraphBolt), saved as files of plain arrays.

A folder has a .npz file per batch, in the order of their names (2 before 10); folders in it are epochs, in the same
order. A file has:

    seeds       whole numbers (seeds): ids of the seed nodes
    nodes       whole numbers (nodes): ids of all nodes, each once, the seeds first
    edge_index  whole numbers (2, edges): places in `nodes` of each edge's source and destination
    num_sampled_nodes, num_sampled_edges
                new nodes per hop with the seeds first (hops + 1), and edges per hop (hops); both or neither. Edges of a
                hop are those of the nodes of the hop before. Without them every layer uses all edges.

Edges must be in the graph, and are delivered by destination, in the file's order where that is theirs.
"""

from __future__ import annotations

import contextlib
import math
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from diskhop.dataset.id_map import IdMap
from diskhop.errors import ConfigError, FormatError, SourceError
from diskhop.protocols import NodeIds, SampledBatch, SourceIds
from diskhop.sampling.topology import Topology

# The kind of these batches in the settings of a trace or a layout.
GIVEN = "given"
_NEEDED = ("seeds", "nodes", "edge_index")
_BY_HOP = ("num_sampled_nodes", "num_sampled_edges")
_REMEDY = "save it with numpy.savez(file, seeds=..., nodes=..., edge_index=...)"
_MOST_NODES = 2**31
_BLOCK_BYTES = 1 << 20
_read_header_1, _read_header_2 = np.lib.format.read_array_header_1_0, np.lib.format.read_array_header_2_0


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenSamples:
    """The files of a folder.

    folder: the folder.
    epochs: files of each epoch, in the order of the batches; all epochs have equally many.
    digests: xxh3 of the bytes of each epoch's files, as 16 hex digits.
    file_digests: xxh3 of the bytes of each file.
    """

    folder: Path
    epochs: tuple[tuple[Path, ...], ...]
    digests: tuple[str, ...]
    file_digests: tuple[tuple[int, ...], ...]

    @property
    def num_batches(self) -> int:
        """Batches of an epoch."""
        return len(self.epochs[0])

    def measure(self, epoch: int, number: int) -> ArraySizes:
        """Return the sizes of a batch's arrays without reading them. Raises SourceError, naming the file."""
        path = self.epochs[epoch][number]
        with _named(path), path.open("rb") as file:
            return _sizes_of(file)

    def read(self, epoch: int, number: int, topology: Topology, id_map: IdMap) -> SampledBatch:
        """Read a batch. Raises SourceError, naming the file and what is wrong in it, also if it has changed since."""
        path = self.epochs[epoch][number]
        with _named(path):
            with path.open("rb") as file:
                if _hash_file(file) != self.file_digests[epoch][number]:
                    raise SourceError("has changed since it was checked; run the same command again")
                arrays = _read_arrays(file)
            return _to_batch(arrays, number, topology, id_map)


class ArraySizes(NamedTuple):
    """Sizes of a batch's arrays. num_bytes: of all of them, decompressed."""

    num_nodes: int
    num_edges: int
    num_bytes: int


def find_samples(folder: Path) -> GivenSamples:
    """List the files of a folder and read them for their digests. Raises SourceError for a folder without any."""
    if not folder.is_dir():
        raise SourceError(f"{folder}: is not a folder; name one with a .npz file per batch")
    folders = sorted((path for path in folder.iterdir() if path.is_dir()), key=_natural)
    found = [(each, tuple(sorted(each.glob("*.npz"), key=_natural))) for each in [folder, *folders]]
    epochs = [(each, files) for each, files in found if files]
    if not epochs:
        raise SourceError(f"{folder}: has no .npz files; save each batch as one, or name another folder")
    if len(epochs) > 1 and epochs[0][0] == folder:
        raise SourceError(f"{folder}: has files and folders of batches; move {epochs[0][1][0].name} to a folder")
    first, files = epochs[0]
    for each, others in epochs[1:]:
        if len(others) != len(files):
            raise SourceError(
                f"{each}: has {len(others)} batches, {first} has {len(files)}; save equally many for every epoch"
            )
    hashed = [_hash_files(files) for _, files in epochs]
    return GivenSamples(
        folder=folder,
        epochs=tuple(files for _, files in epochs),
        digests=tuple(whole for whole, _ in hashed),
        file_digests=tuple(of_files for _, of_files in hashed),
    )


def _natural(path: Path) -> list[tuple[int, str]]:
    """Order names by the numbers in them."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path.name)]


def _hash_files(files: tuple[Path, ...]) -> tuple[str, tuple[int, ...]]:
    """Return xxh3 of all files, as 16 hex digits, and of each."""
    whole, of_files = xxhash.xxh3_64(), []
    for path in files:
        with _named(path), path.open("rb") as file:
            of_files.append(_hash_file(file))
        whole.update(of_files[-1].to_bytes(8, "little"))
    return whole.hexdigest(), tuple(of_files)


def _hash_file(file: BinaryIO) -> int:
    """Return xxh3 of a file from its beginning, where it is then again."""
    hasher = xxhash.xxh3_64()
    while content := file.read(_BLOCK_BYTES):
        hasher.update(content)
    file.seek(0)
    return hasher.intdigest()


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Name the file in errors, with what is wrong in it."""
    try:
        yield
    except (SourceError, ConfigError) as error:
        raise SourceError(f"{path}: {error}") from None
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}; {_REMEDY}") from error
    # What a damaged archive raises depends on where it is damaged.
    except Exception as error:
        reason = "it is damaged" if zipfile.is_zipfile(path) else "it is no .npz archive"
        raise SourceError(f"{path}: is no file of plain arrays ({reason}); {_REMEDY}") from error


def _sizes_of(file: BinaryIO) -> ArraySizes:
    """Read the sizes of arrays from their headers. Raises SourceError for one that is not plain."""
    sizes: dict[str, int] = {}
    num_bytes = 0
    with zipfile.ZipFile(file) as archive:
        for name in {*_NEEDED, *_BY_HOP} & {member.removesuffix(".npy") for member in archive.namelist()}:
            with archive.open(f"{name}.npy") as member:
                version = np.lib.format.read_magic(member)
                # Only names of fields need a later version than the second.
                shape, _, dtype = (_read_header_1 if version == (1, 0) else _read_header_2)(member)
            if dtype.hasobject:
                raise SourceError(f"is no file of plain arrays ({name} has Python objects); {_REMEDY}")
            sizes[name] = math.prod(shape)
            num_bytes += sizes[name] * dtype.itemsize
    return ArraySizes(sizes.get("nodes", 0), sizes.get("edge_index", 0) // 2, num_bytes)


def _read_arrays(file: BinaryIO) -> dict[str, NDArray[Any]]:
    _sizes_of(file)
    file.seek(0)
    with np.load(file, allow_pickle=False) as content:
        return {name: content[name] for name in (*_NEEDED, *_BY_HOP) if name in content.files}


def _to_batch(arrays: dict[str, NDArray[Any]], number: int, topology: Topology, id_map: IdMap) -> SampledBatch:
    seeds, nodes, edges = (_whole(arrays, name) for name in _NEEDED)
    _require(seeds.ndim == 1 and len(seeds) > 0, f"seeds must be a list of ids, got shape {seeds.shape}")
    _require(nodes.ndim == 1, f"nodes must be a list of ids, got shape {nodes.shape}")
    _require(edges.ndim == 2 and len(edges) == 2, f"edge_index must have 2 rows, got shape {edges.shape}")
    _require(len(nodes) < _MOST_NODES, f"nodes must be fewer than 2^31, got {len(nodes)}")
    _require(len(nodes) >= len(seeds), f"nodes must begin with the {len(seeds)} seeds, got {len(nodes)} nodes")
    rows = id_map.rows(SourceIds(nodes), "nodes")
    ids, counts = np.unique(nodes, return_counts=True)
    _require(bool(np.all(counts == 1)), f"nodes must have each id once, got {ids[counts.argmax()]} repeatedly")
    _require(np.array_equal(nodes[: len(seeds)], seeds), "nodes must begin with the seeds, in their order")
    is_inside = edges.size == 0 or (edges.min() >= 0 and edges.max() < len(nodes))
    _require(is_inside, f"edge_index must have places in nodes, 0 to {len(nodes) - 1}; it has others")
    order = np.argsort(edges[1], kind="stable")
    sources, destinations = edges[0][order], edges[1][order]
    num_nodes, num_edges = _hops(arrays, len(seeds), len(nodes), edges)
    degrees = np.bincount(destinations, minlength=len(nodes))
    num_expanded = sum(num_nodes[:-1])
    return SampledBatch(
        number=number,
        num_seeds=len(seeds),
        node_ids=rows,
        indptr=np.concatenate([[0], np.cumsum(degrees[:num_expanded])]),
        sources=sources.astype(np.int32),
        edge_positions=_find_edges(topology, rows[sources], rows[destinations], nodes[sources], nodes[destinations]),
        num_sampled_nodes=num_nodes,
        num_sampled_edges=num_edges,
        by_hop=_BY_HOP[0] in arrays,
    )


def _hops(
    arrays: dict[str, NDArray[Any]], num_seeds: int, num_nodes: int, edge_index: NDArray[np.int64]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the nodes and edges per hop; without hops, all nodes are expanded."""
    sources, destinations = edge_index
    if not any(name in arrays for name in _BY_HOP):
        of_seeds = int(np.count_nonzero(destinations < num_seeds))
        return (num_seeds, num_nodes - num_seeds, 0), (of_seeds, len(destinations) - of_seeds)
    nodes, edges = (_whole(arrays, name) for name in _BY_HOP)
    _require(nodes.ndim == edges.ndim == 1, "num_sampled_nodes and num_sampled_edges must be lists of counts")
    _require(
        len(nodes) == len(edges) + 1 >= 2,
        f"num_sampled_nodes must have one count more than num_sampled_edges, got {len(nodes)} and {len(edges)}",
    )
    _require(bool(nodes.min() >= 0 and edges.min() >= 0), "num_sampled_nodes and num_sampled_edges must be >= 0")
    num_edges = len(destinations)
    # Counts in Python do not wrap around.
    in_all, edges_in_all = sum(nodes.tolist()), sum(edges.tolist())
    _require(nodes[0] == num_seeds, f"num_sampled_nodes must begin with the {num_seeds} seeds, got {nodes[0]}")
    _require(in_all == num_nodes, f"num_sampled_nodes must add up to the {num_nodes} nodes, got {in_all}")
    _require(edges_in_all == num_edges, f"num_sampled_edges must add up to the {num_edges} edges, got {edges_in_all}")
    # The destinations of hop h are the nodes of hop h, counted from the seeds.
    hop_of = np.searchsorted(np.cumsum(nodes), destinations, side="right")
    expected = np.repeat(np.arange(len(edges)), edges)
    if len(wrong := np.flatnonzero(hop_of != expected)):
        edge = int(wrong[0])
        raise SourceError(
            f"edge {edge} is of hop {expected[edge]} by num_sampled_edges, but its destination is a node of hop "
            f"{hop_of[edge]}: a node has edges in one hop only; leave out both counts, so that every layer uses all"
        )
    if len(wrong := np.flatnonzero(sources >= np.cumsum(nodes)[expected + 1])):
        edge = int(wrong[0])
        raise SourceError(
            f"edge {edge} is of hop {expected[edge]} by num_sampled_edges, but its source is a node of a later hop "
            f"than {expected[edge] + 1}; leave out both counts, so that every layer uses all"
        )
    return tuple(nodes.tolist()), tuple(edges.tolist())


def _find_edges(
    topology: Topology, sources: NodeIds, destinations: NodeIds, source_ids: NodeIds, destination_ids: NodeIds
) -> NDArray[np.int64]:
    """Return the places of edges in the graph's lists, which ascend. Edges that are there repeatedly get one each."""
    first, last = topology.indptr[destinations], topology.indptr[destinations + 1]
    low, high = first.copy(), last.copy()
    while len(open_ := np.flatnonzero(low < high)):
        middle = (low[open_] + high[open_]) // 2
        is_below = topology.indices[middle] < sources[open_]
        low[open_] = np.where(is_below, middle + 1, low[open_])
        high[open_] = np.where(is_below, high[open_], middle)
    # The n-th edge of a batch between the same nodes is the n-th of the graph.
    order = np.lexsort((sources, destinations))
    starts = np.flatnonzero(np.r_[True, np.diff(low[order]) != 0]) if len(order) else order
    places = low.copy()
    places[order] += np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(order)]))
    is_known = places < last
    is_known[is_known] = topology.indices[places[is_known]] == sources[is_known]
    if not is_known.all():
        edge = int(np.argmin(is_known))
        raise SourceError(
            f"edge {source_ids[edge]} -> {destination_ids[edge]} is not in the graph, or not as often; sample from the "
            "graph that was imported (with --undirected it has both directions)"
        )
    return places


def _whole(arrays: dict[str, NDArray[Any]], name: str) -> NDArray[np.int64]:
    if name not in arrays:
        raise SourceError(f"has no array '{name}'; {_REMEDY}")
    values = arrays[name]
    # An empty array of another dtype has nothing that could be wrong.
    _require(values.dtype.kind in "iu" or values.size == 0, f"{name} must be whole numbers, got {values.dtype}")
    _require(values.dtype != np.uint64 or values.size == 0 or values.max() < 2**63, f"{name} must be below 2^63")
    return values.astype(np.int64)


def _require(holds: Any, rule: str) -> None:
    if not holds:
        raise SourceError(rule)


def require_given(samples: dict[str, Any], path: Path) -> None:
    """Raise FormatError for a layout of batches that diskhop sampled. samples: its settings."""
    if samples.get("sampler") != GIVEN:
        raise FormatError(f"{path}: has batches that diskhop sampled; train with --store packed and the same options")
