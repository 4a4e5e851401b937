"""Tasks of an import of tables. Each writes a file of the work folder, with the same bytes when repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from diskhop.errors import SourceError
from diskhop.importing.numbering.ids import count_listed
from diskhop.importing.numbering.pairs import ENDS, write_pairs
from diskhop.importing.numbering.tasks import read_parquet as read_work
from diskhop.importing.shorten import shorten
from diskhop.importing.tables.files import TableColumn, read_csv, read_parquet, source_faults
from diskhop.importing.tables.rows import TableRows
from diskhop.importing.tables.texts import Scan, clean_text, require_all, scan_text
from diskhop.importing.text.layout import RowLayout, TextFile
from diskhop.importing.text.rows import parquet_with
from diskhop.runtime.duck import Duck, quoted
from diskhop.runtime.tasks import TaskTools


@dataclass(frozen=True)
class KeepText:
    """Convert the columns of a text that are imported to Parquet, as text. The file's metadata has numbers of lines."""

    name: str
    text: Path
    file: TextFile
    names: Sequence[str]
    columns: Sequence[TableColumn]
    layout: RowLayout
    duck: Duck

    def write(self, path: Path, tools: TaskTools) -> None:
        """See Task. Raises SourceError, with file and line, for text that is not CSV."""
        found = scan_text(self.text, self.file.rows_begin, self.layout.comments)
        if len(self.names) == 1:  # an empty line is a row
            found = replace(found, counts=replace(found.counts, empty=0))
        cleaned = path.with_name(f".{path.name}.text")
        try:
            text = self.text
            if found.counts.comments or self.layout.delimiter == " " or self.file.head.comments:
                clean_text(text, self.file, self.layout, cleaned)
                text = cleaned
            self._convert(text, path, found)
            if text == cleaned:
                self._require_plain(path)
        finally:
            cleaned.unlink(missing_ok=True)

    def _convert(self, text: Path, path: Path, found: Scan) -> None:
        taken = ", ".join(column.sql for column in self.columns)
        rows = read_csv(text, self.names, self.layout.delimiter, self.file.head.lines)
        with source_faults({text: self.file.path}):
            self.duck.run(f"COPY (SELECT {taken} FROM {rows}) TO {quoted(path)} ({parquet_with(found.counts)})")
        require_all(self.file.path, found, count_listed(path, self.duck))

    def _require_plain(self, path: Path) -> None:
        """Raise SourceError for a field of several lines: cleaning takes each line for itself."""
        is_long = " OR ".join(f"contains({column.sql}, chr(10))" for column in self.columns)
        (rows,) = self.duck.fetch(f"SELECT count(*) FROM {read_work(path)} WHERE {is_long}")
        if rows[0]:
            raise SourceError(
                f"{self.file.path}: has a field of several lines, and comments or blanks between columns; remove the "
                "comments, or give the table as Parquet"
            )


@dataclass(frozen=True)
class ListNodes:
    """List the ids of a table of nodes like ListIds, but in the order of the rows. value: SQL of an id."""

    name: str
    rows: TableRows
    value: str
    duck: Duck

    def write(self, path: Path, tools: TaskTools) -> None:
        """See Task. Raises SourceError, with file and row, for a value that is no id, or a repeated id."""
        with self.rows.faults():
            self.duck.run(
                f"COPY (SELECT row_number() OVER () - 1 AS id, {self.value} AS name FROM {self.rows.sql}) "
                f"TO {quoted(path)} (FORMAT parquet)"
            )
        if are_in_order(path, self.duck):
            return
        listed = read_work(path)
        (repeated,) = self.duck.fetch(
            f"SELECT name FROM {listed} GROUP BY name HAVING count(*) > 1 ORDER BY name LIMIT 1"
        )
        if len(repeated):
            name = quoted(str(repeated[0]))
            (rows,) = self.duck.fetch(f"SELECT id FROM {listed} WHERE name = {name} ORDER BY id LIMIT 2")
            shown = shorten(str(repeated[0]))
            first, second = (self.rows.place(int(row)) for row in rows)
            raise SourceError(f"{second}: has the same id {shown} as {first}; give every node a different id")


@dataclass(frozen=True)
class NodeIds:
    """The ids of the nodes at an end of edges.

    count: number of nodes.
    listed: what ListIds or ListNodes made; None: ids are the numbers of the nodes.
    what: the nodes in errors, after "an id of".
    """

    count: int
    listed: Path | None = None
    what: str = "the nodes"


@dataclass(frozen=True)
class NumberEdges:
    """The pair file of edges first, first + 1, ..., in their order.

    values: SQL of the ids of source and destination. nodes: the nodes at both ends. dtype: uint32 or int64.
    """

    name: str
    rows: TableRows
    first: int
    count: int
    values: tuple[str, str]
    nodes: tuple[NodeIds, NodeIds]
    dtype: str
    duck: Duck

    def write(self, path: Path, tools: TaskTools) -> None:
        """See Task. Raises SourceError, with file and row, for an id that is no node's."""
        # Twice the edge's number here, and 1 more at its destination.
        ends = np.full(2 * self.count, -1, np.int64)
        for nodes in dict.fromkeys(self.nodes):
            selects = self._selects([end for end in (0, 1) if self.nodes[end] == nodes])
            named = f"({' UNION ALL '.join(selects)})"
            with self.rows.faults():
                if nodes.listed is None:
                    places, ids = self.duck.fetch(f"SELECT place::UINTEGER, name FROM {named}")
                    ids[ids >= nodes.count] = -1
                else:
                    places, ids = self.duck.fetch(
                        f"SELECT r.place::UINTEGER, i.id::{'UINTEGER' if self.dtype == 'uint32' else 'BIGINT'} "
                        f"FROM {named} r JOIN {read_work(nodes.listed)} i ON i.name = r.name"
                    )
            ends[places] = ids
        missing = np.flatnonzero(ends < 0)
        if len(missing):
            raise self._unknown_id(self.first + int(missing[0]) // 2, int(missing[0]) % 2)
        write_pairs(path, ends[0::2], ends[1::2], self.dtype)

    def _selects(self, wanted: Sequence[int]) -> list[str]:
        """List queries of some ends of the edges, with the places of their ids."""
        begun = 0
        selects = []
        for file, begin, end in self.rows.pieces(self.first, self.count):
            rows = f"FROM {read_parquet(file)} WHERE file_row_number >= {begin} AND file_row_number < {end}"
            place = f"2 * (file_row_number - {begin} + {begun})"
            selects += [f"SELECT {place} + {each} AS place, {self.values[each]} AS name {rows}" for each in wanted]
            begun += end - begin
        return selects

    def _unknown_id(self, row: int, end: int) -> SourceError:
        """Return the error for the first id that no node has. Counts all ends of the table that have none."""
        num_bad = 0
        with self.rows.faults():
            value = self.rows.value(row, self.values[end], self.duck)
            for each, nodes in zip(self.values, self.nodes, strict=True):
                named = f"(SELECT {each} AS name FROM {self.rows.sql})"
                query = f"SELECT count(*) FROM {named} WHERE name >= {nodes.count}"
                if nodes.listed is not None:
                    query = f"SELECT count(*) FROM {named} r ANTI JOIN {read_work(nodes.listed)} i ON i.name = r.name"
                (counts,) = self.duck.fetch(query)
                num_bad += int(counts[0])
        more = f" (the first of {num_bad:,} such ends of {self.rows.num_rows:,} edges)" if num_bad > 1 else ""
        return SourceError(
            f"{self.rows.place(row)}: the {ENDS[end]} must be an id of {self.nodes[end].what}, got {value}{more}; "
            "add the node, or remove the edge"
        )


def are_in_order(listed: Path, duck: Duck) -> bool:
    """Check whether listed ids are 0, 1, ... in order, so that no list is needed."""
    (types,) = duck.fetch(f"SELECT typeof(name) FROM {read_work(listed)} LIMIT 1")
    if len(types) == 0 or types[0] != "BIGINT":
        return False
    (others,) = duck.fetch(f"SELECT count(*) FROM {read_work(listed)} WHERE name <> id")
    return int(others[0]) == 0
