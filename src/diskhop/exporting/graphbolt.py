"""Exports datasets as folders of DGL GraphBolt: metadata.yaml after its specification, and .npy files.

Each split is a task. Data without a key in the specification becomes feature_data that importing/graphbolt reads:
labels of nodes in no split, original ids, weights and times. Their arrays have two dimensions, as GraphBolt requires.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from diskhop.dataset.build.files import DatasetFiles
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.manifest import EDGE, NODE
from diskhop.errors import ConfigError
from diskhop.exporting.columns import EdgeColumns, NodeColumns, export_dtype
from diskhop.exporting.npy_files import write_names, write_npy
from diskhop.importing.graphbolt.metadata import METADATA_NAME, SETS
from diskhop.importing.graphbolt.source import FEATURES, LABELS, NODE_NAMES, ORIGINAL_IDS, TIMES, WEIGHTS
from diskhop.runtime.work_tools import WorkTools

Entry = dict[str, Any]


def export_graphbolt(dataset: Dataset, files: DatasetFiles, work: WorkTools) -> None:
    """See export_dataset."""
    if dataset.manifest.triples is not None or not dataset.edges:
        raise ConfigError(
            f"{dataset.path}: has triples or no edges, and format 'graphbolt' cannot store that; use --format numpy"
        )
    _Folder(dataset, files, work).write()


class _Folder:
    """A folder that is being written. Types are omitted for a graph with diskhop's default types only."""

    def __init__(self, dataset: Dataset, files: DatasetFiles, work: WorkTools) -> None:
        self._dataset = dataset
        self._files = files
        self._work = work
        self._is_typed = (list(dataset.nodes), list(dataset.edges)) != ([NODE], [EDGE])
        self._nodes = {name: NodeColumns(dataset, name, work) for name in dataset.nodes}
        self._features: list[Entry] = []

    def write(self) -> None:
        """Write the arrays, and metadata.yaml last."""
        edges = [self._write_edges(name) for name in self._dataset.edges]
        tasks: dict[int, Entry] = {}
        for nodes in self._nodes.values():
            self._write_nodes(nodes, tasks)
        metadata = {
            "dataset_name": self._dataset.name,
            "graph": {
                "nodes": [self._typed(name) | {"num": nodes.count} for name, nodes in self._nodes.items()],
                "edges": edges,
            },
            "feature_data": self._features,
            "tasks": [tasks[number] for number in sorted(tasks)],
        }
        if NODE_NAMES in self._dataset.manifest.names and not self._is_typed:
            write_names(self._files, f"{NODE_NAMES}.txt.gz", self._dataset.content / f"names/{NODE_NAMES}.txt")
        content = yaml.safe_dump(metadata, sort_keys=False).encode()
        self._files.write(METADATA_NAME, [np.frombuffer(content, np.uint8)])

    def _write_edges(self, name: str) -> Entry:
        edge_set = self._dataset.edges[name]
        ends = (edge_set.source, edge_set.destination)
        edges = EdgeColumns(self._dataset, name, self._nodes[ends[0]], self._nodes[ends[1]], self._work)
        path = f"edges/{name}.npy"

        def columns() -> Any:
            yield from edges.column("source")
            yield from edges.column("destination")

        write_npy(self._files, path, np.int64, (2, edges.count), columns())
        entry_type = self._typed(f"{ends[0]}:{name}:{ends[1]}")
        for column, feature in (("weight", WEIGHTS), ("time", TIMES), ("edge_id", "edge_id")):
            if column in edges.dtypes:
                values = edges.column(column)
                self._add_feature(
                    "edge", entry_type, f"edges/{name}", feature, edges.dtypes[column], edges.count, values
                )
        self._write_attributes("edge", entry_type, f"edges/{name}", edges, edges.count)
        return entry_type | {"format": "numpy", "path": path}

    def _write_attributes(
        self, domain: str, entry_type: Entry, stem: str, columns: NodeColumns | EdgeColumns, count: int
    ) -> None:
        """Write attributes as feature_data of two dimensions."""
        for name, info in columns.attributes().items():
            path, shape = f"{stem}-{name}.npy", (count, info.num_values)
            write_npy(self._files, path, export_dtype(info), shape, columns.attribute(name))
            self._features.append(_feature(domain, entry_type, name, path))

    def _write_nodes(self, nodes: NodeColumns, tasks: dict[int, Entry]) -> None:
        entry_type = self._typed(nodes.name)
        info = nodes.nodes
        folder = f"nodes/{nodes.name}"
        if info.feature_dim:
            shape = (nodes.count, info.feature_dim)
            write_npy(self._files, f"{folder}-{FEATURES}.npy", nodes.feature_dtype, shape, nodes.features())
            self._features.append(_feature("node", entry_type, FEATURES, f"{folder}-{FEATURES}.npy"))
        if nodes.original is not None:
            self._add_feature("node", entry_type, folder, ORIGINAL_IDS, np.int64, nodes.count, nodes.original_blocks())
        self._write_attributes("node", entry_type, folder, nodes, nodes.count)
        # All labels, those of nodes in no split again, and a flag per node.
        num_bytes = nodes.count * (1 + 2 * (4 * info.num_tasks or 8) * info.has_labels)
        with self._work.budget.reserve("labels", num_bytes):
            labels = info.label_rows()
            is_covered = np.zeros(nodes.count, np.bool_)
            for number in range(info.num_splits):
                task = tasks.setdefault(number, {"name": "node_classification"})
                if info.num_classes:
                    task["num_classes"] = max(info.num_classes, task.get("num_classes", 0))
                for part, key in SETS.items():
                    if nodes.split_length(part, number):
                        data = self._write_set(nodes, part, number, labels, is_covered)
                        task.setdefault(key, []).append(entry_type | {"data": data})
            # Also if no set has a label, because an importer could not tell otherwise that labels exist.
            if labels is not None and (not is_covered.any() or _are_labelled(labels[~is_covered])):
                self._write_labels(nodes, entry_type, folder)

    def _write_set(
        self,
        nodes: NodeColumns,
        part: str,
        number: int,
        labels: NDArray[Any] | None,
        is_covered: NDArray[np.bool_],
    ) -> list[Entry]:
        stem = f"sets/{nodes.name}-{number}-{part}"
        count = nodes.split_length(part, number)
        seeds = (places for places, _ in nodes.split(part, number))
        write_npy(self._files, f"{stem}-seeds.npy", np.int64, (count,), seeds)
        data = [{"name": "seeds", "format": "numpy", "path": f"{stem}-seeds.npy"}]
        if labels is not None:
            known = labels
            values = (known[rows] for _, rows in nodes.split(part, number))
            write_npy(self._files, f"{stem}-labels.npy", labels.dtype, (count, *labels.shape[1:]), values)
            data.append({"name": "labels", "format": "numpy", "path": f"{stem}-labels.npy"})
            for _, rows in nodes.split(part, number):
                is_covered[rows] = True
        return data

    def _write_labels(self, nodes: NodeColumns, entry_type: Entry, folder: str) -> None:
        """Write the labels of all nodes as feature_data."""
        info = nodes.nodes
        dtype, columns = (np.dtype("<f4"), info.num_tasks) if info.num_tasks else (np.dtype("<i8"), 1)
        path = f"{folder}-{LABELS}.npy"
        write_npy(self._files, path, dtype, (nodes.count, columns), nodes.labels())
        classes = {"num_classes": info.num_classes} if info.num_classes else {}
        self._features.append(_feature("node", entry_type, LABELS, path) | classes)

    def _add_feature(
        self, domain: str, entry_type: Entry, stem: str, name: str, dtype: Any, count: int, values: Any
    ) -> None:
        """Write one value per row as feature_data."""
        write_npy(self._files, f"{stem}-{name}.npy", dtype, (count, 1), values)
        self._features.append(_feature(domain, entry_type, name, f"{stem}-{name}.npy"))

    def _typed(self, name: str) -> Entry:
        return {"type": name} if self._is_typed else {}


def _feature(domain: str, entry_type: Mapping[str, str], name: str, path: str) -> Entry:
    return {"domain": domain, **entry_type, "name": name, "format": "numpy", "in_memory": False, "path": path}


def _are_labelled(labels: NDArray[Any]) -> bool:
    return bool((~np.isnan(labels)).any() if labels.dtype.kind == "f" else (labels >= 0).any())
