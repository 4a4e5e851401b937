"""The manifest: the content of a dataset, with the length and checksum of each file.

`manifest.json` is canonical JSON: sorted keys and one spelling of each value, so that equal datasets have equal bytes.
Unknown keys are preserved. It contains no times, machine names or paths outside the dataset.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from diskhop.dataset.encoding import FEATURE_DTYPES, row_bytes
from diskhop.dataset.fields import FILE_NAME, TYPE_NAME, Fields
from diskhop.errors import FormatError
from diskhop.io.checksums import digest_bytes, num_blocks

# The types of a graph with one node type and one edge type.
NODE = "node"
EDGE = "edge"

MANIFEST_NAME = "manifest.json"
CHECKSUMS_NAME = "checksums.bin"
FORMAT_NAME = "diskhop dataset"
FORMAT_VERSION = 1
SPLIT_NAMES = ("train", "valid", "test")
TRIPLE_PARTS = (*SPLIT_NAMES, "all")

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
    """Labels: int64 classes, or float32 tasks.

    num_classes: number of classes; 0 for tasks.
    num_tasks: number of columns; 0 for classes.
    extra: unknown keys.
    """

    num_classes: int
    num_tasks: int
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def row_bytes(self) -> int:
        """Bytes of one node's label."""
        return 4 * self.num_tasks if self.num_tasks else 8

    def to_json(self) -> dict[str, Any]:
        """Return the JSON document of the manifest."""
        return {**self.extra, "num_classes": self.num_classes, "num_tasks": self.num_tasks}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeType:
    """Nodes of one type.

    count: number of nodes.
    order: "original" or "hot".
    features: feature table, if any.
    labels: labels, if any.
    splits: number of ids of each part, per split.
    original_ids: whether the ids of the source are stored.
    extra: unknown keys.
    """

    count: int
    order: str = "original"
    features: FeatureInfo | None = None
    labels: LabelInfo | None = None
    splits: tuple[Mapping[str, int], ...] = ()
    original_ids: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON document of the manifest."""
        document: dict[str, Any] = {**self.extra, "count": self.count, "order": self.order}
        if self.features is not None:
            document["features"] = self.features.to_json()
        if self.labels is not None:
            document["labels"] = self.labels.to_json()
        if self.splits:
            document["splits"] = [dict(split) for split in self.splits]
        if self.original_ids:
            document["original_ids"] = True
        return document


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeType:
    """Edges of one type in CSC: in-neighbour lists of the destination nodes.

    source: node type of the sources.
    destination: node type of the destinations.
    count: number of edges.
    index_dtype: dtype of source ids, uint32 or int64.
    edge_ids: whether the source's edge numbers are stored.
    weights: whether weights are stored.
    times: whether times are stored.
    extra: unknown keys.
    """

    source: str
    destination: str
    count: int
    index_dtype: str
    edge_ids: bool = False
    weights: bool = False
    times: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON document of the manifest."""
        document: dict[str, Any] = {
            **self.extra,
            "source": self.source,
            "destination": self.destination,
            "count": self.count,
            "index_dtype": self.index_dtype,
        }
        return document | {key: True for key in ("edge_ids", "weights", "times") if getattr(self, key)}


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
    extra: unknown keys.
    """

    name: str
    node_types: Mapping[str, NodeType]
    edge_types: Mapping[str, EdgeType]
    files: Mapping[str, FileEntry]
    checksums: FileEntry
    triples: Triples | None = None
    names: Mapping[str, int] = field(default_factory=dict)
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
        return document


def index_dtype(num_sources: int) -> str:
    """Return the dtype of `indices` for a number of source nodes."""
    return "uint32" if num_sources < 2**32 else "int64"


def split_file(node_type: str, split: str, number: int, num_splits: int) -> str:
    """Return the path of the ids of a split; it contains the number only if there are several splits."""
    suffix = f".{number}" if num_splits > 1 else ""
    return f"nodes/{node_type}/splits/{split}{suffix}.bin"


def parse_manifest(content: bytes, where: str) -> Manifest:
    """Parse and check manifest.json; `where` names it in errors. Raises FormatError if it is invalid."""
    if len(content) > MOST_MANIFEST_BYTES:
        raise FormatError(f"{where}: is longer than {MOST_MANIFEST_BYTES} bytes; import the graph again")
    try:
        document = json.loads(content, object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{where}: is not valid JSON ({error}); copy or import the dataset again") from None
    fields = Fields(document, where)
    if fields.value("format") != FORMAT_NAME:
        raise FormatError(f"{where}: is not the manifest of a diskhop dataset; choose the folder of a dataset")
    version = fields.integer("format_version", 1, MOST_COUNT)
    if version > FORMAT_VERSION:
        raise FormatError(
            f"{where}: made by a newer diskhop: format version {version}, this one reads {FORMAT_VERSION}; "
            "update diskhop"
        )
    try:
        manifest = _parse(fields)
        _check_files(manifest, where)
        if manifest.to_bytes() != content:
            raise FormatError(f"{where}: does not match its checksum; copy or import the dataset again")
    except RecursionError:
        raise FormatError(f"{where}: is nested too deeply; copy or import the dataset again") from None
    return manifest


def expected_files(manifest: Manifest) -> dict[str, int]:
    """Return all files that a manifest requires, with their lengths; -1 for any length."""
    lengths: dict[str, int] = {}
    for name, nodes in manifest.node_types.items():
        folder = f"nodes/{name}"
        if nodes.features is not None:
            lengths[f"{folder}/features.bin"] = nodes.count * nodes.features.row_stride
        if nodes.labels is not None:
            lengths[f"{folder}/labels.bin"] = nodes.count * nodes.labels.row_bytes
        if nodes.original_ids:
            lengths[f"{folder}/original_ids.bin"] = 8 * nodes.count
        for number, split in enumerate(nodes.splits):
            for part, count in split.items():
                lengths[split_file(name, part, number, len(nodes.splits))] = 8 * count
    for name, edges in manifest.edge_types.items():
        folder = f"edges/{name}"
        lengths[f"{folder}/indptr.bin"] = 8 * (manifest.node_types[edges.destination].count + 1)
        lengths[f"{folder}/indices.bin"] = (4 if edges.index_dtype == "uint32" else 8) * edges.count
        if edges.edge_ids:
            lengths[f"{folder}/edge_ids.bin"] = 8 * edges.count
        if edges.weights:
            lengths[f"{folder}/weights.bin"] = 4 * edges.count
        if edges.times:
            lengths[f"{folder}/times.bin"] = 8 * edges.count
    if manifest.triples is not None:
        for part, count in manifest.triples.parts.items():
            lengths[f"triples/{part}.bin"] = 24 * count
    for name in manifest.names:
        lengths[f"names/{name}.txt"] = -1
    return lengths


def _parse(fields: Fields) -> Manifest:
    fields.text("checksum")
    node_types = {name: _parse_nodes(entry) for name, entry in fields.items("node_types", TYPE_NAME)}
    if not node_types:
        raise fields.error("node_types", "must name at least one type", {})
    edge_types = {name: _parse_edges(entry, node_types) for name, entry in fields.items("edge_types", TYPE_NAME)}
    files = {path: _parse_file(entry) for path, entry in fields.items("files", FILE_NAME)}
    checksums = _parse_file(fields.child("checksums"))
    triples = _parse_triples(fields.child("triples"), node_types) if fields.has("triples") else None
    return Manifest(
        name=fields.text("name"),
        node_types=node_types,
        edge_types=edge_types,
        files=files,
        checksums=checksums,
        triples=triples,
        names=fields.counts("names", None, 0, MOST_COUNT) if fields.has("names") else {},
        extra=fields.unread(),
    )


def _parse_file(fields: Fields) -> FileEntry:
    entry = FileEntry(num_bytes=fields.integer("bytes", 0, 1 << 62), xxh3_64=fields.digest("xxh3_64"))
    fields.refuse_unread()
    return entry


def _parse_nodes(fields: Fields) -> NodeType:
    features = labels = None
    count = fields.integer("count", 0, MOST_COUNT)
    if fields.has("features"):
        table = fields.child("features")
        dtype = table.choice("dtype", FEATURE_DTYPES)
        dim = table.integer("dim", 1, MOST_COLUMNS)
        stride = table.integer("row_stride", row_bytes(dtype, dim), 1 << 28)
        features = FeatureInfo(dtype=dtype, dim=dim, row_stride=stride, extra=table.unread())
    if fields.has("labels"):
        column = fields.child("labels")
        num_classes = column.integer("num_classes", 0, MOST_CLASSES)
        num_tasks = column.integer("num_tasks", 0, MOST_COLUMNS if num_classes == 0 else 0)
        labels = LabelInfo(num_classes=num_classes, num_tasks=num_tasks, extra=column.unread())
    return NodeType(
        count=count,
        order=fields.choice("order", ("original", "hot")),
        features=features,
        labels=labels,
        splits=fields.list_of_counts("splits", SPLIT_NAMES, 1, count) if fields.has("splits") else (),
        original_ids=fields.flag("original_ids"),
        extra=fields.unread(),
    )


def _parse_edges(fields: Fields, node_types: Mapping[str, NodeType]) -> EdgeType:
    source = fields.choice("source", tuple(node_types))
    return EdgeType(
        source=source,
        destination=fields.choice("destination", tuple(node_types)),
        count=fields.integer("count", 0, MOST_COUNT),
        index_dtype=fields.choice("index_dtype", (index_dtype(node_types[source].count),)),
        edge_ids=fields.flag("edge_ids"),
        weights=fields.flag("weights"),
        times=fields.flag("times"),
        extra=fields.unread(),
    )


def _parse_triples(fields: Fields, node_types: Mapping[str, NodeType]) -> Triples:
    return Triples(
        node_type=fields.choice("node_type", tuple(node_types)),
        num_relations=fields.integer("num_relations", 1, MOST_COUNT),
        parts=fields.counts("parts", TRIPLE_PARTS, 1, MOST_COUNT),
        extra=fields.unread(),
    )


def _check_files(manifest: Manifest, where: str) -> None:
    for path in (MANIFEST_NAME, CHECKSUMS_NAME):
        if path in manifest.files:
            raise FormatError(f"{where}: lists '{path}', which cannot hold its own checksum; import the graph again")
    for path, num_bytes in expected_files(manifest).items():
        entry = manifest.files.get(path)
        if entry is None:
            raise FormatError(f"{where}: lists no file '{path}', which its types call for; import the graph again")
        if num_bytes not in (-1, entry.num_bytes):
            raise FormatError(
                f"{where}: lists '{path}' with {entry.num_bytes} bytes, its types call for {num_bytes}; "
                "import the graph again"
            )
    sums_bytes = 8 * sum(num_blocks(entry.num_bytes) for entry in manifest.files.values())
    if manifest.checksums.num_bytes != sums_bytes:
        raise FormatError(
            f"{where}: lists '{CHECKSUMS_NAME}' with {manifest.checksums.num_bytes} bytes, its files call for "
            f"{sums_bytes}; import the graph again"
        )


def _encode(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, sort_keys=True, indent=1, allow_nan=False) + "\n").encode("ascii")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key is repeated")
    return document


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")
