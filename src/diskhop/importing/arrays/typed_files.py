"""Typed graphs in one folder of NumPy files, named by type.

`edges-author--writes--paper.npy` has the edges of a type: (2, edges) integers, sources then destinations, each numbered
from 0 within its own type; or (edges, 2). `nodes-paper.npz` has features: `x` (nodes, dim), or sparse `x_indptr`,
`x_indices`, `x_data`, `x_shape`; and `num_nodes`. `nodes-paper.npy` is the same as `x`. `labels.npz` has the labels and
splits of one type (label_file.py). Edges and features are read in place or streamed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from diskhop.dataset.fields import TYPE_NAME
from diskhop.dataset.manifest import EDGE, MOST_COUNT, NODE
from diskhop.errors import SourceError
from diskhop.importing.arrays.edges import open_edges
from diskhop.importing.arrays.label_file import LABEL_FILE, LabelFile
from diskhop.importing.arrays.loads import load_of_array, load_of_edges, load_of_nodes
from diskhop.importing.arrays.npy import StoredArray, archive_arrays, archive_names, file_array
from diskhop.importing.arrays.sparse import SPARSE, SparseMatrix
from diskhop.importing.columns import check_features
from diskhop.importing.estimate import Load
from diskhop.importing.evidence.decisions import Decision, listed
from diskhop.importing.options import OF_EDGES, OF_FEATURES, OF_LABELS, ImportOptions
from diskhop.importing.source import BY_EDGES, Column, SourceEdges, SourceGraph, SourceKind, SourceNodes
from diskhop.importing.source_file import source_errors
from diskhop.importing.tools import ImportLimits, ImportTools

_OF_EDGES, _OF_NODES, _BETWEEN = "edges-", "nodes-", "--"
_FEATURES, _COUNT = "x", "num_nodes"


@dataclass(frozen=True, slots=True)
class _Edges:
    """A file of edges. by_rows: whether it is (edges, 2)."""

    name: str
    source: str
    destination: str
    array: StoredArray
    by_rows: bool


@dataclass(frozen=True, slots=True)
class _Nodes:
    """A file of nodes: what it states of their number, by array, and everything that was opened."""

    features: Column | None
    counts: Mapping[str, int]
    arrays: Sequence[StoredArray]
    left_out: Sequence[str]


_NO_FILE = _Nodes(None, {}, (), ())


def is_typed_files(source: Path) -> bool:
    """Check whether a source looks like a folder of files named by type."""
    return source.is_dir() and any(source.glob(f"{_OF_EDGES}*{_BETWEEN}*.npy"))


class TypedFiles:
    """Source in files named by type. Raises SourceError for names and arrays that do not fit each other."""

    def __init__(self, source: Path, options: ImportOptions) -> None:
        self._source = source
        self.name = source.resolve().name
        with source_errors(str(source)):
            paths = sorted(path for path in source.iterdir() if not path.name.startswith("."))
        edges = [_open_edges(path) for path in paths if path.name.startswith(_OF_EDGES) and path.suffix == ".npy"]
        if not edges:
            raise SourceError(f"{source}: has no file like edges-author--writes--paper.npy; give the folder of a graph")
        self._edges: dict[str, _Edges] = {}
        for each in edges:
            if each.name in self._edges:
                raise SourceError(
                    f"{each.array.where}: has the same edge type {each.name} as {self._edges[each.name].array.where}; "
                    "rename one of the types"
                )
            self._edges[each.name] = each
        self._types = sorted({end for each in edges for end in (each.source, each.destination)})
        self._nodes = self._open_nodes(paths)
        self._labels = LabelFile(source / LABEL_FILE, options.label_kind) if source / LABEL_FILE in paths else None
        decisions = [] if self._labels is None else [self._place_labels(self._labels)]
        self.decisions: Sequence[Decision] = [
            *(Decision(f"edges '{each.name}'", "(edges, 2)", "two columns") for each in edges if each.by_rows),
            *decisions,
            *([] if self._labels is None else self._labels.decisions),
        ]
        self._counts = {name: self._stated_count(name) for name in self._types}
        self._left_out = self._unused(paths)

    def least_memory(self, limits: ImportLimits) -> Mapping[str, int]:
        """See Source."""
        return {}

    @property
    def load(self) -> Load:
        """See Source."""
        load = sum((load_of_edges(each.array) for each in self._edges.values()), Load())
        for name, count in self._counts.items():
            labels = self._labels.labels if self._labels is not None and name == self._labeled else None
            load += load_of_nodes(count or 0, self._nodes[name].features, labels)
            load += sum((load_of_array(each) for each in self._nodes[name].arrays), Load())
        return load + sum((load_of_array(each) for each in (self._labels.arrays if self._labels else ())), Load())

    def read(self, work: ImportTools) -> SourceGraph:
        """See Source."""
        nodes = {name: self._source_nodes(name) for name in self._types}
        edges = {}
        for name, each in self._edges.items():
            ends = open_edges(each.array, work, by_rows=each.by_rows)
            edges[name] = SourceEdges(
                source=each.source, destination=each.destination, edges=ends, origin=each.array.where
            )
        facts = {"format": TYPED_FILES.name, "left_out": self._left_out}
        if len(nodes) == len(edges) == 1:
            ((only,), (ends_of_all,)) = (nodes.values(), edges.values())
            plain = SourceEdges(source=NODE, destination=NODE, edges=ends_of_all.edges, origin=ends_of_all.origin)
            return SourceGraph(nodes={NODE: only}, edges={EDGE: plain}, facts=facts)
        return SourceGraph(nodes=nodes, edges=edges, facts=facts)

    def _source_nodes(self, name: str) -> SourceNodes:
        count, features = self._counts[name], self._nodes[name].features
        if self._labels is None or name != self._labeled:
            return SourceNodes(count=BY_EDGES if count is None else count, features=features)
        return SourceNodes(
            count=self._labels.count,
            features=features,
            labels=self._labels.labels,
            num_classes=self._labels.num_classes,
            splits=self._labels.splits,
        )

    def _open_nodes(self, paths: Sequence[Path]) -> dict[str, _Nodes]:
        nodes: dict[str, tuple[Path, _Nodes]] = {}
        for path in paths:
            if not path.name.startswith(_OF_NODES) or path.suffix not in (".npy", ".npz"):
                continue
            name = path.stem.removeprefix(_OF_NODES)
            if name not in self._types:
                raise SourceError(
                    f"{path}: no edges have nodes '{name}', their types are {listed(self._types)}; rename or remove it"
                )
            if name in nodes:
                raise SourceError(f"{path}: there is {nodes[name][0].name} too; keep one")
            nodes[name] = path, _node_file(path)
        return {name: nodes[name][1] if name in nodes else _NO_FILE for name in self._types}

    def _place_labels(self, labels: LabelFile) -> Decision:
        """Find the type of the labels, and say by which evidence. Raises SourceError if several or none fit."""
        role = "labels of '{}'"
        if labels.node_type is not None:
            if labels.node_type not in self._types:
                raise SourceError(
                    f"{labels.path}: node_type is '{labels.node_type}', no edges have such nodes; save one of "
                    f"{listed(self._types)}"
                )
            self._labeled = labels.node_type
            return Decision(LABEL_FILE, role.format(self._labeled), "node_type")
        stated = [name for name in self._types if labels.count in self._nodes[name].counts.values()]
        unstated = [name for name in self._types if not self._nodes[name].counts]
        # The count of a type without a file is that of its labels.
        fit = stated or unstated
        if len(fit) != 1:
            found = f"fit the nodes {listed(fit)} alike" if fit else "fit the number of nodes of no type"
            raise SourceError(
                f"{labels.path}: has no node_type, and {labels.count} labels {found}; save the type with them, as "
                f"node_type={(fit or self._types)[0]!r}"
            )
        (self._labeled,) = fit
        why = f"{labels.count} rows, as it has nodes" if stated else "the only type without a file of nodes"
        return Decision(LABEL_FILE, role.format(self._labeled), why if len(self._types) > 1 else "the only type")

    def _stated_count(self, name: str) -> int | None:
        """Return the number of nodes that the arrays of a type state. Raises SourceError if they disagree."""
        counts = dict(self._nodes[name].counts)
        if self._labels is not None and name == self._labeled:
            counts[f"{LABEL_FILE}: y"] = self._labels.count
            counts |= {f"{LABEL_FILE}: {key}": mask.shape[0] for key, mask in self._labels.masks.items()}
        if len(set(counts.values())) > 1:
            shown = ", ".join(f"{key} {count}" for key, count in counts.items())
            raise SourceError(
                f"{self._source}: arrays of '{name}' differ in the number of nodes ({shown}); make them agree"
            )
        return next(iter(counts.values()), None)

    def _unused(self, paths: Sequence[Path]) -> list[str]:
        """List files, and arrays in them, that are not imported."""
        taken = {Path(each.array.where) for each in self._edges.values()}
        taken |= {self._source / f"{_OF_NODES}{name}{suffix}" for name in self._types for suffix in (".npy", ".npz")}
        taken.add(self._source / LABEL_FILE)
        unused = [path.name for path in paths if path not in taken]
        unused += [each for nodes in self._nodes.values() for each in nodes.left_out]
        return unused + (self._labels.left_out if self._labels is not None else [])


def _open_edges(path: Path) -> _Edges:
    ends = path.stem.removeprefix(_OF_EDGES).split(_BETWEEN)
    if len(ends) != 3 or not all(ends):
        raise SourceError(f"{path}: must have a name like edges-author--writes--paper.npy; rename the file")
    name = "__".join(ends)
    for each in (ends[0], ends[2], name):
        if not TYPE_NAME.fullmatch(each):
            raise SourceError(
                f"{path}: type name '{each}' must be letters, digits and _ . + = -, at most 100 characters; rename the "
                "file"
            )
    array = file_array(path)
    # Two edges are (2, 2) either way, and sources come first then.
    by_rows = array.shape[1:] == (2,) and array.shape[0] != 2
    array.require("iu", (None, 2) if by_rows else (2, None))
    return _Edges(name, ends[0], ends[2], array, by_rows)


def _node_file(path: Path) -> _Nodes:
    if path.suffix == ".npy":
        array = file_array(path)
        check_features(array)
        return _Nodes(array, {path.name: array.shape[0]}, (array,), ())
    names = archive_names(path)
    arrays = archive_arrays(path, {_FEATURES, *SPARSE, _COUNT})
    left_out = [f"{path.name}: {name}" for name in names if name not in arrays]
    features = _features(path, arrays)
    counts = {} if features is None else {f"{path.name}: features": features.shape[0]}
    if _COUNT in arrays:
        counts[f"{path.name}: {_COUNT}"] = arrays[_COUNT].scalar(1, MOST_COUNT)
    if not counts:
        raise SourceError(f"{path}: has neither x, {', '.join(SPARSE)} nor {_COUNT}; add one, or remove the file")
    return _Nodes(features, counts, [*arrays.values()], left_out)


def _features(path: Path, arrays: Mapping[str, StoredArray]) -> Column | None:
    dense = arrays.get(_FEATURES)
    parts = [arrays[key] for key in SPARSE if key in arrays]
    if dense is not None and parts:
        raise SourceError(f"{path}: has both x and sparse features; keep one")
    if dense is not None:
        check_features(dense)
        return dense
    if parts and len(parts) < len(SPARSE):
        raise SourceError(f"{path}: sparse features need all of {', '.join(SPARSE)}; save them all")
    return SparseMatrix(*parts) if parts else None


TYPED_FILES = SourceKind(
    name="npy-types",
    looks_like="a folder of edges-SOURCE--RELATION--DESTINATION.npy and nodes-TYPE.npz",
    takes=(*OF_EDGES, *OF_FEATURES, *OF_LABELS),
    detect=is_typed_files,
    open=TypedFiles,
)
