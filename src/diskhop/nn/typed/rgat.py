"""R-GAT (Busbridge et al., 2019): additive attention between neighbours that each relation maps by its own matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import RGATConv

from diskhop.dataset.type_map import EdgeEnds
from diskhop.nn.kernels.choice import runs_core
from diskhop.nn.layers.attention import Dropout
from diskhop.nn.matmul.products import Products
from diskhop.nn.typed.attention import add_scores, slot_softmax, sum_slots
from diskhop.nn.typed.block import MergedLists, RelationLists, TypedLayerBlock
from diskhop.nn.typed.schema import TypedSchema


class RgatLayer(RGATConv):  # type: ignore[misc]  # PyG has no types
    """PyG's RGATConv with additive attention, its parameters and values; heads are concatenated.

    Relations have the order of the schema.

    num_bases: number of matrices that those of the relations combine; 0: none.
    dropout: rate of the attention.
    within: whether each relation's attention adds up to 1, rather than that of all relations together.
    """

    def __init__(
        self,
        schema: TypedSchema,
        in_dim: int,
        out_dim: int,
        products: Products,
        *,
        heads: int,
        num_bases: int = 0,
        dropout: float = 0.0,
        within: bool = False,
    ) -> None:
        super().__init__(
            in_dim,
            out_dim // heads,
            len(schema.relations),
            heads=heads,
            num_bases=num_bases or None,
            dropout=dropout,
            attention_mechanism="within-relation" if within else "across-relation",
        )
        # Unused here, and left uninitialised there: saved models would differ from run to run.
        nn.init.constant_(self.l2, 1 / self.out_channels)
        self._schema = schema
        self._products = products

    def forward(self, x: Mapping[str, Tensor], layer: TypedLayerBlock) -> dict[str, Tensor]:
        """Map (sources, in_dim) of each type to (targets, out_dim) of each type with targets and relations."""
        return {
            name: self._attended(name, x, layer) for name in self._schema.destinations if layer.num_targets[name] > 0
        }

    def _attended(self, destination: str, x: Mapping[str, Tensor], layer: TypedLayerBlock) -> Tensor:
        relations = self._schema.into(destination)
        weights = self._weights(relations)
        own = x[destination][: layer.num_targets[destination]]
        # A target's scores are linear in its row: each relation needs a column per head, not the mapped row.
        of_targets = own @ (weights @ self.q).transpose(0, 1).flatten(1)
        rows, lists = [], []
        for ends, weight in zip(relations, weights, strict=True):
            sources, renumbered = _sources_only(layer.lists[ends], layer.num_sources[ends[0]])
            used = x[ends[0]] if sources is None else x[ends[0]].index_select(0, sources)
            rows.append(self._products.linear(used, weight.t()).float())
            lists.append(renumbered)
        starts = np.cumsum([0, *map(len, rows)]).tolist()
        merged = MergedLists.of(lists, starts[:-1])
        mapped = torch.cat(rows)
        scores = add_scores(mapped @ self.k, of_targets.view(-1, self.heads), merged.by_relation, merged.sources)
        is_within = self.attention_mechanism == "within-relation"
        attention = slot_softmax(
            functional.leaky_relu(scores, self.negative_slope),
            merged.by_relation if is_within else merged.indptr,
            Dropout.draw(self.dropout if self.training else 0.0),
        )
        out: Tensor = sum_slots(attention, mapped, merged.indptr, merged.sources) + self.bias
        return out

    def _weights(self, relations: Sequence[EdgeEnds]) -> Tensor:
        """Return the matrices of relations, (relations, in_dim, out_dim)."""
        numbers = torch.tensor([self._schema.relations.index(ends) for ends in relations], device=self.q.device)
        if self.num_bases is None:
            matrices: Tensor = self.weight.index_select(0, numbers)
        else:
            combined = self.att.index_select(0, numbers) @ self.basis.flatten(1)
            matrices = combined.view(len(relations), *self.basis.shape[1:])
        return matrices


def _sources_only(lists: RelationLists, num_sources: int) -> tuple[Tensor | None, RelationLists]:
    """Return the rows that a relation reads, int64, and its lists with numbers among these; None if it reads most."""
    if not runs_core(lists.sources):
        distinct, places = torch.unique(lists.sources, return_inverse=True)
        return distinct.long(), RelationLists(lists.indptr, places.int())
    is_read = np.zeros(num_sources, bool)
    is_read[lists.sources.numpy()] = True
    numbers = np.cumsum(is_read, dtype=np.int32)
    if num_sources == 0 or 2 * numbers[-1] > num_sources:
        return None, lists
    sources = torch.from_numpy(numbers[lists.sources.numpy()] - 1)
    return torch.from_numpy(np.flatnonzero(is_read)), RelationLists(lists.indptr, sources)
