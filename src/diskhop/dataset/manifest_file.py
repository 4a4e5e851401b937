"""Parsing and checking manifest.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from diskhop.dataset.adj_info import parse_adj_t
from diskhop.dataset.attribute_info import attribute_file, parse_attributes, require_columns
from diskhop.dataset.encoding import FEATURE_DTYPES, row_bytes
from diskhop.dataset.fields import FILE_NAME, TYPE_NAME, Fields
from diskhop.dataset.manifest import (
    CHECKSUMS_NAME,
    FORMAT_NAME,
    FORMAT_VERSION,
    MANIFEST_NAME,
    MOST_CLASSES,
    MOST_COLUMNS,
    MOST_COUNT,
    MOST_MANIFEST_BYTES,
    SPLIT_NAMES,
    TRIPLE_PARTS,
    EdgeType,
    FeatureInfo,
    FileEntry,
    LabelInfo,
    Manifest,
    NodeType,
    Triples,
    index_dtype,
    split_file,
)
from diskhop.errors import FormatError
from diskhop.io.checksums import num_blocks


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
        if nodes.positions:
            lengths[f"{folder}/positions.bin"] = 8 * nodes.count
        for number, split in enumerate(nodes.splits):
            for part, count in split.items():
                lengths[split_file(name, part, number, len(nodes.splits))] = 8 * count
        for key, attribute in nodes.attributes.items():
            if not attribute.stored_as:
                lengths[attribute_file(folder, key)] = nodes.count * attribute.row_bytes
    for name, edges in manifest.edge_types.items():
        folder = f"edges/{name}"
        lengths[f"{folder}/indptr.bin"] = 8 * (manifest.node_types[edges.destination].count + 1)
        lengths[f"{folder}/indices.bin"] = (4 if edges.index_dtype == "uint32" else 8) * edges.count
        if edges.edge_id_dtype:
            lengths[f"{folder}/edge_ids.bin"] = np.dtype(edges.edge_id_dtype).itemsize * edges.count
        if edges.weights:
            lengths[f"{folder}/weights.bin"] = 4 * edges.count
        if edges.times:
            lengths[f"{folder}/times.bin"] = 8 * edges.count
        for key, attribute in edges.attributes.items():
            if not attribute.stored_as:
                lengths[attribute_file(folder, key)] = edges.count * attribute.row_bytes
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
        generation=fields.integer("generation", 2, MOST_COUNT) if fields.has("generation") else 1,
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
        are_values = num_tasks > 0 and column.flag("values")
        labels = LabelInfo(num_classes=num_classes, num_tasks=num_tasks, are_values=are_values, extra=column.unread())
    nodes = NodeType(
        count=count,
        order=fields.choice("order", ("original", "hot")),
        features=features,
        labels=labels,
        splits=fields.list_of_counts("splits", SPLIT_NAMES, 1, count) if fields.has("splits") else (),
        original_ids=fields.flag("original_ids"),
        positions=fields.flag("positions"),
        states_count=fields.flag("states_count"),
        attributes=parse_attributes(fields),
        extra=fields.unread(),
    )
    require_columns(nodes.attributes, nodes.columns, fields)
    return nodes


def _parse_edge_ids(fields: Fields) -> str:
    """Return the dtype of edge numbers, which is stored as true for int64; "" if there are none."""
    value = fields.value("edge_ids")
    if fields.has("edge_ids") and value not in (True, "uint32"):
        raise fields.error("edge_ids", "must be true, uint32 or absent", value)
    return "int64" if value is True else value or ""


def _parse_edges(fields: Fields, node_types: Mapping[str, NodeType]) -> EdgeType:
    source = fields.choice("source", tuple(node_types))
    edges = EdgeType(
        source=source,
        destination=fields.choice("destination", tuple(node_types)),
        count=fields.integer("count", 0, MOST_COUNT),
        index_dtype=fields.choice("index_dtype", (index_dtype(node_types[source].count),)),
        edge_id_dtype=_parse_edge_ids(fields),
        weights=fields.flag("weights"),
        times=fields.flag("times"),
        both_ways=fields.flag("both_ways"),
        without_loops=fields.flag("without_loops"),
        without_repeats=fields.flag("without_repeats"),
        adj_t=parse_adj_t(fields),
        attributes=parse_attributes(fields),
        extra=fields.unread(),
    )
    require_columns(edges.attributes, edges.columns, fields)
    return edges


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


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key is repeated")
    return document


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")
