"""From texts of edges to numbered pairs in the work folder, within the budget: unpack, parse, number the nodes.

Each step is a stage of tasks, so that a run that was killed goes on where it was. Whole numbers go straight to pair
files; names, and numbers too large for a set with a bit for each, are first kept as rows, then listed, then numbered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diskhop.dataset.edges import EdgeSource
from diskhop.dataset.manifest import index_dtype
from diskhop.importing.numbering.ids import (
    SetOfIds,
    are_ranks,
    collect_ids,
    collecting_bytes,
    copies_of_set,
    count_listed,
    id_set_bytes,
)
from diskhop.importing.numbering.pairs import PairFile, PairFiles, RankedEdges
from diskhop.importing.numbering.tasks import ListIds, NumberRows, read_parquet
from diskhop.importing.text.layout import RowLayout, TextFile, text_bytes
from diskhop.importing.text.tasks import IdsFarApartError, ParsePairs, ParseRows
from diskhop.importing.text.work import TextWork
from diskhop.runtime.blocks import threads_that_fit
from diskhop.runtime.duck import Duck
from diskhop.runtime.work_tools import WorkTools

# Work of another format is not gone on with.
_WORK_FORMAT = 2
# Of numbers, each by one thread; of names, by all threads of DuckDB.
PAIRS_SLICE_BYTES = 4 << 20
ROWS_SLICE_BYTES = 16 << 20
# What a byte of a slice becomes while it is parsed, in DuckDB and beside it. (Rows of 4 bytes are two ids of as many.)
_DUCK_BYTES_PER_BYTE = 6
_PAIRS_BYTES_PER_BYTE = 10
_ROWS_BYTES_PER_BYTE = 4
# What DuckDB takes whatever it does, and with what it sorts and joins.
_DUCK_BYTES = 16 << 20
_DUCK_SORTS_BYTES = 64 << 20
PARSING = "parsing edges"
# The part of the budget that a set of ids, which stays until the edges are sorted, may take.
_SET_SHARE = 4
# The part of it that the text of slices whose names are joined at once may be.
_GROUP_SHARE = 16


def least_parsing_bytes(files: Sequence[TextFile], layout: RowLayout) -> int:
    """What parsing reserves under PARSING at least."""
    longest_bytes = max(text_bytes(file) for file in files)
    if layout.ids == "string":
        return _DUCK_SORTS_BYTES + _ROWS_BYTES_PER_BYTE * min(ROWS_SLICE_BYTES, longest_bytes)
    return _DUCK_BYTES + (_DUCK_BYTES_PER_BYTE + _PAIRS_BYTES_PER_BYTE) * min(PAIRS_SLICE_BYTES, longest_bytes)


@dataclass(frozen=True, slots=True)
class NumberedEdges:
    """Pairs between nodes 0 to num_nodes - 1, or between `ids` that have such ranks.

    listed: the file of ListIds where ids are from there, and are not simply their ranks.
    """

    files: Sequence[PairFile]
    identity: str
    num_nodes: int
    ids: SetOfIds | None = None
    listed: Path | None = None

    def source(self) -> EdgeSource:
        """The edges."""
        pairs = PairFiles(self.files, self.identity)
        return pairs if self.ids is None else RankedEdges(pairs, self.ids)


class EdgeWork:
    """The stages of one list of edges. What its result holds is reserved until `held` closes."""

    def __init__(
        self,
        files: Sequence[TextFile],
        layout: RowLayout,
        *,
        num_nodes: int | None,
        shop: WorkTools,
    ) -> None:
        self._files = files
        self._layout = layout
        self._num_nodes = num_nodes
        self._budget = shop.budget
        self._threads = shop.threads
        self._processes = shop.tools.processes
        self._progress = shop.progress
        self._held = shop.held
        self._spill = shop.spill
        self._texts = TextWork(files, shop, self._key)

    def run(self) -> NumberedEdges:
        """Run what is missing. Raises SourceError, with file and line, for what breaks a rule of edge_text."""
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
        if self._num_nodes is not None:
            return NumberedEdges(files, self._key("pairs"), self._num_nodes)
        return self._collect_ids(files)

    def _parse_pairs(self) -> list[PairFile]:
        limit = self._num_nodes or min(2**32 - 1, 8 * self._budget.available_bytes // _SET_SHARE)
        slice_bytes = self._texts.slice_bytes(PAIRS_SLICE_BYTES)
        a_slice = (_DUCK_BYTES_PER_BYTE + _PAIRS_BYTES_PER_BYTE) * slice_bytes

        def ducks_bytes(at_once: int) -> int:
            return min(at_once, self._processes) * _DUCK_BYTES

        at_once = threads_that_fit(
            self._threads, self._budget.available_bytes, lambda slices: ducks_bytes(slices) + slices * a_slice
        )
        with (
            self._budget.reserve(PARSING, ducks_bytes(at_once) + at_once * a_slice),
            # Slices are parsed at once, each by the thread that asks.
            Duck(
                ducks_bytes(at_once) + at_once * _DUCK_BYTES_PER_BYTE * slice_bytes, 1, self._spill, _DUCK_BYTES
            ) as duck,
        ):
            tasks = [
                ParsePairs(name, piece, self._layout, self._num_nodes, limit, duck)
                for name, piece in self._texts.slices(PAIRS_SLICE_BYTES)
            ]
            files = [PairFile.open(path) for path in self._texts.run("pairs", tasks, at_once, "parsing")]
        # Of a run before, which may have had more memory.
        if self._num_nodes is None and max(file.largest for file in files) >= limit:
            raise IdsFarApartError
        return files

    def _collect_ids(self, files: Sequence[PairFile]) -> NumberedEdges:
        limit = 1 + max(file.largest for file in files)
        copies = copies_of_set(limit, self._processes, self._budget.available_bytes)
        self._held.enter_context(self._budget.reserve("ids", (1 + copies) * id_set_bytes(limit)))
        every = PairFiles(files, "")
        with self._budget.reserve("collecting ids", collecting_bytes(self._threads)):
            ids = collect_ids(every, limit, copies, self._threads, self._progress)
        return NumberedEdges(files, self._key("pairs"), ids.count, ids if ids.count < limit else None)

    def _list_ids(self) -> NumberedEdges:
        slice_bytes = self._texts.slice_bytes(ROWS_SLICE_BYTES)
        # All ids are looked through for each group of slices: the more memory, the fewer groups.
        spare_bytes = (self._budget.available_bytes - _DUCK_SORTS_BYTES) // _ROWS_BYTES_PER_BYTE
        most_slices = max(1, min(spare_bytes, self._budget.available_bytes // _GROUP_SHARE) // slice_bytes)
        text_bytes = _ROWS_BYTES_PER_BYTE * most_slices * slice_bytes
        duck_bytes = max(_DUCK_SORTS_BYTES, self._budget.available_bytes - text_bytes)
        with (
            self._budget.reserve(PARSING, text_bytes + duck_bytes),
            Duck(duck_bytes, self._threads, self._spill) as duck,
        ):
            parse = [ParseRows(name, piece, self._layout, duck) for name, piece in self._texts.slices(ROWS_SLICE_BYTES)]
            rows = self._texts.run("rows", parse, min(most_slices, self._threads), "parsing")
            listing = [ListIds("ids.parquet", read_parquet(*rows), duck)]
            (listed,) = self._texts.run("ids", listing, 1, "listing ids")
            num_nodes = count_listed(listed, duck)
            # One at a time in a process, with all threads that it has.
            groups_at_once = min(duck.shares(self._processes), most_slices)
            in_group = most_slices // groups_at_once
            groups = [tuple(rows[first : first + in_group]) for first in range(0, len(rows), in_group)]
            number = [
                NumberRows(f"{group[0].name}-{in_group}", group, listed, index_dtype(num_nodes), duck)
                for group in groups
            ]
            numbered = self._texts.run("numbered", number, groups_at_once, "numbering")
            need_list = self._layout.ids == "string" or not are_ranks(listed, num_nodes, duck)
        # Edges come in the order of the groups: part of what they are.
        identity = f"{self._key('rows')}\ngroups of {in_group}"
        return NumberedEdges(
            [PairFile.open(path) for path in numbered], identity, num_nodes, listed=listed if need_list else None
        )

    def _key(self, stage: str) -> str:
        """What the outputs of a stage depend on, beside its tasks' names."""
        facts = [f"format {_WORK_FORMAT}, stage {stage}, slices {PAIRS_SLICE_BYTES} {ROWS_SLICE_BYTES}"]
        facts += [f"{file.identity}, rows from {file.rows_begin}" for file in self._files]
        if stage != "text":
            facts.append(f"{self._layout}, nodes {self._num_nodes}")
        return "\n".join(facts)
