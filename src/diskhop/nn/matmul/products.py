"""The matrix products of linear layers: by which backend, in which precision, into which memory.

In `bfloat16` operands and results are of that format and sums of float32; parameters stay float32.

Results go into memory that is used again: a fresh tensor of a mini-batch's size costs as much, in page faults, as the
arithmetic that fills it. As much stays as was in use at once, which the next mini-batch needs again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from diskhop._native import BufferPool
from diskhop.config.options import require_known
from diskhop.errors import ConfigError
from diskhop.nn.kernels.choice import runs_core
from diskhop.nn.matmul.backends import BACKENDS, ON_DEVICE, Backend
from diskhop.nn.matmul.placed import PlacedRows
from diskhop.nn.matmul.rectifier import Rectifier

CPU = torch.device("cpu")
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# Rows that backends take next to float32.
_WIDENED = (torch.float16, torch.bfloat16)

# Kept at any time: small mini-batches in a row differ by more than what one of them takes at once.
KEPT_BYTES = 128 << 20
# Below, the C library's own memory is as good, and the pool's pages of 2 MiB are none too small.
_SMALLEST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Products:
    """Matrix products of a network's linear layers, which share one instance.

    backend: a name in BACKENDS.
    precision: a name in PRECISIONS.
    """

    backend: str = "blas"
    precision: str = "float32"
    _pool: BufferPool = field(default_factory=lambda: BufferPool(KEPT_BYTES, keeps_peak=True), repr=False)

    @property
    def dtype(self) -> torch.dtype:
        """Type of operands and results."""
        return PRECISIONS[self.precision]

    @property
    def scratch(self) -> BufferPool:
        """Pool for the kernels' temporary memory: the one that results come from, so that one bound covers both."""
        return self._pool

    def empty(self, num_rows: int, num_columns: int, dtype: torch.dtype, device: torch.device = CPU) -> Tensor:
        """Take an uninitialised tensor from the pool. Its memory is reused once the tensor is freed.

        Of another device, torch's own pool gives it.
        """
        num_bytes = num_rows * num_columns * dtype.itemsize
        if device.type != "cpu":
            return torch.empty(num_rows, num_columns, dtype=dtype, device=device)
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
        self, x: Tensor | PlacedRows, weight: Tensor, bias: Tensor | None = None, rectifier: Rectifier | None = None
    ) -> Tensor:
        """functional.linear(x, weight, bias) for float32 parameters and x of any dtype, rectified if need be.

        The result is of `dtype`. Rows at places give the bits of copied ones, and must stay there for the gradients.
        """
        places = None
        if isinstance(x, PlacedRows):
            x, places = (x.matrix, x.places) if self._takes(x.matrix) else (x.whole(), None)
        out: Tensor = _Linear.apply(x, places, weight, bias, rectifier, self)  # type: ignore[no-untyped-call]
        return out

    def operand(self, x: Tensor) -> Tensor:
        """Return contiguous rows of any dtype as multiply() and gradients() take them.

        Rows of 16 bits stay as they are where the core computes in float32: widened, they would take twice the memory
        of a batch's features.
        """
        if self._takes(x):
            return x.contiguous()
        return self.empty(len(x), x.shape[1], self.dtype, x.device).copy_(x)

    def _takes(self, x: Tensor) -> bool:
        return x.dtype == self.dtype or (self.dtype == torch.float32 and x.dtype in _WIDENED and runs_core(x))

    def multiply(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        rectifier: Rectifier | None = None,
        places: Tensor | None = None,
    ) -> Tensor:
        """Compute linear() without gradients, for operands that have `dtype`; x is what operand() returns.

        places: rows of x to take; None: all, in order.
        """
        out = self.empty(len(x if places is None else places), len(weight), self.dtype, x.device)
        self._backend_for(x).linear(x, weight, bias, rectifier, out, self._pool, places)
        return out

    def gradients(
        self,
        grad: Tensor,
        x: Tensor,
        weight: Tensor | None,
        left: Tensor | None,
        rectifier: Rectifier | None,
        places: Tensor | None = None,
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        """Return the gradients of x (None without a weight), weight and bias, from that of linear()'s result.

        left: that result, which only a rectifier needs. places: see multiply(); x has no gradient then.
        Arguments and the first gradient have `dtype`, the others are float32. x is what operand() returns.
        """
        of_x = None if weight is None else self.empty(len(x), x.shape[1], self.dtype, x.device)
        of_weight, of_bias = self._backend_for(x).gradients(
            grad, x, weight, left, rectifier, of_x, self.empty, self._pool, places
        )
        return of_x, of_weight, of_bias

    def _backend_for(self, x: Tensor) -> Backend:
        return BACKENDS[self.backend] if runs_core(x) else ON_DEVICE


DEFAULT_PRODUCTS = Products()


class Linear(nn.Linear):
    """torch's Linear, computed by the given products."""

    def __init__(self, in_dim: int, out_dim: int, products: Products) -> None:
        super().__init__(in_dim, out_dim)
        self._products = products

    def forward(self, x: Tensor | PlacedRows, rectifier: Rectifier | None = None) -> Tensor:
        """(rows, in_dim) -> (rows, out_dim), rectified if need be."""
        return self._products.linear(x, self.weight, self.bias, rectifier)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        places: Tensor | None,
        weight: Tensor,
        bias: Tensor | None,
        rectifier: Rectifier | None,
        products: Products,
    ) -> Tensor:
        dtype = products.dtype
        operand, weights = products.operand(x), weight.to(dtype).contiguous()
        out = products.multiply(operand, weights, None if bias is None else bias.to(dtype), rectifier, places)
        ctx.save_for_backward(operand, places, weights, None if rectifier is None else out)
        ctx.rectifier, ctx.products, ctx.x_dtype = rectifier, products, x.dtype
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, places, weight, left = ctx.saved_tensors
        if not ctx.needs_input_grad[0]:
            weight = None
        of_x, of_weight, of_bias = ctx.products.gradients(grad.contiguous(), x, weight, left, ctx.rectifier, places)
        if of_x is not None:
            of_x = of_x.to(ctx.x_dtype)
        return of_x, None, of_weight, of_bias if ctx.needs_input_grad[3] else None, None, None


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
    """Return random x, weight and gradient of a layer from dim to dim. Torch's generator keeps its state."""
    generator = torch.Generator().manual_seed(0)
    x, weight, grad = (torch.randn(rows, dim, generator=generator).to(dtype) for rows in (num_rows, dim, num_rows))
    return x, weight, grad


def run_products(products: Products, x: Tensor, weight: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute a layer's output and the gradients of its input and weight; the layer is as wide as its input."""
    of_x, of_weight, _ = products.gradients(grad, x, weight, None, None)
    assert of_x is not None
    return products.multiply(x, weight, weight[0].clone()), of_x, of_weight
