"""Sizes of predictions, known before anything is computed: what they take on the disk and in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from diskhop.dataset.dataset import Dataset
from diskhop.dataset.sort.moved_rows import plan_move
from diskhop.errors import BudgetError, ConfigError
from diskhop.predicting.columns import Column, Outputs, TableName

# Formats: bytes of groups that are in memory while one is written, in groups. Parquet: values, their levels in lists,
# and pages. Text: values, and the same by column. Arrays: values, and their bytes.
FORMATS: Mapping[str, int] = {"parquet": 3, "npy": 2, "tsv": 2}
# Memory of writing a file: two buffers.
WRITING_BYTES = 4 << 20
# Bytes of memory per node: of an id; in addition while names are ranked by id; of a wanted row and its copy; of its
# place in the source's order, both ways, and in addition while that is found.
ID_BYTES, RANKING_BYTES, WANTED_BYTES, PLACES_BYTES, PLACING_BYTES = 8, 24, 16, 24, 16
_ROW_NUMBER_BYTES = 8
# Maximum bytes of a number as text, with the tab: a float32, and an int64.
_FLOAT_TEXT_BYTES, _INTEGER_TEXT_BYTES = 16, 21


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLimits:
    """Sizes that the work is divided by; tests pass tiny ones.

    group_bytes: bytes of a group of rows: a row group of Parquet, or what is computed at a time.
    group_rows: maximum number of its rows.
    part_bytes: bytes of values in a part, about: large compared to the cost of its fsyncs, small compared to the loss
        in a crash.
    read_bytes: bytes that are read of a table and computed with at a time, at least a row: they fit the cache, and are
        enough that threads seldom wait for each other between NumPy's calls.
    """

    group_bytes: int = 8 << 20
    group_rows: int = 1 << 17
    part_bytes: int = 64 << 20
    read_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSizes:
    """Sizes of one output.

    count: number of nodes to write.
    num_nodes: number of nodes of the dataset.
    id_bytes: mean bytes of an id.
    are_names: whether ids are names.
    are_stored: whether ids are stored, since they are not the rows.
    is_hot: whether the dataset's order differs from the source's.
    columns: the columns, without the ids.
    table_dim: most values per row of a table that columns are computed from.
    limits: sizes that the work is divided by.
    """

    count: int
    num_nodes: int
    id_bytes: int
    are_names: bool
    are_stored: bool
    is_hot: bool
    columns: tuple[Column, ...]
    table_dim: int
    limits: OutputLimits

    @property
    def row_bytes(self) -> int:
        """Mean bytes of a node's id and values."""
        return self.id_bytes + sum(column.row_bytes for column in self.columns)

    @property
    def group_rows(self) -> int:
        """Rows of a group, which depend on the columns and the dataset alone."""
        return max(1, min(self.limits.group_rows, self.limits.group_bytes // self.row_bytes))

    @property
    def part_rows(self) -> int:
        """Rows of a part, in whole groups."""
        return self.group_rows * max(1, self.limits.part_bytes // (self.row_bytes * self.group_rows))

    @property
    def group_bytes(self) -> int:
        """Memory of a group."""
        return min(self.group_rows, self.count) * (self.row_bytes + _ROW_NUMBER_BYTES)

    @property
    def computing_bytes(self) -> int:
        """Memory in addition while a group is computed: a block that is read, and what is computed from it."""
        return 2 * max(self.limits.read_bytes, 4 * self.table_dim)

    def task_bytes(self, format_name: str) -> int:
        """Memory of writing a file with one thread."""
        return WRITING_BYTES + FORMATS[format_name] * self.group_bytes + self.computing_bytes

    def disk_bytes(self, format_name: str) -> int:
        """Bytes of all files, about; what Parquet's encodings save, and quotes in names, are not counted."""
        if format_name != "tsv":
            return self.count * self.row_bytes
        row_bytes = self.id_bytes + 3 if self.are_names else _INTEGER_TEXT_BYTES
        for column in self.columns:
            value_bytes = _INTEGER_TEXT_BYTES if column.dtype == "int64" else _FLOAT_TEXT_BYTES
            row_bytes += (column.width or 1) * value_bytes
        return self.count * row_bytes

    def least_memory(self, format_name: str) -> dict[str, int]:
        """Return the least memory by the names that it is reserved under, for Budget.require()."""
        needed = {"writing predictions": self.task_bytes(format_name)}
        if self.are_stored:
            needed["source ids"] = (ID_BYTES + (RANKING_BYTES if self.are_names else 0)) * self.num_nodes
        if self.count < self.num_nodes:
            needed["wanted nodes"] = WANTED_BYTES * self.count
        if self.is_hot and format_name == "npy":
            widest = max((column.row_bytes for column in self.columns), default=0)
            needed["order of the nodes"] = PLACES_BYTES * self.count
            needed["moving rows"] = max(PLACING_BYTES * self.num_nodes, _least_move_bytes(self.count, widest))
        return needed


def output_sizes(
    dataset: Dataset,
    outputs: Outputs,
    dims: Mapping[TableName, int],
    *,
    count: int | None = None,
    limits: OutputLimits | None = None,
) -> OutputSizes:
    """Return the sizes of an output.

    dims: values per row of each table that there will be. count: number of nodes to write; None: all.

    Raises ConfigError for a column whose table is missing.
    """
    for word, table in outputs.sources():
        if table not in dims:
            raise ConfigError(f"--what {word} needs the {table} of the nodes, which were not computed")
    names_file = dataset.names_file("nodes")
    id_bytes = ID_BYTES
    if names_file is not None:
        id_bytes = -(-dataset.manifest.files[names_file].num_bytes // max(1, dataset.num_nodes))
    return OutputSizes(
        count=dataset.num_nodes if count is None else count,
        num_nodes=dataset.num_nodes,
        id_bytes=id_bytes,
        are_names=names_file is not None,
        are_stored=dataset.has_original_ids,
        is_hot=dataset.order == "hot",
        columns=outputs.columns(dims),
        table_dim=max(dims[table] for _, table in outputs.sources()),
        limits=limits or OutputLimits(),
    )


def require_format(format_name: str) -> None:
    """Raise ConfigError for a format that is unknown."""
    if format_name not in FORMATS:
        raise ConfigError(f"--format '{format_name}' is unknown; use one of {', '.join(FORMATS)}")


def _least_move_bytes(num_rows: int, row_bytes: int) -> int:
    try:
        plan_move(num_rows, row_bytes, 0)
    except BudgetError as error:
        return error.smallest_bytes or 0
    return 0
