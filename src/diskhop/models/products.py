"""The matrix products of linear layers: by which library, in which precision, into which memory.

A *backend* computes the three products of a layer: its output, and the gradients of its input and of its parameters.
`blas` is what torch uses by itself (MKL where it has that), `onednn` the library beside it, on some processors twice as
fast, `mixed` takes from both. In `bfloat16` operands and results are of that format and sums of float32; parameters
stay float32.

Results go into memory that is used again: a fresh tensor of a mini-batch's size costs as much, in page faults, as the
arithmetic that fills it. Rows are multiplied in blocks of a few sizes: libraries that make code for each shape would
make it anew for every batch, and what a block left in the caches is rectified there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from diskhop._native import BufferPool
from diskhop.config import require_known
from diskhop.errors import ConfigError
from diskhop.models.rectifier import Rectifier

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


# A layer's activations and gradients of a usual mini-batch; larger ones are used too, but not all kept.
_MOST_KEPT_BYTES = 1 << 30
# Below, the C library's own memory is as good, and the pool's pages of 2 MiB are none too small.
_SMALLEST_BYTES = 1 << 20
# Rows that are multiplied at a time: powers of two between these.
_MOST_ROWS, _LEAST_ROWS = 4096, 64


class Backend(Protocol):
    """Products of (rows, in_dim) with (out_dim, in_dim), all of one dtype."""

    def multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
        """out, (rows, out_dim), = x times the weight's transpose, plus the bias."""

    def parameter_gradients(self, grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """(out_dim, in_dim) and, of the bias, (out_dim)."""


class Blas:
    """torch's own choice."""

    def multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
        """By addmm."""
        if bias is None:
            torch.mm(x, weight.t(), out=out)
        else:
            torch.addmm(bias, x, weight.t(), out=out)

    def parameter_gradients(self, grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """By a product and a sum."""
        return grad.t() @ x, grad.sum(dim=0)


class Onednn:
    """oneDNN, by convolutions of one pixel: of its operators that torch offers they alone neither copy nor allocate."""

    def multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
        """Added to the bias, which lies in `out` before."""
        if bias is None:
            out.zero_()
        else:
            out.copy_(bias)
        weight = weight.contiguous().view(*weight.shape, 1, 1)
        where = [0, 0], [1, 1], [1, 1], 1
        torch.ops.mkldnn._convolution_pointwise_(
            _pixels(out), _pixels(x), weight, None, *where, "add", 1.0, None, [], None
        )

    def parameter_gradients(self, grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Both in one pass over the rows."""
        weight = x.new_empty(grad.shape[1], x.shape[1], 1, 1)
        _, of_weight, of_bias = torch.ops.aten.convolution_backward(
            _pixels(grad), _pixels(x), weight, [grad.shape[1]], [1, 1], [0, 0], [1, 1], False, [0, 0], 1,
            [False, True, True],
        )  # fmt: skip
        return of_weight.flatten(1), of_bias


def _pixels(rows: Tensor) -> Tensor:
    """Rows as the pixels of one image, whose channels lie together."""
    return rows.view(1, 1, *rows.shape).permute(0, 3, 1, 2)


class Mixed(Blas):
    """Each where it passes over the rows once: output by the one, gradients of the parameters by the other."""

    def parameter_gradients(self, grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """In one pass over the rows."""
        return Onednn().parameter_gradients(grad, x)


BACKENDS: dict[str, Backend] = {"blas": Blas(), "onednn": Onednn(), "mixed": Mixed()}


@dataclass(frozen=True, slots=True, eq=False)
class Products:
    """backend: a name in BACKENDS. precision: a name in PRECISIONS. The layers of a network share one of these."""

    backend: str = "blas"
    precision: str = "float32"
    _pool: BufferPool = field(default_factory=lambda: BufferPool(_MOST_KEPT_BYTES), repr=False)

    @property
    def dtype(self) -> torch.dtype:
        """Of operands and results."""
        return PRECISIONS[self.precision]

    def empty(self, num_rows: int, num_columns: int, dtype: torch.dtype) -> Tensor:
        """A tensor for what a layer computes, uninitialised; once it is freed its memory is used again."""
        num_bytes = num_rows * num_columns * dtype.itemsize
        if num_bytes < _SMALLEST_BYTES:
            return torch.empty(num_rows, num_columns, dtype=dtype)
        # Batches are never of the same size: in steps of an eighth their tensors mostly are.
        step_bytes = 1 << (num_bytes.bit_length() - 4)
        memory = torch.from_numpy(self._pool.take(-(-num_bytes // step_bytes) * step_bytes))
        # A tensor of its own, no view of another: autograd lets those be overwritten.
        shape = num_rows, num_columns
        return torch.empty(0, dtype=dtype).set_(memory.untyped_storage(), 0, shape, (num_columns, 1))

    def __reduce__(self) -> tuple[type[Products], tuple[str, str]]:
        """A copy of a model has memory of its own."""
        return Products, (self.backend, self.precision)

    def linear(
        self, x: Tensor, weight: Tensor, bias: Tensor | None = None, rectifier: Rectifier | None = None
    ) -> Tensor:
        """functional.linear(x, weight, bias) for float32 parameters and x of any dtype, rectified if need be.

        The result is of `dtype`.
        """
        out: Tensor = _Linear.apply(x, weight, bias, rectifier, self)  # type: ignore[no-untyped-call]
        return out

    def multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None, rectifier: Rectifier | None = None) -> Tensor:
        """The same without gradients, for operands that are of `dtype` already."""
        out = self.empty(len(x), len(weight), self.dtype)
        for rows in row_blocks(len(x)):
            self._multiply_block(x[rows], weight, bias, out[rows])
            if rectifier is not None:
                rectifier.rectify(out[rows], part=rows.start)
        return out

    def gradients(
        self, grad: Tensor, x: Tensor, weight: Tensor | None, left: Tensor | None, rectifier: Rectifier | None
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        """Of x, where a weight is given, and float32 of weight and bias, from that of linear()'s result.

        left: that result, which only a rectifier needs. Arguments and the first are of `dtype`.
        """
        of_x = None if weight is None else self.empty(len(x), x.shape[1], self.dtype)
        of_weight, of_bias = torch.zeros(grad.shape[1], x.shape[1]), torch.zeros(grad.shape[1])
        rectified = None if rectifier is None else self.empty(min(len(grad), _MOST_ROWS), grad.shape[1], self.dtype)
        for rows in row_blocks(len(x)):
            grads = grad[rows]
            if rectifier is not None and rectified is not None and left is not None:
                rectifier.gradient(left[rows], grads, rectified[: len(grads)])
                grads = rectified[: len(grads)]
            if of_x is not None and weight is not None:
                self._multiply_block(grads, weight.t(), None, of_x[rows])
            parts = BACKENDS[self.backend].parameter_gradients(_whole_block(grads), _whole_block(x[rows]))
            of_weight += parts[0]
            of_bias += parts[1]
        return of_x, of_weight, of_bias

    def _multiply_block(self, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
        whole = _whole_block(x)
        if whole is x:
            BACKENDS[self.backend].multiply(x, weight, bias, out)
        else:
            products = x.new_empty(len(whole), len(weight))
            BACKENDS[self.backend].multiply(whole, weight, bias, products)
            out.copy_(products[: len(x)])


def row_blocks(num_rows: int) -> Iterator[slice]:
    """As large as may be, each of a size that _whole_block() leaves alone; only the last is smaller."""
    start, size = 0, _MOST_ROWS
    while start < num_rows:
        while size > max(num_rows - start, _LEAST_ROWS):
            size //= 2
        yield slice(start, min(start + size, num_rows))
        start += size


def _whole_block(rows: Tensor) -> Tensor:
    """With rows of zeros up to the smallest block."""
    missing = _LEAST_ROWS - len(rows)
    return rows if missing <= 0 else torch.cat([rows, rows.new_zeros(missing, rows.shape[1])])


DEFAULT_PRODUCTS = Products()


class Linear(nn.Linear):
    """torch's, by the products given."""

    def __init__(self, in_dim: int, out_dim: int, products: Products) -> None:
        super().__init__(in_dim, out_dim)
        self._products = products

    def forward(self, x: Tensor) -> Tensor:
        """(rows, in_dim) -> (rows, out_dim)."""
        return self._products.linear(x, self.weight, self.bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, rectifier: Rectifier | None, products: Products
    ) -> Tensor:
        dtype = products.dtype
        operand, weights = x.to(dtype).contiguous(), weight.to(dtype)
        out = products.multiply(operand, weights, None if bias is None else bias.to(dtype), rectifier)
        ctx.save_for_backward(operand, weights, None if rectifier is None else out)
        ctx.rectifier, ctx.products, ctx.x_dtype = rectifier, products, x.dtype
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, left = ctx.saved_tensors
        if not ctx.needs_input_grad[0]:
            weight = None
        of_x, of_weight, of_bias = ctx.products.gradients(grad.contiguous(), x, weight, left, ctx.rectifier)
        if of_x is not None:
            of_x = of_x.to(ctx.x_dtype)
        return of_x, of_weight, of_bias if ctx.needs_input_grad[2] else None, None, None


def require_products(products: Products) -> None:
    """Refuse a backend or precision that is unknown, or that torch does not have here. Raises ConfigError."""
    require_known("matmul", products.backend, BACKENDS)
    require_known("precision", products.precision, PRECISIONS)
    try:
        run_products(products, *sample_operands(2, 16, products.dtype))
    except (RuntimeError, AttributeError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"matmul '{products.backend}' does not work here with {products.precision} ({reason}); name another of "
            f"{', '.join(BACKENDS)}, which gives the same values to rounding, or leave it out"
        ) from error


def sample_operands(num_rows: int, dim: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Made-up x, weight and gradient of a layer from dim to dim; torch's own generator is left alone."""
    generator = torch.Generator().manual_seed(0)
    x, weight, grad = (torch.randn(rows, dim, generator=generator).to(dtype) for rows in (num_rows, dim, num_rows))
    return x, weight, grad


def run_products(products: Products, x: Tensor, weight: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The three products of a layer as wide as its input: its output, and the gradients of its input and its weight."""
    of_x, of_weight, _ = products.gradients(grad, x, weight, None, None)
    assert of_x is not None
    return products.multiply(x, weight, weight[0].clone()), of_x, of_weight
