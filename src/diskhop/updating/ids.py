"""Ids of a delta as rows of the dataset that it updates: whole numbers or names, of known nodes and of new ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.dataset import Dataset
from diskhop.dataset.files import read_blocks
from diskhop.dataset.id_map import positions_of_ids
from diskhop.dataset.name_lines import damaged_names, name_of
from diskhop.importing.numbering.tasks import read_parquet
from diskhop.importing.options import IdKind
from diskhop.importing.tables.read_rows import run_stage
from diskhop.importing.tables.rows import TableRows, open_duck
from diskhop.importing.tables.source import NAMES
from diskhop.importing.tables.tasks import ListNodes, NodeIds
from diskhop.importing.tools import ImportTools
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.duck import Duck, quoted
from diskhop.runtime.tasks import TaskTools
from diskhop.updating.delta import NO_NODES, DeltaNodes

_RESERVED = "source ids"
_IDS_PER_BLOCK = 1 << 16
# Of a new node: its id or name as Python has it, and its row.
_NEW_NODE_BYTES = 160


class KnownIds:
    """The ids of a dataset's nodes.

    kind: whether users know nodes by whole numbers or by names.
    """

    def __init__(self, dataset: Dataset, work: ImportTools) -> None:
        self._dataset = dataset
        self._work = work
        self.kind = kind_of_ids(dataset)
        self._are_rows = self.kind == "integer" and not dataset.has_original_ids
        self._listed: Path | None = None

    def known(self) -> NodeIds:
        """Return the ids of all nodes that the dataset has."""
        return NodeIds(self._dataset.num_nodes, None if self._are_rows else self._list_known())

    def match(self, rows: TableRows, value: str) -> tuple[DeltaNodes, NodeIds]:
        """Find the nodes of a table. value: SQL of the id. Returns them, and the ids of old and new nodes together.

        Raises SourceError, with file and row, for an id that is none or occurs twice.
        """
        work, num_nodes = self._work, self._dataset.num_nodes
        with open_duck(work, work.budget.available_bytes // 2, work.threads) as duck:
            key = f"{rows.identity}\n{value}"
            (listed,) = run_stage(
                work, "delta-ids", key, [ListNodes("nodes.parquet", rows, value, duck)], "listing ids"
            )
            if self._are_rows:
                _, ids = duck.fetch(f"SELECT id, name FROM {read_parquet(listed)} ORDER BY id")
                found = np.where(ids < num_nodes, ids, -1)
            else:
                known = self._list_known()
                places, matched = duck.fetch(
                    f"SELECT n.id, coalesce(k.id, -1) FROM {read_parquet(listed)} n "
                    f"LEFT JOIN {read_parquet(known)} k ON k.name = n.name"
                )
                found = np.empty(len(places), np.int64)
                found[places] = matched
            is_new = found < 0
            num_new = int(is_new.sum())
            found[is_new] = num_nodes + np.arange(num_new)
            if not num_new:
                return DeltaNodes(rows=found, num_new=0), self.known()
            work.held.enter_context(work.budget.reserve(_RESERVED, num_new * _NEW_NODE_BYTES))
            (names,) = duck.fetch(f"SELECT name FROM {read_parquet(listed)} ORDER BY id")
            if self.kind == "string":
                nodes = DeltaNodes(rows=found, num_new=num_new, names=[str(name) for name in names[is_new]])
            else:
                nodes = DeltaNodes(rows=found, num_new=num_new, ids=np.asarray(names[is_new], np.int64))
            if self._are_rows and nodes.ids is not None and np.array_equal(nodes.ids, found[is_new]):
                return nodes, NodeIds(num_nodes + num_new)
            joined = _ListAll("all.parquet", self._list_known(), listed, num_nodes, duck)
            (listed,) = run_stage(work, "all-ids", f"{key}\n{self._dataset.hash}", [joined], "")
        return nodes, NodeIds(num_nodes + num_new, listed)

    def _list_known(self) -> Path:
        if self._listed is None:
            task = _ListKnown("known.parquet", self._dataset)
            num_bytes = (0 if self._are_rows else 24) * self._dataset.num_nodes
            with self._work.budget.reserve(_RESERVED, num_bytes):
                (self._listed,) = run_stage(self._work, "known-ids", self._dataset.hash, [task], "listing ids")
        return self._listed


def kind_of_ids(dataset: Dataset) -> IdKind:
    """Return whether users know the nodes of a dataset by whole numbers or by names."""
    return "integer" if dataset.names_file(NAMES) is None else "string"


def no_nodes(known: KnownIds) -> tuple[DeltaNodes, NodeIds]:
    """Return what match() does for a delta without nodes."""
    return NO_NODES, known.known()


@dataclass(frozen=True)
class _ListKnown:
    """List the rows and ids of all nodes as Parquet (id, name), as ListIds does."""

    name: str
    dataset: Dataset

    def write(self, path: Path, tools: TaskTools) -> None:
        """See Task."""
        import pyarrow as pa  # takes half a second and 30 MB
        import pyarrow.parquet

        from diskhop.runtime.arrow import plain_values

        kind = kind_of_ids(self.dataset)
        schema = pa.schema([("id", pa.int64()), ("name", pa.string() if kind == "string" else pa.int64())])
        blocks = self._names() if kind == "string" else self._numbers()
        # Ids differ: a dictionary of them costs six times as much as writing them.
        with pyarrow.parquet.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
            for rows, names in blocks:
                column = pa.array(names, pa.string()) if kind == "string" else plain_values(names)
                writer.write_table(pa.table([plain_values(rows), column], schema))

    def _numbers(self) -> Iterator[tuple[NDArray[Any], Any]]:
        ids = self.dataset.original_ids()
        for start, stop in row_ranges(self.dataset.num_nodes, _IDS_PER_BLOCK):
            rows = np.arange(start, stop)
            yield rows, rows if ids is None else ids[start:stop]

    def _names(self) -> Iterator[tuple[NDArray[Any], Any]]:
        """Yield names with their rows; line k has the name of the node whose id has rank k."""
        relative = self.dataset.names_file(NAMES)
        assert relative is not None
        ids = self.dataset.original_ids()
        row_of_line = None if ids is None else np.argsort(positions_of_ids(ids))
        path = self.dataset.content / relative
        first, rest = 0, b""
        for block in read_blocks(path):
            whole, _, rest = (rest + block.tobytes()).rpartition(b"\n")
            if not _:
                continue
            try:
                names = [name_of(line) for line in whole.decode().split("\n")]
            except ValueError:
                raise damaged_names(path) from None
            lines = np.arange(first, first + len(names))
            yield lines if row_of_line is None else row_of_line[lines], names
            first += len(names)
        if rest or first != self.dataset.num_nodes:
            raise damaged_names(path)


@dataclass(frozen=True)
class _ListAll:
    """List the known ids and those of a table that are new, whose rows follow in the order of the table."""

    name: str
    known: Path
    listed: Path
    num_nodes: int
    duck: Duck

    def write(self, path: Path, tools: TaskTools) -> None:
        """See Task."""
        known, listed = read_parquet(self.known), read_parquet(self.listed)
        new = (
            f"SELECT {self.num_nodes - 1} + row_number() OVER (ORDER BY n.id) AS id, n.name "
            f"FROM {listed} n ANTI JOIN {known} k ON k.name = n.name"
        )
        self.duck.run(f"COPY (SELECT id, name FROM {known} UNION ALL {new}) TO {quoted(path)} (FORMAT parquet)")
