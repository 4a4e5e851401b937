"""The matrix products of linear layers: by which library, and in which precision.

A *backend* computes the three products of a layer: its output, and the gradients of its input and of its parameters.
`blas` is what torch uses by itself (MKL where it has that), `onednn` the library beside it, on some processors twice as
fast. In `bfloat16` operands and results are of that format and sums of float32; parameters stay float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from diskhop.config import require_known
from diskhop.errors import ConfigError

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Backend(Protocol):
    """Products of (rows, in_dim) with (out_dim, in_dim), all of one dtype."""

    def output(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """(rows, out_dim): x times the weight's transpose, plus the bias."""

    def input_gradient(self, grad: Tensor, weight: Tensor) -> Tensor:
        """(rows, in_dim)."""

    def parameter_gradients(self, grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """(out_dim, in_dim) and, of the bias, (out_dim)."""


class Blas:
    """torch's own choice."""

    def output(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """By functional.linear."""
        return functional.linear(x, weight, bias)

    def input_gradient(self, grad: Tensor, weight: Tensor) -> Tensor:
        """By one product."""
        return grad @ weight

    def parameter_gradients(self, grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """By a product and a sum."""
        return grad.t() @ x, grad.sum(dim=0)


class Onednn:
    """oneDNN, by the operators that torch's compiler uses, and as a convolution of one pixel where those transpose."""

    def output(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """In the library's own layout of the weight."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return out

    def input_gradient(self, grad: Tensor, weight: Tensor) -> Tensor:
        """The same, of the transpose."""
        return self.output(grad, weight.t(), None)

    def parameter_gradients(self, grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Both in one pass over the rows."""
        # Rows are the pixels of one image whose channels lie together.
        pixels = [tensor.view(1, 1, *tensor.shape).permute(0, 3, 1, 2) for tensor in (grad, x)]
        weight = x.new_empty(grad.shape[1], x.shape[1], 1, 1)
        _, of_weight, of_bias = torch.ops.aten.convolution_backward(
            *pixels, weight, [grad.shape[1]], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [False, True, True]
        )
        return of_weight.flatten(1), of_bias


BACKENDS: dict[str, Backend] = {"blas": Blas(), "onednn": Onednn()}


@dataclass(frozen=True, slots=True)
class Products:
    """backend: a name in BACKENDS. precision: a name in PRECISIONS."""

    backend: str = "blas"
    precision: str = "float32"

    @property
    def dtype(self) -> torch.dtype:
        """Of operands and results."""
        return PRECISIONS[self.precision]

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """functional.linear(x, weight, bias) for float32 parameters and x of any dtype; the result is of `dtype`."""
        out: Tensor = _Linear.apply(x, weight, bias, self)  # type: ignore[no-untyped-call]
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
        operand, weights = x.to(dtype), weight.to(dtype)
        ctx.save_for_backward(operand, weights)
        ctx.products = products
        ctx.x_dtype = x.dtype
        return BACKENDS[products.backend].output(operand, weights, None if bias is None else bias.to(dtype))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        backend = BACKENDS[ctx.products.backend]
        grad = grad.contiguous()
        of_x = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            of_x = backend.input_gradient(grad, weight).to(ctx.x_dtype)
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            of_weight, of_bias = (part.float() for part in backend.parameter_gradients(grad, x))
        return of_x, of_weight, of_bias if ctx.needs_input_grad[2] else None, None


def require_products(backend: str, precision: str) -> None:
    """Refuse a backend or precision that is unknown, or that torch does not have here. Raises ConfigError."""
    require_known("matmul", backend, BACKENDS)
    require_known("precision", precision, PRECISIONS)
    try:
        run_products(BACKENDS[backend], *sample_operands(2, 16, PRECISIONS[precision]))
    except (RuntimeError, AttributeError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"matmul '{backend}' does not work here with {precision} ({reason}); name another of "
            f"{', '.join(BACKENDS)}, which gives the same values to rounding, or leave it out"
        ) from error


def sample_operands(num_rows: int, dim: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Made-up x, weight and gradient of a layer from dim to dim; torch's own generator is left alone."""
    generator = torch.Generator().manual_seed(0)
    shapes = (num_rows, dim), (dim, dim), (num_rows, dim)
    return tuple(torch.randn(shape, generator=generator).to(dtype) for shape in shapes)  # type: ignore[return-value]


def run_products(backend: Backend, x: Tensor, weight: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The three products of a layer."""
    of_weight, _ = backend.parameter_gradients(grad, x)
    return backend.output(x, weight, None), backend.input_gradient(grad, weight), of_weight
