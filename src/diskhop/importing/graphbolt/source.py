"""Graphs of DGL GraphBolt: a folder with metadata.yaml (an OnDiskDataset) and the raw files that it names.

Nodes and edges of every type are imported. So are, of feature_data, `feat` of nodes (their features), what `diskhop
export` adds (`label` and `original_id` of nodes, `weight` and `time` of edges), and all other arrays, as attributes.
The first task that classifies nodes is imported, and later ones with the same name, classes and sets as further splits.
The facts list all the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from diskhop.dataset.edges import ArrayEdges, EdgeSource
from diskhop.dataset.manifest import EDGE, NODE, TASKS, VALUES
from diskhop.errors import SourceError
from diskhop.importing.arrays.edges import open_edges
from diskhop.importing.arrays.loads import (
    load_of_array,
    load_of_attributes,
    load_of_edge_attributes,
    load_of_edge_values,
    load_of_edges,
    load_of_nodes,
)
from diskhop.importing.arrays.npy import StoredArray
from diskhop.importing.arrays.stored_ids import StoredIds
from diskhop.importing.columns import are_fractions, check_features, choose_labels, count_tasks
from diskhop.importing.estimate import Load
from diskhop.importing.evidence.decisions import Decision
from diskhop.importing.graphbolt.labels import LabelledSeeds, ScatteredLabels
from diskhop.importing.graphbolt.metadata import (
    METADATA_NAME,
    PREPROCESSED,
    Edges,
    Feature,
    Metadata,
    SetOfType,
    TaskEntry,
    read_metadata,
)
from diskhop.importing.name_lists import name_lines
from diskhop.importing.named import is_attribute, own_attribute
from diskhop.importing.options import OF_EDGES, OF_FEATURES, OF_LABELS, ImportOptions
from diskhop.importing.source import (
    Column,
    NameList,
    SourceAttribute,
    SourceEdges,
    SourceGraph,
    SourceKind,
    SourceNodes,
)
from diskhop.importing.source_file import described_layout, source_errors
from diskhop.importing.text.edge_work import PARSING, EdgeWork, least_parsing_bytes
from diskhop.importing.text.layout import RowLayout, TextFile, find_texts
from diskhop.importing.text.loads import load_of_texts
from diskhop.importing.tools import ImportLimits, ImportTools

# Names of feature_data that datasets store in other places.
FEATURES, LABELS, ORIGINAL_IDS, WEIGHTS, TIMES = "feat", "label", "original_id", "weight", "time"
NODE_NAMES = "nodes"


def is_graphbolt(source: Path) -> bool:
    """Check whether a source looks like a GraphBolt folder."""
    return (source / METADATA_NAME).exists() or (source / PREPROCESSED).exists()


class GraphBolt:
    """Source in a GraphBolt folder. All files that are imported are opened and checked, but not read."""

    decisions: Sequence[Decision] = ()

    def __init__(self, source: Path, options: ImportOptions) -> None:
        self._source = source
        self._metadata = metadata = read_metadata(source)
        self._left_out = [f"graph: feature_data ({feature.name})" for feature in metadata.graph_features]
        self._edges = [_EdgeFiles(each, name, metadata) for each, name in _edge_names(metadata)]
        self._nodes = {each or NODE: _NodeFiles(count, options.label_kind) for each, count in metadata.nodes.items()}
        for number, feature in enumerate(metadata.features):
            if not self._take_feature(feature):
                self._left_out.append(f"feature_data[{number}] ({feature.name})")
        self._take_tasks()
        for nodes in self._nodes.values():
            nodes.check_labels()

    @property
    def name(self) -> str:
        """See Source."""
        return self._metadata.name or self._source.resolve().name

    @property
    def load(self) -> Load:
        """See Source."""
        of_nodes = sum((nodes.load for nodes in self._nodes.values()), Load())
        return sum((edges.load for edges in self._edges), of_nodes)

    def least_memory(self, limits: ImportLimits) -> Mapping[str, int]:
        """See Source."""
        parsing = [
            least_parsing_bytes(each.texts, each.layout, limits) for each in self._edges if each.layout is not None
        ]
        scattered = sum(nodes.scattered_bytes for nodes in self._nodes.values())
        return ({PARSING: max(parsing)} if parsing else {}) | ({LABELS: scattered} if scattered else {})

    def read(self, work: ImportTools) -> SourceGraph:
        """See Source."""
        names = {}
        path = self._source / f"{NODE_NAMES}.txt.gz"
        if list(self._nodes) == [NODE] and path.exists():
            count = self._nodes[NODE].count
            names[NODE_NAMES] = NameList(count=count, lines=partial(name_lines, path, count))
        return SourceGraph(
            nodes={name: nodes.read(work) for name, nodes in self._nodes.items()},
            edges={each.name: each.read(work) for each in self._edges},
            names=names,
            facts={"left_out": self._left_out} if self._left_out else {},
        )

    def _take_feature(self, feature: Feature) -> bool:
        """Take feature_data that a dataset can store; return whether it was taken."""
        if feature.domain == "node":
            return (feature.type or NODE) in self._nodes and self._nodes[feature.type or NODE].take(feature)
        return any(each.take(feature) for each in self._edges)

    def _take_tasks(self) -> None:
        taken: TaskEntry | None = None
        for number, task in enumerate(self._metadata.tasks):
            if self._is_of_nodes(task) and (taken is None or _is_another_split(task, taken)):
                taken = taken or task
                for part, entries in task.sets.items():
                    for entry in entries:
                        self._nodes[entry.type or NODE].take_set(part, entry, task.num_classes)
            else:
                self._left_out.append(f"tasks[{number}] ({task.name})")

    def _is_of_nodes(self, task: TaskEntry) -> bool:
        entries = [entry for entries in task.sets.values() for entry in entries]
        return bool(entries) and all(
            (entry.type or NODE) in self._nodes
            and _seeds_name(entry) in entry.data
            and len(entry.data[_seeds_name(entry)].array().shape) == 1
            for entry in entries
        )


def _seeds_name(entry: SetOfType) -> str:
    """Return the key of the seeds, which DGL renamed in 2.2."""
    return "seed_nodes" if "seed_nodes" in entry.data else "seeds"


def _is_another_split(task: TaskEntry, first: TaskEntry) -> bool:
    def kind(each: TaskEntry) -> Any:
        sets = {part: sorted(entry.type or NODE for entry in entries) for part, entries in each.sets.items()}
        return each.name, each.num_classes, sets

    return bool(kind(task) == kind(first))


def _edge_names(metadata: Metadata) -> Iterator[tuple[Edges, str]]:
    """Yield edges with their names: the relation, with node types added if it connects other types too."""
    relations = [each.type[1] for each in metadata.edges if each.type is not None]
    for each in metadata.edges:
        if each.type is None:
            yield each, EDGE
        else:
            yield each, each.type[1] if relations.count(each.type[1]) == 1 else "-".join(each.type)


class _EdgeFiles:
    """Edges of one type: an array, or texts with their layout; an empty file has neither."""

    def __init__(self, edges: Edges, name: str, metadata: Metadata) -> None:
        self.name = name
        self._type = None if edges.type is None else ":".join(edges.type)
        self._ends = (NODE, NODE) if edges.type is None else (edges.type[0], edges.type[2])
        self._num_nodes = max(metadata.nodes[None if edges.type is None else end] for end in self._ends)
        self._path = edges.file.path
        self.array: StoredArray | None = None
        self.texts: list[TextFile] = []
        self.layout: RowLayout | None = None
        self._weights: StoredArray | None = None
        self._times: StoredArray | None = None
        self._attributes: dict[str, SourceAttribute] = {}
        if edges.file.format == "numpy":
            self.array = edges.file.array()
            self.array.require("iu", (2, None))
            return
        with source_errors(str(self._path)):
            if not self._path.is_file():
                raise SourceError(f"{self._path}: is not a regular file; give a file of edges")
            is_empty = self._path.stat().st_size == 0
        if not is_empty:
            options = ImportOptions(delimiter=",", header=False, ids="integer")
            with described_layout(METADATA_NAME):
                found = find_texts(self._path, options)
            self.texts, self.layout = found.files, found.layout

    def take(self, feature: Feature) -> bool:
        """Take weights, times or an attribute; return whether the feature was one of these."""
        if feature.domain != "edge" or feature.type != self._type or feature.file.format != "numpy":
            return False
        if not feature.file.path.exists():
            return False
        array = feature.file.array()
        if not is_attribute(array, feature.name):
            return False
        if self.array is not None:
            _require_rows(array, self.array.shape[1], "edges")
        is_single = array.shape[1:] in ((), (1,))
        if feature.name == WEIGHTS and is_single and array.dtype.kind in "iuf":
            self._weights = array
        elif feature.name == TIMES and is_single and array.dtype.kind in "iu":
            self._times = array
        else:
            self._attributes[feature.name] = own_attribute(array)
        return True

    @property
    def load(self) -> Load:
        """See Source."""
        if self.array is not None:
            load = load_of_edges(self.array)
        elif self.layout is not None:
            load = replace(load_of_texts(self.texts, self.layout), num_nodes=0)
        else:
            return Load()
        load += load_of_edge_values(load.num_edges, self._weights, self._times)
        return load + load_of_edge_attributes(load.num_edges, self._attributes)

    def read(self, work: ImportTools) -> SourceEdges:
        """Open the array, or parse the text."""
        edges: EdgeSource
        if self.array is not None:
            edges = open_edges(self.array, replace(work, part=self.name))
        elif self.layout is not None:
            part = replace(work, part=self.name)
            with described_layout(METADATA_NAME):
                edges = EdgeWork(self.texts, self.layout, num_nodes=self._num_nodes, work=part).run().source()
        else:
            edges = ArrayEdges(np.zeros((2, 0), np.int64))
        for values in (self._weights, self._times, *(each.values for each in self._attributes.values())):
            if values is not None:
                _require_rows(values, edges.num_edges, "edges")
        source, destination = self._ends
        return SourceEdges(
            source=source,
            destination=destination,
            edges=edges,
            origin=str(self._path),
            weights=self._weights,
            times=self._times,
            attributes=self._attributes,
        )


class _NodeFiles:
    """Arrays of the nodes of one type. label_kind: kind that labels are imported as; None: as their values are."""

    def __init__(self, count: int, label_kind: str | None) -> None:
        self.count = count
        self._label_kind = label_kind
        self.features: StoredArray | None = None
        self._original_ids: StoredArray | None = None
        self._attributes: dict[str, SourceAttribute] = {}
        self._labels: StoredArray | None = None
        self._num_classes: int | None = None
        self._splits: dict[str, list[Column]] = {}
        self._labelled: list[LabelledSeeds] = []

    def take(self, feature: Feature) -> bool:
        """Take features, labels, original ids or an attribute; return whether the feature was one of these."""
        if feature.name == FEATURES:
            array = feature.file.array()
            check_features(array)
            self.features = array
        elif feature.name in (LABELS, ORIGINAL_IDS) and feature.file.format == "numpy":
            array = feature.file.array()
            if array.dtype.kind not in "iu" and not (feature.name == LABELS and len(array.shape) == 2):
                return False
            if feature.name == LABELS:
                count_tasks(array)
                self._labels, self._num_classes = array, feature.num_classes
            else:
                self._original_ids = array
        elif feature.file.format == "numpy" and feature.file.path.exists():
            array = feature.file.array()
            if not is_attribute(array, feature.name):
                return False
            self._attributes[feature.name] = own_attribute(array)
        else:
            return False
        _require_rows(array, self.count, "nodes")
        return True

    def take_set(self, part: str, entry: SetOfType, num_classes: int | None) -> None:
        """Take the seeds of a part of a split, and their labels, if any."""
        seeds = entry.data[_seeds_name(entry)].array()
        seeds.require("iu", (None,))
        self._splits.setdefault(part, []).append(seeds)
        if "labels" in entry.data:
            labels = entry.data["labels"].array()
            count_tasks(labels)
            _require_rows(labels, seeds.shape[0], "seeds")
            self._labelled.append(LabelledSeeds(seeds, labels))
            self._num_classes = num_classes or self._num_classes

    def check_labels(self) -> None:
        """Raise SourceError if some labels are classes and others tasks."""
        columns = [each.labels for each in self._labelled] + ([] if self._labels is None else [self._labels])
        for column in columns:
            if count_tasks(column) != count_tasks(columns[0]):
                raise SourceError(
                    f"{column.where}: has shape {column.shape} of {column.dtype}, {columns[0].where} has shape "
                    f"{columns[0].shape} of {columns[0].dtype}; give labels of one kind"
                )

    @property
    def scattered_bytes(self) -> int:
        """Memory of the labels of all sets, by node."""
        return self.count * (4 * count_tasks(self._labelled[0].labels) or 8) if self._labelled else 0

    @property
    def load(self) -> Load:
        """See Source."""
        labels = self._labelled[0].labels if self._labelled else self._labels
        load = load_of_nodes(self.count, self.features, labels) + load_of_array(self.features)
        return load + load_of_attributes(self.count, self._attributes)

    def read(self, work: ImportTools) -> SourceNodes:
        """Bring the labels of sets to their nodes."""
        labels: Column | None = self._labels
        if self._labelled:
            work.held.enter_context(work.budget.reserve(LABELS, self.scattered_bytes))
            labels = ScatteredLabels(self._labelled, self._labels, self.count)
        if labels is not None and (self._label_kind or labels.dtype.kind == "f"):
            wanted = self._label_kind or (VALUES if are_fractions(labels) else TASKS)
            labels = choose_labels(labels, wanted)
        return SourceNodes(
            count=self.count,
            features=self.features,
            labels=labels,
            num_classes=self._num_classes,
            splits=self._splits,
            original=None if self._original_ids is None else StoredIds(self._original_ids, work.budget),
            attributes=self._attributes,
        )


def _require_rows(array: Column, num_rows: int, what: str) -> None:
    if not array.shape or array.shape[0] != num_rows:
        raise SourceError(
            f"{array.where}: has shape {array.shape} for {num_rows} {what}; give one row per {what.removesuffix('s')}"
        )


GRAPHBOLT = SourceKind(
    name="graphbolt",
    looks_like="a folder with metadata.yaml, an OnDiskDataset of DGL",
    takes=(*OF_EDGES, *OF_FEATURES, *OF_LABELS),
    detect=is_graphbolt,
    open=GraphBolt,
)
