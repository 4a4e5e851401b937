"""Tasks that list the distinct ids of a graph and replace ids by their numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.importing.numbering.pairs import ENDS, write_pairs
from diskhop.runtime.duck import Duck, quoted
from diskhop.runtime.tasks import TaskTools


@dataclass(frozen=True)
class ListIds:
    """List the ids that occur as Parquet (id, name): names in ascending order (text by bytes), ids from 0.

    rows: SQL of a table.
    columns: its columns of ids.
    """

    name: str
    rows: str
    duck: Duck
    columns: tuple[str, ...] = ENDS

    def write(self, path: Path, tools: TaskTools) -> None:
        """See Task."""
        names = " UNION ALL ".join(f"SELECT {column} AS name FROM {self.rows}" for column in self.columns)
        self.duck.run(
            f"COPY (SELECT row_number() OVER () - 1 AS id, name FROM (SELECT DISTINCT name FROM ({names}) "
            f"ORDER BY name)) TO {quoted(path)} (FORMAT parquet)"
        )


@dataclass(frozen=True)
class NumberRows:
    """Write the pair file of some slices, in the order of their rows.

    rows: Parquet files (source, destination) of the slices.
    ids: the Parquet file of ListIds.
    dtype: uint32 or int64, of the numbers.
    """

    name: str
    rows: tuple[Path, ...]
    ids: Path
    dtype: str
    duck: Duck

    def write(self, path: Path, tools: TaskTools) -> None:
        """See Task."""
        ids = read_parquet(self.ids)
        id_type = "UINTEGER" if self.dtype == "uint32" else "BIGINT"
        rows = f"(SELECT row_number() OVER () - 1 AS place, source, destination FROM {read_parquet(*self.rows)})"
        # Joins deliver rows in any order. Only the places are sorted by: DuckDB would sort the names along.
        places, sources, destinations = self.duck.fetch(
            f"SELECT r.place::UINTEGER AS place, s.id::{id_type} AS source, d.id::{id_type} AS destination "
            f"FROM {rows} r JOIN {ids} s ON s.name = r.source JOIN {ids} d ON d.name = r.destination"
        )
        sources = _in_places(sources, places)
        write_pairs(path, sources, _in_places(destinations, places), self.dtype)


def _in_places(ids: NDArray[Any], places: NDArray[Any]) -> NDArray[Any]:
    placed = np.empty_like(ids)
    placed[places] = ids
    return placed


def read_parquet(*paths: Path) -> str:
    """Return SQL for the rows of Parquet files in the work folder."""
    return f"read_parquet([{', '.join(map(quoted, paths))}])"
