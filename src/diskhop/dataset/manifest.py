"""The manifest: the content of a dataset, with the length and checksum of each file.

`manifest.json` is canonical JSON: sorted keys and one spelling of each value, so that equal datasets have equal bytes.
Unknown keys are preserved. It contains no times, machine names or paths outside the dataset.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from diskhop.dataset.adj_info import AdjInfo
from diskhop.dataset.attribute_info import AttributeInfo, attributes_json
from diskhop.dataset.encoding import row_bytes
from diskhop.io.checksums import FileSums, digest_bytes

# The types of a graph with one node type and one edge type.
NODE = "node"
EDGE = "edge"

MANIFEST_NAME = "manifest.json"
CHECKSUMS_NAME = "checksums.bin"
FORMAT_NAME = "diskhop dataset"
FORMAT_VERSION = 1
SPLIT_NAMES = ("train", "valid", "test")
TRIPLE_PARTS = (*SPLIT_NAMES, "all")
# A class per node, columns of 0 and 1, or columns of any numbers.
CLASSES, TASKS, VALUES = LABEL_KINDS = ("classes", "tasks", "values")

# Counts stay far below 2^63, so that sums and products do not overflow int64 in NumPy or the core.
MOST_COUNT = 1 << 48
MOST_CLASSES = 1 << 31
MOST_COLUMNS = 1 << 24
MOST_MANIFEST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One file of the dataset.

    num_bytes: length.
    xxh3_64: checksum, 16 hex digits (see FileSums.digest).
    """

    num_bytes: int
    xxh3_64: str

    @classmethod
    def of(cls, sums: FileSums) -> Self:
        """Return the entry of a file with these checksums."""
        return cls(num_bytes=sums.num_bytes, xxh3_64=f"{sums.digest:016x}")

    def to_json(self) -> dict[str, Any]:
        """Return the JSON document of the manifest."""
        return {"bytes": self.num_bytes, "xxh3_64": self.xxh3_64}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureInfo:
    """A feature table.

    dtype: float32, float16, bfloat16 or int8.
    dim: values per row.
    row_stride: distance of consecutive rows in bytes; row i begins at i * row_stride.
    extra: unknown keys.
    """

    dtype: str
    dim: int
    row_stride: int
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row without padding."""
        return row_bytes(self.dtype, self.dim)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON document of the manifest."""
        return {**self.extra, "dtype": self.dtype, "dim": self.dim, "row_stride": self.row_stride}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelInfo:
    """Labels: int64 classes, float32 tasks of 0 and 1, or float32 values.

    num_classes: number of classes; 0 for tasks and values.
    num_tasks: number of columns of tasks or values; 0 for classes.
    are_values: whether columns have any finite numbers, not 0 and 1 alone.
    extra: unknown keys.
    """

    num_classes: int
    num_tasks: int
    are_values: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def row_bytes(self) -> int:
        """Bytes of one node's label."""
        return 4 * self.num_tasks if self.num_tasks else 8

    @property
    def kind(self) -> str:
        """One of LABEL_KINDS."""
        return CLASSES if not self.num_tasks else VALUES if self.are_values else TASKS

    def to_json(self) -> dict[str, Any]:
        """Return the JSON document of the manifest."""
        counts = {**self.extra, "num_classes": self.num_classes, "num_tasks": self.num_tasks}
        return counts | ({"values": True} if self.are_values else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeType:
    """Nodes of one type.

    count: number of nodes.
    order: "original" or "hot".
    features: feature table, if any.
    labels: labels, if any.
    splits: number of ids of each part, per split.
    original_ids: whether the ids of the source are stored.
    positions: whether the positions in the source are stored.
    states_count: whether the source has the number of nodes as a value of its own, as batches then have.
    attributes: attributes by name.
    extra: unknown keys.
    """

    count: int
    order: str = "original"
    features: FeatureInfo | None = None
    labels: LabelInfo | None = None
    splits: tuple[Mapping[str, int], ...] = ()
    original_ids: bool = False
    positions: bool = False
    states_count: bool = False
    attributes: Mapping[str, AttributeInfo] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def columns(self) -> dict[str, int]:
        """Values per node of each column that attributes can be stored as."""
        columns = {}
        if self.features is not None:
            columns["features"] = self.features.dim
        if self.labels is not None:
            columns["labels"] = self.labels.num_tasks or 1
        return columns

    def to_json(self) -> dict[str, Any]:
        """Return the JSON document of the manifest."""
        document: dict[str, Any] = {**self.extra, "count": self.count, "order": self.order}
        if self.features is not None:
            document["features"] = self.features.to_json()
        if self.labels is not None:
            document["labels"] = self.labels.to_json()
        if self.splits:
            document["splits"] = [dict(split) for split in self.splits]
        document |= attributes_json(self.attributes)
        return document | {key: True for key in ("original_ids", "positions", "states_count") if getattr(self, key)}


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeType:
    """Edges of one type in CSC: in-neighbour lists of the destination nodes.

    source: node type of the sources.
    destination: node type of the destinations.
    count: number of edges.
    index_dtype: dtype of source ids, uint32 or int64.
    edge_id_dtype: dtype of the source's edge numbers, uint32 or int64; "" if they are not stored.
    weights: whether weights are stored.
    times: whether times are stored.
    both_ways: whether every edge of the source is stored in both directions.
    without_loops, without_repeats: whether loops and repeated edges were left out.
    adj_t: the sparse matrix that the source has them as, as batches then have; None: pairs of ids.
    attributes: attributes by name.
    extra: unknown keys.
    """

    source: str
    destination: str
    count: int
    index_dtype: str
    edge_id_dtype: str = ""
    weights: bool = False
    times: bool = False
    both_ways: bool = False
    without_loops: bool = False
    without_repeats: bool = False
    adj_t: AdjInfo | None = None
    attributes: Mapping[str, AttributeInfo] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def columns(self) -> dict[str, int]:
        """Values per edge of each column that attributes can be stored as."""
        return {column: 1 for column in ("weights", "times") if getattr(self, column)}

    def to_json(self) -> dict[str, Any]:
        """Return the JSON document of the manifest."""
        document: dict[str, Any] = {
            **self.extra,
            "source": self.source,
            "destination": self.destination,
            "count": self.count,
            "index_dtype": self.index_dtype,
        }
        if self.edge_id_dtype:
            document["edge_ids"] = True if self.edge_id_dtype == "int64" else self.edge_id_dtype
        if self.adj_t is not None:
            document["adj_t"] = self.adj_t.to_json()
        document |= attributes_json(self.attributes)
        flags = ("weights", "times", "both_ways", "without_loops", "without_repeats")
        return document | {key: True for key in flags if getattr(self, key)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Triples:
    """A multi-relation graph of (source, relation, destination) triples.

    node_type: type of the nodes.
    num_relations: number of relations.
    parts: number of triples of train, valid and test, or of all in an unsplit graph.
    extra: unknown keys.
    """

    node_type: str
    num_relations: int
    parts: Mapping[str, int]
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON document of the manifest."""
        return {
            **self.extra,
            "node_type": self.node_type,
            "num_relations": self.num_relations,
            "parts": dict(self.parts),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of manifest.json.

    name: name of the graph.
    node_types: nodes by type.
    edge_types: edges by type.
    files: files by relative path.
    checksums: entry of checksums.bin.
    triples: triples, if any.
    names: length of each list of names.
    generation: 1 for a dataset as imported, 1 more after each update; its files are in content_folder().
    extra: unknown keys.
    """

    name: str
    node_types: Mapping[str, NodeType]
    edge_types: Mapping[str, EdgeType]
    files: Mapping[str, FileEntry]
    checksums: FileEntry
    triples: Triples | None = None
    names: Mapping[str, int] = field(default_factory=dict)
    generation: int = 1
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the content of manifest.json."""
        return _encode({**self._to_json(), "checksum": self.checksum})

    @property
    def checksum(self) -> str:
        """Checksum (xxh3_64) of the canonical manifest without this key."""
        return f"{digest_bytes(_encode(self._to_json())):016x}"

    def _to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            **self.extra,
            "format": FORMAT_NAME,
            "format_version": FORMAT_VERSION,
            "name": self.name,
            "node_types": {name: nodes.to_json() for name, nodes in self.node_types.items()},
            "edge_types": {name: edges.to_json() for name, edges in self.edge_types.items()},
            "files": {path: entry.to_json() for path, entry in self.files.items()},
            "checksums": self.checksums.to_json(),
        }
        if self.triples is not None:
            document["triples"] = self.triples.to_json()
        if self.names:
            document["names"] = dict(self.names)
        if self.generation > 1:
            document["generation"] = self.generation
        return document


def content_folder(path: Path, generation: int) -> Path:
    """Return the folder of the files of a generation: the first one's lie in the dataset itself."""
    return path if generation == 1 else path / f"generation-{generation}"


def index_dtype(num_sources: int) -> str:
    """Return the dtype of `indices` for a number of source nodes."""
    return "uint32" if num_sources < 2**32 else "int64"


def edge_id_dtype(num_edges: int) -> str:
    """Return the dtype of edge numbers for a number of edges of the source."""
    return "uint32" if num_edges < 2**32 else "int64"


def split_file(node_type: str, split: str, number: int, num_splits: int) -> str:
    """Return the path of the ids of a split; it contains the number only if there are several splits."""
    suffix = f".{number}" if num_splits > 1 else ""
    return f"nodes/{node_type}/splits/{split}{suffix}.bin"


def _encode(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, sort_keys=True, indent=1, allow_nan=False) + "\n").encode("ascii")
