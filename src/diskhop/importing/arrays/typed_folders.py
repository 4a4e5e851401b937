"""Typed graphs in folders of .npy files, as MAG240M and IGB distribute them.

The folder, or `processed/` in it, has a folder per node type with `node_feat.npy` (nodes, dim) and `node_label.npy`,
or several as `node_label_19.npy`. It has a folder per relation, `author___writes___paper` (MAG240M) or
`paper__cites__paper` (IGB), with `edge_index.npy`: (2, edges), or (edges, 2). Features are read in place. Splits are
pickles there, which are never read; `train_idx.npy`, `val_idx.npy` and `test_idx.npy` in a type's folder are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from diskhop.dataset.manifest import EDGE, NODE
from diskhop.errors import SourceError
from diskhop.importing.arrays.edges import open_edges
from diskhop.importing.arrays.loads import load_of_array, load_of_edges, load_of_nodes
from diskhop.importing.arrays.npy import StoredArray, file_array
from diskhop.importing.columns import as_labels, check_features, count_tasks
from diskhop.importing.estimate import Load
from diskhop.importing.evidence.decisions import Decision
from diskhop.importing.options import OF_EDGES, OF_FEATURES, ImportOptions
from diskhop.importing.source import BY_EDGES, Column, SourceEdges, SourceGraph, SourceKind, SourceNodes
from diskhop.importing.source_file import source_errors
from diskhop.importing.tools import ImportLimits, ImportTools

_EDGES = "edge_index.npy"
_FEATURES = "node_feat.npy"
_LABELS = "node_label*.npy"
_PARTS = {"train": ("train",), "valid": ("val", "valid"), "test": ("test",)}
# Files with these suffixes that are not imported are listed in the facts; they are not opened.
_LISTED = (".npy", ".pt")


@dataclass(frozen=True, slots=True)
class _Relation:
    name: str
    source: str
    destination: str
    edges: StoredArray
    by_rows: bool


def is_typed_folders(source: Path) -> bool:
    """Check whether a source looks like folders of types and relations."""
    return any(_root(source).glob(f"*__*__*/{_EDGES}"))


class TypedFolders:
    """Source in folders of types. Raises SourceError for arrays that do not fit each other."""

    decisions: Sequence[Decision] = ()

    def __init__(self, source: Path, options: ImportOptions) -> None:
        resolved = source.resolve()
        self.name = resolved.parent.name if resolved.name == "processed" else resolved.name
        self._root = root = _root(source)
        with source_errors(str(root)):
            paths = sorted(root.glob(f"*__*__*/{_EDGES}"))
        if not paths:
            raise SourceError(
                f"{root}: has no folder like paper__cites__paper with {_EDGES}; give the folder of a graph"
            )
        self._relations = [_relation(path) for path in paths]
        types = sorted({each for found in self._relations for each in (found.source, found.destination)})
        self._features = {name: _features(root / name / _FEATURES) for name in types}
        wanted = None if options.label is None else ",".join(options.label)
        self._labels = {name: _labels(root / name, wanted) for name in types}
        if wanted is not None and not any(self._labels.values()):
            known = sorted({path.stem for name in types for path in (root / name).glob(_LABELS)})
            raise SourceError(f"{root}: has no labels '{wanted}'; --label can be: {', '.join(known) or 'none'}")
        self._splits = {name: _splits(root / name) for name in types}
        self._stated_counts = {name: self._stated_count(name) for name in types}
        splits = [ids for parts in self._splits.values() for each in parts.values() for ids in each]
        columns = (*self._features.values(), *self._labels.values(), *splits)
        taken = {each.where for each in columns if each is not None}
        # Also the folder around `processed`: MAG240M's splits are there.
        folders = {source, root, *(root / name for name in types)}
        left_out = {path for folder in folders for path in folder.glob("*") if path.suffix in _LISTED}
        self._left_out = sorted(str(path.relative_to(source)) for path in left_out if str(path) not in taken)

    def least_memory(self, limits: ImportLimits) -> Mapping[str, int]:
        """See Source."""
        return {}

    @property
    def load(self) -> Load:
        """See Source."""
        load = sum((load_of_edges(each.edges) for each in self._relations), Load())
        for name, count in self._stated_counts.items():
            features, labels = self._features[name], self._labels[name]
            load += load_of_nodes(count or 0, features, labels) + load_of_array(features)
        return load

    def read(self, work: ImportTools) -> SourceGraph:
        """See Source."""
        relations = {each.name: self._open(each, work) for each in self._relations}
        nodes = {
            name: SourceNodes(
                count=BY_EDGES if count is None else count,
                features=self._features[name],
                labels=self._labels[name],
                splits=self._splits[name],
            )
            for name, count in self._stated_counts.items()
        }
        facts = {"format": "npy-folders", "left_out": self._left_out}
        if len(nodes) == len(relations) == 1:
            ((only,), (edges,)) = (nodes.values(), relations.values())
            edges = SourceEdges(source=NODE, destination=NODE, edges=edges.edges, origin=edges.origin)
            return SourceGraph(nodes={NODE: only}, edges={EDGE: edges}, facts=facts)
        return SourceGraph(nodes=nodes, edges=relations, facts=facts)

    def _open(self, relation: _Relation, work: ImportTools) -> SourceEdges:
        edges = open_edges(relation.edges, work, by_rows=relation.by_rows)
        return SourceEdges(
            source=relation.source, destination=relation.destination, edges=edges, origin=relation.edges.where
        )

    def _stated_count(self, name: str) -> int | None:
        """Return the number of nodes that the arrays of a type state. Raises SourceError if they disagree."""
        counts = {each.where: each.shape[0] for each in (self._features[name], self._labels[name]) if each is not None}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{where} {count}" for where, count in counts.items())
            raise SourceError(
                f"{self._root / name}: its arrays differ in the number of nodes ({listed}); make them agree"
            )
        return next(iter(counts.values()), None)


def _root(source: Path) -> Path:
    return source / "processed" if (source / "processed").is_dir() else source


def _relation(path: Path) -> _Relation:
    name = path.parent.name
    is_mag = "___" in name
    types = name.split("___" if is_mag else "__")
    if len(types) != 3 or not all(types):
        raise SourceError(f"{path.parent}: must have a name like paper__cites__paper; rename the folder")
    edges = file_array(path)
    # For shape (2, 2), only the naming scheme tells which it is.
    by_rows = edges.shape[1:] == (2,) and not (is_mag and edges.shape[0] == 2)
    edges.require("iu", (None, 2) if by_rows else (2, None))
    return _Relation(name, types[0], types[2], edges, by_rows)


def _features(path: Path) -> StoredArray | None:
    if not path.exists():
        return None
    features = file_array(path)
    check_features(features)
    return features


def _labels(folder: Path, wanted: str | None) -> Column | None:
    names = sorted(path.stem for path in folder.glob(_LABELS))
    chosen = names if wanted is None else [name for name in names if name == wanted]
    if len(chosen) > 1:
        raise SourceError(f"{folder}: has several files of labels; choose one: --label {' or --label '.join(names)}")
    if not chosen:
        return None
    labels = as_labels(file_array(folder / f"{chosen[0]}.npy"))
    count_tasks(labels)
    return labels


def _splits(folder: Path) -> dict[str, list[Column]]:
    """Find the ids of the nodes in each part of the split, if there are files of them."""
    found: dict[str, list[Column]] = {}
    for part, names in _PARTS.items():
        for name in names:
            path = folder / f"{name}_idx.npy"
            if path.exists():
                ids = file_array(path)
                ids.require("iu", (None,))
                found[part] = [ids]
    return found


TYPED_FOLDERS = SourceKind(
    name="npy-folders",
    looks_like="a folder of types and relations with node_feat.npy and edge_index.npy (MAG240M, IGB)",
    takes=(*OF_EDGES, *OF_FEATURES, "label"),
    detect=is_typed_folders,
    open=TypedFolders,
)
