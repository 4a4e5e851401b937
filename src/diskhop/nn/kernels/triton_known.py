"""The kernel that marks known answers among the negatives of edges, before triton_contrast.py scores them.

An edge has far fewer known answers than negatives. So each answer is looked up among the negatives of the edge's chunk,
which are sorted, not the other way round. A program has an edge.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

# Answers of an edge that are looked up at once.
_ANSWERS = 32


class KnownAnswers(NamedTuple):
    """Known answers of a batch of E edges, all int64; triton_contrast.EdgeBatch has the order of its rows.

    nodes: node of each row of the batch.
    answers: nodes, for destinations and for sources.
    begins, ends: of each side's and edge's part of them, (2, E).
    """

    nodes: Tensor
    answers: tuple[Tensor, Tensor]
    begins: Tensor
    ends: Tensor


def mark_known(known: KnownAnswers, scores: Tensor, chunk_size: int) -> None:
    """Fill scores, float32 (2, E, K): -inf for negatives that are known answers of their edge, 0 for others."""
    _, num_edges, num_negatives = scores.shape
    scores.zero_()
    drawn = known.nodes[2 * num_edges :].view(2, -1, num_negatives)
    for side in (0, 1):
        negatives, places = torch.sort(drawn[side], dim=1)
        _mark_known[(num_edges,)](
            scores[side],
            negatives,
            places,
            known.answers[side],
            known.begins[side],
            known.ends[side],
            CHUNK_SIZE=chunk_size,
            NUM_NEGATIVES=num_negatives,
            NUM_STEPS=num_negatives.bit_length(),
            ANSWERS=_ANSWERS,
            num_warps=1,
        )


@triton.jit  # type: ignore[untyped-decorator]
def _mark_known(
    scores: tl.tensor,
    negatives: tl.tensor,
    places: tl.tensor,
    answers: tl.tensor,
    begins: tl.tensor,
    ends: tl.tensor,
    CHUNK_SIZE: tl.constexpr,  # noqa: N803 - Triton's habit for constants
    NUM_NEGATIVES: tl.constexpr,  # noqa: N803
    NUM_STEPS: tl.constexpr,  # noqa: N803
    ANSWERS: tl.constexpr,  # noqa: N803
) -> None:
    edge = tl.program_id(0).to(tl.int64)
    of_chunk = edge // CHUNK_SIZE * NUM_NEGATIVES
    begin = tl.load(begins + edge)
    end = tl.load(ends + edge)
    while begin < end:
        numbers = begin + tl.arange(0, ANSWERS)
        is_answer = numbers < end
        answer = tl.load(answers + numbers, mask=is_answer, other=-1)
        low = tl.zeros((ANSWERS,), tl.int32)
        high = tl.full((ANSWERS,), NUM_NEGATIVES, tl.int32)
        for _ in tl.static_range(NUM_STEPS):
            middle = (low + high) // 2
            found = tl.load(negatives + of_chunk + middle, mask=low < high, other=0)
            is_before = (low < high) & (found < answer)
            low = tl.where(is_before, middle + 1, low)
            high = tl.where(is_before, high, middle)
        found = tl.load(negatives + of_chunk + low, mask=is_answer & (low < NUM_NEGATIVES), other=-1)
        is_same = is_answer & (found == answer)
        # A node may be drawn repeatedly.
        while tl.max(is_same.to(tl.int32)) > 0:
            place = tl.load(places + of_chunk + low, mask=is_same, other=0)
            tl.store(scores + edge * NUM_NEGATIVES + place, float("-inf"), mask=is_same)
            low += 1
            found = tl.load(negatives + of_chunk + low, mask=is_same & (low < NUM_NEGATIVES), other=-1)
            is_same = is_same & (found == answer)
        begin += ANSWERS
