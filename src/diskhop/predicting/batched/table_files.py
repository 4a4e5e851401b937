"""Tables on disk that are made of one another: which are missing, and when each is removed."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from diskhop.predicting.row_files import RowFile
from diskhop.runtime.tasks import TaskTools

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True, eq=False)
class TableFiles(Generic[Key]):
    """The tables of a model.

    files: the file of each table, in the order in which they are made.
    inputs: tables that each is made of.
    wanted: tables that stay; all others go once nothing reads them.
    """

    files: Mapping[Key, RowFile]
    inputs: Mapping[Key, Collection[Key]]
    wanted: Collection[Key]

    @property
    def most_bytes(self) -> int:
        """Bytes of the tables that exist at the same time, at most."""
        return max(
            (sum(self.files[each].num_bytes for each in self._alive_at(place)) for place in range(len(self.files))),
            default=0,
        )

    @property
    def result_bytes(self) -> int:
        """Bytes of the tables that stay."""
        return sum(self.files[each].num_bytes for each in self.wanted)

    def missing(self) -> list[Key]:
        """Return the tables to make, in order: wanted ones that are not complete, and what they need."""
        missing: set[Key] = set()
        pending = [key for key in self.wanted if not self.files[key].is_complete()]
        while pending:
            key = pending.pop()
            if key not in missing:
                missing.add(key)
                pending += [each for each in self.inputs[key] if not self.files[each].is_complete()]
        return [key for key in self.files if key in missing]

    def drop_unused(self, tools: TaskTools, before: Key | None) -> None:
        """Remove tables that are made before one, and that neither it nor a later one reads. None: of all tables."""
        order = list(self.files)
        place = len(order) if before is None else order.index(before)
        read_later = {each for key in order[place:] for each in self.inputs[key]}
        for key in order[:place]:
            if key not in self.wanted and key not in read_later:
                self.files[key].drop(tools)

    def drop_made(self, tools: TaskTools, last: Key) -> None:
        """Do the same once a table is made."""
        later = list(self.files)[list(self.files).index(last) + 1 :]
        self.drop_unused(tools, later[0] if later else None)

    def _alive_at(self, place: int) -> set[Key]:
        """Return the tables that exist while one is made."""
        order = list(self.files)
        read = {each for key in order[place:] for each in self.inputs[key]}
        return {key for key in order[: place + 1] if key in self.wanted or key in read or key == order[place]}
