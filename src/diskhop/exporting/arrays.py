"""Exports datasets as folders of .npy files, which `diskhop import` reads (importing/arrays/source lists them)."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.build.files import DatasetFiles
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.files import read_rows
from diskhop.dataset.manifest import SPLIT_NAMES, VALUES
from diskhop.errors import ConfigError
from diskhop.exporting.columns import EdgeColumns, NodeColumns, export_dtype
from diskhop.exporting.npy_files import write_names, write_npy, write_number
from diskhop.runtime.work_tools import WorkTools

_PARTS = dict(zip(SPLIT_NAMES, ("train", "val", "test"), strict=True))


def export_arrays(dataset: Dataset, files: DatasetFiles, work: WorkTools) -> None:
    """See export_dataset. One split is written as lists of ids, several as masks."""
    nodes, edges = only_types(dataset, "numpy", work)
    write_number(files, "num_nodes.npy", nodes.count)
    if nodes.original is not None:
        write_npy(files, "original_ids.npy", np.int64, (nodes.count,), nodes.original_blocks())
    if nodes.nodes.feature_dim:
        write_npy(files, "x.npy", nodes.feature_dtype, (nodes.count, nodes.nodes.feature_dim), nodes.features())
    _write_attributes(nodes, "node", nodes.count, files)
    _write_labels(nodes, files)
    _write_splits(nodes, files, work)
    if edges is not None:
        ends = chain(edges.column("source"), edges.column("destination"))
        write_npy(files, "edge_index.npy", np.int64, (2, edges.count), ends)
        for name in ("weight", "time"):
            if name in edges.dtypes:
                write_npy(files, f"edge_{name}.npy", edges.dtypes[name], (edges.count,), edges.column(name))
        _write_attributes(edges, "edge", edges.count, files)
        if "edge_id" in edges.dtypes:
            write_npy(files, "edge_ids.npy", np.int64, (edges.count,), edges.column("edge_id"))
    _write_triples(dataset, nodes, files)
    for what in dataset.manifest.names:
        write_names(files, f"{what}.txt.gz", dataset.content / f"names/{what}.txt")


def only_types(dataset: Dataset, format_name: str, work: WorkTools) -> tuple[NodeColumns, EdgeColumns | None]:
    """Open the nodes and the edges, if any, of a graph with one type of each. Raises ConfigError for other graphs."""
    if len(dataset.nodes) > 1 or len(dataset.edges) > 1:
        raise ConfigError(
            f"{dataset.path}: has {len(dataset.nodes)} types of nodes and {len(dataset.edges)} of edges, and format "
            f"'{format_name}' stores one of each; use --format graphbolt or --format tables"
        )
    (node_type,) = dataset.nodes
    nodes = NodeColumns(dataset, node_type, work)
    edges = [EdgeColumns(dataset, edge_type, nodes, nodes, work) for edge_type in dataset.edges]
    return nodes, edges[0] if edges else None


def _write_attributes(columns: NodeColumns | EdgeColumns, kind: str, count: int, files: DatasetFiles) -> None:
    for name, info in columns.attributes().items():
        path = "x.npy" if (kind, name) == ("node", "x") and len(info.shape) != 1 else f"{kind}.{name}.npy"
        write_npy(files, path, export_dtype(info), (count, *info.shape), columns.attribute(name))


def _write_labels(nodes: NodeColumns, files: DatasetFiles) -> None:
    info = nodes.nodes
    if info.num_tasks:
        write_npy(files, "y.npy", np.float32, (nodes.count, info.num_tasks), nodes.labels())
        if info.label_kind == VALUES:
            write_number(files, "num_values.npy", info.num_tasks)
    elif info.has_labels:
        write_npy(files, "y.npy", np.int64, (nodes.count,), nodes.labels())
        if info.num_classes:
            write_number(files, "num_classes.npy", info.num_classes)


def _write_splits(nodes: NodeColumns, files: DatasetFiles, work: WorkTools) -> None:
    num_splits = nodes.nodes.num_splits
    for part, key in _PARTS.items():
        lengths = [nodes.split_length(part, number) for number in range(num_splits)]
        if not any(lengths):
            continue
        if num_splits == 1:
            ids = (places for places, _ in nodes.split(part, 0))
            write_npy(files, f"{key}_idx.npy", np.int64, (lengths[0],), ids)
        else:
            with work.budget.reserve("nodes of a split", nodes.count):
                masks = (_mask(nodes, part, number) for number in range(num_splits))
                write_npy(files, f"{key}_masks.npy", np.bool_, (num_splits, nodes.count), masks)


def _mask(nodes: NodeColumns, part: str, number: int) -> NDArray[np.bool_]:
    mask = np.zeros(nodes.count, np.bool_)
    if nodes.split_length(part, number):
        for places, _ in nodes.split(part, number):
            mask[places] = True
    return mask


def _write_triples(dataset: Dataset, nodes: NodeColumns, files: DatasetFiles) -> None:
    triples = dataset.manifest.triples
    if triples is None:
        return
    write_number(files, "num_entities.npy", nodes.count)
    write_number(files, "num_relations.npy", triples.num_relations)
    for part, count in triples.parts.items():
        path = dataset.content / f"triples/{part}.bin"
        write_npy(
            files,
            f"{'triples' if part == 'all' else part}.npy",
            np.int64,
            (count, 3),
            (_placed(block.view("<i8"), nodes, path) for block in read_rows(path, 24, count)),
        )


def _placed(triples: NDArray[np.int64], nodes: NodeColumns, path: Path) -> NDArray[np.int64]:
    placed = triples.copy()
    for column in (0, 2):
        placed[:, column] = nodes.places(triples[:, column], path)
    return placed
