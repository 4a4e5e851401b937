"""Tasks that list the distinct ids of a graph and replace ids by their numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
    """Write the pair file of some slices.

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
        sources, destinations = self.duck.fetch(
            f"SELECT s.id::{id_type} AS source, d.id::{id_type} AS destination FROM {read_parquet(*self.rows)} r "
            f"JOIN {ids} s ON s.name = r.source JOIN {ids} d ON d.name = r.destination"
        )
        write_pairs(path, sources, destinations, self.dtype)


def read_parquet(*paths: Path) -> str:
    """Return SQL for the rows of Parquet files in the work folder."""
    return f"read_parquet([{', '.join(map(quoted, paths))}])"
