"""Tables of rows on disk that are made of one another, and are removed once nothing reads them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Generic

from diskhop.predicting.row_files import RowFile
from diskhop.predicting.table_order import Key, TableOrder
from diskhop.runtime.tasks import TaskTools


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
        return self._order.most_bytes({key: file.num_bytes for key, file in self.files.items()})

    @property
    def result_bytes(self) -> int:
        """Bytes of the tables that stay."""
        return sum(self.files[each].num_bytes for each in self.wanted)

    def missing(self) -> list[Key]:
        """Return the tables to make, in order: wanted ones that are not complete, and what they need."""
        return self._order.missing(lambda key: self.files[key].is_complete())

    def drop_unused(self, tools: TaskTools, before: Key | None) -> None:
        """Remove tables that are made before one, and that neither it nor a later one reads. None: of all tables."""
        for key in self._order.unused(before):
            self.files[key].drop(tools)

    def drop_made(self, tools: TaskTools, last: Key) -> None:
        """Do the same once a table is made."""
        self.drop_unused(tools, self._order.after(last))

    @property
    def _order(self) -> TableOrder[Key]:
        return TableOrder({key: self.inputs[key] for key in self.files}, self.wanted)
