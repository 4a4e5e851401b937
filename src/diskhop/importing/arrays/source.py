"""Graphs in NumPy arrays: a folder with data.npz or .npy files, or a .npz file.

Arrays: `edge_index` (2, edges), sources then destinations; features `x` (nodes, dim), or sparse `x_indptr`,
`x_indices`, `x_data`, `x_shape`; labels `y`, classes as integers (nodes) or (nodes, 1), tasks (nodes, tasks) of 0, 1
and NaN, or values, floats (nodes) or (nodes, columns); splits `train_idx`, `val_idx`, `test_idx`, or `train_mask` and
so on (nodes), or `train_masks` and so on (splits, nodes); triples `train`, `valid`, `test`, or `triples` (triples, 3),
with names in `entities.txt.gz` and `relations.txt.gz` in the folder; `num_nodes`, `num_classes`, `num_entities`,
`num_relations`. `diskhop export` adds `edge_weight`, `edge_time` and `edge_ids` (edges), `original_ids` (nodes),
`nodes.txt.gz`, and `num_values` where labels are values. Attributes are `edge_attr` (edges, any shape), `node.NAME` and
`edge.NAME` for others, and an `x` of another shape than (nodes, dim).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from diskhop.dataset.edges import EdgeSource, highest_ids
from diskhop.dataset.manifest import EDGE, MOST_CLASSES, MOST_COLUMNS, MOST_COUNT, NODE, VALUES
from diskhop.dataset.sort.keys import RENUMBERING
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
from diskhop.importing.arrays.masks import MaskedIds
from diskhop.importing.arrays.npy import StoredArray, list_arrays
from diskhop.importing.arrays.sparse import SPARSE, SparseMatrix
from diskhop.importing.arrays.stored_ids import StoredIds
from diskhop.importing.columns import check_features, choose_labels, count_tasks, decide_labels
from diskhop.importing.estimate import Load
from diskhop.importing.evidence.decisions import Decision
from diskhop.importing.name_lists import name_lines
from diskhop.importing.named import attribute_of, own_attribute
from diskhop.importing.options import OF_EDGES, OF_FEATURES, OF_LABELS, ImportOptions
from diskhop.importing.source import (
    BY_EDGES,
    Column,
    NameList,
    SourceAttribute,
    SourceEdges,
    SourceGraph,
    SourceKind,
    SourceNodes,
    SourceTriples,
)
from diskhop.importing.tools import ImportLimits, ImportTools

_PARTS = {"train": "train", "val": "valid", "test": "test"}
_TRIPLES = {"train": "train", "valid": "valid", "test": "test", "triples": "all"}
# Lists of names, and the array that states their length.
_NAMED = {"nodes": "num_nodes", "entities": "num_entities", "relations": "num_relations"}
_SCALARS = {
    "num_nodes": (0, MOST_COUNT),
    "num_classes": (1, MOST_CLASSES),
    "num_values": (1, MOST_COLUMNS),
    "num_entities": (0, MOST_COUNT),
    "num_relations": (1, MOST_COUNT),
}
_OF_NODES, _OF_EDGES = "node.", "edge."
_KNOWN = (
    "edge_index",
    "edge_attr",
    "edge_weight",
    "edge_time",
    "edge_ids",
    "original_ids",
    "x",
    *SPARSE,
    "y",
    *(f"{part}_{kind}" for kind in ("idx", "mask", "masks") for part in _PARTS),
    *_TRIPLES,
    *_SCALARS,
)


def is_arrays(source: Path) -> bool:
    """Check whether a source looks like arrays of a graph."""
    if source.is_dir():
        return (source / "data.npz").exists() or any(source.glob("*.npy"))
    return source.suffix == ".npz"


class Arrays:
    """Source in NumPy arrays, whose shapes are checked against each other."""

    def __init__(self, source: Path, options: ImportOptions) -> None:
        self._source = source
        self._arrays = arrays = list_arrays(source)
        for key, array in arrays.items():
            if key not in _KNOWN and not key.startswith((_OF_NODES, _OF_EDGES)):
                raise SourceError(
                    f"{array.where}: is not an array that diskhop knows; remove it, or name it one of "
                    f"{', '.join(_KNOWN)}, or {_OF_NODES}NAME or {_OF_EDGES}NAME to keep it by its name"
                )
        self._scalars = {key: arrays[key].scalar(*limits) for key, limits in _SCALARS.items() if key in arrays}
        self._edges = self._shaped("edge_index", "iu", (2, None))
        found = {part: self._shaped(key, "iu", (None, 3)) for key, part in _TRIPLES.items()}
        self._triples = {part: array for part, array in found.items() if array is not None}
        if self._edges is None and not self._triples:
            raise SourceError(f"{source}: has neither edge_index nor triples; add edge_index (2, edges)")
        num_edges = 0 if self._edges is None else self._edges.shape[1]
        self._weights = self._shaped("edge_weight", "iuf", (num_edges,))
        self._times = self._shaped("edge_time", "iu", (num_edges,))
        self._edge_ids = self._shaped("edge_ids", "iu", (num_edges,))
        self._original_ids = self._shaped("original_ids", "iu", (None,))
        self._node_attributes: dict[str, SourceAttribute] = {}
        self._features = self._find_features()
        self._edge_attributes = self._find_edge_attributes(num_edges)
        self._labels: Column | None = arrays.get("y")
        if self._labels is not None:
            wanted = options.label_kind or (VALUES if "num_values" in arrays else None)
            self._labels = choose_labels(self._labels, wanted)
            count_tasks(self._labels)
        self.decisions: Sequence[Decision] = decide_labels(self._labels, options.label_kind)
        self._stated_nodes = self._find_num_nodes()
        self._splits = self._find_splits()

    @property
    def name(self) -> str:
        """See Source."""
        resolved = self._source.resolve()
        return resolved.name if resolved.is_dir() else resolved.stem

    def least_memory(self, limits: ImportLimits) -> Mapping[str, int]:
        """See Source."""
        return {}

    @property
    def load(self) -> Load:
        """See Source."""
        load = load_of_nodes(self._stated_nodes or 0, self._features, self._labels)
        for array in self._arrays.values():
            load += load_of_edges(array) if array is self._edges else load_of_array(array)
        triple_bytes = sum(24 * array.shape[0] for array in self._triples.values())
        load += load_of_edge_values(load.num_edges, self._weights, self._times) + Load(triple_bytes=triple_bytes)
        load += load_of_attributes(self._stated_nodes or 0, self._node_attributes)
        return load + load_of_edge_attributes(load.num_edges, self._edge_attributes)

    def read(self, work: ImportTools) -> SourceGraph:
        """See Source."""
        edges = {}
        if self._edges is not None:
            source = open_edges(self._edges, work)
            edges[EDGE] = SourceEdges(
                source=NODE,
                destination=NODE,
                edges=source,
                origin=self._edges.where,
                weights=self._weights,
                times=self._times,
                edge_ids=self._edge_ids,
                attributes=self._edge_attributes,
            )
        triples = SourceTriples(parts=self._triples, num_relations=self._scalars.get("num_relations"))
        nodes = SourceNodes(
            count=self._count_nodes(work, [each.edges for each in edges.values()]),
            features=self._features,
            labels=self._labels,
            num_classes=self._scalars.get("num_classes"),
            splits=self._splits,
            original=None if self._original_ids is None else StoredIds(self._original_ids, work.budget),
            attributes=self._node_attributes,
        )
        return SourceGraph(
            nodes={NODE: nodes}, edges=edges, triples=triples if self._triples else None, names=self._names()
        )

    def _count_nodes(self, work: ImportTools, edges: Sequence[EdgeSource]) -> int:
        """Return the number of nodes that the arrays state; else it is the highest id + 1."""
        if self._stated_nodes is not None:
            return self._stated_nodes
        if not self._triples:
            return BY_EDGES
        found = (max(highest_ids(each, work.budget, work.threads, work.progress)) for each in edges)
        highest = max(found, default=-1)
        for triples in self._triples.values():
            highest = max(highest, *(int(block[:, [0, 2]].max()) for block in triples.blocks()), -1)
        if highest >= MOST_COUNT:
            raise SourceError(
                f"{self._source}: id {highest} is out of range: ids must be less than {MOST_COUNT}; {RENUMBERING}"
            )
        return highest + 1

    def _names(self) -> dict[str, NameList]:
        """Find the lists of names in the folder."""
        names = {}
        for what, key in _NAMED.items():
            path = self._source / f"{what}.txt.gz"
            if self._source.is_dir() and path.exists() and key in self._scalars:
                count = self._scalars[key]
                names[what] = NameList(count=count, lines=partial(name_lines, path, count))
        return names

    def _shaped(self, key: str, kinds: str, shape: tuple[int | None, ...]) -> StoredArray | None:
        array = self._arrays.get(key)
        if array is not None:
            array.require(kinds, shape)
        return array

    def _find_features(self) -> Column | None:
        dense = self._arrays.get("x")
        parts = [self._arrays[key] for key in SPARSE if key in self._arrays]
        if dense is not None and parts:
            raise SourceError(f"{self._source}: has both x and {parts[0].where}; keep one")
        if dense is not None and len(dense.shape) not in (0, 2):
            self._node_attributes["x"] = own_attribute(dense)
            return None
        if dense is not None:
            check_features(dense)
            return dense
        if parts and len(parts) < len(SPARSE):
            raise SourceError(f"{parts[0].where}: sparse features need all of {', '.join(SPARSE)}; give them all")
        return SparseMatrix(*parts) if parts else None

    def _find_edge_attributes(self, num_edges: int) -> dict[str, SourceAttribute]:
        found = {}
        for key, array in self._arrays.items():
            if key != "edge_attr" and not key.startswith(_OF_EDGES):
                continue
            name = key.removeprefix(_OF_EDGES)
            found[name] = attribute_of(array, name)
            if array.shape[0] != num_edges:
                raise SourceError(
                    f"{array.where}: must have a row for each of {num_edges} edges, got shape {array.shape}; give one "
                    "per edge"
                )
        return found

    def _find_num_nodes(self) -> int | None:
        """Return the number of nodes that the arrays state; None: none does. Raises SourceError if they disagree."""
        counts: dict[str, int] = {
            key: self._scalars[key] for key in ("num_nodes", "num_entities") if key in self._scalars
        }
        if self._features is not None:
            counts["x_shape" if isinstance(self._features, SparseMatrix) else "x"] = self._features.shape[0]
        elif "x" in self._node_attributes:
            counts["x"] = self._arrays["x"].shape[0]
        for key, array in self._arrays.items():
            if key.startswith(_OF_NODES):
                name = key.removeprefix(_OF_NODES)
                self._node_attributes[name] = attribute_of(array, name)
                counts[key] = array.shape[0]
        if self._original_ids is not None:
            counts["original_ids"] = self._original_ids.shape[0]
        if self._labels is not None:
            counts["y"] = self._labels.shape[0]
        for part in _PARTS:
            for masks in (self._shaped(f"{part}_mask", "b", (None,)), self._shaped(f"{part}_masks", "b", (None, None))):
                if masks is None:
                    continue
                if masks.shape[:-1] == (0,):
                    raise SourceError(
                        f"{masks.where}: has no splits (shape {masks.shape}); give at least one, or remove it"
                    )
                counts[f"{part} masks"] = masks.shape[-1]
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{key} {count}" for key, count in counts.items())
            raise SourceError(f"{self._source}: its arrays differ in the number of nodes ({listed}); make them agree")
        return next(iter(counts.values()), None)

    def _find_splits(self) -> dict[str, list[Column]]:
        splits: dict[str, list[Column]] = {}
        for key, part in _PARTS.items():
            ids = self._shaped(f"{key}_idx", "iu", (None,))
            given = [each for each in (ids, *(self._arrays.get(f"{key}_{kind}") for kind in ("mask", "masks"))) if each]
            if len(given) > 1:
                raise SourceError(f"{given[0].where}: there is {given[1].where} too; keep one")
            if given and given[0].dtype.kind != "b":
                splits[part] = [given[0]]
            elif given:
                num_splits = 1 if len(given[0].shape) == 1 else given[0].shape[0]
                splits[part] = [MaskedIds(given[0], number) for number in range(num_splits)]
        return splits


ARRAYS = SourceKind(
    name="numpy",
    looks_like="a folder with data.npz or .npy files, or a .npz file",
    takes=(*OF_EDGES, *OF_FEATURES, *OF_LABELS),
    detect=is_arrays,
    open=Arrays,
)
