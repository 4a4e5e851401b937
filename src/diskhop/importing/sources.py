"""Bringing graphs in. One file per kind of source; adding one is a file and a line in FORMATS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, SourceError
from diskhop.importing.arrays.source import Arrays, is_arrays
from diskhop.importing.arrays.typed_folders import TypedFolders, is_typed_folders
from diskhop.importing.estimate import Estimate
from diskhop.importing.graphbolt.source import GraphBolt, is_graphbolt
from diskhop.importing.ogb import is_ogb, look_at_ogb
from diskhop.importing.options import OF_EDGES, OF_FEATURES, OF_TABLES, OF_TEXT, ImportOptions, as_option
from diskhop.importing.pbg.folder import is_pbg
from diskhop.importing.pbg.source import Pbg
from diskhop.importing.run import import_source
from diskhop.importing.source import Source
from diskhop.importing.source_file import source_errors
from diskhop.importing.tables.source import Tables, is_tables
from diskhop.importing.text.layout import is_edge_text
from diskhop.importing.text.source import EdgeList
from diskhop.importing.triples.layout import is_triples
from diskhop.importing.triples.source import Triples
from diskhop.io.atomic import Injector
from diskhop.runtime.progress import Progress


@dataclass(frozen=True, slots=True)
class Format:
    """detects: whether a source looks like this; looks_like: for people; takes: names of options."""

    detects: Callable[[Path], bool]
    look_at: Callable[[Path, ImportOptions], Source]
    looks_like: str
    takes: tuple[str, ...]


FORMATS = {
    "graphbolt": Format(
        is_graphbolt, GraphBolt, "a folder with metadata.yaml, an OnDiskDataset of DGL", (*OF_EDGES, *OF_FEATURES)
    ),
    "numpy": Format(
        is_arrays, Arrays, "a folder with data.npz or .npy files, or a .npz file", (*OF_EDGES, *OF_FEATURES)
    ),
    "ogb": Format(
        is_ogb,
        look_at_ogb,
        "a folder of OGB with raw/data.npz or raw/edge.csv.gz",
        (*OF_EDGES, *OF_FEATURES, "split"),
    ),
    "npy-folders": Format(
        is_typed_folders,
        TypedFolders,
        "folders of types and relations with node_feat.npy and edge_index.npy (MAG240M, IGB)",
        (*OF_EDGES, *OF_FEATURES, "label"),
    ),
    "pbg": Format(
        is_pbg, Pbg, "a folder of PyTorch-BigGraph with entity_count_TYPE_PARTITION.txt and edges_LHS_RHS.h5", ()
    ),
    "triples": Format(
        is_triples,
        Triples,
        "a folder with train, valid and test of head, relation and tail (.txt .tsv .del, or .gz), or one text of them",
        (),
    ),
    "tables": Format(
        is_tables,
        Tables,
        "a folder with edges and nodes (.parquet .csv .csv.gz, or folders of such), or a .parquet file of edges",
        (*OF_EDGES, *OF_FEATURES, *OF_TABLES),
    ),
    "edges": Format(
        is_edge_text,
        EdgeList,
        "a text with an edge a line (.csv .tsv .txt .edges .el, or .gz of these), or a folder of such",
        (*OF_EDGES, *OF_TEXT),
    ),
}


def import_graph(
    source: Path,
    destination: Path,
    *,
    format_name: str | None = None,
    name: str | None = None,
    options: ImportOptions | None = None,
    facts: dict[str, Any] | None = None,
    engine: Engine,
    budget: Budget | None = None,
    threads: int | None = None,
    workers: int = 1,
    injector: Injector | None = None,
    progress: Progress | None = None,
    on_plan: Callable[[Estimate], None] | None = None,
) -> Dataset:
    """Make a dataset of a graph; the format is detected where it is not named.

    facts: takes what only the import knows, as counts of duplicates. budget: half of the free memory where there is
    none. threads: all cores where None. workers: processes that tasks are spread over, which share budget and threads;
    1: this one. on_plan: called with the estimate, before anything is written.

    Raises SourceError for what breaks a rule, BudgetError for too small a budget, DestinationError for a full disk.
    Nothing is then left but the work folder, where there is finished work in it; the error names it.
    """
    options = options or ImportOptions()
    return import_source(
        _look_at(source, format_name, options),
        destination,
        origin=str(source),
        name=name,
        options=options,
        facts=facts,
        engine=engine,
        budget=budget,
        threads=threads,
        workers=workers,
        injector=injector,
        progress=progress,
        on_plan=on_plan,
    )


def _look_at(source: Path, format_name: str | None, options: ImportOptions) -> Source:
    known = "; ".join(f"{key}: {each.looks_like}" for key, each in FORMATS.items())
    if format_name is not None and format_name not in FORMATS:
        raise ConfigError(f"format '{format_name}' is unknown; known are {known}")
    with source_errors(str(source)):
        if not source.exists():
            raise SourceError(f"{source}: does not exist; give the folder or file of a graph")
        detected = format_name or next((key for key, each in FORMATS.items() if each.detects(source)), None)
    if detected is None:
        raise SourceError(f"{source}: is of no known format; known are {known}")
    found = FORMATS[detected]
    takes = (*found.takes, *(OF_FEATURES if options.random_features else ()))
    unfit = [as_option(name) for name in options.given() if name not in takes]
    if unfit:
        raise ConfigError(f"{source}: {', '.join(unfit)} does not apply to {found.looks_like}; leave it out")
    return found.look_at(source, options)
