"""Graphs in NumPy arrays: a folder with data.npz or .npy files, or a .npz file.

Arrays: `edge_index` (2, edges), sources then destinations; features `x` (nodes, dim), or sparse `x_indptr`,
`x_indices`, `x_data`, `x_shape`; labels `y`, classes as integers (nodes) or (nodes, 1), or tasks (nodes, tasks) of 0, 1
and NaN; splits `train_idx`, `val_idx`, `test_idx`, or `train_mask` and so on (nodes), or `train_masks` and so on
(splits, nodes); triples `train`, `valid`, `test`, or `triples` (triples, 3), with names in `entities.txt.gz` and
`relations.txt.gz` beside them; `num_nodes`, `num_classes`, `num_entities`, `num_relations`.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.dataset.builder import DatasetBuilder
from diskhop.dataset.checks import SPLIT_HELD_AS, split_bytes
from diskhop.dataset.convert.file_edges import open_edges
from diskhop.dataset.convert.npy import StoredArray, list_arrays, source_errors
from diskhop.dataset.convert.sparse import SparseMatrix
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edges import ArrayEdges, EdgeSource, highest_id
from diskhop.dataset.encoding import check_feature_dtype, row_bytes
from diskhop.dataset.manifest import MOST_CLASSES, MOST_COLUMNS, MOST_COUNT
from diskhop.dataset.progress import Progress, row_ranges, silent, tracked
from diskhop.errors import SourceError
from diskhop.io.atomic import Injector
from diskhop.tasks import Tools, WorkFolder

NODE = "node"
EDGE = "edge"

_PARTS = {"train": "train", "val": "valid", "test": "test"}
_SPARSE = ("x_indptr", "x_indices", "x_data", "x_shape")
_TRIPLES = {"train": "train", "valid": "valid", "test": "test", "triples": "all"}
_SCALARS = {
    "num_nodes": (0, MOST_COUNT),
    "num_classes": (1, MOST_CLASSES),
    "num_entities": (0, MOST_COUNT),
    "num_relations": (1, MOST_COUNT),
}
_KNOWN = (
    "edge_index",
    "x",
    *_SPARSE,
    "y",
    *(f"{part}_{kind}" for kind in ("idx", "mask", "masks") for part in _PARTS),
    *_TRIPLES,
    *_SCALARS,
)
_ITEMS_AT_ONCE = 1 << 19


def is_arrays(source: Path) -> bool:
    """Whether import_arrays knows what to do with a source."""
    if source.is_dir():
        return (source / "data.npz").exists() or any(source.glob("*.npy"))
    return source.suffix == ".npz"


def import_arrays(
    source: Path,
    destination: Path,
    *,
    name: str | None = None,
    feature_dtype: str | None = None,
    engine: Engine,
    budget: Budget,
    threads: int,
    injector: Injector | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Make a dataset of arrays. Features keep float16 and float32, all else becomes float32, unless feature_dtype says.

    Raises SourceError for anything that breaks a rule; nothing is then left at the destination.
    """
    if feature_dtype is not None:
        check_feature_dtype(feature_dtype)
    resolved = source.resolve()
    builder = DatasetBuilder(
        destination,
        name=name or (resolved.name if resolved.is_dir() else resolved.stem),
        engine=engine,
        budget=budget,
        threads=threads,
        origin=str(source),
        injector=injector,
        progress=progress,
    )
    with contextlib.ExitStack() as opened:
        graph = _GraphArrays(source, list_arrays(source, opened))
        opened.enter_context(builder)
        graph.open_edges(builder.work, Tools(engine, injector), budget, opened)
        num_nodes = graph.count_nodes(budget, threads)
        builder.add_nodes(NODE, num_nodes)
        if graph.has_splits:
            budget.require({SPLIT_HELD_AS: split_bytes(num_nodes)})
        builder.require_space(graph.estimate_bytes(feature_dtype))
        graph.write(builder, feature_dtype, progress or silent)
        graph.write_names(builder, opened)
        return builder.finish()


class _GraphArrays:
    """The arrays of one source, checked against each other by shape before anything is written."""

    def __init__(self, source: Path, arrays: dict[str, StoredArray]) -> None:
        self._source = source
        self._arrays = arrays
        for key, array in arrays.items():
            if key not in _KNOWN:
                raise SourceError(
                    f"{array.where}: is not an array that diskhop knows; leave it out, or name it one of "
                    f"{', '.join(_KNOWN)}"
                )
        self._scalars = {key: arrays[key].scalar(*limits) for key, limits in _SCALARS.items() if key in arrays}
        self._edges = self._shaped("edge_index", "iu", (2, None))
        found = {part: self._shaped(key, "iu", (None, 3)) for key, part in _TRIPLES.items()}
        self._triples = {part: array for part, array in found.items() if array is not None}
        if self._edges is None and not self._triples:
            raise SourceError(f"{source}: has neither edge_index nor triples; give a graph's edges")
        self._features = self._find_features()
        self._labels = arrays.get("y")
        self._num_tasks = 0 if self._labels is None else _count_tasks(self._labels)
        self._told_nodes = self._find_num_nodes()
        self.num_nodes = self._told_nodes or 0
        self._splits = self._find_splits()
        self._edge_source: EdgeSource = ArrayEdges(np.zeros((2, 0), np.int64))

    @property
    def has_splits(self) -> bool:
        """Whether any of the arrays is a part of a split."""
        return bool(self._splits)

    def open_edges(self, work: WorkFolder, tools: Tools, budget: Budget, opened: contextlib.ExitStack) -> None:
        """Make the edges readable, until `opened` closes."""
        if self._edges is not None:
            self._edge_source = open_edges(self._edges, work, tools, budget, opened)

    def count_nodes(self, budget: Budget, threads: int) -> int:
        """Set the number of nodes to what the arrays tell; where none does, to the highest id + 1."""
        if self._told_nodes is None:
            highest = highest_id(self._edge_source, budget, threads)
            for triples in self._triples.values():
                highest = max(highest, *(int(block[:, [0, 2]].max()) for block in triples.blocks()), -1)
            if highest >= MOST_COUNT:
                raise SourceError(
                    f"{self._source}: id {highest} is out of range: ids must be less than {MOST_COUNT}; "
                    "number the nodes from 0"
                )
            self.num_nodes = highest + 1
        return self.num_nodes

    def estimate_bytes(self, feature_dtype: str | None) -> int:
        """About what the dataset takes on disk."""
        num_bytes = 8 * (self.num_nodes + 1)
        if self._features is not None:
            num_bytes += self.num_nodes * row_bytes(self._feature_dtype(feature_dtype), self._dim())
        others = [self._edges, self._labels, *self._triples.values()]
        return num_bytes + sum(8 * array.num_items for array in others if array is not None)

    def write(self, builder: DatasetBuilder, feature_dtype: str | None, progress: Progress) -> None:
        """Bring everything to the builder."""
        if self._edges is not None:
            builder.add_edge_list(EDGE, NODE, NODE, self._edge_source, origin=self._edges.where)
        if self._features is not None:
            blocks = tracked(self._features.blocks(), progress, "features", self.num_nodes)
            builder.add_features(NODE, blocks, dim=self._dim(), dtype=self._feature_dtype(feature_dtype))
        if self._labels is not None:
            # Booleans as numbers: they are compared with -1.
            numbers = (block.view(np.uint8) if block.dtype == np.bool_ else block for block in self._labels.blocks())
            if self._num_tasks:
                builder.add_tasks(NODE, numbers, self._num_tasks)
            else:
                classes = (block.reshape(-1) for block in numbers)
                builder.add_labels(NODE, classes, self._scalars.get("num_classes"))
        for part, array in self._splits.items():
            self._write_split(builder, part, array)
        for part, array in self._triples.items():
            blocks = tracked(array.blocks(), progress, f"triples {part}", array.shape[0])
            builder.add_triples(NODE, part, blocks, self._scalars.get("num_relations"))

    def write_names(self, builder: DatasetBuilder, opened: contextlib.ExitStack) -> None:
        """Bring what is called by name in files beside the arrays, which `opened` closes."""
        for what, key in (("entities", "num_entities"), ("relations", "num_relations")):
            path = self._source / f"{what}.txt.gz"
            if self._source.is_dir() and path.exists() and key in self._scalars:
                with source_errors(str(path)):
                    file = opened.enter_context(gzip.GzipFile(path))
                count = self._scalars[key]
                builder.add_names(what, _name_blocks(file, str(path), count), count)

    def _shaped(self, key: str, kinds: str, shape: tuple[int | None, ...]) -> StoredArray | None:
        array = self._arrays.get(key)
        if array is None:
            return None
        fits = len(array.shape) == len(shape) and all(
            wanted in (None, length) for wanted, length in zip(shape, array.shape, strict=True)
        )
        # An empty list of edges is float64 unless one takes care, and harmless.
        if not fits or (array.dtype.kind not in kinds and array.num_items > 0):
            wanted_shape = ", ".join("any" if wanted is None else str(wanted) for wanted in shape)
            wanted_kind = "booleans" if kinds == "b" else "integers"
            raise SourceError(
                f"{array.where}: must be {wanted_kind} of shape ({wanted_shape}), "
                f"got shape {array.shape} of {array.dtype}"
            )
        return array

    def _find_features(self) -> StoredArray | SparseMatrix | None:
        dense = self._arrays.get("x")
        parts = [self._arrays[key] for key in _SPARSE if key in self._arrays]
        if dense is not None and parts:
            raise SourceError(f"{self._source}: has both x and {parts[0].where}; keep one")
        if dense is not None:
            if len(dense.shape) != 2 or not 1 <= dense.shape[1] <= MOST_COLUMNS:
                raise SourceError(
                    f"{dense.where}: must be (nodes, dim) with dim from 1 to {MOST_COLUMNS}, got shape {dense.shape}"
                )
            return dense
        if parts and len(parts) < len(_SPARSE):
            raise SourceError(f"{parts[0].where}: sparse features need all of {', '.join(_SPARSE)}; give them all")
        return SparseMatrix(*parts) if parts else None

    def _find_num_nodes(self) -> int | None:
        """What the arrays agree on; None where none says."""
        counts: dict[str, int] = {
            key: self._scalars[key] for key in ("num_nodes", "num_entities") if key in self._scalars
        }
        if isinstance(self._features, SparseMatrix):
            counts["x_shape"] = self._features.num_rows
        elif self._features is not None:
            counts["x"] = self._features.shape[0]
        if self._labels is not None:
            counts["y"] = self._labels.shape[0]
        for part in _PARTS:
            for masks in (self._shaped(f"{part}_mask", "b", (None,)), self._shaped(f"{part}_masks", "b", (None, None))):
                if masks is None:
                    continue
                if masks.shape[:-1] == (0,):
                    raise SourceError(
                        f"{masks.where}: has no splits (shape {masks.shape}); give at least one or leave it out"
                    )
                counts[f"{part} masks"] = masks.shape[-1]
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{key} {count}" for key, count in counts.items())
            raise SourceError(f"{self._source}: its arrays differ in the number of nodes ({told}); make them agree")
        return next(iter(counts.values()), None)

    def _find_splits(self) -> dict[str, StoredArray]:
        splits = {}
        for key, part in _PARTS.items():
            ids = self._shaped(f"{key}_idx", "iu", (None,))
            given = [each for each in (ids, *(self._arrays.get(f"{key}_{kind}") for kind in ("mask", "masks"))) if each]
            if len(given) > 1:
                raise SourceError(f"{given[0].where}: there is {given[1].where} too; keep one")
            if given:
                splits[part] = given[0]
        return splits

    def _dim(self) -> int:
        features = self._features
        assert features is not None
        return features.num_columns if isinstance(features, SparseMatrix) else features.shape[1]

    def _feature_dtype(self, wanted: str | None) -> str:
        features = self._features
        assert features is not None
        return wanted or ("float16" if features.dtype.kind == "f" and features.dtype.itemsize == 2 else "float32")

    def _write_split(self, builder: DatasetBuilder, part: str, array: StoredArray) -> None:
        if array.dtype.kind != "b":
            builder.add_split(NODE, part, array.blocks())
            return
        is_one = len(array.shape) == 1
        num_splits, num_nodes = (1, array.shape[0]) if is_one else array.shape
        with array.open() as stream:
            for number in range(num_splits):
                ids = (
                    np.flatnonzero(stream.take(stop - start)) + start
                    for start, stop in row_ranges(num_nodes, _ITEMS_AT_ONCE)
                )
                builder.add_split(NODE, part, ids, number, num_splits)
            stream.finish()


def _count_tasks(labels: StoredArray) -> int:
    """Columns of tasks; 0 for classes, which OGB stores as integers (nodes, 1)."""
    is_float = labels.dtype.kind == "f"
    if not is_float and labels.shape[1:] in ((), (1,)) and labels.shape:
        return 0
    if len(labels.shape) != 2 or not 1 <= labels.shape[1] <= MOST_COLUMNS:
        raise SourceError(
            f"{labels.where}: must be classes, integers of shape (nodes) or (nodes, 1), or tasks of shape "
            f"(nodes, 1 to {MOST_COLUMNS}), got shape {labels.shape} of {labels.dtype}"
        )
    return labels.shape[1]


def _name_blocks(file: gzip.GzipFile, where: str, count: int) -> Iterator[NDArray[np.uint8]]:
    """The content of a list of names, which must be `count` lines of UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    num_lines = 0
    last = b"\n"
    while True:
        with source_errors(where):
            block = file.read(1 << 20)
            decoder.decode(block, final=not block)
        if not block:
            break
        num_lines += block.count(b"\n")
        last = block[-1:]
        yield np.frombuffer(block, np.uint8)
    if last != b"\n":
        num_lines += 1
        yield np.frombuffer(b"\n", np.uint8)
    if num_lines != count:
        raise SourceError(f"{where}: has {num_lines} names for {count} ids; give one line for each")
