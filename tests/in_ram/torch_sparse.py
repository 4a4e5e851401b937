"""Operators of torch-sparse that PyG's loaders call, in NumPy, so that they sample in memory without a compiler.

It is for the tests of examples/from_pyg, which put this folder first in the path of a process of its own where neither
pyg-lib nor torch-sparse is installed. Draws have the distributions of torch-sparse, and torch's generator. Clusters are
cut from the order of reverse Cuthill-McKee, not by METIS.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor

Ints = NDArray[np.int64]


class SparseStorage:
    """The values of a matrix."""

    def __init__(self, value: Tensor) -> None:
        self._value = value

    def value(self) -> Tensor:
        """Return the values, in the order of rows."""
        return self._value


class SparseTensor:
    """A sparse matrix, sorted by row and column, unless rowptr says that it is."""

    def __init__(
        self,
        row: Tensor | None = None,
        rowptr: Tensor | None = None,
        col: Tensor | None = None,
        value: Tensor | None = None,
        sparse_sizes: tuple[int, int] = (0, 0),
        is_sorted: bool = False,
        trust_data: bool = False,
    ) -> None:
        assert col is not None
        assert value is not None
        self.sizes = sparse_sizes
        if rowptr is None:
            assert row is not None
            order = torch.from_numpy(np.lexsort((col.numpy(), row.numpy())))
            row, col, value = row[order], col[order], value[order]
            rowptr = torch.zeros(sparse_sizes[0] + 1, dtype=torch.int64)
            rowptr[1:] = torch.bincount(row, minlength=sparse_sizes[0]).cumsum(0)
        self.rowptr, self.col, self.storage = rowptr, col, SparseStorage(value)

    def coo(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return rows, columns and values."""
        rows = torch.arange(self.sizes[0]).repeat_interleave(self.rowptr.diff())
        return rows, self.col, self.storage.value()

    def csr(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the starts of rows, columns and values."""
        return self.rowptr, self.col, self.storage.value()

    def t(self) -> SparseTensor:
        """Return the transposed matrix."""
        row, col, value = self.coo()
        return SparseTensor(row=col, col=row, value=value, sparse_sizes=(self.sizes[1], self.sizes[0]))

    def saint_subgraph(self, nodes: Tensor) -> tuple[SparseTensor, Tensor]:
        """Return the matrix of some rows and the same columns, and the places of its values in this one."""
        row, col, value = self.coo()
        local = torch.full((self.sizes[0],), -1)
        local[nodes] = torch.arange(len(nodes))
        places = ((local[row] >= 0) & (local[col] >= 0)).nonzero().flatten()
        sizes = len(nodes), len(nodes)
        found = SparseTensor(row=local[row[places]], col=local[col[places]], value=value[places], sparse_sizes=sizes)
        return found, places

    def random_walk(self, start: Tensor, length: int) -> Tensor:
        """Return the nodes of walks from row to column: (walks, length + 1)."""
        walks, degrees = [start], self.rowptr.diff()
        for _ in range(length):
            here = walks[-1]
            drawn = (torch.rand(len(here)) * degrees[here]).long()
            places = (self.rowptr[here] + drawn).clamp(max=max(len(self.col) - 1, 0))
            walks.append(torch.where(degrees[here] > 0, self.col[places], here))
        return torch.stack(walks, dim=1)


class _Numbering:
    """Numbers of nodes in the order in which they come."""

    def __init__(self, num_nodes: int) -> None:
        self.local: Ints = np.full(num_nodes, -1)
        self.nodes: list[Ints] = []
        self.count = 0

    def add(self, nodes: Ints) -> Ints:
        """Number the nodes that are new, and return those."""
        new = np.unique(nodes[self.local[nodes] < 0])
        self.local[new] = np.arange(self.count, self.count + len(new))
        self.count += len(new)
        self.nodes.append(new)
        return new

    def all(self) -> Tensor:
        """Return the nodes by their numbers."""
        return torch.from_numpy(np.concatenate(self.nodes) if self.nodes else np.empty(0, np.int64))


def draw(starts: Ints, nodes: Ints, fanout: int, replace: bool = False) -> tuple[Ints, Ints]:
    """Draw neighbours of nodes. Returns the position of the node of each, and its place among all edges."""
    first, degrees = starts[nodes], np.diff(starts)[nodes]
    if replace and fanout >= 0:
        owners = np.repeat(np.flatnonzero(degrees), fanout)
        return owners, first[owners] + (torch.rand(len(owners)).numpy() * degrees[owners]).astype(np.int64)
    owners = np.repeat(np.arange(len(nodes)), degrees)
    offsets = np.arange(len(owners)) - np.repeat(degrees.cumsum() - degrees, degrees)
    if fanout < 0:
        return owners, first[owners] + offsets
    # Of a random order of each node's edges, the first ones.
    kept = np.lexsort((torch.rand(len(owners)).numpy(), owners))[offsets < fanout]
    return owners[kept], first[owners[kept]] + offsets[kept]


def neighbor_sample(
    colptr: Tensor, row: Tensor, seed: Tensor, fanouts: Sequence[int], replace: bool, directed: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sample neighbours hop by hop. Returns nodes, and of each edge the number of its source, its target, its place."""
    key, fanouts_of = "n__e__n", {"n__e__n": fanouts}
    types = ["n"], [("n", "e", "n")], {key: colptr}, {key: row}
    found = hetero_neighbor_sample(*types, {"n": seed}, fanouts_of, len(fanouts), replace, directed)
    nodes, sources, targets, edges = (next(iter(each.values())) for each in found)
    return nodes, sources, targets, edges


def hetero_neighbor_sample(
    node_types: Sequence[str],
    edge_types: Sequence[tuple[str, str, str]],
    colptrs: dict[str, Tensor],
    rows: dict[str, Tensor],
    seeds: dict[str, Tensor],
    fanouts: dict[str, Sequence[int]],
    num_hops: int,
    replace: bool,
    directed: bool,
) -> tuple[dict[str, Tensor], ...]:
    """Sample neighbours of several types; see neighbor_sample."""
    numbering = {name: _Numbering(_num_nodes(name, edge_types, colptrs, rows)) for name in node_types}
    frontier = {name: np.empty(0, np.int64) for name in node_types}
    for name, seed in seeds.items():
        nodes = seed.numpy()
        numbering[name].local[nodes] = np.arange(len(nodes))
        numbering[name].nodes, numbering[name].count = [nodes], len(nodes)
        frontier[name] = nodes
    drawn: dict[str, list[tuple[Ints, Ints, Ints]]] = {"__".join(each): [] for each in edge_types}
    for hop in range(num_hops):
        reached = {name: np.empty(0, np.int64) for name in node_types}
        for source, relation, target in edge_types:
            key = f"{source}__{relation}__{target}"
            owners, places = draw(colptrs[key].numpy(), frontier[target], fanouts[key][hop], replace)
            neighbors = rows[key].numpy()[places]
            reached[source] = np.concatenate([reached[source], numbering[source].add(neighbors)])
            targets = numbering[target].local[frontier[target][owners]]
            drawn[key].append((numbering[source].local[neighbors], targets, places))
        frontier = reached
    columns = [
        {key: torch.from_numpy(np.concatenate([each[part] for each in hops])) for key, hops in drawn.items()}
        for part in range(3)
    ]
    return {name: each.all() for name, each in numbering.items()}, *columns


def hgt_sample(
    colptrs: dict[str, Tensor],
    rows: dict[str, Tensor],
    seeds: dict[str, Tensor],
    num_samples: dict[str, Sequence[int]],
    num_hops: int,
) -> tuple[dict[str, Tensor], ...]:
    """Sample nodes of every type by the squares of their budgets; a batch has all edges among them."""
    edge_types = [(key.split("__")[0], key.split("__")[1], key.split("__")[2]) for key in colptrs]
    sizes = {name: _num_nodes(name, edge_types, colptrs, rows) for name in num_samples}
    numbering = {name: _Numbering(size) for name, size in sizes.items()}
    budgets = {name: np.zeros(size) for name, size in sizes.items()}

    def spend(target_type: str, nodes: Ints) -> None:
        """Add 1 / degree of each node to the budgets of its neighbours."""
        for source, relation, target in edge_types:
            if target == target_type:
                key = f"{source}__{relation}__{target}"
                starts = colptrs[key].numpy()
                owners, places = draw(starts, nodes, -1)
                np.add.at(budgets[source], rows[key].numpy()[places], 1 / np.diff(starts)[nodes][owners])

    for name, seed in seeds.items():
        nodes = seed.numpy()
        numbering[name].local[nodes], numbering[name].count = np.arange(len(nodes)), len(nodes)
        numbering[name].nodes = [nodes]
        spend(name, nodes)
    for hop in range(num_hops):
        joined = {}
        for name, budget in budgets.items():
            chances = np.where(numbering[name].local < 0, budget, 0) ** 2
            count = min(num_samples[name][hop], int((chances > 0).sum()))
            drawn = torch.multinomial(torch.from_numpy(chances), count).numpy() if count else np.empty(0, np.int64)
            joined[name] = numbering[name].add(drawn)
        for name, nodes in joined.items():
            spend(name, nodes)
    columns: list[dict[str, Tensor]] = [{}, {}, {}]
    for source, relation, target in edge_types:
        key = f"{source}__{relation}__{target}"
        nodes = numbering[target].all().numpy()
        owners, places = draw(colptrs[key].numpy(), nodes, -1)
        sources = numbering[source].local[rows[key].numpy()[places]]
        kept = sources >= 0
        for column, values in zip(columns, (sources[kept], owners[kept], places[kept]), strict=True):
            column[key] = torch.from_numpy(values)
    return {name: each.all() for name, each in numbering.items()}, *columns


def ego_k_hop_sample_adj(
    rowptr: Tensor, col: Tensor, roots: Tensor, depth: int, fanout: int, replace: bool
) -> tuple[Tensor, ...]:
    """Sample a subgraph around each root: (rowptr, col, nodes, places of edges, starts of subgraphs, roots)."""
    starts, columns = rowptr.numpy(), col.numpy()
    degrees, found, nodes, places, ends, at = [], [], [], [], [0], []
    for root in roots.tolist():
        numbering = _Numbering(len(starts) - 1)
        frontier = numbering.add(np.array([root]))
        for _ in range(depth):
            frontier = numbering.add(columns[draw(starts, frontier, fanout, replace)[1]])
        members = numbering.all().numpy()
        owners, edges = draw(starts, members, -1)
        kept = numbering.local[columns[edges]] >= 0
        at.append(ends[-1])
        found.append(numbering.local[columns[edges[kept]]] + ends[-1])
        degrees.append(np.bincount(owners[kept], minlength=len(members)))
        nodes.append(members)
        places.append(edges[kept])
        ends.append(ends[-1] + len(members))
    lengths = np.concatenate([np.zeros(1, np.int64), np.concatenate(degrees).cumsum()])
    parts = lengths, *(np.concatenate(each) for each in (found, nodes, places)), np.array(ends), np.array(at)
    return tuple(torch.from_numpy(each) for each in parts)


def ptr2ind(starts: Tensor, num_nodes: int) -> Tensor:
    """Return the number of the range of each position."""
    return torch.arange(len(starts) - 1).repeat_interleave(starts.diff())


def partition(rowptr: Tensor, col: Tensor, value: None, num_parts: int, recursive: bool) -> Tensor:
    """Divide nodes into ranges of the order of reverse Cuthill-McKee."""
    size = len(rowptr) - 1
    matrix = csr_matrix((np.ones(len(col), np.int8), col.numpy(), rowptr.numpy()), (size, size))
    clusters = torch.empty(size, dtype=torch.int64)
    order = torch.from_numpy(reverse_cuthill_mckee(matrix).astype(np.int64))
    clusters[order] = torch.arange(size) * num_parts // size
    return clusters


def _num_nodes(
    name: str, edge_types: Sequence[tuple[str, str, str]], colptrs: dict[str, Tensor], rows: dict[str, Tensor]
) -> int:
    """Return how many nodes of a type the edges know."""
    sizes = [len(colptrs["__".join(each)]) - 1 for each in edge_types if each[2] == name]
    sizes += [int(rows["__".join(each)].max()) + 1 for each in edge_types if each[0] == name]
    return max(sizes, default=0)


_OPERATORS: list[Any] = [
    neighbor_sample, hetero_neighbor_sample, hgt_sample, ego_k_hop_sample_adj, ptr2ind, partition
]  # fmt: skip
for _operator in _OPERATORS:
    setattr(torch.ops.torch_sparse, _operator.__name__, _operator)
