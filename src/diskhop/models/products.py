"""The matrix products of linear layers: by which library, in which precision, into which memory.

A *backend* computes the three products of a layer: its output, and the gradients of its input and of its parameters.
`blas` is what torch uses by itself (MKL where it has that), `onednn` the library beside it, on some processors twice as
fast. In `bfloat16` operands and results are of that format and sums of float32; parameters stay float32.

Results go into memory that is used again: a fresh tensor of a mini-batch's size costs as much, in page faults, as the
arithmetic that fills it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from diskhop._native import BufferPool
from diskhop.config import require_known
from diskhop.errors import ConfigError

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


# A layer's activations and gradients of a usual mini-batch; larger ones are used too, but not all kept.
_MOST_KEPT_BYTES = 1 << 30
# Below, the C library's own memory is as good, and the pool's pages of 2 MiB are none too small.
_SMALLEST_BYTES = 1 << 20


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


BACKENDS: dict[str, Backend] = {"blas": Blas(), "onednn": Onednn()}


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
        # Not a view of it: autograd lets nobody overwrite a view that a function of its own has made.
        return torch.empty(0, dtype=dtype).set_(memory.untyped_storage(), 0, (num_rows, num_columns), (num_columns, 1))

    def __reduce__(self) -> tuple[type[Products], tuple[str, str]]:
        """A copy of a model has memory of its own."""
        return Products, (self.backend, self.precision)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """functional.linear(x, weight, bias) for float32 parameters and x of any dtype; the result is of `dtype`."""
        out: Tensor = _Linear.apply(x, weight, bias, self)  # type: ignore[no-untyped-call]
        return out

    def multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The same without gradients, for operands that are of `dtype` already."""
        out = self.empty(len(x), len(weight), self.dtype)
        BACKENDS[self.backend].multiply(x, weight, bias, out)
        return out


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
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, products: Products) -> Tensor:
        dtype = products.dtype
        operand, weights = x.to(dtype).contiguous(), weight.to(dtype)
        ctx.save_for_backward(operand, weights)
        ctx.products, ctx.x_dtype = products, x.dtype
        return products.multiply(operand, weights, None if bias is None else bias.to(dtype))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        products: Products = ctx.products
        grad = grad.contiguous()
        of_x = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            of_x = products.multiply(grad, weight.t(), None).to(ctx.x_dtype)
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            gradients = BACKENDS[products.backend].parameter_gradients(grad, x)
            of_weight, of_bias = (part.float() for part in gradients)
        return of_x, of_weight, of_bias if ctx.needs_input_grad[2] else None, None


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
    """The three products of a layer: its output, and the gradients of its input and its weight."""
    of_weight, _ = BACKENDS[products.backend].parameter_gradients(grad, x)
    return products.multiply(x, weight, None), products.multiply(grad, weight.t(), None), of_weight
