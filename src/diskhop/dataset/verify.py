"""Verification of every byte of a dataset, and a description of its content."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from diskhop.dataset.attribute_info import AttributeInfo
from diskhop.dataset.damage import Damage, verify_file
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edge_set import EdgeSet
from diskhop.dataset.files import (
    dataset_files,
    drop_cached_pages,
    read_blocks,
    read_manifest,
    read_whole,
    require_inside,
)
from diskhop.dataset.manifest import CHECKSUMS_NAME, SPLIT_NAMES, content_folder
from diskhop.dataset.node_set import NodeSet
from diskhop.dataset.statistics.labels import LabelBalance, count_labels
from diskhop.errors import FormatError, ReadError
from diskhop.io.checksums import num_blocks
from diskhop.runtime.progress import Progress, silent

_MOST_CLASSES_SHOWN = 64


def verify(path: str | Path, progress: Progress | None = None) -> list[Damage]:
    """Read every byte from disk and return the damaged blocks. Raises FormatError if the manifest is invalid."""
    manifest = read_manifest(Path(path))
    folder = content_folder(Path(path), manifest.generation)
    require_inside(Path(path), folder, manifest)
    drop_cached_pages(folder / CHECKSUMS_NAME)
    try:
        sums = read_whole(folder / CHECKSUMS_NAME, manifest.checksums).view(np.uint64)
    except (FormatError, ReadError):
        sums = None
    total_bytes = sum(entry.num_bytes for _, entry in dataset_files(manifest))
    damages: list[Damage] = []
    done_bytes = first_block = 0
    for relative, entry in dataset_files(manifest):
        if relative == CHECKSUMS_NAME:
            if sums is None:
                damages.append(Damage(relative, 0, entry.num_bytes, "does not match its checksum"))
        else:
            last_block = first_block + num_blocks(entry.num_bytes)
            wanted = None if sums is None else sums[first_block:last_block]
            damages += verify_file(folder, relative, entry, wanted)
            first_block = last_block
        done_bytes += entry.num_bytes
        (progress or silent)("verify", done_bytes, total_bytes)
    return damages


def describe(dataset: Dataset) -> dict[str, Any]:
    """Describe the content of a dataset as plain data: counts, degrees, dtypes, splits, labels and files."""
    manifest = dataset.manifest
    description: dict[str, Any] = {
        "name": dataset.name,
        "path": str(dataset.path),
        "hash": dataset.hash,
        "bytes": sum(entry.num_bytes for _, entry in dataset_files(manifest)),
        "nodes": {name: _describe_nodes(nodes) for name, nodes in dataset.nodes.items()},
        "edges": {name: _describe_edges(edges) for name, edges in dataset.edges.items()},
    }
    if dataset.is_typed:
        description["schema"] = {
            "nodes": list(dataset.nodes),
            "edges": [
                dict(zip(("source", "relation", "destination"), edges.ends, strict=True))
                | {"name": name, "count": edges.num_edges}
                for name, edges in dataset.edges.items()
            ],
        }
    if manifest.generation > 1:
        description["generation"] = manifest.generation
    if manifest.triples is not None:
        triples = manifest.triples
        description["triples"] = {"relations": triples.num_relations, **triples.parts}
    if manifest.names:
        description["names"] = dict(manifest.names)
    description["files"] = {relative: entry.num_bytes for relative, entry in dataset_files(manifest)}
    return description


def _describe_nodes(nodes: NodeSet) -> dict[str, Any]:
    description: dict[str, Any] = {"count": nodes.num_nodes, "order": nodes.order}
    table = nodes.feature_table()
    if table is not None:
        description["features"] = {
            "dtype": nodes.feature_dtype,
            "dim": nodes.feature_dim,
            "row_bytes": table.row_bytes,
            "row_stride": table.row_stride,
            "bytes": table.num_rows * table.row_stride,
        }
    description |= _describe_attributes(nodes.attributes)
    labels = count_labels(nodes)
    if labels is not None:
        description["labels"] = _describe_labels(nodes, labels)
    if nodes.num_splits:
        # Read, not taken from the manifest: rows out of range are found here.
        description["splits"] = [
            {part: len(rows) for part in SPLIT_NAMES if (rows := nodes.split_rows(part, number)) is not None}
            for number in range(nodes.num_splits)
        ]
    return description


def _describe_labels(nodes: NodeSet, labels: LabelBalance) -> dict[str, Any]:
    if nodes.num_tasks:
        return {nodes.label_kind: nodes.num_tasks, "labelled": labels.num_labelled}
    description = {"classes": nodes.num_classes, "labelled": labels.num_labelled}
    if nodes.num_classes <= _MOST_CLASSES_SHOWN:
        return description | {"nodes_by_class": labels.by_class.tolist()}
    return description


def _describe_edges(edges: EdgeSet) -> dict[str, Any]:
    topology = edges.topology
    highest = isolated = 0
    last = np.zeros(1, np.int64)
    for block in read_blocks(topology.indptr_path):
        starts = block.view(np.int64)
        degrees = np.diff(starts, prepend=last)
        highest = max(highest, int(degrees.max(initial=0)))
        isolated += int(np.count_nonzero(degrees == 0))
        last = starts[-1:].copy()
    # The first entry, 0, is the start of the first list, not a degree: it counts as isolated above.
    return {
        "source": edges.source,
        "destination": edges.destination,
        "count": edges.num_edges,
        "index_dtype": topology.index_dtype.name,
        "mean_in_degree": edges.num_edges / max(1, topology.num_nodes),
        "max_in_degree": highest,
        "without_in_edges": isolated - 1,
        "edge_ids": edges.edge_ids() is not None,
        "weights": edges.edge_weights() is not None,
        "times": edges.edge_times() is not None,
        **_describe_attributes(edges.attributes),
    }


def _describe_attributes(attributes: Mapping[str, AttributeInfo]) -> dict[str, Any]:
    """Describe the attributes that have values of their own."""
    own = {
        name: {"dtype": info.dtype, "shape": list(info.shape)}
        for name, info in attributes.items()
        if not info.stored_as
    }
    return {"attributes": own} if own else {}
