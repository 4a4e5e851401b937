"""Backends of matrix products: the libraries that come with torch.

A *backend* computes a linear layer and its gradients. `blas` is torch's default (MKL where it has that), `onednn` its
other library, on some processors twice as fast; `mixed` uses both. These divide each product among the threads and wait
for the slowest. `mkl` calls MKL for a few rows at a time on whichever thread is free, so that nothing waits for a core
that samples or prefetches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor

from diskhop._native import BufferPool, linear, linear_backward
from diskhop.nn.matmul.rectifier import Rectifier

# (rows, columns, dtype) -> a tensor, uninitialised.
Empty = Callable[[int, int, torch.dtype], Tensor]

# Rows that are multiplied at a time: powers of two between these.
_MOST_ROWS, _LEAST_ROWS = 4096, 64


class Backend(Protocol):
    """Linear layers from x, (rows, in_dim), by a weight of (out_dim, in_dim); operands and results of one dtype.

    Where that is float32, x may have 16 bits: it is widened a few rows at a time, and never as a whole.
    places: int64, rows of x to take, a few at a time too; None: all of them, in order.
    """

    def linear(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        rectifier: Rectifier | None,
        out: Tensor,
        scratch: BufferPool,
        places: Tensor | None = None,
    ) -> None:
        """Write x times the weight's transpose, plus the bias, to out (rows, out_dim); rectify it if asked to."""

    def gradients(
        self,
        grad: Tensor,
        x: Tensor,
        weight: Tensor | None,
        left: Tensor | None,
        rectifier: Rectifier | None,
        of_x: Tensor | None,
        empty: Empty,
        scratch: BufferPool,
        places: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return float32 gradients of weight and bias from that of out; fill of_x if a weight is given.

        Rows at places have no gradient.
        left: the result of linear(), which only a rectifier needs. empty: allocates scratch memory.
        """


class InBlocks(ABC):
    """Products by torch operators on blocks of rows of a few sizes.

    Libraries that compile code per shape would compile it again for every batch. Blocks are rectified while they are in
    the caches.
    """

    @abstractmethod
    def multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
        """Write x times the weight's transpose, plus the bias, to out."""

    @abstractmethod
    def parameter_gradients(self, grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of weight (out_dim, in_dim) and bias (out_dim)."""

    def linear(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        rectifier: Rectifier | None,
        out: Tensor,
        scratch: BufferPool,
        places: Tensor | None = None,
    ) -> None:
        """See Backend. Works block by block."""
        widened = _memory_to_widen(x, len(out), weight.dtype, scratch)
        for rows in row_blocks(len(out)):
            self._multiply_block(_widen(_rows_of(x, rows, places), widened), weight, bias, out[rows])
            if rectifier is not None:
                rectifier.rectify(out[rows], part=rows.start)

    def gradients(
        self,
        grad: Tensor,
        x: Tensor,
        weight: Tensor | None,
        left: Tensor | None,
        rectifier: Rectifier | None,
        of_x: Tensor | None,
        empty: Empty,
        scratch: BufferPool,
        places: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """See Backend. Works block by block."""
        of_weight, of_bias = torch.zeros(grad.shape[1], x.shape[1]), torch.zeros(grad.shape[1])
        rectified = None if rectifier is None else empty(min(len(grad), _MOST_ROWS), grad.shape[1], grad.dtype)
        widened = _memory_to_widen(x, len(grad), grad.dtype, scratch)
        for rows in row_blocks(len(grad)):
            grads = grad[rows]
            if rectifier is not None and rectified is not None and left is not None:
                rectifier.gradient(left[rows], grads, rectified[: len(grads)])
                grads = rectified[: len(grads)]
            if of_x is not None and weight is not None:
                self._multiply_block(grads, weight.t(), None, of_x[rows])
            wanted = _widen(_rows_of(x, rows, places), widened)
            parts = self.parameter_gradients(_whole_block(grads), _whole_block(wanted))
            of_weight += parts[0]
            of_bias += parts[1]
        return of_weight, of_bias

    def _multiply_block(self, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
        whole = _whole_block(x)
        if whole is x:
            self.multiply(x, weight, bias, out)
        else:
            products = x.new_empty(len(whole), len(weight))
            self.multiply(whole, weight, bias, products)
            out.copy_(products[: len(x)])


def row_blocks(num_rows: int) -> Iterator[slice]:
    """Cut rows into blocks of a power of two, largest first; only the last may be smaller than the smallest."""
    start, size = 0, _MOST_ROWS
    while start < num_rows:
        while size > max(num_rows - start, _LEAST_ROWS):
            size //= 2
        yield slice(start, min(start + size, num_rows))
        start += size


def _memory_to_widen(x: Tensor, num_rows: int, dtype: torch.dtype, scratch: BufferPool) -> Tensor | None:
    """Return memory for a block of rows of a dtype; None if they have it, or if there are none."""
    if x.dtype == dtype or num_rows == 0:
        return None
    num_rows = min(num_rows, _MOST_ROWS)
    memory = torch.from_numpy(scratch.take(num_rows * x.shape[1] * dtype.itemsize))
    return memory.view(dtype).view(num_rows, x.shape[1])


def _rows_of(x: Tensor, rows: slice, places: Tensor | None) -> Tensor:
    """Return some of the wanted rows."""
    return x[rows] if places is None else x.index_select(0, places[rows])


def _widen(rows: Tensor, memory: Tensor | None) -> Tensor:
    """Return the rows of a block, copied to the memory that is given."""
    return rows if memory is None else memory[: len(rows)].copy_(rows)


def _whole_block(rows: Tensor) -> Tensor:
    """Pad with rows of zeros up to the smallest block."""
    missing = _LEAST_ROWS - len(rows)
    return rows if missing <= 0 else torch.cat([rows, rows.new_zeros(missing, rows.shape[1])])


class Blas(InBlocks):
    """torch's default library."""

    def multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
        """See InBlocks. Uses addmm."""
        if bias is None:
            torch.mm(x, weight.t(), out=out)
        else:
            torch.addmm(bias, x, weight.t(), out=out)

    def parameter_gradients(self, grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """See InBlocks. One product and one sum."""
        return grad.t() @ x, grad.sum(dim=0)


class Onednn(InBlocks):
    """oneDNN through 1x1 convolutions: of its operators in torch, only these neither copy nor allocate."""

    def multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
        """See InBlocks. Adds to the bias, copied to `out` first."""
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
        """See InBlocks. One pass over the rows."""
        weight = x.new_empty(grad.shape[1], x.shape[1], 1, 1)
        _, of_weight, of_bias = torch.ops.aten.convolution_backward(
            _pixels(grad), _pixels(x), weight, [grad.shape[1]], [1, 1], [0, 0], [1, 1], False, [0, 0], 1,
            [False, True, True],
        )  # fmt: skip
        return of_weight.flatten(1), of_bias


def _pixels(rows: Tensor) -> Tensor:
    """View rows as the pixels of one image with contiguous channels."""
    return rows.view(1, 1, *rows.shape).permute(0, 3, 1, 2)


class Mixed(Blas):
    """torch's default for outputs, oneDNN for gradients of parameters: each passes over the rows once."""

    def parameter_gradients(self, grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """See InBlocks. One pass over the rows."""
        return Onednn().parameter_gradients(grad, x)


class Mkl:
    """MKL inside torch's library, called for a few rows at a time (see linear.hpp).

    Gives the same bits for any number of threads. Raises RuntimeError where torch has no MKL.
    """

    def linear(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        rectifier: Rectifier | None,
        out: Tensor,
        scratch: BufferPool,
        places: Tensor | None = None,
    ) -> None:
        """See Backend."""
        dropout, seed = (None, 0) if rectifier is None else rectifier
        biases = None if bias is None else bias.detach()[None]
        linear(x.detach(), weight.detach(), biases, dropout, seed, out, torch.get_num_threads(), scratch, places)

    def gradients(
        self,
        grad: Tensor,
        x: Tensor,
        weight: Tensor | None,
        left: Tensor | None,
        rectifier: Rectifier | None,
        of_x: Tensor | None,
        empty: Empty,
        scratch: BufferPool,
        places: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """See Backend. Parameters are summed in parts, whose number depends on the rows alone."""
        of_weight, of_bias = torch.empty(grad.shape[1], x.shape[1]), torch.empty(grad.shape[1])
        weights = None if weight is None else weight.detach()
        dropout, results = (None, None) if rectifier is None or left is None else (rectifier.dropout, left.detach())
        threads = torch.get_num_threads()
        linear_backward(grad, x.detach(), weights, results, dropout, of_x, of_weight, of_bias, threads, scratch, places)
        return of_weight, of_bias


class OnDevice:
    """torch's library on the tensor's own device, in one product."""

    def linear(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        rectifier: Rectifier | None,
        out: Tensor,
        scratch: BufferPool,
        places: Tensor | None = None,
    ) -> None:
        """See Backend."""
        Blas().multiply(x if places is None else x.index_select(0, places), weight, bias, out)
        if rectifier is not None:
            rectifier.rectify(out)

    def gradients(
        self,
        grad: Tensor,
        x: Tensor,
        weight: Tensor | None,
        left: Tensor | None,
        rectifier: Rectifier | None,
        of_x: Tensor | None,
        empty: Empty,
        scratch: BufferPool,
        places: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """See Backend."""
        if rectifier is not None and left is not None:
            rectified = torch.empty_like(grad)
            rectifier.gradient(left, grad, rectified)
            grad = rectified
        if of_x is not None and weight is not None:
            torch.mm(grad, weight, out=of_x)
        of_weight, of_bias = Blas().parameter_gradients(grad, x if places is None else x.index_select(0, places))
        return of_weight.float(), of_bias.float()


# For tensors that are not on the CPU, whatever the configured backend.
ON_DEVICE: Backend = OnDevice()
BACKENDS: dict[str, Backend] = {"mkl": Mkl(), "blas": Blas(), "onednn": Onednn(), "mixed": Mixed()}
