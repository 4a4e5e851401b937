"""The kernel of NumPy's Philox; philox.py has its reference. A program draws some blocks of eight 32-bit words."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from diskhop.nn.kernels.choice import on_device_of
from diskhop.nn.kernels.philox_stream import KEY_STEPS, MULTIPLIERS, NUM_ROUNDS, WORDS_PER_BLOCK, Stream, signed

_BLOCKS_PER_PROGRAM = 128


def bounded_words_by_triton(stream: Stream, first: int, num_blocks: int, high: int, device: torch.device) -> Tensor:
    """Compute bounded_words()."""
    out = torch.empty(num_blocks * WORDS_PER_BLOCK, dtype=torch.int64, device=device)
    # In memory: Triton makes constants of the numbers 1 and 16, and would compile the kernel for them again.
    numbers = *stream.counter, *stream.key, *MULTIPLIERS, *KEY_STEPS, high, (1 << 32) % high
    words = [signed(each) for each in numbers]
    if out.numel():
        with on_device_of(out):
            _draw_blocks[(triton.cdiv(num_blocks, _BLOCKS_PER_PROGRAM),)](
                torch.tensor(words, device=device),
                first,
                num_blocks,
                out,
                ROUNDS=NUM_ROUNDS,
                BLOCK=_BLOCKS_PER_PROGRAM,
            )
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _bounded(word: tl.tensor, high: tl.tensor, least: tl.tensor) -> tl.tensor:
    product = word * high
    return tl.where((product & 0xFFFFFFFF) >= least, (product >> 32).to(tl.int64), -1)


@triton.jit  # type: ignore[untyped-decorator]
def _draw_blocks(
    stream: tl.tensor,
    first: tl.tensor,
    num_blocks: tl.tensor,
    out: tl.tensor,
    ROUNDS: tl.constexpr,  # noqa: N803 - Triton's habit for constants
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    blocks = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    zeros = tl.zeros((BLOCK,), tl.uint64)
    a = (tl.load(stream) + first + 1 + blocks).to(tl.uint64)
    b = zeros + tl.load(stream + 1).to(tl.uint64)
    c = zeros + tl.load(stream + 2).to(tl.uint64)
    d = zeros + tl.load(stream + 3).to(tl.uint64)
    key_first = zeros + tl.load(stream + 4).to(tl.uint64)
    key_second = zeros + tl.load(stream + 5).to(tl.uint64)
    factor_first = zeros + tl.load(stream + 6).to(tl.uint64)
    factor_second = zeros + tl.load(stream + 7).to(tl.uint64)
    step_first = zeros + tl.load(stream + 8).to(tl.uint64)
    step_second = zeros + tl.load(stream + 9).to(tl.uint64)
    for _ in tl.static_range(ROUNDS):
        high_first = tl.umulhi(a, factor_first)
        high_second = tl.umulhi(c, factor_second)
        low_first = a * factor_first
        low_second = c * factor_second
        a = high_second ^ b ^ key_first
        b = low_second
        c = high_first ^ d ^ key_second
        d = low_first
        key_first += step_first
        key_second += step_second
    of_high = zeros + tl.load(stream + 10).to(tl.uint64)
    of_least = zeros + tl.load(stream + 11).to(tl.uint64)
    places = out + blocks * 8
    is_block = blocks < num_blocks
    tl.store(places, _bounded(a & 0xFFFFFFFF, of_high, of_least), mask=is_block)
    tl.store(places + 1, _bounded(a >> 32, of_high, of_least), mask=is_block)
    tl.store(places + 2, _bounded(b & 0xFFFFFFFF, of_high, of_least), mask=is_block)
    tl.store(places + 3, _bounded(b >> 32, of_high, of_least), mask=is_block)
    tl.store(places + 4, _bounded(c & 0xFFFFFFFF, of_high, of_least), mask=is_block)
    tl.store(places + 5, _bounded(c >> 32, of_high, of_least), mask=is_block)
    tl.store(places + 6, _bounded(d & 0xFFFFFFFF, of_high, of_least), mask=is_block)
    tl.store(places + 7, _bounded(d >> 32, of_high, of_least), mask=is_block)
