"""Graphs in texts of edges: CSV, TSV or columns between spaces, plain or gzip, one file or a folder of parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from diskhop.dataset.manifest import EDGE, NODE
from diskhop.errors import ConfigError
from diskhop.importing.estimate import Load
from diskhop.importing.numbering.ids import DUCK_READS_BYTES, ListedIds, name_lines
from diskhop.importing.options import ImportOptions
from diskhop.importing.source import NameList, OriginalNames, SourceEdges, SourceGraph, SourceNodes
from diskhop.importing.text.edge_work import PARSING, EdgeWork, least_parsing_bytes
from diskhop.importing.text.layout import look_at, text_stem
from diskhop.importing.text.loads import load_of_texts
from diskhop.runtime.duck import require_text_path
from diskhop.runtime.work_tools import WorkTools

NAMES = "nodes"


class EdgeList:
    """See Source. Raises SourceError, with file and line where there is one, for what is no text of edges."""

    def __init__(self, source: Path, options: ImportOptions) -> None:
        self._source = source
        self._files, self._layout = look_at(source, options)
        if options.nodes is not None and self._layout.ids == "string":
            raise ConfigError(
                f"{self._files[0].path}: --nodes {options.nodes} numbers nodes as they are, and these are names; "
                "leave it out"
            )
        self._num_nodes = options.nodes

    @property
    def name(self) -> str:
        """See Source."""
        return text_stem(self._source.resolve())

    @property
    def least_memory(self) -> Mapping[str, int]:
        """See Source."""
        return {PARSING: least_parsing_bytes(self._files, self._layout)}

    @property
    def load(self) -> Load:
        """See Source."""
        load = load_of_texts(self._files, self._layout)
        return load if self._num_nodes is None else replace(load, num_nodes=self._num_nodes)

    def read(self, shop: WorkTools) -> SourceGraph:
        """See Source."""
        require_text_path(shop.work.path)
        numbered = EdgeWork(self._files, self._layout, num_nodes=self._num_nodes, shop=shop).run()
        called: OriginalNames | None = numbered.ids
        names = {}
        if numbered.listed is not None and self._layout.ids == "string":
            lines = partial(name_lines, numbered.listed, shop.budget, shop.spill)
            names[NAMES] = NameList(count=numbered.num_nodes, lines=lines, held_bytes=DUCK_READS_BYTES)
        elif numbered.listed is not None:
            called = ListedIds(numbered.listed, numbered.num_nodes, shop.budget, shop.spill)
        edges = SourceEdges(source=NODE, destination=NODE, edges=numbered.source(), origin=str(self._source))
        return SourceGraph(
            nodes={NODE: SourceNodes(count=numbered.num_nodes, called=called)},
            edges={EDGE: edges},
            names=names,
            facts=self._facts(edges.edges.num_edges),
            counts_repeats=True,
        )

    def _facts(self, num_rows: int) -> dict[str, Any]:
        return {
            "files": len(self._files),
            "rows": num_rows,
            "ids": self._layout.ids,
            "delimiter": self._layout.delimiter,
            "header": self._files[0].header,
        }
