"""A stack of layers: convolution, norm, activation, dropout, and ways around the convolution.

Without `residual` and `self_term` the parameters have the names of PyG's GraphSAGE, GCN and GAT: a state dict fits
either (GAT's last layer has one head; PyG's has as many as the others).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor, nn
from torch.nn import functional

from diskhop.nn.activation import Activation, relu
from diskhop.nn.layers.aggregate import Block, LayerBlock
from diskhop.nn.matmul.products import DEFAULT_PRODUCTS, Linear, Products
from diskhop.nn.matmul.rectifier import Rectifier
from diskhop.nn.norms import NORMS, LayerNorm

# (in_dim, out_dim, is_last) -> a module that maps (x, LayerBlock) to (targets, out_dim).
MakeLayer = Callable[[int, int, bool], nn.Module]


class Network(nn.Module):
    """A graph neural network over a block.

    input_dropout: dropout rate of features.
    dropout: rate after each layer but the last.
    residual: each layer but the last adds its input (through a linear map where widths differ).
    self_term: each layer adds a linear map of its input before its norm (Luo et al., "Classic GNNs are strong
        baselines", 2024), so that a node's own values stay apart from its neighbours'.
    normalize_input: divide each row of features by its sum.
    products: matrix products of these maps; its dtype is that of values between layers.
    uses_degrees: whether the whole graph's degrees change the result.
    """

    def __init__(
        self,
        make_layer: MakeLayer,
        in_dim: int,
        hidden_dim: int,
        out_dim: int,
        num_layers: int,
        *,
        activation: Activation = relu,
        norm: str = "none",
        residual: bool = False,
        self_term: bool = False,
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        normalize_input: bool = False,
        products: Products = DEFAULT_PRODUCTS,
    ) -> None:
        super().__init__()
        dims = [in_dim, *[hidden_dim] * (num_layers - 1), out_dim]
        self.convs = nn.ModuleList(make_layer(dims[i], dims[i + 1], i == num_layers - 1) for i in range(num_layers))
        self.norms = nn.ModuleList(NORMS[norm](dim, products) for dim in dims[1:-1])
        self.shortcuts = nn.ModuleList(
            nn.Identity() if dims[i] == dims[i + 1] else Linear(dims[i], dims[i + 1], products)
            for i in range(num_layers - 1 if residual else 0)
        )
        self.self_terms = nn.ModuleList(
            Linear(dims[i], dims[i + 1], products) for i in range(num_layers if self_term else 0)
        )
        self.uses_degrees = any(getattr(conv, "uses_degrees", False) for conv in self.convs)
        self._takes_stored_rows = all(getattr(conv, "takes_stored_rows", False) for conv in self.convs[:1])
        self._activation = activation
        self._products = products
        self._dropout = dropout
        self._input_dropout = input_dropout
        self._normalize_input = normalize_input

    def forward(self, x: Tensor, block: Block) -> Tensor:
        """Map features of the batch's nodes (nodes, in_dim), of any dtype, to float32 (seeds, out_dim).

        x may have other rows too if the block has `rows`. Of a block with edges of all nodes, the result has all nodes.
        """
        if block.rows is not None and not self._reads_rows_once():
            x, block = x.index_select(0, block.rows), replace(block, rows=None)
        for i in range(len(self.convs)):
            x = self.layer(i, x, block.layer(i))
        return x.float()

    def layer(self, index: int, x: Tensor, layer: LayerBlock) -> Tensor:
        """Compute layer `index` (0: the first) with its norm, activation, dropout and residual connection.

        x: features for the first layer, else the result of the layer before, (sources, columns).
        """
        h = functional.dropout(self.prepared(x), self._input_dropout, self.training) if index == 0 else x
        out: Tensor = self._hidden(index, h, layer) if index < len(self.norms) else self._convolved(index, h, layer)
        if index < len(self.shortcuts):
            out = out + self.shortcuts[index](h[: layer.num_targets])
        return out

    @property
    def changes_features(self) -> bool:
        """Whether the first layer takes other values than the features."""
        return self._normalize_input

    def prepared(self, x: Tensor) -> Tensor:
        """Return rows of features as the first layer takes them, without dropout."""
        if self._normalize_input:
            h = x.float()
            return h / h.sum(dim=1, keepdim=True).clamp(min=1.0)
        return x if self._takes_stored_rows else x.float()

    def finished(self, i: int, out: Tensor) -> Tensor:
        """Apply norm and activation to what the convolution of layer i returned, without dropout; may overwrite it."""
        if i >= len(self.norms):
            return out
        norm = self.norms[i]
        if self._activation is relu and isinstance(norm, LayerNorm):
            normed: Tensor = norm(out, Rectifier(0.0, 0))
            return normed
        return self._activation(norm(out), 0.0, self._products)

    def only_rectifies(self, i: int) -> bool:
        """Return whether finished() is ReLU alone for layer i, which a product may do in its own pass over the rows."""
        return i < len(self.norms) and self._activation is relu and isinstance(self.norms[i], nn.Identity)

    def _reads_rows_once(self) -> bool:
        """Return whether only the first layer's sums read features, which they can do in place."""
        drops_inputs = self._input_dropout > 0 and self.training
        has_ways_around = len(self.shortcuts) + len(self.self_terms) > 0
        return self._takes_stored_rows and not (self._normalize_input or drops_inputs or has_ways_around)

    def _convolved(self, i: int, h: Tensor, layer: LayerBlock) -> Tensor:
        """Compute the convolution of layer i, and its self-term."""
        out: Tensor = self.convs[i](h, layer)
        return out + self.self_terms[i](h[: layer.num_targets]) if len(self.self_terms) > 0 else out

    def _hidden(self, i: int, h: Tensor, layer: LayerBlock) -> Tensor:
        """Compute layer i with norm, activation and dropout."""
        conv, norm = self.convs[i], self.norms[i]
        dropout = self._dropout if self.training else 0.0
        ends_in_product = getattr(conv, "rectifies", False) and len(self.self_terms) == 0
        rectifies = isinstance(norm, LayerNorm) or (isinstance(norm, nn.Identity) and ends_in_product)
        out: Tensor
        if self._activation is relu and rectifies:
            # Applied to each block of rows while it is in the caches.
            rectifier = Rectifier.draw(dropout)
            is_normed = isinstance(norm, LayerNorm)
            out = norm(self._convolved(i, h, layer), rectifier) if is_normed else conv(h, layer, rectifier)
        else:
            out = self._activation(norm(self._convolved(i, h, layer)), dropout, self._products)
        return out
