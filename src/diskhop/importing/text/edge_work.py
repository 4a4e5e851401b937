"""Turns texts of edges into numbered pairs in the work folder, within the budget: unpack, parse, number the nodes.

Each step is a stage of tasks, so that a killed import resumes where it stopped. Whole numbers go straight to pair
files. Names, and numbers too large for a bit set, are first stored as rows, then listed, then numbered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diskhop.dataset.edges import EdgeSource
from diskhop.dataset.manifest import index_dtype
from diskhop.importing.balance import LineCounts, sum_counts
from diskhop.importing.numbering.ids import SetOfIds, are_ranks, collect_ids, count_listed
from diskhop.importing.numbering.pairs import PairFile, PairFiles, RankedEdges
from diskhop.importing.numbering.tasks import ListIds, NumberRows, read_parquet
from diskhop.importing.text.layout import RowLayout, TextFile
from diskhop.importing.text.rows import read_counts
from diskhop.importing.text.streams import text_bytes
from diskhop.importing.text.tasks import IdsFarApartError, ParsePairs, ParseRows
from diskhop.importing.text.work import TextWork
from diskhop.importing.tools import ImportLimits, ImportTools
from diskhop.runtime.blocks import threads_that_fit
from diskhop.runtime.duck import Duck

# Finished work of another format is discarded.
_WORK_FORMAT = 3
# Memory per byte of a slice while it is parsed, in DuckDB and next to it. (A row of 4 bytes becomes two 4-byte ids.)
_DUCK_BYTES_PER_BYTE = 6
_PAIRS_BYTES_PER_BYTE = 10
_ROWS_BYTES_PER_BYTE = 4
# Memory that DuckDB needs for any query, and to sort and join.
_DUCK_BYTES = 16 << 20
_DUCK_SORTS_BYTES = 64 << 20
PARSING = "parsing edges"


def least_parsing_bytes(files: Sequence[TextFile], layout: RowLayout, limits: ImportLimits) -> int:
    """Compute the smallest memory that parsing reserves under PARSING."""
    longest_bytes = max(text_bytes(file) for file in files)
    if layout.ids == "string":
        return _DUCK_SORTS_BYTES + _ROWS_BYTES_PER_BYTE * min(limits.rows_slice_bytes, longest_bytes)
    slice_bytes = min(limits.pairs_slice_bytes, longest_bytes)
    return _DUCK_BYTES + (_DUCK_BYTES_PER_BYTE + _PAIRS_BYTES_PER_BYTE) * slice_bytes


@dataclass(frozen=True, slots=True)
class NumberedEdges:
    """Edges in pair files, and how their ids become node numbers.

    files: the pair files, in order.
    identity: text that changes when an edge does.
    num_nodes: number of nodes.
    counts: lines that were read as rows, with comments and empty lines among them.
    ids: the set in which an id's rank is its node number; None where ids are node numbers already.
    listed: the file of ListIds, where nodes had names or numbers other than 0 to num_nodes - 1.
    largest: largest id; None for names, and where ids were listed.
    """

    files: Sequence[PairFile]
    identity: str
    num_nodes: int
    counts: LineCounts
    ids: SetOfIds | None = None
    listed: Path | None = None
    largest: int | None = None

    def source(self) -> EdgeSource:
        """Open the edges."""
        pairs = PairFiles(self.files, self.identity)
        return pairs if self.ids is None else RankedEdges(pairs, self.ids)


class EdgeWork:
    """The stages of one list of edges. Memory of the result stays reserved until `work.held` closes.

    num_nodes: ids are 0 to num_nodes - 1 and stay as they are; None: nodes are numbered by the ids that occur.
    """

    def __init__(
        self, files: Sequence[TextFile], layout: RowLayout, *, num_nodes: int | None, work: ImportTools
    ) -> None:
        self._files = files
        self._layout = layout
        self._num_nodes = num_nodes
        self._work = work
        self._limits = work.limits
        self._texts = TextWork(files, work, self._key)

    def run(self) -> NumberedEdges:
        """Run the unfinished stages. Raises SourceError, with file and line, for a row that breaks a rule."""
        numbered = self._number()
        self._texts.require_unchanged()
        return numbered

    def _number(self) -> NumberedEdges:
        self._texts.unpack()
        if self._layout.ids == "string":
            return self._list_ids()
        try:
            files = self._parse_pairs()
        except IdsFarApartError:
            return self._list_ids()
        counts = sum_counts(file.counts for file in files)
        largest = max(file.largest for file in files)
        if self._num_nodes is not None:
            return NumberedEdges(files, self._key("pairs"), self._num_nodes, counts, largest=largest)
        ids = collect_ids(PairFiles(files, ""), 1 + largest, self._work)
        of_ranks = ids if ids.count < 1 + largest else None
        return NumberedEdges(files, self._key("pairs"), ids.count, counts, of_ranks, largest=largest)

    def _parse_pairs(self) -> list[PairFile]:
        budget, processes = self._work.budget, self._work.tools.processes
        limit = self._num_nodes or min(2**32 - 1, 8 * budget.available_bytes // self._limits.id_set_share)
        slice_bytes = self._texts.slice_bytes(self._limits.pairs_slice_bytes)
        bytes_per_slice = (_DUCK_BYTES_PER_BYTE + _PAIRS_BYTES_PER_BYTE) * slice_bytes

        def ducks_bytes(at_once: int) -> int:
            return min(at_once, processes) * _DUCK_BYTES

        at_once = threads_that_fit(
            self._work.threads,
            budget.available_bytes,
            lambda slices: ducks_bytes(slices) + slices * bytes_per_slice,
        )
        duck_bytes = ducks_bytes(at_once) + at_once * _DUCK_BYTES_PER_BYTE * slice_bytes
        with (
            budget.reserve(PARSING, ducks_bytes(at_once) + at_once * bytes_per_slice),
            # One thread in DuckDB: slices are parsed in parallel, each by the thread that runs its task.
            Duck(duck_bytes, 1, self._work.spill, _DUCK_BYTES) as duck,
        ):
            tasks = [
                ParsePairs(name, piece, self._layout, self._num_nodes, limit, duck)
                for name, piece in self._texts.slices(self._limits.pairs_slice_bytes)
            ]
            files = [PairFile.open(path) for path in self._texts.run("pairs", tasks, at_once, "parsing")]
        # Pair files of an earlier run, which may have had more memory, can have larger ids.
        if self._num_nodes is None and max(file.largest for file in files) >= limit:
            raise IdsFarApartError
        return files

    def _list_ids(self) -> NumberedEdges:
        budget = self._work.budget
        slice_bytes = self._texts.slice_bytes(self._limits.rows_slice_bytes)
        # Every group of slices is joined with all ids: the more memory, the fewer groups.
        spare_bytes = (budget.available_bytes - _DUCK_SORTS_BYTES) // _ROWS_BYTES_PER_BYTE
        group_bytes = min(spare_bytes, budget.available_bytes // self._limits.rows_group_share)
        most_slices = max(1, group_bytes // slice_bytes)
        rows_bytes = _ROWS_BYTES_PER_BYTE * most_slices * slice_bytes
        duck_bytes = max(_DUCK_SORTS_BYTES, budget.available_bytes - rows_bytes)
        with (
            budget.reserve(PARSING, rows_bytes + duck_bytes),
            Duck(duck_bytes, self._work.threads, self._work.spill) as duck,
        ):
            parse = [
                ParseRows(name, piece, self._layout, duck)
                for name, piece in self._texts.slices(self._limits.rows_slice_bytes)
            ]
            rows = self._texts.run("rows", parse, min(most_slices, self._work.threads), "parsing")
            listing = [ListIds("ids.parquet", read_parquet(*rows), duck)]
            (listed,) = self._texts.run("ids", listing, 1, "listing ids")
            num_nodes = count_listed(listed, duck)
            counts = read_counts(rows, duck)
            # One task per process: DuckDB gives it all threads of the process.
            groups_at_once = min(duck.shares(self._work.tools.processes), most_slices)
            in_group = most_slices // groups_at_once
            groups = [tuple(rows[first : first + in_group]) for first in range(0, len(rows), in_group)]
            number = [
                NumberRows(f"{group[0].name}-{in_group}", group, listed, index_dtype(num_nodes), duck)
                for group in groups
            ]
            numbered = self._texts.run("numbered", number, groups_at_once, "numbering")
            need_list = self._layout.ids == "string" or not are_ranks(listed, num_nodes, duck)
        files = [PairFile.open(path) for path in numbered]
        return NumberedEdges(files, self._key("rows"), num_nodes, counts, listed=listed if need_list else None)

    def _key(self, stage: str) -> str:
        """Text that changes when the outputs of a stage would; names of tasks are not part of it."""
        slices = f"{self._limits.pairs_slice_bytes} {self._limits.rows_slice_bytes}"
        facts = [f"format {_WORK_FORMAT}, stage {stage}, slices {slices}"]
        facts += [f"{file.identity}, rows from {file.rows_begin}" for file in self._files]
        if stage != "text":
            facts.append(f"{self._layout}, nodes {self._num_nodes}")
        return "\n".join(facts)
