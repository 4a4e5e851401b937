"""Tools and limits of one import, which every source and every stage of the import receives."""

from __future__ import annotations

from dataclasses import dataclass, field

from diskhop.dataset.build.feature_ranges import RANGE_BYTES
from diskhop.dataset.sort.plan import SortLimits
from diskhop.importing.options import EdgeIds
from diskhop.runtime.jobs import COPIED_ARRAY_BYTES
from diskhop.runtime.work_tools import WorkTools


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportLimits:
    """Sizes that shape how an import is split into tasks. The defaults suit any graph; tests pass tiny ones.

    pairs_slice_bytes: text of whole numbers per task, parsed by one thread.
    rows_slice_bytes: text of names per task, parsed by all threads of DuckDB.
    triples_slice_bytes: text of triples per task.
    edges_per_group: smallest number of table rows that are numbered together.
    most_edges_per_group: largest number of table rows that are numbered together.
    range_bytes: bytes of the feature table per task, a multiple of 1 MiB.
    names_bytes: memory for DuckDB to read a list of names or ids; names of a kilobyte and more need more.
    id_set_share: a set of ids takes at most 1/id_set_share of the budget; it stays until the edges are sorted.
    id_copies_share: the workers' copies of that set take at most this part of the budget.
    order_share: the workers' copies of a hot order take at most this part of the budget.
    rows_group_share: the text of names that are joined together takes at most this part of the budget.
    triples_group_share: the text of triples that are joined together takes at most this part of the budget.
    auto_edge_ids: most edges without weights and times whose numbers are kept unless asked.
    copied_array_bytes: largest array that is copied to workers; a larger one keeps its tasks in this process.
    sort: limits of sorting edges.
    """

    pairs_slice_bytes: int = 4 << 20
    rows_slice_bytes: int = 16 << 20
    triples_slice_bytes: int = 4 << 20
    edges_per_group: int = 1 << 18
    most_edges_per_group: int = 1 << 24
    range_bytes: int = RANGE_BYTES
    names_bytes: int = 48 << 20
    id_set_share: int = 4
    id_copies_share: int = 4
    order_share: int = 4
    rows_group_share: int = 16
    triples_group_share: int = 32
    auto_edge_ids: int = 100_000_000
    copied_array_bytes: int = COPIED_ARRAY_BYTES
    sort: SortLimits = field(default_factory=SortLimits)

    def keeps_edge_ids(self, choice: EdgeIds | None, num_edges: int, carry_data: bool) -> bool:
        """Decide whether the numbers of edges are kept. carry_data: whether the edges have weights or times."""
        if choice in (None, "auto"):
            return carry_data or num_edges <= self.auto_edge_ids
        return choice == "keep"


@dataclass(frozen=True, slots=True)
class ImportTools(WorkTools):
    """WorkTools with the limits of the import."""

    limits: ImportLimits = field(default_factory=ImportLimits)
