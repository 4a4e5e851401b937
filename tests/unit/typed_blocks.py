"""Random typed blocks for tests, and the same edges as PyG's layers take them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from diskhop.dataset.type_map import EdgeEnds
from diskhop.nn.typed.block import RelationLists, TypedLayerBlock
from diskhop.nn.typed.schema import TypedSchema

# Several relations between two types, one within a type, and a type that no relation leads to.
RELATIONS: tuple[EdgeEnds, ...] = (
    ("paper", "cites", "paper"),
    ("author", "writes", "paper"),
    ("author", "reviews", "paper"),
    ("paper", "written_by", "author"),
    ("venue", "prints", "paper"),
)
NODE_TYPES = ("paper", "author", "venue")


@dataclass(frozen=True, eq=False)
class TypedCase:
    """A layer block and rows of its sources."""

    schema: TypedSchema
    layer: TypedLayerBlock
    x: dict[str, Tensor]
    seed: int

    def leaves(self, dtype: torch.dtype) -> dict[str, Tensor]:
        return {name: rows.to(dtype).requires_grad_() for name, rows in self.x.items()}

    def edge_index_dict(self) -> dict[EdgeEnds, Tensor]:
        return {ends: edge_index(lists) for ends, lists in self.layer.lists.items()}

    def one_graph(self) -> tuple[Tensor, Tensor]:
        """Edges between rows of all types, int64 (2, edges), and the number of their relation."""
        starts = self.layer.row_starts()
        parts, numbers = [], []
        for number, ends in enumerate(self.schema.relations):
            edges = edge_index(self.layer.lists[ends])
            parts.append(edges + torch.tensor([[starts[ends[0]]], [starts[ends[2]]]]))
            numbers.append(torch.full((edges.shape[1],), number))
        return torch.cat(parts, dim=1), torch.cat(numbers)

    def targets_of(self, rows: Tensor, node_type: str) -> Tensor:
        """The targets' rows of a type, among rows of all types."""
        start = self.layer.row_starts()[node_type]
        return rows[start : start + self.layer.num_targets[node_type]]


def edge_index(lists: RelationLists) -> Tensor:
    targets = np.repeat(np.arange(lists.num_targets), np.diff(lists.indptr.numpy()))
    return torch.from_numpy(np.stack([lists.sources.numpy(), targets]).astype(np.int64))


@st.composite
def typed_cases(draw: st.DrawFn, dim: int = 12) -> TypedCase:
    """Isolated nodes, empty relations and parallel edges among them."""
    num_sources = {name: draw(st.integers(1, 9)) for name in NODE_TYPES}
    num_targets = {name: draw(st.integers(0, count)) for name, count in num_sources.items()}
    if not num_targets["paper"] + num_targets["author"]:
        num_targets["paper"] = 1
    seed = draw(st.integers(0, 2**20))
    random = np.random.default_rng(seed)
    lists = {}
    for ends in RELATIONS:
        most = draw(st.sampled_from([0, 1, 4, 30]))
        degrees = random.integers(0, most + 1, num_targets[ends[2]])
        indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int32)
        sources = random.integers(0, num_sources[ends[0]], indptr[-1]).astype(np.int32)
        lists[ends] = RelationLists(torch.from_numpy(indptr), torch.from_numpy(sources))
    generator = torch.Generator().manual_seed(seed)
    x = {name: torch.randn(count, dim, generator=generator, dtype=torch.float64) for name, count in num_sources.items()}
    schema = TypedSchema(dict.fromkeys(NODE_TYPES, dim), RELATIONS)
    return TypedCase(schema, TypedLayerBlock(num_sources, num_targets, lists), x, seed)
