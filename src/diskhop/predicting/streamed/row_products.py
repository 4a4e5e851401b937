"""Products of rows whose columns lie in bands, by the weight of a linear layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from diskhop._native import SplitLinear
from diskhop.hops.stream.parts import Rows
from diskhop.nn.matmul.products import Products
from diskhop.nn.matmul.rectifier import Rectifier
from diskhop.predicting.streamed.split_columns import SplitColumns, may_be_finite


class Operand(NamedTuple):
    """Columns of a product's rows.

    divisors: number per row that they are divided by, float32 (rows, 1). A row with 0 has zeros in these columns, which
        are not multiplied; the columns may lack such rows.
    """

    columns: SplitColumns
    divisors: Tensor | None = None


class RowProduct:
    """A linear layer: in float32 the core's, whose results do not depend on how many rows are multiplied together.

    products: gives precision and memory, and the products themselves in another precision.
    weight: (out_dim, in_dim). bias: (out_dim).
    """

    def __init__(self, products: Products, weight: Tensor, bias: Tensor | None = None) -> None:
        self._products = products
        self._weight = weight.detach().contiguous()
        self._bias = None if bias is None else bias.detach()
        self._linear = SplitLinear(self._weight, self._bias) if products.dtype == torch.float32 else None

    @property
    def puts_in_place(self) -> bool:
        """Whether put() takes no memory, and gives the same bits for any number of rows at once."""
        return self._linear is not None

    def of(self, *operands: Operand, rectifies: bool = False) -> Tensor:
        """Multiply the columns of all operands, next to one another: (rows, out_dim), of the products' dtype.

        Only the first operand may be divided, unless it is the only one.
        """
        num_rows = operands[-1].columns.num_rows
        if self._linear is None:
            rows = self._joined(num_rows, operands)
            return self._products.linear(rows, self._weight, self._bias, Rectifier(0.0, 0) if rectifies else None)
        out = self._products.empty(num_rows, len(self._weight), torch.float32)
        _apply(self._linear, operands, rectifies, [out.numpy()])
        return out

    def put(self, out: SplitColumns, *operands: Operand, rectifies: bool = False) -> bool:
        """Fill columns with the product; return False if any value is not finite, and maybe otherwise."""
        if self._linear is None:
            rows = self.of(*operands, rectifies=rectifies).float()
            out.fill(rows)
            return may_be_finite(rows)
        return _apply(self._linear, operands, rectifies, out.arrays)

    def of_rows(self, rows: Tensor) -> Tensor:
        """Multiply rows that lie in one tensor, float32 (rows, in_dim)."""
        return self.of(_in_one(rows))

    def put_rows(self, out: SplitColumns, rows: Tensor) -> bool:
        """Fill columns with what of_rows() returns; see put()."""
        return self.put(out, _in_one(rows))

    def _joined(self, num_rows: int, operands: Sequence[Operand]) -> Tensor:
        rows = self._products.empty(num_rows, self._weight.shape[1], torch.float32)
        first = 0
        for columns, divisors in operands:
            columns.copy_to(rows[:, first : first + columns.num_columns], divisors)
            first += columns.num_columns
        return rows


def _in_one(rows: Tensor) -> Operand:
    return Operand(SplitColumns([rows.detach().contiguous().numpy()], torch.get_num_threads()))


def _apply(linear: SplitLinear, operands: Sequence[Operand], rectifies: bool, out: Sequence[Rows]) -> bool:
    inputs = [
        (columns.arrays, None if divisors is None else divisors.flatten().numpy()) for columns, divisors in operands
    ]
    return linear.apply(inputs, rectifies, out, torch.get_num_threads())
