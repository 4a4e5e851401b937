"""One small graph written as any kind of source, with what is true of it: the ids, edges and splits that users know."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml
from numpy.typing import NDArray
from torch_geometric.data import Data

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.importing.options import ImportOptions
from diskhop.importing.pyg.source import from_pyg
from diskhop.importing.run import import_graph
from diskhop.importing.tools import ImportLimits
from tests.graphs import threads_engine


@dataclass(frozen=True, kw_only=True)
class KnownGraph:
    """A graph as its source has it.

    ids: id of the node at each position, whole numbers or names.
    edges: (edges, 2), positions of the source and destination of each edge, in the order of the source.
    train: positions of the training nodes, ascending.
    """

    ids: list[int] | list[str]
    edges: NDArray[np.int64]
    train: NDArray[np.int64]

    @property
    def num_nodes(self) -> int:
        return len(self.ids)

    @property
    def mask(self) -> NDArray[np.bool_]:
        mask = np.zeros(self.num_nodes, np.bool_)
        mask[self.train] = True
        return mask

    @property
    def features(self) -> NDArray[np.float32]:
        """Two values of every node, of which the first is its position."""
        return np.stack([np.arange(self.num_nodes), np.ones(self.num_nodes)], axis=1).astype(np.float32)

    @property
    def labels(self) -> NDArray[np.int64]:
        return np.arange(self.num_nodes) % 3

    @property
    def named_edges(self) -> list[tuple[Any, Any]]:
        return [(self.ids[source], self.ids[destination]) for source, destination in self.edges]


@dataclass(frozen=True, slots=True)
class SourceWriter:
    """How a kind of source is written.

    write: writes the graph below an empty folder, and returns the source.
    has_nodes: whether it has features, labels and splits.
    id_kinds: kinds of ids that it can have: plain (from 0), ascending, or any.
    """

    write: Callable[[KnownGraph, Path], Path | Data]
    has_nodes: bool
    id_kinds: tuple[str, ...]


def _arrays(graph: KnownGraph, folder: Path) -> Path:
    np.savez(
        folder / "graph.npz",
        edge_index=graph.edges.T,
        x=graph.features,
        y=graph.labels,
        original_ids=np.array(graph.ids, np.int64),
        train_mask=graph.mask,
    )
    return folder / "graph.npz"


def _pyg(graph: KnownGraph, _folder: Path) -> Data:
    return Data(
        x=torch.from_numpy(graph.features),
        y=torch.from_numpy(graph.labels),
        edge_index=torch.from_numpy(np.ascontiguousarray(graph.edges.T)),
        train_mask=torch.from_numpy(graph.mask),
    )


def _graphbolt(graph: KnownGraph, folder: Path) -> Path:
    def entry(path: str, array: NDArray[Any], **more: Any) -> dict[str, Any]:
        np.save(folder / path, array)
        return {**more, "format": "numpy", "path": path}

    def node_set(name: str, nodes: NDArray[np.int64]) -> list[dict[str, Any]]:
        labels = entry(f"{name}-labels.npy", graph.labels[nodes], name="labels")
        return [{"data": [entry(f"{name}.npy", nodes, name="seeds"), labels]}]

    sets = {"train": graph.train, "test": np.flatnonzero(~graph.mask)}
    task = {f"{name}_set": node_set(name, nodes) for name, nodes in sets.items() if len(nodes)}
    features = entry("x.npy", graph.features, domain="node", name="feat", in_memory=False)
    metadata = {
        "dataset_name": "known",
        "graph": {"nodes": [{"num": graph.num_nodes}], "edges": [entry("edges.npy", graph.edges.T)]},
        "feature_data": [features],
        "tasks": [{"name": "node_classification", "num_classes": 3, **task}],
    }
    (folder / "metadata.yaml").write_text(yaml.safe_dump(metadata))
    return folder


def _ogb(graph: KnownGraph, folder: Path) -> Path:
    def save(path: str, rows: NDArray[Any]) -> None:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        lines = "".join(",".join(map(str, row)) + "\n" for row in np.atleast_2d(rows).tolist())
        (folder / path).write_bytes(gzip.compress(lines.encode(), 1))

    save("raw/edge.csv.gz", graph.edges)
    save("raw/num-node-list.csv.gz", np.array([graph.num_nodes]))
    save("raw/num-edge-list.csv.gz", np.array([len(graph.edges)]))
    save("raw/node-feat.csv.gz", graph.features)
    save("raw/node-label.csv.gz", graph.labels[:, None])
    rest = np.flatnonzero(~graph.mask)
    for part, nodes in (("train", graph.train), ("valid", rest), ("test", rest)):
        save(f"split/time/{part}.csv.gz", nodes[:, None] if len(nodes) else graph.train[:1, None])
    (folder / "RELEASE_v1.txt").write_text("")
    return folder


def _tables(graph: KnownGraph, folder: Path) -> Path:
    parts = np.where(graph.mask, "train", "test")
    columns = {"id": graph.ids, "label": graph.labels, "split": parts, "first": graph.features[:, 0], "one": 1.0}
    frame = {name: [values] * graph.num_nodes if name == "one" else values for name, values in columns.items()}
    pq.write_table(pa.table(frame), folder / "nodes.parquet")
    _edge_table(graph, folder)
    return folder


def _edge_table(graph: KnownGraph, folder: Path) -> Path:
    sources, destinations = zip(*graph.named_edges, strict=True)
    pq.write_table(pa.table({"source": list(sources), "target": list(destinations)}), folder / "edges.parquet")
    return folder / "edges.parquet"


def _text(graph: KnownGraph, folder: Path) -> Path:
    (folder / "edges.tsv").write_text("".join(f"{source}\t{node}\n" for source, node in graph.named_edges))
    return folder / "edges.tsv"


def _text_parts(graph: KnownGraph, folder: Path) -> Path:
    """The same in three parts."""
    (folder / "edges").mkdir()
    for number, rows in enumerate(np.array_split(np.arange(len(graph.edges)), 3)):
        lines = (f"{graph.named_edges[row][0]}\t{graph.named_edges[row][1]}\n" for row in rows)
        (folder / "edges" / f"part-{number}.tsv").write_text("src\tdst\n" + "".join(lines))
    return folder / "edges"


SOURCES = {
    "numpy": SourceWriter(_arrays, has_nodes=True, id_kinds=("plain", "ascending")),
    "pyg": SourceWriter(_pyg, has_nodes=True, id_kinds=("plain",)),
    "graphbolt": SourceWriter(_graphbolt, has_nodes=True, id_kinds=("plain",)),
    "ogb": SourceWriter(_ogb, has_nodes=True, id_kinds=("plain",)),
    "tables": SourceWriter(_tables, has_nodes=True, id_kinds=("plain", "ascending", "any", "names")),
    "edge-table": SourceWriter(_edge_table, has_nodes=False, id_kinds=("plain", "ascending", "names")),
    "text": SourceWriter(_text, has_nodes=False, id_kinds=("plain", "ascending", "names")),
    "text-parts": SourceWriter(_text_parts, has_nodes=False, id_kinds=("plain", "ascending", "names")),
}


def import_known(graph: KnownGraph, kind: str, folder: Path, options: ImportOptions, limits: ImportLimits) -> Dataset:
    """Write a graph as a kind of source below a folder, and import it."""
    (folder / "source").mkdir()
    source = SOURCES[kind].write(graph, folder / "source")
    if isinstance(source, Data):
        given = {name: getattr(options, name) for name in options.given()}
        return from_pyg(source, folder / "graph", memory="200MB", **given)
    return import_graph(
        source,
        folder / "graph",
        options=options,
        engine=threads_engine(),
        budget=Budget(200_000_000),
        threads=2,
        limits=limits,
    )
