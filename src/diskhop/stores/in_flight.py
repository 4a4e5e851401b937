"""Memory of batches between their submission to the store and the model's release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from diskhop.budget import format_bytes
from diskhop.system.memory import buffer_bytes

# Batches in flight are read together: the more there are, the fewer bytes each one takes. The smaller number is for
# stores with cached rows, which need the same memory; beyond the larger one little is gained, unless the disk is slower
# than the cores by far: then the planner tries many more.
FEW_IN_FLIGHT, MOST_IN_FLIGHT = 4, 12
MORE_IN_FLIGHT = (24, 48, 96)


@dataclass(frozen=True, slots=True)
class BatchesInFlight:
    """Memory of batches by stage.

    batch_bytes: bytes of one batch as the model gets it.
    bytes_each: bytes of one batch in flight, if every row misses.
    bytes_in_flight, bytes_assembled, holds_while_waiting: see SampledPlan.
    """

    batch_bytes: int
    bytes_each: int
    bytes_in_flight: int
    bytes_assembled: int
    holds_while_waiting: bool

    @classmethod
    def fewest(
        cls,
        batch_bytes: int,
        block_bytes: int,
        *,
        assembles: bool,
        extra_bytes: int,
        num_batches: int,
        holds_while_waiting: bool,
    ) -> Self:
        """Return the smallest memory that works: the model's batch and num_batches in flight.

        batch_bytes: bytes of a batch as the model gets it. block_bytes: bytes of its nodes and edges.
        assembles: rows are copied together in other memory.
        extra_bytes: bytes that a batch in flight takes in addition.
        """
        bytes_each = extra_bytes + (buffer_bytes(block_bytes) if assembles else batch_bytes)
        return cls(
            batch_bytes=batch_bytes,
            bytes_each=bytes_each,
            bytes_in_flight=bytes_each * (num_batches + (not assembles and not holds_while_waiting)),
            bytes_assembled=batch_bytes if assembles else 0,
            holds_while_waiting=holds_while_waiting,
        )

    @property
    def num_bytes(self) -> int:
        """Bytes of all stages together."""
        held_bytes = self.batch_bytes if self.holds_while_waiting else 0
        return self.bytes_in_flight + self.bytes_assembled + held_bytes

    def grow(self, left_bytes: int, most_in_flight: int) -> Self:
        """Add batches while left_bytes last: a few in flight, one more assembled batch, then up to most_in_flight."""
        grown = self._with_in_flight(left_bytes, min(FEW_IN_FLIGHT, most_in_flight))
        left_bytes -= grown.num_bytes - self.num_bytes
        if grown.bytes_assembled > 0 and left_bytes >= self.batch_bytes and not self.holds_while_waiting:
            grown = replace(grown, bytes_assembled=grown.bytes_assembled + self.batch_bytes)
            left_bytes -= self.batch_bytes
        return grown._with_in_flight(left_bytes, most_in_flight)

    def _with_in_flight(self, left_bytes: int, num_batches: int) -> Self:
        wanted_bytes = num_batches * self.bytes_each - self.bytes_in_flight
        return replace(self, bytes_in_flight=self.bytes_in_flight + min(max(wanted_bytes, 0), left_bytes))

    def describe(self, headroom: float) -> str:
        """One line for people. headroom: the factor that sizes were measured with."""
        others_bytes = self.num_bytes - self.bytes_in_flight
        model = f"plus {format_bytes(others_bytes)} for" if others_bytes else "including"
        return (
            f"In-flight batches: {format_bytes(self.bytes_in_flight)} (up to {format_bytes(self.bytes_each)} each, "
            f"{model} the one being trained; measured +{headroom - 1:.0%})"
        )


def together(parts: Sequence[BatchesInFlight]) -> BatchesInFlight:
    """Return the memory of batches whose rows several stores fetch."""
    return BatchesInFlight(
        batch_bytes=sum(part.batch_bytes for part in parts),
        bytes_each=sum(part.bytes_each for part in parts),
        bytes_in_flight=sum(part.bytes_in_flight for part in parts),
        bytes_assembled=sum(part.bytes_assembled for part in parts),
        holds_while_waiting=parts[0].holds_while_waiting,
    )
