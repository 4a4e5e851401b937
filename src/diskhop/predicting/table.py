"""The table of predictions: the columns of the wanted nodes, computed in groups of rows from tables on disk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, PredictionError
from diskhop.io.checksums import digest_bytes
from diskhop.predicting.columns import WORDS, Outputs, TableName, fill_columns, first_not_finite
from diskhop.predicting.ids import NodeIds
from diskhop.predicting.rows import RowTable
from diskhop.predicting.sizes import PLACES_BYTES, PLACING_BYTES, WANTED_BYTES, OutputLimits, output_sizes
from diskhop.protocols import NodeRows
from diskhop.runtime.blocks import map_in_order, row_ranges
from diskhop.runtime.work_tools import WorkTools

ID = "id"

Group = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The order of the wanted nodes in the source, where it differs from the dataset's.

    of_number: place in the source's order of each wanted node, int64.
    numbers: the inverse: number of the wanted node at each place.
    """

    of_number: NDArray[np.int64]
    numbers: NDArray[np.int64]


class PredictionTable:
    """Columns of wanted nodes, numbered from 0 in the order of their rows. Thread-safe.

    Its memory stays reserved until work.held closes.

    dataset: the dataset of the nodes.
    sizes: its sizes.
    count: number of wanted nodes.
    columns: the columns, without the ids.
    ids: ids of the nodes.
    class_names: name of each class, a large_string array; None: classes are numbers.
    key: text that differs if anything in the table differs.
    """

    def __init__(
        self,
        dataset: Dataset,
        outputs: Outputs,
        tables: Mapping[TableName, RowTable],
        nodes: NodeRows | None,
        key: str,
        work: WorkTools,
        limits: OutputLimits | None,
    ) -> None:
        self.dataset = dataset
        self._outputs = outputs
        self._tables = {name: table for name, table in tables.items() if outputs.needs(name)}
        for name, table in self._tables.items():
            assert table.num_rows == dataset.num_nodes, f"the {name} have a row for each node"
        self._rows = self._wanted(nodes, work)
        self.count = dataset.num_nodes if self._rows is None else len(self._rows)
        dims = {name: table.dim for name, table in self._tables.items()}
        self.sizes = output_sizes(dataset, outputs, dims, count=self.count, limits=limits)
        self.columns = self.sizes.columns
        self.ids = NodeIds(dataset, work)
        names = dataset.names("classes")
        if names is not None and "class" in outputs.words and len(names) < dims["logits"]:
            raise ConfigError(
                f"the model has {dims['logits']} outputs for the {len(names)} classes of {dataset.path}; "
                "write its logits, not classes"
            )
        self.class_names = None if names is None else pa.array(names, pa.large_string())
        self.key = self._key(key)

    def rows(self, first: int, stop: int) -> NodeRows:
        """Return the rows of wanted nodes by their numbers."""
        return NodeRows(np.arange(first, stop) if self._rows is None else self._rows[first:stop])

    def rows_at(self, numbers: NDArray[np.int64]) -> NodeRows:
        """Return the rows of wanted nodes by any of their numbers."""
        return NodeRows(numbers if self._rows is None else self._rows[numbers])

    def groups(self, first: int, stop: int, words: Sequence[str], threads: int) -> Iterator[Group]:
        """Yield columns of the nodes first to stop in groups, in their order. words: names of columns, or ID.

        threads: groups that are computed at the same time. Raises PredictionError for a value that is not finite.
        """
        ranges = row_ranges(stop - first, self.sizes.group_rows)
        compute = partial(self._group, first, words)
        # A generator that is closed early waits for its threads.
        with closing(map_in_order(compute, ranges, threads)) as groups:
            yield from groups

    def places(self, work: WorkTools) -> Places | None:
        """Return the places of the wanted nodes in the order of dataset.node_ids(); None if numbers are places.

        Its memory stays reserved until work.held closes.
        """
        if self.dataset.order != "hot":
            return None
        # Positions and ids of all nodes while the order is made, then both orders.
        work.held.enter_context(work.budget.reserve("order of the nodes", PLACES_BYTES * self.count))
        with work.budget.reserve("order of the nodes", PLACING_BYTES * self.dataset.num_nodes):
            positions = self.dataset.id_map().positions()
            if positions is None:
                return None
            wanted = positions if self._rows is None else positions[self._rows]
            numbers = np.argsort(wanted)
        of_number = np.empty_like(numbers)
        of_number[numbers] = np.arange(len(numbers))
        return Places(of_number=of_number, numbers=numbers)

    def _wanted(self, nodes: NodeRows | None, work: WorkTools) -> NDArray[np.int64] | None:
        if nodes is None:
            return None
        work.held.enter_context(work.budget.reserve("wanted nodes", WANTED_BYTES * len(nodes)))
        rows: NDArray[np.int64] = np.unique(nodes)
        if len(rows) == 0:
            raise ConfigError("--nodes has no nodes; give at least one")
        return None if len(rows) == self.dataset.num_nodes else rows

    def _key(self, key: str) -> str:
        chosen = "all" if self._rows is None else f"{digest_bytes(self._rows.view(np.uint8)):016x}"
        outputs = self._outputs
        scaling = None if outputs.scaling is None else asdict(outputs.scaling)
        facts = {"rows": key, "dataset": self.dataset.hash, "nodes": chosen, "task": outputs.task, "scaling": scaling}
        return json.dumps({**facts, "columns": [asdict(column) for column in self.columns]})

    def _group(self, first: int, words: Sequence[str], bounds: tuple[int, int]) -> Group:
        rows = self.rows(first + bounds[0], first + bounds[1])
        arrays = {column.name: column.empty(len(rows)) for column in self.columns if column.name in words}
        for name, table in self._tables.items():
            if any(WORDS[word] == name for word in arrays):
                self._fill(arrays, name, table, rows)
        return {ID: self.ids.of(rows), **arrays} if ID in words else dict(arrays)

    def _fill(self, arrays: Mapping[str, NDArray[Any]], name: TableName, table: RowTable, rows: NodeRows) -> None:
        start = 0
        for values in _read(table, rows, self.sizes.limits.read_bytes):
            part = {word: array[start : start + len(values)] for word, array in arrays.items()}
            self._require_finite(name, values, rows[start:])
            fill_columns(part, name, values, self._outputs)
            if name == "embedding" and self._outputs.embedding_dtype == "float16":
                self._require_finite("embedding as float16", part["embedding"], rows[start:], values)
            start += len(values)

    def _require_finite(
        self, what: str, values: NDArray[Any], rows: NDArray[np.int64], given: NDArray[np.float32] | None = None
    ) -> None:
        """Raise PredictionError for the first value that is not finite. given: the values before a conversion."""
        found = first_not_finite(values)
        if found is None:
            return
        row, place = found
        node = self.ids.shown(int(rows[row]))
        if given is not None:
            raise PredictionError(
                f"the embedding of node {node} has the value {given[row, place]:g}, which float16 cannot hold; "
                "write embeddings as float32"
            )
        raise PredictionError(
            f"the {what} of node {node}: value {place} is {values[row, place]}, must be finite; check the node's "
            "features, or train again with a lower --lr"
        )


def _read(table: RowTable, rows: NDArray[np.int64], read_bytes: int) -> Iterator[NDArray[np.float32]]:
    """Yield the rows of a table, ascending, in blocks; a block is valid until the next is requested."""
    start, stop = int(rows[0]), int(rows[-1]) + 1
    blocks = table.blocks(max(1, read_bytes // (4 * table.dim)), start, stop)
    if stop - start == len(rows):
        yield from blocks
        return
    for block in blocks:
        begin, end = np.searchsorted(rows, (start, start + len(block)))
        if begin < end:
            yield block[rows[begin:end] - start]
        start += len(block)
