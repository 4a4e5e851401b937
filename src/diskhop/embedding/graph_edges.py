"""Edges to train embeddings on, and those to measure them by: a dataset's triples, or the edges of its lists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import permute_ids
from diskhop.config.embed import EmbedConfig
from diskhop.dataset.dataset import Dataset, NodeSet
from diskhop.embedding.partitions.edges import EdgeBlocks
from diskhop.embedding.partitions.layout import NodePermutation, step_seed
from diskhop.embedding.ranking.evaluate import KnownEdgeBlocks, MeasuredEdges
from diskhop.errors import ConfigError, FormatError, ReadError

_BLOCK_EDGES = 1 << 16
_TRAIN, _VALID, _TEST = range(3)

Block = tuple[NDArray[np.int64], NDArray[np.int64] | None, NDArray[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class EdgeParts:
    """Edges by the places that a dealing gives; num_train to train. num_relations: 0 without relations.

    valid, test: a sample of those parts, None where they are empty.
    """

    dealing: NodePermutation
    num_train: int
    num_relations: int
    valid: MeasuredEdges | None
    test: MeasuredEdges | None
    _edges: _Edges

    @property
    def known(self) -> KnownEdgeBlocks:
        """Blocks of all parts."""
        parts = (_TRAIN, _VALID, _TEST)

        def blocks() -> Iterator[Block]:
            return chain.from_iterable(self._edges.blocks(part, self.dealing) for part in parts)

        return KnownEdgeBlocks(blocks, self.num_relations)

    def train(self) -> Iterator[Block]:
        """Blocks of those to train."""
        return self._edges.blocks(_TRAIN, self.dealing)

    def train_share(self, epoch: int, number: int, num_shares: int) -> tuple[EdgeBlocks, int]:
        """Blocks of share `number` of those to train, by an epoch's own draws, and how many these are."""
        if num_shares == 1:
            return self.train, self.num_train
        bounds = self.num_train * number // num_shares, self.num_train * (number + 1) // num_shares

        def blocks() -> Iterator[Block]:
            start = 0
            for block in self.train():
                numbers = np.arange(start, start + len(block[0]))
                start += len(numbers)
                permute_ids(self.num_train, step_seed(self.dealing.seed, epoch), "splits", numbers)
                yield _take(block, (numbers >= bounds[0]) & (numbers < bounds[1]))

        return blocks, bounds[1] - bounds[0]

    def dealt(self, dealing: NodePermutation) -> EdgeParts:
        """The same edges, by the places of another dealing of the same nodes."""
        valid, test = (
            None if edges is None else edges.moved(lambda places: dealing.places(self.dealing.nodes(places)))
            for edges in (self.valid, self.test)
        )
        return replace(self, dealing=dealing, valid=valid, test=test)


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


def read_edge_parts(dataset: Dataset, config: EmbedConfig, dealing: NodePermutation) -> EdgeParts:
    """Triples as they are split; else edges split by draws, of which none depends on another.

    dealing: of the dataset's embedded nodes. Raises ConfigError for a dataset without edges, FormatError for ids out of
    range.
    """
    reader = _TripleReader(dataset) if dataset.manifest.triples is not None else _ListReader(dataset)
    edges = _Edges(reader, dataset, config)
    num_edges = {part: edges.count(part) for part in range(3)}
    if num_edges[_TRAIN] == 0:
        raise ConfigError(f"{dataset.path}: has no edges to train on; import a graph with edges")
    return EdgeParts(
        dealing,
        num_edges[_TRAIN],
        dataset.num_relations,
        edges.sample(_VALID, num_edges[_VALID], dealing),
        edges.sample(_TEST, num_edges[_TEST], dealing),
        edges,
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
    """A reader's edges in parts, by the places that a dealing gives."""

    def __init__(self, reader: _TripleReader | _ListReader, dataset: Dataset, config: EmbedConfig) -> None:
        self._reader = reader
        self._path = str(dataset.path)
        self._config = config
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

    def blocks(self, part: int, dealing: NodePermutation) -> Iterator[Block]:
        """Of a part."""
        start = 0
        for block in self._reader.blocks(_TRAIN if self._draws_parts else part):
            count = len(block[0])
            for ids in (block[0], block[2]):
                _require_ids(self._path, ids, dealing.num_nodes, "node")
            if self._draws_parts:
                block = _take(block, self._parts(start, count) == part)
            start += count
            yield dealing.places(block[0]), block[1], dealing.places(block[2])

    def sample(self, part: int, num_edges: int, dealing: NodePermutation) -> MeasuredEdges | None:
        """At most config.eval_edges of a part, spread over it."""
        if num_edges == 0:
            return None
        num_wanted = min(num_edges, self._config.eval_edges or num_edges)
        wanted = np.arange(num_wanted) * num_edges // num_wanted
        taken: list[Block] = []
        start = 0
        for block in self.blocks(part, dealing):
            stop = start + len(block[0])
            taken.append(_take(block, wanted[(wanted >= start) & (wanted < stop)] - start))
            start = stop
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


def _take(block: Block, chosen: NDArray[Any]) -> Block:
    """Some edges of a block, by a mask or their numbers."""
    sources, relations, destinations = block
    return sources[chosen], None if relations is None else relations[chosen], destinations[chosen]


def _require_ids(where: str, ids: NDArray[np.int64], limit: int, what: str) -> None:
    for number in (ids.min(initial=0), ids.max(initial=0)):
        if not 0 <= number < limit:
            raise FormatError(f"{where}: has {what} {number}, must be from 0 to {limit - 1}; import the graph again")
