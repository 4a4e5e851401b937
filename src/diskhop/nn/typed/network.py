"""A stack of typed layers: a projection per node type, then convolution, norm, activation and dropout."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from diskhop.nn.activation import Activation, relu
from diskhop.nn.matmul.placed import PlacedRows
from diskhop.nn.matmul.products import Linear, Products
from diskhop.nn.norms import NORMS
from diskhop.nn.typed.block import TypedBlock, TypedLayerBlock
from diskhop.nn.typed.by_type import ByType
from diskhop.nn.typed.schema import TypedSchema
from diskhop.nn.typed.simple_hgn import EPSILON, SimpleHgnLayer

# Features of a node type: (nodes, columns) of any dtype.
TypeRows = Tensor | PlacedRows
# (in_dim, out_dim, number of the layer) -> a module that maps rows by type and a TypedLayerBlock to targets by type.
MakeTypedLayer = Callable[[int, int, int], nn.Module]


class TypedNetwork(nn.Module):
    """A graph neural network over a typed block, for the nodes of one type, or of some.

    schema: types; features of every node type are first mapped to hidden_dim columns.
    target: node type that outputs are for.
    others: further node types that outputs are for.
    activation: what follows a layer but the last, with dropout.
    rectifies_inputs: whether a ReLU follows the map of features.
    head: whether the last layer has hidden_dim columns too, and a linear map gives the outputs.
    norm: name in NORMS, of each layer but the last; each node type has its own.
    dropout: rate after each layer but the last.
    input_dropout: rate of features.
    """

    def __init__(
        self,
        schema: TypedSchema,
        make_layer: MakeTypedLayer,
        hidden_dim: int,
        out_dim: int,
        num_layers: int,
        target: str,
        products: Products,
        *,
        others: Collection[str] = (),
        activation: Activation = relu,
        rectifies_inputs: bool = False,
        head: bool = False,
        norm: str = "none",
        dropout: float = 0.0,
        input_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.inputs = ByType(
            {name: Linear(dim, hidden_dim, products) for name, dim in schema.feature_dims.items() if dim > 0}
        )
        last_dim = hidden_dim if head else out_dim
        self.convs = nn.ModuleList(
            make_layer(hidden_dim, hidden_dim if i < num_layers - 1 else last_dim, i) for i in range(num_layers)
        )
        self.norms = nn.ModuleList(
            ByType({name: NORMS[norm](hidden_dim, products) for name in schema.node_types})
            for _ in range(num_layers - 1)
        )
        self.head = Linear(hidden_dim, out_dim, products) if head else nn.Identity()
        self.target = target
        self._targets = tuple(name for name in schema.node_types if name == target or name in others)
        self._activation = activation
        self.products = products
        self._dropout = dropout
        self._input_dropout = input_dropout
        self.rectifies_inputs = rectifies_inputs
        self._hidden_dim = hidden_dim
        self._out_dim = out_dim

    def forward(self, x: Mapping[str, TypeRows], block: TypedBlock) -> Tensor:
        """Map features of the batch's nodes, by type, to float32 (seeds, out_dim)."""
        return self.outputs(x, block)[self.target]

    def outputs(self, x: Mapping[str, TypeRows], block: TypedBlock) -> dict[str, Tensor]:
        """Return the outputs of the seeds of every type that has outputs and seeds; see forward()."""
        h, carried = self.project(x), None
        for i in range(len(self.convs)):
            h, carried = self.layer(i, h, block.layer(i), carried)
        return {name: self.finish(h[name]) for name in self._targets if name in h}

    def project(self, x: Mapping[str, TypeRows]) -> dict[str, Tensor]:
        """Map features of each type to hidden_dim columns, float32."""
        return {name: self._project(name, rows) for name, rows in x.items()}

    def _project(self, node_type: str, rows: TypeRows) -> Tensor:
        drops, is_mapped = self._input_dropout > 0 and self.training, node_type in self.inputs
        if isinstance(rows, PlacedRows) and (drops or not is_mapped or len(rows) == 0):
            rows = rows.whole()
        if isinstance(rows, Tensor):
            if len(rows) == 0:
                return rows.new_zeros(0, self._hidden_dim, dtype=torch.float32)
            if drops:
                rows = functional.dropout(rows.float(), self._input_dropout)
            if not is_mapped:
                return rows.float()
        mapped: Tensor = self.inputs[node_type](rows)
        return functional.relu_(mapped.float()) if self.rectifies_inputs else mapped.float()

    def layer(
        self, index: int, h: Mapping[str, Tensor], layer: TypedLayerBlock, carried: Any = None
    ) -> tuple[dict[str, Tensor], Any]:
        """Compute layer `index` (0: the first) with norm, activation and dropout; the last for types with outputs.

        h: rows of the sources by type.
        carried: what the layer before returned in addition to its rows, None for the first.
        """
        is_last = index == len(self.convs) - 1
        if is_last:
            layer = layer.into(*self._targets)
        outs, carried = self.convolve(index, h, layer, carried)
        if is_last:
            return outs, carried
        finished = {name: self.activated(index, name, rows) for name, rows in outs.items()}
        # A type that no relation leads to keeps its rows.
        kept = {
            name: finished[name] if name in finished else h[name][:num_targets]
            for name, num_targets in layer.num_targets.items()
        }
        return kept, carried

    def activated(self, index: int, node_type: str, rows: Tensor) -> Tensor:
        """Apply what follows the convolution of a layer but the last, for the nodes of a type; rows are overwritten."""
        norms: Any = self.norms[index]
        normed: Tensor = norms[node_type](rows)
        return self._activation(normed, self._dropout if self.training else 0.0, self.products)

    def output_dim(self, number: int) -> int:
        """Return the columns of a layer's rows, by its number from 1; of number 0: of mapped features."""
        return self._hidden_dim if number < len(self.convs) else self._out_dim

    def table_dim(self, number: int) -> int:
        """Return the columns of layer_rows(): those of output_dim(), then what is carried to the next layer."""
        return self.output_dim(number)

    def layer_rows(self, index: int, node_type: str, rows: Mapping[str, Tensor], layer: TypedLayerBlock) -> Tensor:
        """Compute layer `index` of all nodes of a type, from tables of the layer below: (targets, table_dim).

        rows: of the sources by type, with table_dim(index) columns. layer: edges into that type alone.
        """
        h, _ = self.layer(index, rows, layer)
        return self.finish(h[node_type]) if index == len(self.convs) - 1 else h[node_type]

    def convolve(
        self, index: int, h: Mapping[str, Tensor], layer: TypedLayerBlock, _carried: Any
    ) -> tuple[dict[str, Tensor], Any]:
        """Apply the layer's convolution, without what follows it."""
        return self.convs[index](h, layer), None

    def finish(self, outs: Tensor) -> Tensor:
        """Map what the last layer returned to outputs."""
        out: Tensor = self.head(outs)
        return out.float()


class SimpleHgnNetwork(TypedNetwork):
    """Simple-HGN: attention is carried from layer to layer, and outputs have norm 1."""

    def convolve(
        self, index: int, h: Mapping[str, Tensor], layer: TypedLayerBlock, carried: Any
    ) -> tuple[dict[str, Tensor], Any]:
        """See TypedNetwork. The last layer does not use earlier attention, as published: its heads are others."""
        outs, attention = self._conv(index)(h, layer, carried if self._uses_earlier(index) else None)
        return outs, attention

    def table_dim(self, number: int) -> int:
        """See TypedNetwork. Where the next layer uses earlier attention, rows have their scores of all layers so far.

        Attention of an edge follows from the scores of both ends: a few numbers per node, instead of per edge.
        """
        # All layers but the last have the same heads.
        return super().table_dim(number) + (number * self._conv(0).num_scores if self._uses_earlier(number) else 0)

    def layer_rows(self, index: int, node_type: str, rows: Mapping[str, Tensor], layer: TypedLayerBlock) -> Tensor:
        """See TypedNetwork."""
        dim, num_scores, carried = self._hidden_dim, self._conv(0).num_scores, None
        h = {name: each[:, :dim].contiguous() for name, each in rows.items()}
        if self._uses_earlier(index):
            for earlier in range(index):
                first = dim + earlier * num_scores
                scores = {name: each[:, first : first + num_scores] for name, each in rows.items()}
                carried = self._conv(earlier).attention(scores, layer, carried)
        found, _ = self.layer(index, h, layer, carried)
        if index == len(self.convs) - 1:
            return self.finish(found[node_type])
        if not self._uses_earlier(index + 1):
            return found[node_type]
        own = rows[node_type][: layer.num_targets[node_type]]
        return torch.cat([found[node_type], own[:, dim:], self._conv(index).scores(own[:, :dim])], dim=1)

    def _uses_earlier(self, index: int) -> bool:
        """Return whether layer `index` uses the attention of layers before it."""
        return 0 < index < len(self.convs) - 1

    def _conv(self, index: int) -> SimpleHgnLayer:
        conv = self.convs[index]
        assert isinstance(conv, SimpleHgnLayer)
        return conv

    def finish(self, outs: Tensor) -> Tensor:
        """See TypedNetwork."""
        return functional.normalize(outs, eps=EPSILON)
