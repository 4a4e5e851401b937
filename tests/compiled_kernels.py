"""Compiles all of Triton's kernels for an H100 (sm_90), on any machine, and prints what fails.

The interpreter takes more than the compiler does: numbers of 1 and 16 are constants of a compiled kernel, and variables
must keep their types in loops. Kernels are compiled with the arguments of real calls, which launch nothing.

    python -m tests.compiled_kernels
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

# Read at import.
os.environ.pop("TRITON_INTERPRET", None)

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from diskhop.nn.kernels.contrast_workspace import SCORES, Workspace
from diskhop.nn.kernels.leveled_rows import SCALE_BYTES, LeveledRows
from diskhop.nn.kernels.lists import NeighborLists
from diskhop.nn.kernels.philox_stream import Stream
from diskhop.nn.kernels.triton_assembly import assemble_by_triton
from diskhop.nn.kernels.triton_contrast import EdgeBatch, gradients_by_triton
from diskhop.nn.kernels.triton_known import KnownAnswers
from diskhop.nn.kernels.triton_philox import bounded_words_by_triton
from diskhop.nn.kernels.triton_row_adagrad import update_rows_by_triton
from diskhop.nn.kernels.triton_softmax import gradient_by_triton, softmax_by_triton
from diskhop.nn.kernels.triton_sums import products_by_triton, sums_by_triton

# Shared memory of a program on an H100.
_MOST_SHARED_BYTES = 232_448
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class _Target:
    """An H100, as much of it as the compiler asks for."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


def main() -> int:
    """Compile every kernel, and return the number of failures."""
    driver.set_active(_Target())
    compile_call, num_failures = JITFunction.run, 0
    names: set[str] = set()

    def compile_only(kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        compiled = compile_call(kernel, *args, grid=grid, warmup=True, **options)
        assert compiled.asm["cubin"], "ptxas made machine code"
        shared = compiled.metadata.shared
        assert shared <= _MOST_SHARED_BYTES, f"{kernel.__name__} needs {shared} bytes of shared memory"
        names.add(kernel.__name__)

    JITFunction.run = compile_only
    for name, call in _calls():
        try:
            call()
        except Exception as error:
            num_failures += 1
            print(f"{name}: {error}", file=sys.stderr)
    print(" ".join(sorted(names)))
    return num_failures


def _calls() -> Iterator[tuple[str, Callable[[], object]]]:
    yield from _calls_of_lists()
    for dtype, dim in (
        (torch.float32, 1),
        (torch.float32, 100),
        (torch.float16, 100),
        (torch.int8, 3),
        (torch.int8, 100),
    ):
        row = torch.zeros(2, dim + SCALE_BYTES * (dtype == torch.int8)).to(dtype)
        yield f"assembly of {dtype}", partial(assemble_by_triton, LeveledRows(row, row, row), _zeros(3))
    stream = Stream((1, 2), (3, 4, 5, 6))
    # 2^32 modulo 3 is 1, modulo a power of two 0.
    for high in (2, 3, 1000):
        yield f"draws below {high}", partial(bounded_words_by_triton, stream, 0, 9, high, torch.device("cpu"))
    for num_rows, dim, state_dim in ((1, 1, 1), (5, 100, 100), (5, 100, 1)):
        values, squares, grads = torch.zeros(9, dim), torch.zeros(9, state_dim), torch.zeros(num_rows, dim)
        update = partial(update_rows_by_triton, values, squares, _zeros(num_rows), grads, 0.1, 1e-8)
        yield f"Adagrad of {num_rows} rows of {dim}, state {state_dim}", update
    for score, with_positive in itertools.product(SCORES, (False, True)):
        for dim, num_negatives in ((2, 1), (100, 1000)) if with_positive else ((128, 50),):
            batch = _edge_batch(score, with_positive, dim, num_negatives)
            yield f"edges, {score}, {dim} columns", partial(gradients_by_triton, batch)


def _calls_of_lists() -> Iterator[tuple[str, Callable[[], object]]]:
    for dtype, num_heads, of_head in ((_DTYPES[0], 1, 1), (_DTYPES[1], 1, 100), (_DTYPES[2], 4, 100)):
        num_columns = num_heads * of_head
        weights = None if dtype == torch.float32 else torch.zeros(3, num_heads)
        own = torch.zeros(1) if num_heads == 1 else None
        lists = NeighborLists(_zeros(3).int(), _zeros(3).int(), weights, own)
        x, grad, scores = torch.zeros(4, num_columns, dtype=dtype), torch.zeros(2, num_columns), torch.zeros(3, 4)
        name = f"{num_heads} heads of {of_head} {dtype}"
        of_heads = scores[:, :num_heads].contiguous()
        yield f"sums, {name}", partial(sums_by_triton, x, lists, x.dtype)
        yield f"products, {name}", partial(products_by_triton, x, grad, lists, num_heads)
        yield f"softmax, {name}", partial(softmax_by_triton, of_heads, lists)
        yield f"gradient of softmax, {name}", partial(gradient_by_triton, of_heads, of_heads, lists)


def _edge_batch(score: str, with_positive: bool, dim: int, num_negatives: int) -> EdgeBatch:
    num_edges, chunk_size = 6, 3
    num_rows = 2 * num_edges + 2 * (num_edges // chunk_size) * num_negatives
    return EdgeBatch(
        score=score,
        with_positive=with_positive,
        is_reciprocal=with_positive,
        num_edges=num_edges,
        chunk_size=chunk_size,
        num_negatives=num_negatives,
        l2=0.0,
        n3=0.1,
        nodes=torch.zeros(9, dim),
        relations=torch.zeros(9, dim),
        rows=_zeros(num_rows),
        relation_rows=_zeros(2 * num_edges),
        grads=torch.zeros(num_rows, dim),
        relation_grads=torch.zeros(2 * num_edges, dim),
        workspace=Workspace.of(num_edges, num_negatives, dim, torch.device("cpu")),
        known=KnownAnswers(_zeros(num_rows), (_zeros(1), _zeros(1)), *_zeros(4 * num_edges).view(2, 2, -1)),
    )


def _zeros(count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int64)


if __name__ == "__main__":
    sys.exit(min(main(), 1))
