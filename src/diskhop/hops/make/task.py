"""What is to be made of a dataset, and what that takes on the disk."""

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

KEY_BYTES = 8  # of an edge that is sorted


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is to be made of a dataset. table: its features, of feature_dtype. num_kept: rows written out; None: all.

    sorted_edges: of lists that are sorted first, 0 where the dataset's own serve. sources: what these name, where they
    were looked at; see first_cold_row().
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
    sources: SourceCounts | None = None

    @property
    def num_block_rows(self) -> int:
        """Rows that some sum takes, as far as it is known; one at least, so that there is a block."""
        return self.shape.num_rows if self.sources is None else max(1, self.sources.num_sources)

    @property
    def kept_shape(self) -> TableShape:
        """How the tables that are kept lie."""
        return self.shape if self.num_kept is None else row_major(self.shape, self.num_kept)

    @property
    def num_tables(self) -> int:
        """That are kept."""
        return len(self.operators) * self.hops + 1

    @property
    def result_bytes(self) -> int:
        """Of the tables that are kept."""
        return self.num_tables * self.kept_shape.num_bytes + 8 * (self.num_kept or 0)

    @property
    def work_bytes(self) -> int:
        """On the disk at most, the result included."""
        nodes_bytes = 4 * self.shape.num_rows
        lists_bytes = self.sorted_edges * (KEY_BYTES + self.index_bytes) + (8 * self.shape.num_rows + nodes_bytes)
        powers = max(sum(step.is_power for step in hop.steps) for op in self.operators for hop in op.hops(self.hops))
        # Of powers a source and what is made of it; where rows are extracted it is so with all tables.
        num_work = 2 * powers + (0 if self.num_kept is None else 3)
        return lists_bytes + num_work * self.shape.num_bytes + self.result_bytes


def require_disk(
    task: Task, num_bytes: int, what: str, remedies: Sequence[tuple[str, Task]], *, cold_bytes: int = 0
) -> None:
    """Refuse a disk that is too small, with what would do. remedies: options by which a task takes less.

    cold_bytes: that a plan takes besides. Raises ConfigError. what: the disk's bytes are, for the message.
    """
    work_bytes = task.work_bytes + cold_bytes
    if work_bytes <= num_bytes:
        return
    less = "".join(f"; {name} takes {format_bytes(other.work_bytes)}" for name, other in remedies)
    raise ConfigError(
        f"{len(task.operators)} x {task.hops} hops and the features are {task.num_tables} tables of "
        f"{format_bytes(task.kept_shape.num_bytes)}, which take {format_bytes(work_bytes)} on the disk while they "
        f"are made, and {what} {format_bytes(num_bytes)}{less}"
    )
