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
from dataclasses import replace
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.arrow import arrow_reader
from diskhop.dataset.edge_set import ClusterFiles, EdgeSet, TopologyFiles
from diskhop.dataset.feature_rows import FeatureRows
from diskhop.dataset.files import (
    SMALL_FILE_BYTES,
    StoredArrays,
    check_length,
    dataset_files,
    read_manifest,
    read_whole,
    require_inside,
)
from diskhop.dataset.id_map import IdMap
from diskhop.dataset.made_features import MadeFeatures, made_features
from diskhop.dataset.manifest import EDGE, NODE, FileEntry, Manifest, content_folder
from diskhop.dataset.name_lines import name_of
from diskhop.dataset.node_set import NodeSet, group_of
from diskhop.dataset.shown import dataset_parts
from diskhop.dataset.type_map import TypeMap
from diskhop.display import html_of
from diskhop.errors import ConfigError, FormatError
from diskhop.protocols import NodeRows, SourceIds, Table

if TYPE_CHECKING:
    from pyarrow import RecordBatchReader

# Types that errors list.
_SHOWN_TYPES = 5


class Dataset:
    """A dataset, complete when it was opened. Thread-safe.

    path: the dataset. content: folder of its files; it differs from path after an update.

    >>> dataset = diskhop.open_dataset("my-graph")
    >>> dataset.num_nodes, dataset.num_edges, dataset.feature_dim, dataset.num_classes
    (600, 4800, 16, 4)
    >>> dataset.features[[7, 3]].shape  # reads two rows
    (2, 16)
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self.content = content_folder(path, manifest.generation)
        self.hash = manifest.checksum
        self.made_features = MadeFeatures()
        self.clusters: ClusterFiles | None = None
        self._merged: TopologyFiles | None = None
        self._arrays = StoredArrays(self.content, manifest)
        self.nodes: Mapping[str, NodeSet] = {
            name: NodeSet(self._arrays, name, info) for name, info in manifest.node_types.items()
        }
        self.edges: Mapping[str, EdgeSet] = {
            name: EdgeSet(self._arrays, name, info, self.nodes[info.source], self.nodes[info.destination])
            for name, info in manifest.edge_types.items()
        }

    def __repr__(self) -> str:
        counts = [f"{name}: {nodes.num_nodes:,} nodes" for name, nodes in self.nodes.items()]
        counts += [f"{name}: {edges.num_edges:,} edges" for name, edges in self.edges.items()]
        return f"Dataset({str(self.path)!r}, {', '.join(counts)})"

    def __copy__(self) -> Self:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled dataset, which must still be there. Raises FormatError if it was replaced.

        An update leaves the files of earlier generations to their readers.
        """
        self.__dict__.update(state)
        found, wanted = read_manifest(self.path), self.manifest
        if found.checksum != wanted.checksum and found.generation <= wanted.generation:
            raise FormatError(
                f"{self.path}: was replaced since the Dataset was pickled: its hash was {wanted.checksum} and is "
                f"{found.checksum}; open it again with diskhop.open_dataset({str(self.path)!r})"
            )

    def _repr_html_(self) -> str:
        return html_of(f"Dataset {self.name}", dataset_parts(self.manifest, str(self.path)))

    def with_made_features(self, kind: str, seed: int = 0) -> Dataset:
        """Return the same dataset with features of another kind (made_features.py) that stand in for missing ones.

        Raises ConfigError if the dataset has features, for an unknown kind, and for too many nodes.
        """
        if self.feature_table() is not None:
            raise ConfigError(
                f"{self.path}: has features ({self.feature_dim} columns), and features '{kind}' stand in for missing "
                f"ones; remove features='{kind}'"
            )
        other = copy(self)
        other.made_features = made_features(kind, self.path, self.num_nodes, seed)
        return other

    def with_rows(self, table: Table, dim: int) -> Dataset:
        """Return the same dataset with other features: float32 rows (nodes, dim) in a file outside of it."""
        other = copy(self)
        other.nodes = {name: nodes.with_rows(table, dim) for name, nodes in self.nodes.items()}
        return other

    def with_edges(self, folder: Path, num_edges: int, files: Mapping[str, FileEntry], hash: str) -> Dataset:
        """Return the same dataset with some of the edges of its only type, in a folder outside of it.

        The folder has lists and weights in the layout of a dataset, and no other columns. hash: what stands for the
        content, in files that are derived from it.
        """
        (name,) = self.edges
        other, info = copy(self), self.manifest.edge_types[name]
        attributes = {each: kept for each, kept in info.attributes.items() if kept.stored_as == "weights"}
        info = replace(info, count=num_edges, edge_id_dtype="", times=False, attributes=attributes)
        arrays = StoredArrays(folder, replace(self.manifest, files=files))
        other.edges = {name: EdgeSet(arrays, name, info, self.only_nodes, self.only_nodes)}
        other.hash = hash
        return other

    def with_merged_types(self, lists: TopologyFiles, key: str) -> Dataset:
        """Return the same dataset as one graph of all types, whose rows, lists and edges are merged (type_map.py).

        lists: the merged lists, with their types. key: what stands for the content, in files that are derived from it.
        """
        other = copy(self)
        other._merged, other.hash = lists, key
        return other

    def with_clusters(self, clusters: ClusterFiles) -> Dataset:
        """Return the same dataset with clusters of its nodes, for samplers that need some."""
        other = copy(self)
        other.clusters = clusters
        return other

    def without_features(self) -> Dataset:
        """Return the same dataset without features."""
        other = copy(self)
        other.nodes = {name: nodes.without_features() for name, nodes in self.nodes.items()}
        return other

    def of_node_type(self, name: str) -> Dataset:
        """Return the nodes of one type alone, without edges."""
        other = self.with_nodes({name: self.nodes[name]})
        other.edges, other._merged = {}, None
        return other

    def with_nodes(self, nodes: Mapping[str, NodeSet]) -> Dataset:
        """Return the same dataset with other values of its nodes."""
        other = copy(self)
        other.nodes = nodes
        return other

    @property
    def has_several_types(self) -> bool:
        """Whether there are several types of nodes or of edges."""
        return len(self.nodes) > 1 or len(self.edges) > 1

    @property
    def is_typed(self) -> bool:
        """Whether nodes and edges have types of their own, as in PyG's HeteroData."""
        return {*self.nodes} != {NODE} or not {*self.edges} <= {EDGE}

    @property
    def name(self) -> str:
        """Name of the graph."""
        return self.manifest.name

    @property
    def types(self) -> TypeMap | None:
        """The types of a graph whose types are merged; None for others."""
        return None if self._merged is None else self._merged.types

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the only node type, or of all merged types."""
        return self.only_nodes.num_nodes if self.types is None else self.types.total_nodes

    @property
    def num_edges(self) -> int:
        """Number of edges of the only edge type, or of all merged types; 0 for a graph with triples only."""
        if self.types is not None:
            return self.types.num_edges
        return self.only_edges.num_edges if self.edges else 0

    @property
    def num_classes(self) -> int:
        """See NodeSet."""
        return self.only_nodes.num_classes

    @property
    def num_tasks(self) -> int:
        """See NodeSet."""
        return self.only_nodes.num_tasks

    @property
    def label_kind(self) -> str:
        """See NodeSet."""
        return self.only_nodes.label_kind

    @property
    def num_outputs(self) -> int:
        """See NodeSet."""
        return self.only_nodes.num_outputs

    @property
    def feature_dim(self) -> int:
        """See NodeSet."""
        return self.only_nodes.feature_dim

    @property
    def feature_dtype(self) -> str:
        """See NodeSet."""
        return self.only_nodes.feature_dtype

    @property
    def order(self) -> str:
        """See NodeSet; of a graph whose types are merged, 'original'."""
        return self.only_nodes.order if self.types is None else "original"

    @property
    def num_splits(self) -> int:
        """See NodeSet."""
        return self.only_nodes.num_splits

    @property
    def topology(self) -> TopologyFiles:
        """See EdgeSet, or the merged lists; with the clusters of nodes, if there are some."""
        return replace(self._merged or self.only_edges.topology, clusters=self.clusters)

    def feature_table(self) -> Table | None:
        """See NodeSet; of a graph whose types are merged, a TableGroup of the types with features."""
        return self.only_nodes.feature_table() if self.types is None else group_of(self.nodes, self.types)

    @property
    def has_original_ids(self) -> bool:
        """See NodeSet."""
        return self.only_nodes.has_original_ids

    def id_map(self) -> IdMap:
        """See NodeSet."""
        return self.only_nodes.id_map()

    def node_ids(self) -> SourceIds:
        """See NodeSet."""
        return self.only_nodes.node_ids()

    @property
    def features(self) -> FeatureRows | None:
        """See NodeSet."""
        return self.only_nodes.features

    @property
    def labels(self) -> NDArray[Any] | None:
        """See NodeSet."""
        return self.only_nodes.labels

    @property
    def splits(self) -> Mapping[str, SourceIds]:
        """See NodeSet."""
        return self.only_nodes.splits

    @property
    def degrees(self) -> NDArray[np.int64]:
        """See EdgeSet."""
        return self.only_edges.degrees

    def neighbors(self, node: int) -> SourceIds:
        """See EdgeSet."""
        return self.only_edges.neighbors(node)

    def to_arrow(self, what: str, name: str | None = None) -> RecordBatchReader:
        """Stream the nodes or the edges as Arrow record batches, within 64 MB or so.

        Polars, DuckDB and pandas read the stream; read_all() makes it a table.

        what: 'nodes', with id, feature, label, split and attributes; or 'edges', with source, destination, weight,
            time and attributes. Missing labels are null; a node without a split has an empty one.
        name: type of the nodes or edges, of a graph with several.
        """
        return arrow_reader(self, what, name)

    def to_pyg(self, memory: int | str | None = None) -> Any:
        """Read the whole graph into memory, as a Data of PyTorch Geometric, or a HeteroData of one with several types.

        Node i is node_ids()[i]; where ids are others than 0, 1, ... these are its n_id.

        memory: bytes or a size such as '2GB' that it may take; default: half of the free memory. Raises BudgetError
            with what it takes.
        """
        # By name, since PyTorch is used only above: it takes seconds to load.
        return import_module("diskhop.loaders.in_memory").to_pyg(self, memory)

    def split(self, name: str, number: int | None = None) -> SourceIds | None:
        """See NodeSet."""
        return self.only_nodes.split(name, number)

    def label_rows(self) -> NDArray[Any] | None:
        """See NodeSet."""
        return self.only_nodes.label_rows()

    def split_rows(self, name: str, number: int | None = None) -> NodeRows | None:
        """See NodeSet."""
        return self.only_nodes.split_rows(name, number)

    def original_ids(self) -> NDArray[np.int64] | None:
        """See NodeSet."""
        return self.only_nodes.original_ids()

    def edge_ids(self) -> NDArray[Any] | None:
        """See EdgeSet."""
        return self.only_edges.edge_ids()

    def edge_weights(self) -> NDArray[np.float32] | None:
        """See EdgeSet."""
        return self.only_edges.edge_weights()

    def edge_times(self) -> NDArray[np.int64] | None:
        """See EdgeSet."""
        return self.only_edges.edge_times()

    def triples(self, part: str) -> NDArray[np.int64] | None:
        """Read the triples of a part (train, valid, test, or all), (triples, 3); None if missing.

        Columns: source id of the head, relation, source id of the tail.
        """
        if self.manifest.triples is None or part not in self.manifest.triples.parts:
            return None
        triples: NDArray[np.int64] = self._arrays.read(f"triples/{part}.bin", np.int64).reshape(-1, 3)
        nodes = self.nodes[self.manifest.triples.node_type]
        if not nodes.has_original_ids:
            return triples
        head, relation, tail = triples.T
        ids = nodes.id_map()
        return np.stack([ids.ids(NodeRows(head)), relation, ids.ids(NodeRows(tail))], axis=1)

    @property
    def num_relations(self) -> int:
        """Number of relations of the triples; 0 without triples."""
        return self.manifest.triples.num_relations if self.manifest.triples else 0

    def names(self, what: str, node_type: str | None = None) -> list[str] | None:
        """Read the names of "nodes", "entities", "relations" or "classes", indexed by source id; None if missing.

        node_type: of the nodes, or of those that the classes are of, in a graph with several types.
        """
        relative = self.names_file(what, node_type)
        if relative is None:
            return None
        try:
            lines = self._arrays.read(relative, np.uint8).tobytes().decode("utf-8").split("\n")[:-1]
            return list(map(name_of, lines))
        except ValueError:
            raise FormatError(
                f"{self.content / relative}: is not UTF-8 text of names; import the graph again"
            ) from None

    def names_file(self, what: str, node_type: str | None = None) -> str | None:
        """Return the file of names below `content`; see names()."""
        if node_type is None and len(self.nodes) == 1:
            (node_type,) = self.nodes
        found = next((name for name in (f"{what}.{node_type}", what) if name in self.manifest.names), None)
        return None if found is None else f"names/{found}.txt"

    @property
    def only_nodes(self) -> NodeSet:
        """The nodes of a graph with one type of nodes. Raises ConfigError for other graphs."""
        if len(self.nodes) != 1:
            raise self._several_types("node", list(self.nodes))
        return next(iter(self.nodes.values()))

    @property
    def only_edges(self) -> EdgeSet:
        """The edges of a graph with one type of edges. Raises ConfigError for other graphs."""
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

    Raises ConfigError for what is no path, FormatError for a folder that is not a dataset, has a newer format, is
    incomplete or damaged, or has symbolic links to files outside of it.

    >>> diskhop.open_dataset("my-graph").num_nodes
    600
    """
    _require_path(path)
    folder = Path(path)
    manifest = read_manifest(folder)
    content = content_folder(folder, manifest.generation)
    require_inside(folder, content, manifest)
    for relative, entry in dataset_files(manifest):
        if entry.num_bytes < SMALL_FILE_BYTES:
            read_whole(content / relative, entry)
        else:
            check_length(content / relative, entry.num_bytes)
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
