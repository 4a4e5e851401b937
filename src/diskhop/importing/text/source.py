"""Graphs in texts of edges: CSV, TSV or columns between spaces, plain or compressed, one file or a folder of parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from diskhop.dataset.manifest import EDGE, NODE
from diskhop.errors import ConfigError
from diskhop.importing.balance import LineCounts, sum_counts
from diskhop.importing.estimate import Load
from diskhop.importing.evidence.decisions import Decision
from diskhop.importing.numbering.ids import ListedIds, listed_names
from diskhop.importing.options import OF_EDGES, OF_TEXT, ImportOptions
from diskhop.importing.source import OriginalNames, SourceEdges, SourceGraph, SourceKind, SourceNodes
from diskhop.importing.text.edge_work import PARSING, EdgeWork, NumberedEdges, least_parsing_bytes
from diskhop.importing.text.layout import find_texts, is_edge_text
from diskhop.importing.text.loads import load_of_texts
from diskhop.importing.text.suffixes import text_stem
from diskhop.importing.tools import ImportLimits, ImportTools
from diskhop.runtime.duck import require_text_path

NAMES = "nodes"


class EdgeList:
    """Source for texts of edges. Raises SourceError, with file and line if known, for other files."""

    def __init__(self, source: Path, options: ImportOptions) -> None:
        self._source = source
        self._found = find_texts(source, options)
        self._files, self._layout = self._found.files, self._found.layout
        if options.nodes is not None and self._layout.ids == "string":
            raise ConfigError(
                f"{self._files[0].path}: --nodes {options.nodes} requires ids that are whole numbers, these are "
                "names; remove --nodes"
            )
        self._num_nodes = options.nodes
        dialect = self._found.dialect
        self._is_mirrored = dialect is not None and dialect.mirrors(options)
        self._takes_all = options.skip_lines is None and options.comments is None

    @property
    def decisions(self) -> Sequence[Decision]:
        """See Source."""
        return self._found.decisions

    @property
    def name(self) -> str:
        """See Source."""
        return text_stem(self._source.resolve())

    def least_memory(self, limits: ImportLimits) -> Mapping[str, int]:
        """See Source."""
        return {PARSING: least_parsing_bytes(self._files, self._layout, limits)}

    @property
    def load(self) -> Load:
        """See Source."""
        load = load_of_texts(self._files, self._layout)
        if self._is_mirrored:
            load = replace(load, num_edges=2 * load.num_edges)
        return load if self._num_nodes is None else replace(load, num_nodes=self._num_nodes)

    def read(self, work: ImportTools) -> SourceGraph:
        """See Source."""
        require_text_path(work.folder.path)
        numbered = EdgeWork(self._files, self._layout, num_nodes=self._num_nodes, work=work).run()
        self._check_sizes(numbered)
        original: OriginalNames | None = numbered.ids
        names = {}
        if numbered.listed is not None and self._layout.ids == "string":
            names[NAMES] = listed_names(numbered.listed, numbered.num_nodes, work)
        elif numbered.listed is not None:
            original = ListedIds(numbered.listed, numbered.num_nodes, work, ascend=True)
        edges = SourceEdges(source=NODE, destination=NODE, edges=numbered.source(), origin=str(self._source))
        return SourceGraph(
            nodes={NODE: SourceNodes(count=numbered.num_nodes, original=original)},
            edges={EDGE: edges},
            names=names,
            facts=self._facts(edges.edges.num_edges, numbered.counts),
            is_mirrored=self._is_mirrored,
            counts_repeats=True,
        )

    def _check_sizes(self, numbered: NumberedEdges) -> None:
        """Raise SourceError for more or fewer rows than the format states, and for a first row that states sizes."""
        path = self._files[0].path
        num_rows = numbered.source().num_edges
        if self._found.dialect is not None and self._takes_all:
            self._found.dialect.require_rows(path, num_rows)
        if self._found.sizes is not None and numbered.largest is not None:
            self._found.sizes.require_none(path, num_rows, numbered.largest)

    def _facts(self, num_rows: int, counts: LineCounts) -> dict[str, Any]:
        counts = sum_counts([counts, self._found.head, *(file.head for file in self._files)])
        return {
            "balance": counts.balance(num_rows, str(self._source)),
            "passed_over": self._found.passed_over,
            "files": len(self._files),
            "rows": num_rows,
            "ids": self._layout.ids,
            "delimiter": self._layout.delimiter,
            "header": self._files[0].header,
        }


EDGES = SourceKind(
    name="edges",
    looks_like=(
        "a text with one edge per line (.csv .tsv .txt .edges .edgelist .el, also compressed), or a folder of such"
    ),
    takes=(*OF_EDGES, *OF_TEXT),
    detect=is_edge_text,
    open=EdgeList,
    instead="tables",
)
