"""Where the learned rows of a run are: in memory with their checkpoints, or on disk with some pages in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from diskhop.budget import format_bytes
from diskhop.embedding.rows.layout import RowLayout
from diskhop.embedding.rows.versions import COPYING_BYTES
from diskhop.nn.typed.embeddings import COPIES, embedding_bytes, sums_bytes

# Learned rows stay in memory if they and their checkpoints take at most this share of it.
_MOST_LEARNED_SHARE = 0.75
# Part of the memory in which pages of rows on disk are cached: every batch needs other ones.
_CACHED_PART = 4
_SMALLEST_CACHE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class LearnedPlace:
    """Learned rows of all types.

    layouts: their files, by type.
    cache_bytes: memory for pages of each type; empty if the rows are in memory.
    is_summed: steps have several batches, whose gradients are added up.
    """

    layouts: Mapping[str, RowLayout]
    cache_bytes: Mapping[str, int] = field(default_factory=dict)
    is_summed: bool = False

    @property
    def is_on_disk(self) -> bool:
        """Whether the rows are on disk."""
        return bool(self.cache_bytes)

    def describe(self) -> str:
        """One line for people about rows on disk, '' for none."""
        if not self.is_on_disk:
            return ""
        of_types = ", ".join(self.layouts)
        num_bytes = format_bytes(sum(layout.file_bytes for layout in self.layouts.values()))
        cached = format_bytes(sum(self.cache_bytes.values()))
        return f"Learned rows of {of_types} on disk: {num_bytes}, of which {cached} are cached in memory"

    def held(self) -> dict[str, int]:
        """Bytes of the budget by name."""
        if self.is_on_disk:
            return {"learned features": sum(self.cache_bytes.values()), "copies of learned features": COPYING_BYTES}
        num_bytes = _row_bytes(self.layouts)
        if not num_bytes:
            return {}
        held = {"learned features": num_bytes, "checkpoints of learned features": COPIES * num_bytes}
        return held | ({"gradients of learned features": _sums_bytes(self.layouts)} if self.is_summed else {})


def place_learned(counts: Mapping[str, int], dim: int, memory_bytes: int, accumulate: int = 1) -> LearnedPlace:
    """Place learned rows: in memory if their checkpoints fit too, else on disk with a cache that types share by size.

    counts: nodes by type. dim: values of a row. accumulate: batches of a step.
    """
    layouts = {name: RowLayout(num_rows=count, dim=dim) for name, count in counts.items()}
    is_summed = accumulate > 1
    if memory_for_rows(layouts, is_summed=is_summed) <= memory_bytes:
        return LearnedPlace(layouts, is_summed=is_summed)
    total = sum(layout.file_bytes for layout in layouts.values())
    cached = {}
    for name, layout in layouts.items():
        wanted = max(_SMALLEST_CACHE_BYTES, memory_bytes // _CACHED_PART * layout.file_bytes // max(1, total))
        cached[name] = layout.cache_bytes(layout.pages_in(wanted))
    return LearnedPlace(layouts, cached)


def memory_for_rows(layouts: Mapping[str, RowLayout], *, is_summed: bool) -> int:
    """Return the smallest memory, in bytes, in which learned rows stay, with all that held() names."""
    num_bytes = (1 + COPIES) * _row_bytes(layouts) + (_sums_bytes(layouts) if is_summed else 0)
    return math.ceil(num_bytes / _MOST_LEARNED_SHARE)


def _sums_bytes(layouts: Mapping[str, RowLayout]) -> int:
    return sum(sums_bytes(layout.num_rows, layout.dim) for layout in layouts.values())


def _row_bytes(layouts: Mapping[str, RowLayout]) -> int:
    return sum(embedding_bytes(layout.num_rows, layout.dim) for layout in layouts.values())
