"""The edges of a typed mini-batch, as the layers of a model take them.

As with one type (layers/aggregate.py), layer i of L needs the edges of the first L - i hops: of every node type a
prefix of the nodes, its *targets*, are computed from a longer prefix, its *sources*. A *relation* is an edge type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop.batches.typed import TypedBatch
from diskhop.dataset.type_map import EdgeEnds
from diskhop.nn.kernels.choice import runs_core
from diskhop.nn.kernels.lists import NeighborLists, starts_of


@dataclass(frozen=True, slots=True, eq=False)
class RelationLists:
    """The edges of one relation: target i's neighbours are sources[indptr[i] : indptr[i + 1]].

    indptr: int32 (targets + 1).
    sources: int32 (edges), rows of the source type.
    """

    indptr: Tensor
    sources: Tensor

    @property
    def num_targets(self) -> int:
        """Number of targets, with and without edges."""
        return len(self.indptr) - 1

    def lists(self) -> NeighborLists:
        """Return the targets' lists, for kernels."""
        return NeighborLists(self.indptr, self.sources)

    def mapped(self, function: Callable[[Tensor], Tensor]) -> RelationLists:
        """Return the edges with a function applied to each tensor."""
        return RelationLists(function(self.indptr), function(self.sources))

    def nonempty(self) -> tuple[Tensor | None, Tensor]:
        """Return the targets with edges, int64, and an indptr of these alone; None and all where most have edges."""
        degrees = self.indptr.diff()
        targets = degrees.nonzero().flatten()
        if 2 * len(targets) > self.num_targets:
            return None, self.indptr
        return targets, torch.cat([self.indptr[:1], self.indptr[1:][targets]])


@dataclass(frozen=True, slots=True, eq=False)
class MergedLists:
    """The edges of several relations into one node type: by target, within a target by relation.

    indptr: int32 (targets + 1).
    by_relation: int32 (targets * relations + 1), lists of each target's relations, one after the other.
    sources: int32 (edges), rows of one matrix that all relations read.
    """

    indptr: Tensor
    by_relation: Tensor
    sources: Tensor

    @classmethod
    def of(cls, relations: Sequence[RelationLists], starts: Iterable[int]) -> MergedLists:
        """Merge lists of the same targets. starts: first row in the matrix of each relation's sources."""
        if not runs_core(relations[0].indptr):
            return cls._on_device(relations, starts)
        indptrs = [each.indptr.numpy() for each in relations]
        counts = np.stack([np.diff(indptr) for indptr in indptrs], axis=1)
        by_relation = np.zeros(counts.size + 1, np.int32)
        np.cumsum(counts, out=by_relation[1:])
        sources = np.empty(by_relation[-1], np.int32)
        for number, (each, start) in enumerate(zip(relations, starts, strict=True)):
            first = by_relation[number : -1 : len(relations)]
            places = np.repeat(first - indptrs[number][:-1], counts[:, number])
            places += np.arange(len(places), dtype=np.int32)
            sources[places] = each.sources.numpy()[: len(places)] + np.int32(start)
        arrays = by_relation[:: len(relations)].copy(), by_relation, sources
        return cls(*(torch.from_numpy(array) for array in arrays))

    @classmethod
    def _on_device(cls, relations: Sequence[RelationLists], starts: Iterable[int]) -> MergedLists:
        counts = torch.stack([each.indptr.diff() for each in relations], dim=1)
        by_relation = starts_of(counts.flatten())
        sources = torch.cat([each.sources + start for each, start in zip(relations, starts, strict=True)])
        merged = torch.empty_like(sources)
        # Edges of one relation lie together in `sources`; each list has its first place among the merged ones.
        first_places = by_relation[:-1].view(-1, len(relations)).t().flatten()
        shifts = first_places - torch.cat([each.indptr[:-1] for each in relations])
        numbers = torch.cat([torch.arange(len(each.sources), device=counts.device) for each in relations])
        merged[shifts.repeat_interleave(counts.t().flatten(), output_size=len(sources)) + numbers] = sources
        return cls(by_relation[:: len(relations)].contiguous(), by_relation, merged)


@dataclass(frozen=True, slots=True, eq=False)
class TypedLayerBlock:
    """The edges of one layer.

    num_sources: number of rows that the layer reads, by node type.
    num_targets: number of rows that it computes, a prefix of those, by node type.
    lists: edges by relation; those of relations into a type have a list for each of its targets.
    """

    num_sources: Mapping[str, int]
    num_targets: Mapping[str, int]
    lists: Mapping[EdgeEnds, RelationLists]

    @property
    def device(self) -> torch.device:
        """Device of the edges."""
        return _device_of(self.lists)

    def into(self, *destinations: str) -> TypedLayerBlock:
        """Return the part that computes some node types."""
        num_targets = {name: count if name in destinations else 0 for name, count in self.num_targets.items()}
        lists = {ends: each for ends, each in self.lists.items() if ends[2] in destinations}
        return TypedLayerBlock(self.num_sources, num_targets, lists)

    def row_starts(self) -> dict[str, int]:
        """Return the first row of each node type in the sources of all types, one type after the other."""
        starts = np.cumsum([0, *self.num_sources.values()]).tolist()
        return dict(zip(self.num_sources, starts[:-1], strict=True))

    def merged(self, relations: Sequence[EdgeEnds], loops_of: str | None = None) -> MergedLists:
        """Merge relations into one node type; sources are rows of all types, one type after the other.

        loops_of: that type, to add an edge from every target to itself, as a last relation.
        """
        starts = self.row_starts()
        lists, firsts = [self.lists[each] for each in relations], [starts[source] for source, _, _ in relations]
        if loops_of is not None:
            rows = torch.arange(self.num_targets[loops_of] + 1, dtype=torch.int32, device=self.device)
            lists, firsts = [*lists, RelationLists(rows, rows[:-1])], [*firsts, starts[loops_of]]
        return MergedLists.of(lists, firsts)


def rows_of_all(x: Mapping[str, Tensor], layer: TypedLayerBlock) -> Tensor:
    """Return the sources' rows of all node types, one type after the other, as merged lists number them."""
    rows = [x[name] for name, count in layer.num_sources.items() if count > 0]
    return rows[0] if len(rows) == 1 else torch.cat(rows)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TypedBlock:
    """The edges of a typed mini-batch; see TypedBatch.

    num_sampled_nodes: new nodes per hop of each node type, the seeds first (hops + 1).
    num_sampled_edges: edges per hop of each relation (hops).
    lists: edges by relation.
    by_hop: False if the block has edges of all nodes; every layer then needs them all, and computes every node.
    """

    num_sampled_nodes: Mapping[str, tuple[int, ...]]
    num_sampled_edges: Mapping[EdgeEnds, tuple[int, ...]]
    lists: Mapping[EdgeEnds, RelationLists]
    by_hop: bool = True

    @classmethod
    def of(cls, batch: TypedBatch) -> TypedBlock:
        """Wrap a batch; its sources are not copied."""
        return cls(
            {name: part.num_sampled_nodes for name, part in batch.parts.items()},
            {ends: each.num_sampled_edges for ends, each in batch.blocks.items()},
            {
                ends: RelationLists(_as_int32(each.indptr), torch.from_numpy(each.sources))
                for ends, each in batch.blocks.items()
            },
            batch.by_hop,
        )

    @property
    def device(self) -> torch.device:
        """Device of the edges."""
        return _device_of(self.lists)

    def mapped(self, function: Callable[[Tensor], Tensor]) -> TypedBlock:
        """Return the block with a function applied to each tensor, such as one that copies it to a device."""
        return replace(self, lists={ends: each.mapped(function) for ends, each in self.lists.items()})

    def __repr__(self) -> str:
        num_edges = sum(len(each.sources) for each in self.lists.values())
        return f"TypedBlock(relations={len(self.lists)}, edges={num_edges})"

    @property
    def num_layers(self) -> int:
        """Number of sampled hops: of the layers that the block serves, unless it has edges of all nodes."""
        return max(map(len, self.num_sampled_nodes.values())) - 1 - (not self.by_hop)

    def layer(self, index: int) -> TypedLayerBlock:
        """Return the part that layer `index` needs (0: the first, which reads features)."""
        num_hops = self.num_layers - index if self.by_hop else self.num_layers + 1
        num_targets = {name: sum(counts[:num_hops]) for name, counts in self.num_sampled_nodes.items()}
        lists = {}
        for ends, each in self.lists.items():
            num_edges = sum(self.num_sampled_edges[ends][:num_hops])
            lists[ends] = RelationLists(each.indptr[: num_targets[ends[2]] + 1], each.sources[:num_edges])
        num_sources = {name: sum(counts[: num_hops + 1]) for name, counts in self.num_sampled_nodes.items()}
        return TypedLayerBlock(num_sources, num_targets, lists)


def _device_of(lists: Mapping[EdgeEnds, RelationLists]) -> torch.device:
    """Return the device of the edges of some relations; the CPU without any."""
    return next((each.indptr.device for each in lists.values()), torch.device("cpu"))


def _as_int32(array: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(array.astype(np.int32))
