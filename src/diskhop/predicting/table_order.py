"""Tables that are made of one another: which are missing, which exist at the same time, and when each is unused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True, eq=False)
class TableOrder(Generic[Key]):
    """The tables of a model.

    inputs: tables that each is made of, in the order in which they are made.
    wanted: tables that stay; all others go once nothing reads them.
    """

    inputs: Mapping[Key, Collection[Key]]
    wanted: Collection[Key]

    def missing(self, is_complete: Callable[[Key], bool]) -> list[Key]:
        """Return the tables to make, in order: wanted ones that are not complete, and what they need."""
        missing: set[Key] = set()
        pending = [key for key in self.wanted if not is_complete(key)]
        while pending:
            key = pending.pop()
            if key not in missing:
                missing.add(key)
                pending += [each for each in self.inputs[key] if not is_complete(each)]
        return [key for key in self.inputs if key in missing]

    def unused(self, before: Key | None) -> list[Key]:
        """Return tables that are made before one, and that neither it nor a later one reads. None: of all tables."""
        order = list(self.inputs)
        place = len(order) if before is None else order.index(before)
        read_later = {each for key in order[place:] for each in self.inputs[key]}
        return [key for key in order[:place] if key not in self.wanted and key not in read_later]

    def after(self, key: Key) -> Key | None:
        """Return the table that is made after one; None after the last."""
        order = list(self.inputs)
        place = order.index(key) + 1
        return order[place] if place < len(order) else None

    def most_bytes(self, num_bytes: Mapping[Key, int]) -> int:
        """Return the bytes of the tables that exist at the same time, at most. num_bytes: of each."""
        order = list(self.inputs)
        most = 0
        for place, made in enumerate(order):
            read = {each for key in order[place:] for each in self.inputs[key]}
            alive = (key for key in order[: place + 1] if key in self.wanted or key in read or key == made)
            most = max(most, sum(num_bytes[key] for key in alive))
        return most
