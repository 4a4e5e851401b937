"""Edges to train embeddings on, and those to measure them by: a dataset's triples, or the edges of its lists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskhop._native import permute_ids
from diskhop.dataset.dataset import Dataset, NodeSet
from diskhop.embed_config import EmbedConfig
from diskhop.embedding.edges import EdgeBlocks
from diskhop.embedding.evaluation import KnownEdgeBlocks, MeasuredEdges
from diskhop.embedding.partitions import assign_places
from diskhop.errors import ConfigError, FormatError, ReadError

_BLOCK_EDGES = 1 << 18
_TRAIN, _VALID, _TEST = range(3)

Block = tuple[NDArray[np.int64], NDArray[np.int64] | None, NDArray[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class EdgeParts:
    """train: blocks of places, num_train edges in all; valid, test: a sample of those parts, None where they are empty.

    known: blocks of all parts. num_relations: 0 without relations.
    """

    train: EdgeBlocks
    num_train: int
    num_relations: int
    known: KnownEdgeBlocks
    valid: MeasuredEdges | None
    test: MeasuredEdges | None


def embedded_nodes(dataset: Dataset) -> NodeSet:
    """Those that get embeddings. Raises ConfigError for a dataset of several types without triples."""
    if dataset.manifest.triples is not None:
        return dataset.nodes[dataset.manifest.triples.node_type]
    if len(dataset.nodes) != 1:
        raise ConfigError(
            f"{dataset.path}: has node types {', '.join(dataset.nodes)} and no triples; embeddings are of one type"
        )
    return next(iter(dataset.nodes.values()))


def block_bytes(num_edges: int) -> int:
    """Memory while edges are read: sources, relations, destinations and their places, and what locating them takes."""
    return min(num_edges, _BLOCK_EDGES) * 12 * 8


def read_edge_parts(dataset: Dataset, config: EmbedConfig) -> EdgeParts:
    """Triples as they are split; else edges split by draws, of which none depends on another.

    Raises ConfigError for a dataset without edges, FormatError for ids out of range.
    """
    reader = _TripleReader(dataset) if dataset.manifest.triples is not None else _ListReader(dataset)
    edges = _Edges(reader, dataset, config)
    num_edges = {part: edges.count(part) for part in range(3)}
    if num_edges[_TRAIN] == 0:
        raise ConfigError(f"{dataset.path}: has no edges to train on; import a graph with edges")
    return EdgeParts(
        train=lambda: edges.blocks(_TRAIN),
        num_train=num_edges[_TRAIN],
        num_relations=dataset.num_relations,
        known=KnownEdgeBlocks(edges.all_blocks, dataset.num_relations),
        valid=edges.sample(_VALID, num_edges[_VALID]),
        test=edges.sample(_TEST, num_edges[_TEST]),
    )


class _TripleReader:
    """Blocks of a part of the triples; all of them are its train part where they are not split."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        triples = dataset.manifest.triples
        assert triples is not None, "it is read by _ListReader"
        self._parts = triples.parts
        self.is_split = "train" in self._parts

    def count(self, part: int) -> int:
        """Triples of a part."""
        return self._parts.get(self._name(part), 0)

    def blocks(self, part: int) -> Iterator[Block]:
        """Of ids."""
        path = self._dataset.path / "triples" / f"{self._name(part)}.bin"
        for start in range(0, self.count(part), _BLOCK_EDGES):
            count = min(_BLOCK_EDGES, self.count(part) - start)
            triples = np.fromfile(path, "<i8", 3 * count, offset=24 * start)
            if len(triples) != 3 * count:
                raise ReadError(f"{path}: ended before triple {start + count}; run 'diskhop verify'")
            sources, relations, destinations = triples.reshape(-1, 3).T
            _require_ids(str(path), relations, self._dataset.num_relations, "relation")
            yield sources, relations, destinations

    def _name(self, part: int) -> str:
        return ("train" if self.is_split else "all", "valid", "test")[part]


class _ListReader:
    """Blocks of the edges of in-neighbour lists."""

    is_split = False

    def __init__(self, dataset: Dataset) -> None:
        self._files = dataset.topology

    def count(self, part: int) -> int:
        """All are in the one part."""
        return self._files.num_edges if part == _TRAIN else 0

    def blocks(self, part: int) -> Iterator[Block]:
        """Of ids."""
        indptr = np.memmap(self._files.indptr_path, "<i8", "r")
        for start in range(0, self.count(part), _BLOCK_EDGES):
            stop = min(start + _BLOCK_EDGES, self._files.num_edges)
            dtype = self._files.index_dtype
            sources = np.fromfile(self._files.indices_path, dtype, stop - start, offset=start * dtype.itemsize)
            if len(sources) != stop - start:
                raise ReadError(f"{self._files.indices_path}: ended before edge {stop}; run 'diskhop verify'")
            first = int(np.searchsorted(indptr, start, side="right")) - 1
            last = int(np.searchsorted(indptr, stop, side="left"))
            ends = np.clip(indptr[first : last + 1], start, stop)
            destinations = np.repeat(np.arange(first, last), np.diff(ends))
            yield sources.astype(np.int64), None, destinations


class _Edges:
    """A reader's edges by places, in parts."""

    def __init__(self, reader: _TripleReader | _ListReader, dataset: Dataset, config: EmbedConfig) -> None:
        self._reader = reader
        self._path = str(dataset.path)
        self._config = config
        self._num_nodes = embedded_nodes(dataset).num_nodes
        num_edges = reader.count(_TRAIN)
        is_drawn = not reader.is_split and config.evaluate
        self._num_valid = int(num_edges * config.valid_share) if is_drawn else 0
        self._num_test = int(num_edges * config.test_share) if is_drawn else 0
        self._draws_parts = self._num_valid + self._num_test > 0

    def count(self, part: int) -> int:
        """Edges of a part."""
        if self._draws_parts:
            num_train = self._reader.count(_TRAIN) - self._num_valid - self._num_test
            return (num_train, self._num_valid, self._num_test)[part]
        return self._reader.count(part) if part == _TRAIN or self._config.evaluate else 0

    def blocks(self, part: int) -> Iterator[Block]:
        """Of places."""
        start = 0
        for sources, relations, destinations in self._reader.blocks(_TRAIN if self._draws_parts else part):
            count = len(sources)
            for ids in (sources, destinations):
                _require_ids(self._path, ids, self._num_nodes, "node")
            if self._draws_parts:
                chosen = self._parts(start, count) == part
                sources, destinations = sources[chosen], destinations[chosen]
                relations = None if relations is None else relations[chosen]
            start += count
            yield self._place(sources), relations, self._place(destinations)

    def all_blocks(self) -> Iterator[Block]:
        """Of places, of every part."""
        for part in (_TRAIN, _VALID, _TEST):
            yield from self.blocks(part)

    def sample(self, part: int, num_edges: int) -> MeasuredEdges | None:
        """At most config.eval_edges of a part, spread over it."""
        if num_edges == 0:
            return None
        num_wanted = min(num_edges, self._config.eval_edges or num_edges)
        wanted = np.arange(num_wanted) * num_edges // num_wanted
        taken: list[Block] = []
        start = 0
        for sources, relations, destinations in self.blocks(part):
            chosen = wanted[(wanted >= start) & (wanted < start + len(sources))] - start
            taken.append((sources[chosen], None if relations is None else relations[chosen], destinations[chosen]))
            start += len(sources)
        of_relations = [each for _, each, _ in taken if each is not None]
        return MeasuredEdges(
            np.concatenate([each for each, _, _ in taken]),
            np.concatenate(of_relations) if of_relations else None,
            np.concatenate([each for _, _, each in taken]),
            num_edges,
        )

    def _parts(self, start: int, count: int) -> NDArray[np.uint8]:
        """The part of each of so many edges, by the place that its number has in an order that is drawn."""
        places = np.arange(start, start + count)
        permute_ids(self._reader.count(_TRAIN), self._config.seed, "splits", places)
        is_valid, is_held = places < self._num_valid, places < self._num_valid + self._num_test
        return np.where(is_valid, _VALID, np.where(is_held, _TEST, _TRAIN)).astype(np.uint8)

    def _place(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        return assign_places(nodes, self._num_nodes, self._config.assignment, self._config.seed)


def _require_ids(where: str, ids: NDArray[np.int64], limit: int, what: str) -> None:
    for number in (ids.min(initial=0), ids.max(initial=0)):
        if not 0 <= number < limit:
            raise FormatError(f"{where}: has {what} {number}, must be from 0 to {limit - 1}; import the graph again")
