"""Edges of a table between numbered nodes: groups of rows, whose ids are replaced by the numbers of the nodes."""

from __future__ import annotations

from dataclasses import dataclass

from diskhop.dataset.manifest import index_dtype
from diskhop.importing.numbering.pairs import PairFile, PairFiles
from diskhop.importing.tables.read_rows import run_stage
from diskhop.importing.tables.rows import TableRows
from diskhop.importing.tables.tasks import NodeIds, NumberEdges
from diskhop.importing.tools import ImportTools
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.duck import Duck

# Memory per edge that is numbered, in addition to DuckDB's: ids as fetched, and numbers.
EDGE_BYTES = 64
NUMBERING = "numbering edges"
# Groups of edges take at most this part of the budget.
_GROUP_SHARE = 4


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of edges that are numbered together. edges_at_once: edges of all groups that are in memory."""

    edges_at_once: int

    @classmethod
    def that_fit(cls, work: ImportTools) -> Groups:
        """Choose the size. Each group is joined with all ids: larger groups mean fewer joins."""
        most = work.budget.available_bytes // _GROUP_SHARE // EDGE_BYTES
        return cls(max(work.limits.edges_per_group, min(most, work.limits.most_edges_per_group)))

    @property
    def num_bytes(self) -> int:
        """Bytes to reserve while edges are numbered."""
        return EDGE_BYTES * self.edges_at_once


def number_edges(
    rows: TableRows,
    values: tuple[str, str],
    nodes: tuple[NodeIds, NodeIds],
    key: str,
    groups: Groups,
    duck: Duck,
    work: ImportTools,
) -> PairFiles:
    """Number the edges of a table, in the order of the rows.

    values: SQL of source and destination. nodes: the nodes at both ends. key: text that changes when an edge does.
    Raises SourceError, with file and row, for an id that is no node's.
    """
    # One task per process: DuckDB gives it all threads of the process.
    most_groups = groups.edges_at_once // work.limits.edges_per_group
    groups_at_once = min(duck.shares(work.tools.processes), most_groups)
    in_group = groups.edges_at_once // groups_at_once
    dtype = index_dtype(max(each.count for each in nodes))
    tasks = [
        NumberEdges(f"{first:012d}-{in_group}", rows, first, end - first, values, nodes, dtype, duck)
        for first, end in row_ranges(rows.num_rows, in_group)
    ]
    # Groups are not part of the key: edges are in the order of the rows whatever the groups.
    listed = [f"nodes {each.count}, listed {each.listed is not None}" for each in dict.fromkeys(nodes)]
    key = "\n".join([key, *listed])
    paths = run_stage(work, "numbered", key, tasks, "numbering edges", groups_at_once)
    return PairFiles([PairFile.open(path) for path in paths], key)
