"""How much memory batches have between their submission to the store and the model's release."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from diskhop.budget import format_bytes
from diskhop.dataset.dataset import Dataset
from diskhop.pipeline.sizes import batch_bytes
from diskhop.stores.scanning import BYTES_PER_ROW_IN_FLIGHT
from diskhop.stores.stores import StoreKind
from diskhop.system.memory import buffer_bytes

# What they ask for is read together: the more, the fewer bytes for each. So many where rows that are kept want the same
# memory, and as many as pay where none do.
FEW_IN_FLIGHT, MOST_IN_FLIGHT = 4, 12
# Of which none waits for another's rows to be put together.
LEAST_EXTRACTORS = 2


@dataclass(frozen=True, slots=True)
class BatchesInFlight:
    """Memory for batches, by what happens to them; see Plan.

    bytes_on_its_way: of one, if it misses every row. is_lent: the store's memory has its rows, also for the model.
    """

    is_lent: bool
    batch_bytes: int
    bytes_on_its_way: int
    bytes_on_their_way: int
    bytes_assembled: int
    holds_while_waiting: bool

    @classmethod
    def choose(
        cls,
        dataset: Dataset,
        kind: StoreKind,
        block_bytes: int,
        num_nodes: int,
        chunk_head_bytes: int,
        *,
        reads_lent_rows: bool,
        holds_while_waiting: bool,
    ) -> Self:
        """As few as go: one with the model, one on its way, or as many as are extracted at the same time.

        chunk_head_bytes: of a packed batch, for what its chunk has beside rows.
        """
        table = dataset.features()
        # Rows that are decoded are put together on the way; those that are lent go back before the next is waited for.
        may_lend = kind.lends and reads_lent_rows and not holds_while_waiting
        is_lent = table is not None and may_lend and dataset.feature_dtype != "int8"
        assembles = table is not None and kind.assembles and not is_lent
        whole_bytes = buffer_bytes(block_bytes) if is_lent else batch_bytes(dataset, block_bytes, num_nodes)
        one_bytes = buffer_bytes(block_bytes) if assembles else whole_bytes
        if table is not None and (kind.brings_rows or kind.extracts):
            one_bytes += num_nodes * BYTES_PER_ROW_IN_FLIGHT
        if table is not None and kind.packs:
            one_bytes += chunk_head_bytes
        if table is not None and kind.brings_rows and assembles:
            one_bytes += buffer_bytes(num_nodes * table.row_bytes)
        num_on_their_way = LEAST_EXTRACTORS if kind.extracts else 1
        return cls(
            is_lent=is_lent,
            batch_bytes=whole_bytes,
            bytes_on_its_way=one_bytes,
            bytes_on_their_way=one_bytes * (num_on_their_way + (not assembles and not holds_while_waiting)),
            bytes_assembled=whole_bytes if assembles else 0,
            holds_while_waiting=holds_while_waiting,
        )

    @property
    def num_bytes(self) -> int:
        """All together."""
        held_bytes = self.batch_bytes if self.holds_while_waiting else 0
        return self.bytes_on_their_way + self.bytes_assembled + held_bytes

    def grow(self, left_bytes: int, most_on_their_way: int) -> Self:
        """A few more on their way, then room to assemble one while the model has another, then up to most."""
        grown = self._with_on_their_way(left_bytes, min(FEW_IN_FLIGHT, most_on_their_way))
        left_bytes -= grown.num_bytes - self.num_bytes
        if grown.bytes_assembled > 0 and left_bytes >= self.batch_bytes and not self.holds_while_waiting:
            grown = replace(grown, bytes_assembled=grown.bytes_assembled + self.batch_bytes)
            left_bytes -= self.batch_bytes
        return grown._with_on_their_way(left_bytes, most_on_their_way)

    def _with_on_their_way(self, left_bytes: int, count: int) -> Self:
        wanted_bytes = count * self.bytes_on_its_way - self.bytes_on_their_way
        return replace(self, bytes_on_their_way=self.bytes_on_their_way + min(max(wanted_bytes, 0), left_bytes))

    def describe(self) -> str:
        """For people."""
        others_bytes = self.num_bytes - self.bytes_on_their_way
        with_model = (
            f", and {format_bytes(others_bytes)} for the model's" if others_bytes else ", the model's among them"
        )
        return (
            f"{format_bytes(self.bytes_on_their_way)} for batches on their way, at most "
            f"{format_bytes(self.bytes_on_its_way)} each{with_model}"
        )
