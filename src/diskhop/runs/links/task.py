"""The edges that a run on links trains and measures on, before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edge_lists import EdgeLists
from diskhop.protocols import NodeIds, Purpose
from diskhop.sampling.edge_split.rules import TEST, TRAIN, VALID
from diskhop.sampling.edge_split.split import HeldLinks, SplitPlan, plan_split
from diskhop.sampling.links import LinkEnds

PART_OF = {Purpose.TRAIN: TRAIN, Purpose.VALID: VALID, Purpose.TEST: TEST}


@dataclass(frozen=True, slots=True, eq=False)
class LinkTask:
    """The split of a run.

    split: how edges are split.
    used: uses of passes that have edges; without evaluation, training alone.
    num_nodes: nodes that an end of an edge may be, of the type with more.
    """

    split: SplitPlan
    used: tuple[Purpose, ...]
    num_nodes: int

    @property
    def num_edges(self) -> dict[Purpose, int]:
        """Edges of each pass, positives of their part."""
        return {purpose: self.split.counts.positives[PART_OF[purpose]] for purpose in self.used}


def read_link_task(dataset: Dataset, link_split: str, number: int, *, evaluate: bool, memory_bytes: int) -> LinkTask:
    """Draw or read the split of a run. Raises as plan_split()."""
    return link_task(
        plan_split(dataset, link_split, number, Budget(memory_bytes)), dataset.num_nodes, evaluate=evaluate
    )


def link_task(split: SplitPlan, num_nodes: int, *, evaluate: bool) -> LinkTask:
    """Return the task of a split. num_nodes: see LinkTask. evaluate: whether held-out edges are measured."""
    purposes = tuple(PART_OF) if evaluate else (Purpose.TRAIN,)
    used = tuple(each for each in purposes if split.counts.positives[PART_OF[each]])
    return LinkTask(split, used, num_nodes)


class PresumedLinks(HeldLinks):
    """Links to plan with before a split is written: edges that are evenly spaced over all."""

    def __init__(self, lists: EdgeLists, count: int) -> None:
        super().__init__(np.empty(0, np.int64), lists, "presumed")
        self._count = count
        self._num_edges = lists.num_edges

    def __len__(self) -> int:
        return self._count

    def take(self, positions: NDArray[np.int64]) -> NodeIds:
        """See LinkEnds."""
        return self.ends_of(positions * self._num_edges // self._count)


def presumed_parts(task: LinkTask) -> Mapping[Purpose, LinkEnds]:
    """Return links of each pass to plan with: as many as the split has, of any edges."""
    return {purpose: PresumedLinks(task.split.lists, count) for purpose, count in task.num_edges.items()}
