"""Tasks that list the distinct ids of a graph and replace them by numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from diskhop.importing.numbering.pairs import ENDS, write_pairs
from diskhop.runtime.duck import Duck, quoted
from diskhop.runtime.tasks import TaskTools


@dataclass(frozen=True)
class ListIds:
    """Every id that occurs, as Parquet (id, name): name as it stands, ascending (strings by bytes), id from 0.

    rows: SQL for a table. columns: those that have ids.
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
    """The pair file of some slices: their rows with the ids of ListIds. dtype: uint32 or int64."""

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
    """SQL for a table in Parquet files of the work folder."""
    return f"read_parquet([{', '.join(map(quoted, paths))}])"
