"""The tables to build from a dataset, and the disk space that they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from diskhop.budget import format_bytes
from diskhop.errors import ConfigError
from diskhop.hops.make.cold_edges import SourceCounts
from diskhop.hops.make.tiles import row_major
from diskhop.hops.operators import Operator
from diskhop.hops.tables import TableShape
from diskhop.protocols import Table

KEY_BYTES = 8  # per edge to sort


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The tables to build.

    table: feature table of the dataset.
    feature_dtype: dtype of the features.
    shape: layout of a table of all rows.
    num_edges: edges of the lists.
    index_bytes: bytes per index.
    operators: operators.
    hops: hops per operator.
    sorted_edges: edges of lists to sort first; 0 if the dataset's own lists fit.
    num_kept: number of rows to keep; None for all.
    weight_bytes: bytes of an edge's weight; 0 without weights.
    looped_bytes: disk space of lists with weights that get loops; 0 for none.
    sources: counts of the sources in the lists, if they were counted (see first_cold_row).
    """

    table: Table
    feature_dtype: str
    shape: TableShape
    num_edges: int
    index_bytes: int
    operators: tuple[Operator, ...]
    hops: int
    sorted_edges: int
    num_kept: int | None
    weight_bytes: int = 0
    looped_bytes: int = 0
    sources: SourceCounts | None = None

    @property
    def num_block_rows(self) -> int:
        """Rows that some sum needs, as far as known; at least one, so that there is a block."""
        return self.shape.num_rows if self.sources is None else max(1, self.sources.num_sources)

    @property
    def kept_shape(self) -> TableShape:
        """Layout of the kept tables."""
        return self.shape if self.num_kept is None else row_major(self.shape, self.num_kept)

    @property
    def num_tables(self) -> int:
        """Number of kept tables."""
        return len(self.operators) * self.hops + 1

    @property
    def result_bytes(self) -> int:
        """Disk space of the kept tables."""
        return self.num_tables * self.kept_shape.num_bytes + 8 * (self.num_kept or 0)

    @property
    def work_bytes(self) -> int:
        """Largest disk space during the work, including the result."""
        nodes_bytes = 4 * self.shape.num_rows
        lists_bytes = self.sorted_edges * (KEY_BYTES + self.index_bytes) + (8 * self.shape.num_rows + nodes_bytes)
        lists_bytes += self.looped_bytes
        powers = max(sum(step.is_power for step in hop.steps) for op in self.operators for hop in op.hops(self.hops))
        # Of powers, a source and its product exist together; if rows are extracted, so it is with all tables.
        num_work = 2 * powers + (0 if self.num_kept is None else 3)
        return lists_bytes + num_work * self.shape.num_bytes + self.result_bytes


def require_disk(
    task: Task, num_bytes: int, what: str, remedies: Sequence[tuple[str, Task]], *, cold_bytes: int = 0
) -> None:
    """Raise ConfigError if the task needs more than num_bytes of disk space.

    what: describes num_bytes in the message. remedies: options and the smaller tasks that they lead to. cold_bytes:
    additional space for cold edges.
    """
    work_bytes = task.work_bytes + cold_bytes
    if work_bytes <= num_bytes:
        return
    less = "".join(f"; {name} needs {format_bytes(other.work_bytes)}" for name, other in remedies)
    raise ConfigError(
        f"{task.num_tables} tables ({len(task.operators)} x {task.hops} hops and the features) of "
        f"{format_bytes(task.kept_shape.num_bytes)} need {format_bytes(work_bytes)} of disk space to build, "
        f"{what} {format_bytes(num_bytes)}{less}"
    )
