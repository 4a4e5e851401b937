"""Groups of relations between the same node types, whose means are computed in one call.

A knowledge graph has many relations with few edges each: a call per relation would cost more than its work. A *mean* of
a group is that of a target and one relation that it has edges of; they are in the order of the relations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from diskhop.nn.kernels.lists import NeighborLists, starts_of
from diskhop.nn.typed.block import RelationLists


@dataclass(frozen=True, slots=True, eq=False)
class MeanGroup:
    """Some relations from one node type to another.

    source: the source type.
    numbers: numbers of the relations, as the caller knows them.
    starts: first mean of each relation, and the number of means (relations + 1).
    targets: target of each mean, int64; None if there is one relation and a mean for every target.
    indptr: int32 (means + 1), edges of each mean.
    sources: int32 (edges), rows of the source type.
    """

    source: str
    numbers: Sequence[int]
    starts: Sequence[int]
    targets: Tensor | None
    indptr: Tensor
    sources: Tensor

    def __len__(self) -> int:
        """Number of means."""
        return self.starts[-1]

    def lists(self) -> NeighborLists:
        """Return the lists of the means, for kernels."""
        return NeighborLists(self.indptr, self.sources)

    def relations_in(self, rows: slice) -> Iterator[tuple[int, slice]]:
        """Yield the relations with means in a range: number and range of the means."""
        for number, start, stop in zip(self.numbers, self.starts, self.starts[1:], strict=False):
            part = slice(max(start, rows.start), min(stop, rows.stop))
            if part.start < part.stop:
                yield number, part

    def add_to(self, out: Tensor, rows: slice, values: Tensor) -> None:
        """Add values of the means in a range to their targets' rows."""
        if self.targets is None:
            out[rows].add_(values)
        else:
            out.index_add_(0, self.targets[rows], values)

    def of(self, by_target: Tensor, rows: slice) -> Tensor:
        """Return the targets' rows of the means in a range."""
        return by_target[rows] if self.targets is None else by_target.index_select(0, self.targets[rows])


def shifted(part: slice, rows: slice) -> slice:
    """Return a part of a range relative to the range."""
    return slice(part.start - rows.start, part.stop - rows.start)


def group_means(source: str, relations: Sequence[tuple[int, RelationLists]], most_means: int) -> list[MeanGroup]:
    """Group relations with edges, in order, until a group has most_means or more.

    relations: number and edges of each relation from the source type to one destination type.
    """
    groups: list[MeanGroup] = []
    waiting: list[tuple[int, RelationLists]] = []
    num_waiting = 0
    for number, lists in relations:
        if len(lists.sources) == 0:
            continue
        waiting.append((number, lists))
        num_waiting += min(lists.num_targets, len(lists.sources))
        if num_waiting >= most_means:
            groups.append(_group(source, waiting))
            waiting, num_waiting = [], 0
    if waiting:
        groups.append(_group(source, waiting))
    return groups


def _group(source: str, relations: Sequence[tuple[int, RelationLists]]) -> MeanGroup:
    numbers = [number for number, _ in relations]
    if len(relations) == 1:
        lists = relations[0][1]
        targets, indptr = lists.nonempty()
        return MeanGroup(source, numbers, [0, len(indptr) - 1], targets, indptr, lists.sources)
    degrees = [lists.indptr.diff() for _, lists in relations]
    with_edges = [each.nonzero().view(-1) for each in degrees]
    counts = torch.cat([each[has] for each, has in zip(degrees, with_edges, strict=True)])
    return MeanGroup(
        source,
        numbers,
        np.cumsum([0, *map(len, with_edges)]).tolist(),
        torch.cat(with_edges),
        starts_of(counts),
        torch.cat([lists.sources for _, lists in relations]),
    )
