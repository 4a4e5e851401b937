"""Graphs in texts of edges: CSV, TSV or columns between spaces, plain or gzip, one file or a folder of parts.

In the order of things: look at the text, bring it to numbered pairs (edge_work), sort these into lists, and write down
what the nodes were called.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.dataset.builder import WRITING, DatasetBuilder
from diskhop.dataset.convert.duck import Duck
from diskhop.dataset.convert.edge_ids import Called, ListedIds, SetOfIds, original_ids
from diskhop.dataset.convert.edge_options import EdgeOptions
from diskhop.dataset.convert.edge_text import RowLayout, TextFile, look_at, row_bytes, text_bytes, text_stem
from diskhop.dataset.convert.edge_work import PARSING, EdgeWork, NumberedEdges, least_parsing_bytes
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.manifest import index_dtype
from diskhop.dataset.order import HotOrder, RenumberedEdges, find_hot_order, hot_order_bytes
from diskhop.dataset.progress import Progress, silent
from diskhop.dataset.writer import WRITER_BYTES
from diskhop.errors import ConfigError, DestinationError
from diskhop.io.atomic import Injector
from diskhop.tasks import Tools

NODE = "node"
EDGE = "edge"
NAMES = "nodes"

# What DuckDB takes to read names or ids again; names of a kilobyte and more take more.
_DUCK_READS_BYTES = 48 << 20


def import_edges(
    source: Path,
    destination: Path,
    *,
    name: str | None = None,
    options: EdgeOptions,
    engine: Engine,
    budget: Budget,
    threads: int,
    injector: Injector | None = None,
    progress: Progress | None = None,
    facts: dict[str, Any] | None = None,
) -> Dataset:
    """Make a dataset of edges in text. facts: takes what only the import knows, as counts of rows, loops, duplicates.

    Raises SourceError, with file and line, for what breaks a rule; BudgetError for too small a budget. Nothing is then
    left but the work folder, where there is finished work in it.
    """
    files, layout = look_at(source, options)
    if options.nodes is not None and layout.ids == "string":
        raise ConfigError(
            f"{files[0].path}: --nodes {options.nodes} numbers nodes as they are, and these are names; leave it out"
        )
    budget.require({WRITING: WRITER_BYTES, PARSING: least_parsing_bytes(files, layout)})
    show = progress or silent
    builder = DatasetBuilder(
        destination,
        name=name or text_stem(source.resolve()),
        engine=engine,
        budget=budget,
        threads=threads,
        origin=str(source),
        injector=injector,
        progress=progress,
    )
    try:
        str(builder.work.path).encode()
    except UnicodeEncodeError:
        raise DestinationError(
            f"{destination}: must be a path in UTF-8, as DuckDB writes beside it; choose another destination"
        ) from None
    with builder, ExitStack() as held:
        builder.require_space(_disk_bytes(files, layout, options))
        work = EdgeWork(
            files,
            layout,
            num_nodes=options.nodes,
            work=builder.work,
            budget=budget,
            threads=threads,
            tools=Tools(engine, injector),
            progress=show,
            held=held,
        )
        numbered = work.run()
        edges = numbered.source(both_ways=bool(options.undirected), with_loops=options.self_loops != "drop")
        budget.require(_most_held(numbered, layout, options, edges.num_edges))
        builder.add_nodes(NODE, numbered.num_nodes)
        order = None
        if options.order == "hot":
            order = held.enter_context(
                find_hot_order(
                    edges, numbered.num_nodes, budget=budget, threads=threads, origin=str(source), progress=show
                )
            )
            edges = RenumberedEdges(edges, order.new_ids, str(source))
        repeats = builder.add_edge_list(EDGE, NODE, NODE, edges, duplicates=options.duplicates or "keep")
        _write_called(builder, numbered, layout, order, budget)
        if facts is not None:
            facts.update(_facts(files, layout, options, numbered))
            # An edge that is stored both ways is found twice.
            facts["duplicates"] = repeats.loops + repeats.edges // (2 if options.undirected else 1)
        return builder.finish()


def _disk_bytes(files: Sequence[TextFile], layout: RowLayout, options: EdgeOptions) -> int:
    """About what is needed on the disk: unpacked text, rows of names, pairs, and lists with their starts."""
    text = sum(text_bytes(file) for file in files)
    unpacked = sum(text_bytes(file) for file in files if file.is_gzip)
    num_rows = text / row_bytes(files[0])
    # As Parquet, rows with the list of their names are from a third of the text to half as long again.
    rows = text if layout.ids == "string" else 0
    return unpacked + rows + int(num_rows * (8 + 4 * (2 if options.undirected else 1))) + 8 * (options.nodes or 0)


def _most_held(numbered: NumberedEdges, layout: RowLayout, options: EdgeOptions, num_edges: int) -> dict[str, int]:
    """What is reserved from here on when it is most, by name, but for sorting: known before any of it."""
    num_nodes = numbered.num_nodes
    ranking, called = {}, {}
    if options.order == "hot":
        ranking["hot order"] = hot_order_bytes(num_nodes, num_edges, 1)
        called["hot order"] = called["original ids"] = num_nodes * np.dtype(index_dtype(num_nodes)).itemsize
    if numbered.listed is not None:
        called["names"] = _DUCK_READS_BYTES
        if options.order == "hot" and layout.ids != "string":
            called["original ids"] += 8 * num_nodes
    return max(ranking, called, key=lambda wanted: sum(wanted.values()))


def _write_called(
    builder: DatasetBuilder, numbered: NumberedEdges, layout: RowLayout, order: HotOrder | None, budget: Budget
) -> None:
    """Original ids where numbers were mapped or nodes moved, and names, which are by original id."""
    with ExitStack() as held:
        called: Called | None = None if numbered.ids is None else SetOfIds(numbered.ids)
        old_numbers = None
        if order is not None:
            held.enter_context(budget.reserve("original ids", order.new_ids.nbytes))
            old_numbers = order.original_ids()
        if numbered.listed is not None:
            duck_bytes = _DUCK_READS_BYTES
            if layout.ids == "string":
                duck_bytes = max(duck_bytes, budget.available_bytes // 2)
            held.enter_context(budget.reserve("names", duck_bytes))
            duck = held.enter_context(Duck(duck_bytes, 1, builder.work.path / ".spill"))
            listed = ListedIds(numbered.listed, duck)
            if layout.ids == "string":
                builder.add_names(NAMES, listed.lines(), numbered.num_nodes)
            elif not listed.are_ranks:
                called = listed
                if order is not None:
                    held.enter_context(budget.reserve("original ids", 8 * numbered.num_nodes))
        if called is not None or old_numbers is not None:
            blocks = original_ids(called, old_numbers, numbered.num_nodes)
            builder.add_original_ids(NODE, blocks, order="original" if order is None else "hot")


def _facts(
    files: Sequence[TextFile], layout: RowLayout, options: EdgeOptions, numbered: NumberedEdges
) -> dict[str, Any]:
    num_loops = sum(file.num_loops for file in numbered.files)
    return {
        "files": len(files),
        "rows": num_loops + sum(file.num_edges for file in numbered.files),
        "ids": layout.ids,
        "delimiter": layout.delimiter,
        "header": files[0].header,
        "undirected": bool(options.undirected),
        "self_loops": num_loops,
        "dropped": [each for each in ("self_loops", "duplicates") if getattr(options, each) == "drop"],
    }
