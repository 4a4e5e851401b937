"""Layers of built-in networks, taken apart: what is computed for a row before its neighbours are summed, and after.

Layer i reads table i, whose columns are *groups*; some of them are summed over the neighbours of every node, some are
read again for the node's own part. A layer *aggregates first* if it sums its input, and *transforms first* if it sums
its product, whichever is narrower.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from diskhop.hops.tables import TILE_COLUMNS
from diskhop.nn.layers.gat import GatLayer
from diskhop.nn.layers.gcn import GcnLayer
from diskhop.nn.layers.network import Network
from diskhop.nn.layers.sage import SageLayer
from diskhop.nn.matmul.products import Linear, Products
from diskhop.planning.predict_sizes import LayerShape
from diskhop.predicting.streamed.row_products import Operand, RowProduct
from diskhop.predicting.streamed.split_columns import SplitColumns, fill_groups, may_be_finite

Weighing = Literal["mean", "symmetric", "attention"]
HIDDEN, _PRODUCT, _OWN, _SHORTCUT, SOURCE_SCORES, TARGET_SCORES = (
    "hidden", "product", "own part", "shortcut", "source scores", "target scores",
)  # fmt: skip


def num_tiles(dim: int) -> int:
    """Return the tiles of some columns."""
    return -(-dim // TILE_COLUMNS)


class StreamedLayer(ABC):
    """A layer of a network.

    weighing: how neighbours are weighed. mean: alike. symmetric: by the square roots of both degrees. attention: by
        softmax of scores. The last two add the row itself once, in place of edges from a node to itself.
    aggregates_first: see above.
    groups: columns of the layer's table, by name.
    summed: names of the groups that are summed, the first ones.
    own: names of the groups that are read again for each row.
    num_heads: heads of attention; 0 without attention.
    """

    weighing: Weighing
    num_heads: int = 0
    own: tuple[str, ...] = ()

    def __init__(
        self,
        network: Network,
        number: int,
        in_dim: int,
        out_dim: int,
        aggregates_first: bool,
    ) -> None:
        self.aggregates_first = aggregates_first
        self.out_dim = out_dim
        self._network = network
        self._number = number
        self._in_dim = in_dim
        self._is_last = number == len(network.convs) - 1
        # A network has at most one kind of ways around its layers.
        self._adds_before_norm = len(network.self_terms) > 0
        ways_around = network.self_terms if self._adds_before_norm else network.shortcuts
        self._shortcut = _row_map(ways_around[number]) if number < len(ways_around) else None
        self.groups: dict[str, int] = self._groups()
        self.summed = tuple(name for name in self.groups if name not in self._unsummed())
        if self._shortcut is not None and HIDDEN not in self.groups:
            self.groups[_SHORTCUT] = out_dim
        self.own = tuple(name for name in self.groups if name in self._read_again())

    @abstractmethod
    def _groups(self) -> dict[str, int]:
        """Return the columns of the table, without a shortcut's: summed ones first."""

    def _unsummed(self) -> tuple[str, ...]:
        return (_OWN, SOURCE_SCORES, TARGET_SCORES)

    def _read_again(self) -> tuple[str, ...]:
        hidden = (HIDDEN,) if self._shortcut is not None else ()
        return (_OWN, _SHORTCUT, *hidden)

    @property
    def is_rectified(self) -> bool:
        """Whether the convolution's product applies what follows it, a ReLU."""
        return False

    @property
    def puts_in_place(self) -> bool:
        """Whether put() takes no memory, and gives the same bits for any number of rows at once."""
        return False

    def before(self, hidden: Tensor) -> dict[str, Tensor]:
        """Return the groups of rows from the layer's input, float32 (rows, in_dim)."""
        groups = self._before(hidden)
        if _SHORTCUT in self.groups and self._shortcut is not None:
            groups[_SHORTCUT] = self._shortcut(hidden)
        return groups

    def after(self, sums: SplitColumns, own: Mapping[str, SplitColumns], degrees: Tensor) -> Tensor:
        """Return the layer's output, float32 (rows, out_dim).

        sums: of the summed groups; a mean may lack rows without edges. own: the groups read again. degrees: lengths of
            the rows' lists, float32 (rows, 1).
        """
        out = self._after(sums, own, degrees)
        if self._adds_before_norm:
            out = out + self._around(own)
        if not self.is_rectified:
            out = self._network.finished(self._number, out)
        if self._shortcut is not None and not self._adds_before_norm:
            out = out + self._around(own)
        return out.float()

    def _around(self, own: Mapping[str, SplitColumns]) -> Tensor:
        """Return the shortcut's part of rows."""
        if _SHORTCUT in own:
            return own[_SHORTCUT].joined()
        assert self._shortcut is not None, "called for layers with one"
        return self._shortcut(own[HIDDEN].joined())

    def put(self, out: SplitColumns, sums: SplitColumns, own: Mapping[str, SplitColumns], degrees: Tensor) -> bool:
        """Fill columns with what after() returns; return False if any value is not finite, and maybe otherwise."""
        rows = self.after(sums, own, degrees)
        out.fill(rows)
        return may_be_finite(rows)

    def put_before(self, out: Mapping[str, SplitColumns], hidden: Tensor) -> bool:
        """Fill the columns of each group with what before() returns; return whether its values may be finite.

        They are not if a value of `hidden` is not.
        """
        return fill_groups(out, self.before(hidden))

    @abstractmethod
    def _before(self, hidden: Tensor) -> dict[str, Tensor]:
        """Return the groups without a shortcut's."""

    @abstractmethod
    def _after(self, sums: SplitColumns, own: Mapping[str, SplitColumns], degrees: Tensor) -> Tensor:
        """Return what the convolution returns."""

    def shape(self) -> LayerShape:
        """Describe the layer for the planner."""
        tiles = {name: num_tiles(dim) for name, dim in self.groups.items()}
        table_dims = sum(self.groups.values())
        concatenates = self.weighing == "mean" and self.aggregates_first
        return LayerShape(
            kind=self.weighing,
            aggregates_first=self.aggregates_first,
            summed_tiles=sum(tiles[name] for name in self.summed),
            table_tiles=sum(tiles.values()),
            own_tiles=sum(tiles[name] for name in self.own),
            needs_own_row=self.weighing != "mean",
            score_tiles=tiles.get(SOURCE_SCORES, 0),
            widest=max((1 + concatenates) * self._in_dim, self.out_dim, table_dims),
            flops=2.0 * self._in_dim * self.out_dim * (2 if self.weighing == "mean" else 1),
        )


class MeanLayer(StreamedLayer):
    """GraphSAGE: a product of the neighbours' mean, and one of the row."""

    weighing = "mean"

    def __init__(self, network: Network, number: int, conv: SageLayer) -> None:
        self._conv = conv
        in_dim, out_dim = int(conv.in_channels), int(conv.out_channels)
        super().__init__(network, number, in_dim, out_dim, in_dim <= out_dim)
        bias = conv.lin_l.bias
        weight = torch.cat([conv.lin_l.weight, conv.lin_r.weight], dim=1 if self.aggregates_first else 0)
        biases = bias if self.aggregates_first else torch.cat([torch.zeros_like(bias), bias])
        self._both = RowProduct(conv._products, weight, biases)

    @property
    def is_rectified(self) -> bool:
        """See StreamedLayer."""
        return self.aggregates_first and self._network.only_rectifies(self._number)

    @property
    def puts_in_place(self) -> bool:
        """See StreamedLayer."""
        if self._shortcut is not None:
            return False
        if not self.aggregates_first:
            return self._is_last
        return (self.is_rectified or self._is_last) and self._both.puts_in_place

    def put(self, out: SplitColumns, sums: SplitColumns, own: Mapping[str, SplitColumns], degrees: Tensor) -> bool:
        """See StreamedLayer."""
        if not self.puts_in_place:
            return super().put(out, sums, own, degrees)
        if not self.aggregates_first:
            (array,) = out.arrays  # outputs are one band
            rows = torch.from_numpy(array)
            self._add_up(rows, sums, own, degrees)
            return may_be_finite(rows)
        return self._both.put(out, *self._operands(sums, own, degrees), rectifies=self.is_rectified)

    def put_before(self, out: Mapping[str, SplitColumns], hidden: Tensor) -> bool:
        """See StreamedLayer."""
        if self.aggregates_first or self._shortcut is not None:
            return super().put_before(out, hidden)
        return self._both.put_rows(out[_PRODUCT].followed_by(out[_OWN]), hidden)

    def _groups(self) -> dict[str, int]:
        if self.aggregates_first:
            return {HIDDEN: self._in_dim}
        return {_PRODUCT: self.out_dim, _OWN: self.out_dim}

    def _read_again(self) -> tuple[str, ...]:
        return (HIDDEN, _OWN, _SHORTCUT)

    def _before(self, hidden: Tensor) -> dict[str, Tensor]:
        if self.aggregates_first:
            return {HIDDEN: hidden}
        product, own = self._both.of_rows(hidden).chunk(2, dim=1)
        return {_PRODUCT: product, _OWN: own}

    def _after(self, sums: SplitColumns, own: Mapping[str, SplitColumns], degrees: Tensor) -> Tensor:
        if not self.aggregates_first:
            out = torch.empty(len(degrees), self.out_dim)
            self._add_up(out, sums, own, degrees)
            return out
        return self._both.of(*self._operands(sums, own, degrees), rectifies=self.is_rectified)

    def _add_up(self, out: Tensor, sums: SplitColumns, own: Mapping[str, SplitColumns], degrees: Tensor) -> None:
        """Fill rows with the means of products, and the rows' own."""
        sums.copy_to(out, degrees)
        out.add_(own[_OWN].joined())

    def _operands(
        self, sums: SplitColumns, own: Mapping[str, SplitColumns], degrees: Tensor
    ) -> tuple[Operand, Operand]:
        return Operand(sums, degrees), Operand(own[HIDDEN])


class SymmetricLayer(StreamedLayer):
    """GCN: a product of the sum that both degrees weigh. Sums are of rows times their own factor, and of the row."""

    weighing = "symmetric"

    def __init__(self, network: Network, number: int, conv: GcnLayer) -> None:
        self._conv = conv
        in_dim, out_dim = int(conv.in_channels), int(conv.out_channels)
        super().__init__(network, number, in_dim, out_dim, in_dim <= out_dim)
        self._product = RowProduct(conv._products, conv.lin.weight, conv.bias if self.aggregates_first else None)

    def _groups(self) -> dict[str, int]:
        return {HIDDEN: self._in_dim} if self.aggregates_first else {_PRODUCT: self.out_dim}

    def _before(self, hidden: Tensor) -> dict[str, Tensor]:
        if self.aggregates_first:
            return {HIDDEN: hidden}
        return {_PRODUCT: self._product.of_rows(hidden)}

    def _after(self, sums: SplitColumns, own: Mapping[str, SplitColumns], degrees: Tensor) -> Tensor:
        rows = sums.joined() * symmetric_scales(degrees)
        if not self.aggregates_first:
            return rows if self._conv.bias is None else rows + self._conv.bias
        return self._product.of_rows(rows)


class AttentionLayer(StreamedLayer):
    """GAT: a product of each head, summed by the attention of the head."""

    weighing = "attention"

    def __init__(self, network: Network, number: int, conv: GatLayer) -> None:
        self._conv = conv
        self.num_heads = int(conv.heads)
        self.head_dim = int(conv.out_channels)
        in_dim, out_dim = int(conv.in_channels), self.num_heads * self.head_dim
        super().__init__(network, number, in_dim, out_dim, self.num_heads == 1 and in_dim < out_dim)
        self._product = RowProduct(conv._products, conv.lin.weight)
        by_head = self.num_heads, self.head_dim, -1
        vectors = torch.stack([conv.att_src.view(by_head), conv.att_dst.view(by_head)])
        folded = (vectors * conv.lin.weight.view(by_head)).sum(dim=2)  # a row's scores are linear in it
        self._scores = RowProduct(Products(), folded.flatten(0, 1))

    @property
    def negative_slope(self) -> float:
        """Slope of the scores' leaky ReLU."""
        return float(self._conv.negative_slope)

    def _groups(self) -> dict[str, int]:
        scores = {SOURCE_SCORES: self.num_heads, TARGET_SCORES: self.num_heads}
        if self.aggregates_first:
            return {HIDDEN: self._in_dim, **scores}
        return {**{f"head {head}": self.head_dim for head in range(self.num_heads)}, **scores}

    def _before(self, hidden: Tensor) -> dict[str, Tensor]:
        sources, targets = self._scores.of_rows(hidden).chunk(2, dim=1)
        scores = {SOURCE_SCORES: sources, TARGET_SCORES: targets}
        if self.aggregates_first:
            return {HIDDEN: hidden, **scores}
        heads = self._product.of_rows(hidden).chunk(self.num_heads, dim=1)
        return {**{f"head {number}": head for number, head in enumerate(heads)}, **scores}

    def _after(self, sums: SplitColumns, own: Mapping[str, SplitColumns], degrees: Tensor) -> Tensor:
        out = self._product.of(Operand(sums)).float() if self.aggregates_first else sums.joined()
        return out.add(self._conv.bias)


def symmetric_scales(degrees: Tensor) -> Tensor:
    """Return a row's factor in GCN's sums, from the length of its list without loops."""
    return (degrees + 1).rsqrt()


def _row_map(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return a shortcut's map of rows. Torch's products depend on the number of threads, from three on."""
    if isinstance(module, Linear):
        return RowProduct(module._products, module.weight, module.bias).of_rows
    return module


def streamed_layers(network: Network) -> list[StreamedLayer]:
    """Take a built-in network apart."""
    return [_taken_apart(network, number, conv) for number, conv in enumerate(network.convs)]


def _taken_apart(network: Network, number: int, conv: nn.Module) -> StreamedLayer:
    if isinstance(conv, SageLayer):
        return MeanLayer(network, number, conv)
    if isinstance(conv, GcnLayer):
        return SymmetricLayer(network, number, conv)
    assert isinstance(conv, GatLayer), "the built-in layers are these"
    return AttentionLayer(network, number, conv)
