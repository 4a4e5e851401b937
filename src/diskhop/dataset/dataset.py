"""An open dataset. Features and topology stay on disk; labels and splits are read on request.

Users give and get ids of the source: node_ids(), split(). Arrays of nodes, such as labels() and masks, are in the order
of node_ids(). Methods whose names end on `_rows` are for inner code: row i of every table is one node. IdMap converts
between ids and rows.

Content is stored per type: `dataset.nodes["paper"]`, `dataset.edges["cites"]`. The properties of the dataset itself are
those of its only node type and its only edge type.
"""

from __future__ import annotations

import reprlib
import shlex
from collections.abc import Mapping
from copy import copy
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.edge_set import EdgeSet, TopologyFiles
from diskhop.dataset.files import SMALL_FILE_BYTES, check_length, dataset_files, read_manifest, read_whole
from diskhop.dataset.id_map import IdMap, positions_of_ids
from diskhop.dataset.made_features import MadeFeatures, made_features
from diskhop.dataset.manifest import SPLIT_NAMES, Manifest, NodeType, split_file
from diskhop.errors import ConfigError, FormatError
from diskhop.protocols import NodeRows, SourceIds, Table

# Types that errors list.
_SHOWN_TYPES = 5


class NodeSet:
    """Nodes of one type."""

    def __init__(self, dataset: Dataset, name: str, info: NodeType) -> None:
        self._dataset = dataset
        self._folder = f"nodes/{name}"
        self._info = info
        self.name = name

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self._info.count

    @property
    def order(self) -> str:
        """Order of the nodes: original or hot (dataset/sort/hot_order.py)."""
        return self._info.order

    @property
    def has_labels(self) -> bool:
        """Whether the nodes have classes or tasks."""
        return self._info.labels is not None

    @property
    def num_classes(self) -> int:
        """Number of classes; 0 without labels and for tasks."""
        return self._info.labels.num_classes if self._info.labels else 0

    @property
    def num_tasks(self) -> int:
        """Number of columns of float labels; 0 without them."""
        return self._info.labels.num_tasks if self._info.labels else 0

    @property
    def feature_dim(self) -> int:
        """Number of values per feature row; 0 without features."""
        return self._info.features.dim if self._info.features else 0

    @property
    def feature_dtype(self) -> str:
        """Dtype of features: float32, float16, bfloat16 or int8; '' without features."""
        return self._info.features.dtype if self._info.features else ""

    @property
    def num_splits(self) -> int:
        """Number of splits into train, valid and test."""
        return len(self._info.splits)

    def features(self) -> Table | None:
        """Return the location of the feature rows, None without features."""
        info = self._info.features
        if info is None:
            return None
        return Table(
            path=self._dataset.path / self._folder / "features.bin",
            num_rows=self.num_nodes,
            row_bytes=info.row_bytes,
            row_stride=info.row_stride,
        )

    def label_rows(self) -> NDArray[Any] | None:
        """Read labels by row: classes, int64 (nodes), -1 for none, or tasks, float32 (nodes, tasks), NaN for none."""
        if self._info.labels is None:
            return None
        if self.num_tasks:
            return self._dataset.read_array(f"{self._folder}/labels.bin", np.float32).reshape(-1, self.num_tasks)
        return self._dataset.read_numbers(f"{self._folder}/labels.bin", -1, self.num_classes, "class")

    def split_rows(self, name: str, number: int | None = None) -> NodeRows | None:
        """Read a part of a split like Dataset.split(), as rows."""
        if name not in SPLIT_NAMES:
            raise ConfigError(f"split '{name}' is unknown; choose one of {', '.join(SPLIT_NAMES)}")
        if number is None:
            if self.num_splits > 1:
                raise ConfigError(
                    f"{self._dataset.path}: has {self.num_splits} splits; choose one from 0 to {self.num_splits - 1}"
                )
            number = 0
        elif not 0 <= number < max(1, self.num_splits):
            known = f"the last is {self.num_splits - 1}" if self.num_splits else "it has no splits"
            raise ConfigError(f"{self._dataset.path}: has no split {number}; {known}")
        if not self._info.splits or name not in self._info.splits[number]:
            return None
        relative = split_file(self.name, name, number, self.num_splits)
        return NodeRows(self._dataset.read_numbers(relative, 0, self.num_nodes, "node"))

    def original_ids(self) -> NDArray[np.int64] | None:
        """Read the source id of each row; None if ids are rows. IdMap converts with them."""
        if not self._info.original_ids:
            return None
        return self._dataset.read_array(f"{self._folder}/original_ids.bin", np.int64)

    @property
    def has_original_ids(self) -> bool:
        """Whether ids are stored, since they are not the rows."""
        return self._info.original_ids

    def id_map(self) -> IdMap:
        """Read what converts between source ids, positions in the source, and rows."""
        id_of_row = self.original_ids()

        def positions() -> NDArray[np.int64] | None:
            if self._info.positions:
                return self._dataset.read_numbers(f"{self._folder}/positions.bin", 0, self.num_nodes, "position")
            return None if self.order != "hot" or id_of_row is None else positions_of_ids(id_of_row)

        return IdMap(self._dataset.path, self.num_nodes, id_of_row, positions)

    def node_ids(self) -> SourceIds:
        """Return the source ids of all nodes, in the order of the source's arrays, rows of its table, or ids."""
        return self.id_map().all_ids()

    def labels(self) -> NDArray[Any] | None:
        """Read the labels in the order of node_ids(): classes, -1 for none, or tasks (nodes, tasks), NaN for none."""
        by_row = self.label_rows()
        return by_row if by_row is None or self.order != "hot" else self.id_map().in_source_order(by_row)

    def split(self, name: str, number: int | None = None) -> SourceIds | None:
        """Read the source ids of a part (train, valid, test) of a split, in its order; None if missing.

        number: index of the split, required if there are several.
        """
        rows = self.split_rows(name, number)
        return None if rows is None else self.id_map().ids(rows)


class Dataset:
    """A dataset, complete when it was opened. Thread-safe."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self.hash = manifest.checksum
        self.made_features = MadeFeatures()
        self.nodes: Mapping[str, NodeSet] = {
            name: NodeSet(self, name, info) for name, info in manifest.node_types.items()
        }
        self.edges: Mapping[str, EdgeSet] = {
            name: EdgeSet(path, name, info, self.nodes[info.destination].num_nodes)
            for name, info in manifest.edge_types.items()
        }

    def __repr__(self) -> str:
        counts = [f"{name}: {nodes.num_nodes:,} nodes" for name, nodes in self.nodes.items()]
        counts += [f"{name}: {edges.num_edges:,} edges" for name, edges in self.edges.items()]
        return f"Dataset({str(self.path)!r}, {', '.join(counts)})"

    def with_made_features(self, kind: str, seed: int = 0) -> Dataset:
        """Return the same dataset with features of another kind (made_features.py) that stand in for missing ones.

        Raises ConfigError if the dataset has features, for an unknown kind, and for too many nodes.
        """
        if self.features() is not None:
            raise ConfigError(
                f"{self.path}: has features ({self.feature_dim} columns), and features '{kind}' stand in for missing "
                f"ones; leave '{kind}' out"
            )
        other = copy(self)
        other.made_features = made_features(kind, self.path, self.num_nodes, seed)
        return other

    @property
    def name(self) -> str:
        """Name of the graph."""
        return self.manifest.name

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the only node type."""
        return self._only_nodes.num_nodes

    @property
    def num_edges(self) -> int:
        """Number of edges of the only edge type; 0 for a graph with triples only."""
        return self._only_edges.num_edges if self.edges else 0

    @property
    def num_classes(self) -> int:
        """See NodeSet."""
        return self._only_nodes.num_classes

    @property
    def num_tasks(self) -> int:
        """See NodeSet."""
        return self._only_nodes.num_tasks

    @property
    def feature_dim(self) -> int:
        """See NodeSet."""
        return self._only_nodes.feature_dim

    @property
    def feature_dtype(self) -> str:
        """See NodeSet."""
        return self._only_nodes.feature_dtype

    @property
    def order(self) -> str:
        """See NodeSet."""
        return self._only_nodes.order

    @property
    def num_splits(self) -> int:
        """See NodeSet."""
        return self._only_nodes.num_splits

    @property
    def topology(self) -> TopologyFiles:
        """See EdgeSet."""
        return self._only_edges.topology

    def features(self) -> Table | None:
        """See NodeSet."""
        return self._only_nodes.features()

    @property
    def has_original_ids(self) -> bool:
        """See NodeSet."""
        return self._only_nodes.has_original_ids

    def id_map(self) -> IdMap:
        """See NodeSet."""
        return self._only_nodes.id_map()

    def node_ids(self) -> SourceIds:
        """See NodeSet."""
        return self._only_nodes.node_ids()

    def labels(self) -> NDArray[Any] | None:
        """See NodeSet."""
        return self._only_nodes.labels()

    def split(self, name: str, number: int | None = None) -> SourceIds | None:
        """See NodeSet."""
        return self._only_nodes.split(name, number)

    def label_rows(self) -> NDArray[Any] | None:
        """See NodeSet."""
        return self._only_nodes.label_rows()

    def split_rows(self, name: str, number: int | None = None) -> NodeRows | None:
        """See NodeSet."""
        return self._only_nodes.split_rows(name, number)

    def original_ids(self) -> NDArray[np.int64] | None:
        """See NodeSet."""
        return self._only_nodes.original_ids()

    def edge_ids(self) -> NDArray[Any] | None:
        """See EdgeSet."""
        return self._only_edges.edge_ids()

    def edge_weights(self) -> NDArray[np.float32] | None:
        """See EdgeSet."""
        return self._only_edges.edge_weights()

    def edge_times(self) -> NDArray[np.int64] | None:
        """See EdgeSet."""
        return self._only_edges.edge_times()

    def triples(self, part: str) -> NDArray[np.int64] | None:
        """Read the (source, relation, destination) rows of a part: train, valid, test, or all; None if missing."""
        if self.manifest.triples is None or part not in self.manifest.triples.parts:
            return None
        return self.read_array(f"triples/{part}.bin", np.int64).reshape(-1, 3)

    @property
    def num_relations(self) -> int:
        """Number of relations of the triples; 0 without triples."""
        return self.manifest.triples.num_relations if self.manifest.triples else 0

    def names(self, what: str) -> list[str] | None:
        """Read the names of "nodes", "entities" or "relations", indexed by source id; None if missing."""
        if what not in self.manifest.names:
            return None
        relative = f"names/{what}.txt"
        try:
            return self.read_array(relative, np.uint8).tobytes().decode("utf-8").split("\n")[:-1]
        except UnicodeDecodeError:
            raise FormatError(f"{self.path / relative}: is not UTF-8; import the graph again") from None

    def read_array(self, relative: str, dtype: Any) -> NDArray[Any]:
        """Read one file of the dataset, checked against its checksum."""
        return read_whole(self.path / relative, self.manifest.files[relative]).view(dtype)

    def read_numbers(self, relative: str, least: int, limit: int, what: str) -> NDArray[np.int64]:
        """Read a file of numbers, which must be in [least, limit): a checksum does not prove that they are valid."""
        numbers = self.read_array(relative, np.int64)
        for number in (numbers.min(initial=least), numbers.max(initial=least)):
            if not least <= number < limit:
                raise FormatError(
                    f"{self.path / relative}: has {what} {number}, must be from {least} to {limit - 1}; "
                    "import the graph again"
                )
        return numbers

    @property
    def _only_nodes(self) -> NodeSet:
        if len(self.nodes) != 1:
            raise self._several_types("node", list(self.nodes))
        return next(iter(self.nodes.values()))

    @property
    def _only_edges(self) -> EdgeSet:
        if not self.edges:
            raise ConfigError(
                f"{self.path}: has no edge lists, only triples; choose a graph that was imported with edges"
            )
        if len(self.edges) != 1:
            raise self._several_types("edge", list(self.edges))
        return next(iter(self.edges.values()))

    def _several_types(self, what: str, names: list[str]) -> ConfigError:
        more = f" and {len(names) - _SHOWN_TYPES} more" if len(names) > _SHOWN_TYPES else ""
        return ConfigError(
            f"{self.path}: has {len(names)} {what} types, {', '.join(names[:_SHOWN_TYPES])}{more}, and only graphs of "
            f"one node type and one edge type can be used here; import one type alone, and see them with: "
            f"diskhop inspect {shlex.quote(str(self.path))}"
        )


def as_dataset(data: Dataset | PathLike[str] | str) -> Dataset:
    """Return a dataset as it is, or open the one at a path; see open_dataset()."""
    return data if isinstance(data, Dataset) else open_dataset(data)


def open_dataset(path: PathLike[str] | str) -> Dataset:
    """Open a dataset. Checks the manifest, the length of every file, and the content of files under 64 MiB.

    Raises ConfigError for what is no path, FormatError for a folder that is not a dataset, has a newer format, or is
    incomplete or damaged.
    """
    _require_path(path)
    folder = Path(path)
    manifest = read_manifest(folder)
    for relative, entry in dataset_files(manifest):
        if entry.num_bytes < SMALL_FILE_BYTES:
            read_whole(folder / relative, entry)
        else:
            check_length(folder / relative, entry.num_bytes)
    return Dataset(folder, manifest)


def _require_path(path: Any) -> None:
    if isinstance(path, str | PathLike):
        return
    kind = type(path)
    # Not isinstance: PyTorch Geometric takes seconds to import.
    if kind.__module__.startswith("torch_geometric."):
        raise ConfigError(
            f"the dataset must be a Dataset or its folder, got a {kind.__name__} in memory; "
            "import it with dataset = diskhop.from_pyg(data, 'my-graph'), and pass the dataset"
        )
    raise ConfigError(
        f"the dataset must be a Dataset or the path of its folder, got {reprlib.repr(path)}; "
        "pass diskhop.open_dataset('my-graph')"
    )
