"""Training, validation and test edges of embeddings: a dataset's triples, or the edges of its in-neighbour lists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import permute_ids
from diskhop.config.embed import EmbedConfig
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edge_set import destinations_of
from diskhop.dataset.node_set import NodeSet
from diskhop.embedding.partitions.edges import Block
from diskhop.embedding.partitions.layout import NodePermutation, step_seed
from diskhop.embedding.ranking.protocol import KnownEdgeBlocks, MeasuredEdges
from diskhop.errors import ConfigError, FormatError, ReadError

_BLOCK_EDGES = 1 << 16
_TRAIN, _VALID, _TEST = range(3)


@dataclass(frozen=True, slots=True, eq=False)
class EdgeParts:
    """A dataset's edges, split into training, validation and test; ends are places of nodes.

    permutation: assigns nodes to places.
    num_train: number of training edges.
    num_relations: number of relations, 0 without relations.
    valid: sample of the validation edges, None if there are none.
    test: sample of the test edges, None if there are none.
    """

    permutation: NodePermutation
    num_train: int
    num_relations: int
    valid: MeasuredEdges | None
    test: MeasuredEdges | None
    _edges: _Edges

    @property
    def known(self) -> KnownEdgeBlocks:
        """Edges of all parts, which filtered ranks leave out as candidates."""
        parts = (_TRAIN, _VALID, _TEST)

        def blocks() -> Iterator[Block]:
            return chain.from_iterable(self._edges.blocks(part, self.permutation) for part in parts)

        return KnownEdgeBlocks(blocks, self.num_relations)

    def train(self) -> Iterator[Block]:
        """Yield the training edges, a block at a time."""
        return self._edges.blocks(_TRAIN, self.permutation)

    def train_share(self, epoch: int, number: int, num_shares: int) -> TrainShare:
        """Return share `number` of the training edges. Each epoch splits the edges into shares at random."""
        bounds = self.num_train * number // num_shares, self.num_train * (number + 1) // num_shares
        return TrainShare(
            self._edges, self.permutation, self.num_train, step_seed(self.permutation.seed, epoch), *bounds
        )

    def repartitioned(self, permutation: NodePermutation) -> EdgeParts:
        """Return the same edges with places by another permutation of the same nodes."""
        valid, test = (
            None if edges is None else edges.moved(lambda places: permutation.places(self.permutation.nodes(places)))
            for edges in (self.valid, self.test)
        )
        return replace(self, permutation=permutation, valid=valid, test=test)


@dataclass(frozen=True, slots=True, eq=False)
class TrainShare:
    """A share of the training edges (see partitions/sort.py); ends are places of nodes.

    permutation: assigns nodes to places.
    num_train: number of all training edges.
    seed: of their random order.
    first, last: the range of that order.
    """

    _edges: _Edges
    permutation: NodePermutation
    num_train: int
    seed: int
    first: int
    last: int

    @property
    def num_edges(self) -> int:
        """See EdgeShare."""
        return self.last - self.first

    @property
    def num_input(self) -> int:
        """See EdgeShare."""
        return self._edges.num_input

    def blocks(self, start: int, stop: int) -> Iterator[Block]:
        """See EdgeShare."""
        for numbers, block in self._edges.numbered(_TRAIN, self.permutation, start, stop):
            if self.num_edges == self.num_train:
                yield block
                continue
            permute_ids(self.num_train, self.seed, "splits", numbers)
            yield _take(block, (numbers >= self.first) & (numbers < self.last))


def embedded_nodes(dataset: Dataset) -> NodeSet:
    """Return the nodes that get embeddings. Raises ConfigError for several node types without triples."""
    if dataset.manifest.triples is not None:
        return dataset.nodes[dataset.manifest.triples.node_type]
    if len(dataset.nodes) != 1:
        raise ConfigError(
            f"{dataset.path}: has node types {', '.join(dataset.nodes)} and no triples; embeddings need one node type "
            "or triples: import a folder of triples with 'diskhop import'"
        )
    return next(iter(dataset.nodes.values()))


def block_bytes(num_edges: int) -> int:
    """Return the memory in bytes for reading edges: a block's ends and relations, their places and temporaries."""
    return min(num_edges, _BLOCK_EDGES) * 12 * 8


def read_edge_parts(dataset: Dataset, config: EmbedConfig, permutation: NodePermutation) -> EdgeParts:
    """Read a dataset's edges by their split; edges without a split are split at random.

    permutation: assigns the dataset's embedded nodes to places.
    Raises ConfigError for a dataset without edges, FormatError for ids out of range.
    """
    reader = _TripleReader(dataset) if dataset.manifest.triples is not None else _ListReader(dataset)
    edges = _Edges(reader, dataset, config)
    num_edges = {part: edges.count(part) for part in range(3)}
    if num_edges[_TRAIN] == 0:
        raise ConfigError(f"{dataset.path}: has no edges to train on; import a graph with edges")
    return EdgeParts(
        permutation,
        num_edges[_TRAIN],
        dataset.num_relations,
        edges.sample(_VALID, num_edges[_VALID], permutation),
        edges.sample(_TEST, num_edges[_TEST], permutation),
        edges,
    )


class _TripleReader:
    """Reads triples in blocks. Without a split, all of them are the training part."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        triples = dataset.manifest.triples
        assert triples is not None, "_ListReader reads datasets without triples"
        self._parts = triples.parts
        self.is_split = "train" in self._parts

    def count(self, part: int) -> int:
        """Return the number of triples in a part."""
        return self._parts.get(self._name(part), 0)

    def blocks(self, part: int, start: int, stop: int) -> Iterator[Block]:
        """Yield triples of a part by node ids, a block at a time."""
        path = self._dataset.content / "triples" / f"{self._name(part)}.bin"
        for first in range(start, stop, _BLOCK_EDGES):
            count = min(_BLOCK_EDGES, stop - first)
            triples = np.fromfile(path, "<i8", 3 * count, offset=24 * first)
            if len(triples) != 3 * count:
                raise ReadError(f"{path}: ended before triple {first + count}; run 'diskhop verify'")
            sources, relations, destinations = triples.reshape(-1, 3).T
            _require_ids(str(path), relations, self._dataset.num_relations, "relation")
            yield sources, relations, destinations

    def _name(self, part: int) -> str:
        return ("train" if self.is_split else "all", "valid", "test")[part]


class _ListReader:
    """Reads the edges of in-neighbour lists in blocks."""

    is_split = False

    def __init__(self, dataset: Dataset) -> None:
        self._files = dataset.topology

    def count(self, part: int) -> int:
        """Return the number of edges in a part; all are in the training part."""
        return self._files.num_edges if part == _TRAIN else 0

    def blocks(self, part: int, start: int, stop: int) -> Iterator[Block]:
        """Yield edges of a part by node ids, a block at a time."""
        indptr = np.memmap(self._files.indptr_path, "<i8", "r")
        for first in range(start, stop, _BLOCK_EDGES):
            end = min(first + _BLOCK_EDGES, stop)
            dtype = self._files.index_dtype
            sources = np.fromfile(self._files.indices_path, dtype, end - first, offset=first * dtype.itemsize)
            if len(sources) != end - first:
                raise ReadError(f"{self._files.indices_path}: ended before edge {end}; run 'diskhop verify'")
            yield sources.astype(np.int64), None, destinations_of(indptr, first, end)


class _Edges:
    """A reader's edges, split into parts; ends are places by a given permutation."""

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
        """Return the number of edges in a part."""
        if self._draws_parts:
            num_train = self._reader.count(_TRAIN) - self._num_valid - self._num_test
            return (num_train, self._num_valid, self._num_test)[part]
        return self._reader.count(part) if part == _TRAIN or self._config.evaluate else 0

    @property
    def num_input(self) -> int:
        """Number of edges among which the training part is."""
        return self._reader.count(_TRAIN)

    def blocks(self, part: int, permutation: NodePermutation) -> Iterator[Block]:
        """Yield the edges of a part by places, a block at a time."""
        stop = self._reader.count(_TRAIN if self._draws_parts else part)
        return (block for _, block in self.numbered(part, permutation, 0, stop))

    def numbered(
        self, part: int, permutation: NodePermutation, start: int, stop: int
    ) -> Iterator[tuple[NDArray[np.int64], Block]]:
        """Yield edges of a part by places, a block at a time, with their numbers from 0 to count(part) - 1.

        start, stop: edges of the input; they are numbered in its order, or in the random one that split it.
        """
        for block in self._reader.blocks(_TRAIN if self._draws_parts else part, start, stop):
            numbers = np.arange(start, start + len(block[0]))
            start += len(numbers)
            for ids in (block[0], block[2]):
                _require_ids(self._path, ids, permutation.num_nodes, "node")
            if self._draws_parts:
                permute_ids(self._reader.count(_TRAIN), self._config.seed, "splits", numbers)
                numbers -= (self._num_valid + self._num_test, 0, self._num_valid)[part]
                is_chosen = (numbers >= 0) & (numbers < self.count(part))
                numbers, block = numbers[is_chosen], _take(block, is_chosen)
            yield numbers, (permutation.places(block[0]), block[1], permutation.places(block[2]))

    def sample(self, part: int, num_edges: int, permutation: NodePermutation) -> MeasuredEdges | None:
        """Return up to config.eval_edges edges of a part, evenly spaced; None for an empty part."""
        if num_edges == 0:
            return None
        num_wanted = min(num_edges, self._config.eval_edges or num_edges)
        wanted = np.arange(num_wanted) * num_edges // num_wanted
        taken: list[Block] = []
        start = 0
        for block in self.blocks(part, permutation):
            stop = start + len(block[0])
            taken.append(_take(block, wanted[(wanted >= start) & (wanted < stop)] - start))
            start = stop
        relations = [each for _, each, _ in taken if each is not None]
        return MeasuredEdges(
            np.concatenate([each for each, _, _ in taken]),
            np.concatenate(relations) if relations else None,
            np.concatenate([each for _, _, each in taken]),
            num_edges,
        )


def _take(block: Block, chosen: NDArray[Any]) -> Block:
    """Return the edges of a block at a mask or positions."""
    sources, relations, destinations = block
    return sources[chosen], None if relations is None else relations[chosen], destinations[chosen]


def _require_ids(where: str, ids: NDArray[np.int64], limit: int, what: str) -> None:
    for number in (ids.min(initial=0), ids.max(initial=0)):
        if not 0 <= number < limit:
            raise FormatError(f"{where}: has {what} {number}, must be from 0 to {limit - 1}; import the graph again")
