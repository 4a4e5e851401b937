"""Files that tell which nodes the rows of hop tables are, where the dataset's rows do not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.files import map_array
from diskhop.hops.tables import IDS_FILE, POSITIONS_FILE, ROWS_FILE
from diskhop.protocols import NodeRows
from diskhop.runtime.tasks import TaskTools, run_tasks


@dataclass(frozen=True, slots=True)
class _Numbers:
    """The task that writes a number of every row."""

    name: str
    numbers: NDArray[np.int64]

    def write(self, path: Path, _tools: TaskTools) -> None:
        """Write the numbers (see Task)."""
        self.numbers.astype("<i8").tofile(path)


def write_numbers(folder: Path, dataset: Dataset, rows: NodeRows | None, budget: Budget, tools: TaskTools) -> None:
    """Write which rows of the dataset, and which nodes of the source, the rows of tables are.

    rows: rows with tables; None for all.
    """
    if rows is not None:
        run_tasks([_Numbers(ROWS_FILE, rows)], folder, tools, threads=1)
    id_map = dataset.id_map()
    if id_map.ids_are_rows:
        return
    with budget.reserve("original ids", 3 * id_map.num_bytes):
        own = NodeRows(np.arange(id_map.num_nodes)) if rows is None else rows
        numbers: dict[str, NDArray[np.int64]] = {IDS_FILE: id_map.ids(own)}
        positions = id_map.positions()
        if positions is not None and not np.array_equal(positions[own], numbers[IDS_FILE]):
            numbers[POSITIONS_FILE] = positions[own]
        run_tasks([_Numbers(*each) for each in numbers.items()], folder, tools, threads=1)


def stored_numbers(
    folder: Path, dataset: Dataset, num_rows: int
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
    """Map the ids and the positions in the source of the rows that write_numbers() wrote; None for those it did not."""
    ids, positions = (_stored(folder / name, num_rows) for name in (IDS_FILE, POSITIONS_FILE))
    return ids, ids if positions is None and dataset.order == "hot" else positions


def _stored(path: Path, num_rows: int) -> NDArray[np.int64] | None:
    return map_array(path, "<i8", num_rows) if path.exists() else None
