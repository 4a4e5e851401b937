"""Graphs in the raw folders of OGB's node tasks (ogbn-*); the pickles in processed/ are never read.

Binary (ogbn-papers100M): `raw/data.npz` with `edge_index` (2, edges), `num_nodes_list`, `num_edges_list`, `node_feat`,
and `raw/node-label.npz` with `node_label`. Text (ogbn-arxiv, -products, -proteins): `raw/edge.csv.gz`,
`num-node-list.csv.gz`, `num-edge-list.csv.gz`, `node-feat.csv.gz`, `node-label.csv.gz`. Typed text (ogbn-mag): the same
files in a folder per type, with `raw/triplet-type-list.csv.gz` and `raw/num-node-dict.csv.gz`. Splits of all kinds:
`split/NAME/{train,valid,test}.csv.gz`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from diskhop.dataset.manifest import EDGE, MOST_COUNT, NODE
from diskhop.errors import SourceError
from diskhop.importing.arrays.edges import UNPACKING, UNPACKING_BYTES, open_edges
from diskhop.importing.arrays.loads import load_of_array, load_of_edges, load_of_nodes
from diskhop.importing.arrays.npy import StoredArray, archive_arrays
from diskhop.importing.columns import as_labels, check_features, count_tasks
from diskhop.importing.estimate import Load
from diskhop.importing.evidence.decisions import Decision
from diskhop.importing.options import OF_EDGES, OF_FEATURES, ImportOptions
from diskhop.importing.source import Column, Source, SourceEdges, SourceGraph, SourceKind, SourceNodes
from diskhop.importing.source_file import SourceFile, described_layout, source_errors
from diskhop.importing.text.numbers import NUMBERS, NUMBERS_BYTES, NumberText, read_lines, reserve_numbers
from diskhop.importing.text.source import EdgeList
from diskhop.importing.text.streams import text_bytes
from diskhop.importing.tools import ImportLimits, ImportTools

_ARCHIVE = "data.npz"
_LABEL_ARCHIVE = "node-label.npz"
_EDGES = "edge.csv.gz"
_FEATURES = "node-feat.csv.gz"
_LABELS = "node-label.csv.gz"
_NUM_NODES = "num-node-list.csv.gz"
_NUM_EDGES = "num-edge-list.csv.gz"
_TRIPLETS = "triplet-type-list.csv.gz"
_TYPE_COUNTS = "num-node-dict.csv.gz"
_TAKEN = ("edge_index", "num_nodes_list", "num_edges_list", "node_feat")
_PARTS = ("train", "valid", "test")


def is_ogb(source: Path) -> bool:
    """Check whether a source looks like a folder of OGB."""
    return any((source / "raw" / name).exists() for name in (_ARCHIVE, _EDGES, _TRIPLETS))


def open_ogb(source: Path, options: ImportOptions) -> Source:
    """Open a folder of OGB. Raises SourceError unless it has the files of one graph."""
    if (source / "raw" / _ARCHIVE).exists():
        return _Binary(source, options)
    return _Typed(source, options) if (source / "raw" / _TRIPLETS).exists() else _Text(source, options)


class _Binary:
    """Source with arrays in data.npz."""

    decisions: Sequence[Decision] = ()

    def __init__(self, source: Path, options: ImportOptions) -> None:
        self.name = source.resolve().name
        archive = source / "raw" / _ARCHIVE
        self._arrays = archive_arrays(archive)
        for key in _TAKEN[:3]:
            if key not in self._arrays:
                raise SourceError(f"{archive}: has no {key}, which OGB's archives have; download it again")
        num_nodes = _only_count(self._arrays["num_nodes_list"], least=1)
        num_edges = _only_count(self._arrays["num_edges_list"], least=0)
        self._edges = self._arrays["edge_index"]
        self._edges.require("iu", (2, None))
        if self._edges.shape[1] != num_edges:
            raise SourceError(
                f"{self._edges.where}: has {self._edges.shape[1]} edges, num_edges_list says {num_edges}; "
                "download it again"
            )
        features, labels = self._arrays.get("node_feat"), _archived_labels(source / "raw" / _LABEL_ARCHIVE)
        for column in (features, labels):
            if column is not None and column.shape[:1] != (num_nodes,):
                raise SourceError(
                    f"{column.where}: has shape {column.shape}, num_nodes_list says {num_nodes} nodes; "
                    "download it again"
                )
        self._nodes = _nodes(num_nodes, features, labels, _find_splits(source / "split", options.split))

    def least_memory(self, limits: ImportLimits) -> Mapping[str, int]:
        """See Source."""
        return {NUMBERS: NUMBERS_BYTES, UNPACKING: UNPACKING_BYTES}

    @property
    def load(self) -> Load:
        """See Source."""
        load = load_of_nodes(self._nodes.count, self._nodes.features, self._nodes.labels)
        return load + load_of_edges(self._edges) + load_of_array(self._arrays.get("node_feat"))

    def read(self, work: ImportTools) -> SourceGraph:
        """See Source."""
        reserve_numbers(work)
        edges = open_edges(self._edges, work)
        left_out = sorted(self._arrays.keys() - set(_TAKEN))
        return SourceGraph(
            nodes={NODE: self._nodes},
            edges={EDGE: SourceEdges(source=NODE, destination=NODE, edges=edges, origin=self._edges.where)},
            facts={"format": "ogb", "left_out": left_out},
        )


class _Text:
    """Source in texts, with one type of nodes."""

    decisions: Sequence[Decision] = ()

    def __init__(self, source: Path, options: ImportOptions) -> None:
        self.name = source.resolve().name
        raw = source / "raw"
        counts = raw / _NUM_NODES
        num_nodes = _stated_count(counts, least=1)
        self._edges = _TextEdges(raw, num_nodes)
        self._nodes = _text_nodes(raw, num_nodes, counts, _find_splits(source / "split", options.split))
        used = {_EDGES, _NUM_NODES, _NUM_EDGES, _FEATURES, _LABELS}
        self._left_out = sorted(path.name for path in raw.iterdir() if path.name not in used)

    def least_memory(self, limits: ImportLimits) -> Mapping[str, int]:
        """See Source."""
        return {NUMBERS: NUMBERS_BYTES, **self._edges.list.least_memory(limits)}

    @property
    def load(self) -> Load:
        """See Source."""
        return self._edges.load + _load_of_text(self._nodes)

    def read(self, work: ImportTools) -> SourceGraph:
        """See Source."""
        reserve_numbers(work)
        return SourceGraph(
            nodes={NODE: self._nodes},
            edges={EDGE: self._edges.read(work, NODE, NODE)},
            facts={"format": "ogb", "left_out": self._left_out},
        )


class _Typed:
    """Source in texts, with types. Edge types are named like their folders: SOURCE___RELATION___DESTINATION."""

    decisions: Sequence[Decision] = ()

    def __init__(self, source: Path, options: ImportOptions) -> None:
        self.name = source.resolve().name
        raw = source / "raw"
        count_source = raw / _TYPE_COUNTS
        self._counts = _type_counts(count_source)
        self._edges: dict[tuple[str, str, str], _TextEdges] = {}
        for number, line in enumerate(read_lines(raw / _TRIPLETS), 1):
            types = tuple(line.strip().split(","))
            if len(types) != 3 or types[0] not in self._counts or types[2] not in self._counts:
                raise SourceError(
                    f"{raw / _TRIPLETS}, line {number}: must be a type, a relation and a type of {count_source}, "
                    f"got {line[:60]!r}; download it again"
                )
            folder = raw / "relations" / "___".join(types)
            self._edges[types] = _TextEdges(folder, max(self._counts[types[0]], self._counts[types[2]]))
        if not self._edges:
            raise SourceError(f"{raw / _TRIPLETS}: must name a relation, got nothing; download it again")
        used = ("relations", "node-feat", "node-label")
        self._left_out = sorted(path.name for path in raw.iterdir() if path.is_dir() and path.name not in used)
        splits = _split_folder(source / "split", options.split)
        self._nodes = {
            node_type: _text_nodes(
                raw, count, count_source, _splits_of(splits / node_type) if splits is not None else {}, node_type
            )
            for node_type, count in self._counts.items()
        }

    def least_memory(self, limits: ImportLimits) -> Mapping[str, int]:
        """See Source."""
        most = max(
            (edges.list.least_memory(limits) for edges in self._edges.values()), key=lambda each: sum(each.values())
        )
        return {NUMBERS: NUMBERS_BYTES, **most}

    @property
    def load(self) -> Load:
        """See Source."""
        edges = sum((each.load for each in self._edges.values()), Load())
        return edges + sum((_load_of_text(each) for each in self._nodes.values()), Load())

    def read(self, work: ImportTools) -> SourceGraph:
        """See Source."""
        reserve_numbers(work)
        edges = {}
        for types, each in self._edges.items():
            name = "___".join(types)
            edges[name] = each.read(replace(work, part=name), types[0], types[2])
        return SourceGraph(nodes=self._nodes, edges=edges, facts={"format": "ogb", "left_out": self._left_out})


class _TextEdges:
    """Edges of a folder in text; another file of the folder states how many there are."""

    def __init__(self, folder: Path, num_nodes: int) -> None:
        self._path = folder / _EDGES
        self._count_source = folder / _NUM_EDGES
        self._counts_name = _TYPE_COUNTS if folder.parent.name == "relations" else _NUM_NODES
        self._num_edges = _stated_count(self._count_source, least=0)
        layout = ImportOptions(delimiter=",", header=False, ids="integer", nodes=num_nodes)
        with described_layout(self._counts_name):
            self.list = EdgeList(self._path, layout)

    @property
    def load(self) -> Load:
        """See Source; nodes are counted by the caller."""
        return replace(self.list.load, num_nodes=0)

    def read(self, work: ImportTools, source: str, destination: str) -> SourceEdges:
        """Parse the edges. Raises SourceError if there are more or fewer than stated."""
        with described_layout(self._counts_name):
            (edges,) = self.list.read(work).edges.values()
        if edges.edges.num_edges != self._num_edges:
            raise SourceError(
                f"{self._path}: has {edges.edges.num_edges} edges, {self._count_source.name} says {self._num_edges}; "
                "download the folder again"
            )
        return replace(edges, source=source, destination=destination)


def _nodes(count: int, features: Column | None, labels: Column | None, splits: dict[str, list[Column]]) -> SourceNodes:
    if features is not None:
        check_features(features)
    if labels is not None:
        labels = as_labels(labels)
        count_tasks(labels)
    return SourceNodes(count=count, features=features, labels=labels, splits=splits)


def _text_nodes(
    raw: Path, count: int, counts: Path, splits: dict[str, list[Column]], node_type: str | None = None
) -> SourceNodes:
    """Open features and labels in `raw`, those of a type in `raw/node-feat/TYPE` and `raw/node-label/TYPE`."""

    def column(name: str, *, has_gaps: bool) -> NumberText | None:
        path = raw / name if node_type is None else raw / name.removesuffix(".csv.gz") / node_type / name
        if not path.exists():
            return None
        return NumberText(path, np.float64, num_rows=count, count_source=counts.name, has_gaps=has_gaps)

    return _nodes(count, column(_FEATURES, has_gaps=False), column(_LABELS, has_gaps=True), splits)


def _load_of_text(nodes: SourceNodes) -> Load:
    load = load_of_nodes(nodes.count, nodes.features, nodes.labels)
    if nodes.features is None:
        return load
    file = SourceFile.of(Path(nodes.features.where))
    num_bytes = text_bytes(file)
    return load + Load(source_bytes=file.num_bytes, inflated_bytes=num_bytes, number_text_bytes=num_bytes)


def _archived_labels(path: Path) -> StoredArray | None:
    if not path.exists():
        return None
    arrays = archive_arrays(path)
    if "node_label" not in arrays:
        raise SourceError(f"{path}: has no node_label, which OGB's archives have; download it again")
    return arrays["node_label"]


def _only_count(counts: StoredArray, *, least: int) -> int:
    """Read the node or edge count of the only graph. Raises SourceError for several graphs."""
    if counts.num_items > 1:
        raise SourceError(_several_graphs(counts.where, counts.num_items))
    return counts.scalar(least, MOST_COUNT)


def _stated_count(path: Path, *, least: int) -> int:
    """Read the node or edge count of the only graph, in text. Raises SourceError for several graphs."""
    # Two are enough to see that there are several; the file may be long.
    counts = list(islice((int(count) for block in NumberText(path, np.int64).blocks() for count in block), 2))
    if len(counts) > 1:
        raise SourceError(_several_graphs(str(path), "several"))
    if not counts or not least <= counts[0] <= MOST_COUNT:
        got = counts[0] if counts else "nothing"
        raise SourceError(f"{path}: must be one number from {least} to {MOST_COUNT}, got {got}; download it again")
    return counts[0]


def _several_graphs(where: str, count: int | str) -> str:
    return f"{where}: has {count} graphs, and a dataset is one graph; give a folder of a node task (ogbn-...)"


def _type_counts(path: Path) -> dict[str, int]:
    """Read node counts by type: a line of types, then a line of counts."""
    lines = [line.strip().split(",") for line in islice(read_lines(path), 3)]
    if (
        len(lines) == 2
        and len(set(lines[0])) == len(lines[0]) == len(lines[1])
        and all(each.isdecimal() for each in lines[1])
    ):
        counts = {name: int(count) for name, count in zip(*lines, strict=True)}
        if all(1 <= count <= MOST_COUNT for count in counts.values()):
            return counts
    raise SourceError(
        f"{path}: must be a line of types and a line with one count per type, from 1 to {MOST_COUNT}; download it again"
    )


def _find_splits(folder: Path, wanted: str | None) -> dict[str, list[Column]]:
    chosen = _split_folder(folder, wanted)
    if chosen is None:
        return {}
    splits = _splits_of(chosen)
    if not splits and any((chosen / f"{part}.pt").exists() for part in _PARTS):
        edges = folder.parent / "raw" / _EDGES
        raise SourceError(
            f"{chosen}: is of a link prediction task, whose split is in pickles (train.pt), which are never loaded; "
            f"import the edges alone: diskhop import {shlex.quote(str(edges))} DEST --format edges"
        )
    if not splits:
        raise SourceError(f"{chosen}: has none of {', '.join(f'{part}.csv.gz' for part in _PARTS)}; download it again")
    return splits


def _split_folder(folder: Path, wanted: str | None) -> Path | None:
    """Find the folder of a split: the wanted one, or the only one; None: there is none."""
    with source_errors(str(folder)):
        names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    known = ", ".join(names) or "none"
    if wanted is not None and wanted not in names:
        raise SourceError(f"{folder}: has no split '{wanted}'; --split can be: {known}")
    if wanted is None and len(names) > 1:
        raise SourceError(f"{folder}: has several splits, {known}; choose one, as --split {names[0]}")
    return folder / (wanted or names[0]) if names else None


def _splits_of(folder: Path) -> dict[str, list[Column]]:
    paths = {part: folder / f"{part}.csv.gz" for part in _PARTS}
    return {part: [NumberText(path, np.int64)] for part, path in paths.items() if path.exists()}


OGB = SourceKind(
    name="ogb",
    looks_like="a folder of OGB with raw/data.npz or raw/edge.csv.gz",
    takes=(*OF_EDGES, *OF_FEATURES, "split"),
    detect=is_ogb,
    open=open_ogb,
)
