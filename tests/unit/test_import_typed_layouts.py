"""One typed graph in every layout that is imported: counts, features, labels, splits, and edges in their order."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch_geometric.data import HeteroData

import diskhop
from diskhop.dataset.dataset import Dataset
from diskhop.importing.run import import_graph
from tests.graphs import threads_engine
from tests.unit.test_import_typed_tables import edges_of

X = np.arange(18, dtype=np.float16).reshape(6, 3) / 4
Y = np.array([0, 1, -1, 2, 1, 0])
SPLIT = {"train": [1, 4], "valid": [0], "test": [3, 5]}
WRITES = np.array([[3, 0, 2, 0, 3], [5, 0, 5, 1, 5]])
CITES = np.array([[5, 0, 1, 4, 0, 5, 2], [0, 5, 2, 0, 5, 5, 3]])
EDGES = {("author", "writes", "paper"): WRITES, ("paper", "cites", "paper"): CITES}
_GB_SETS = {"train": "train_set", "valid": "validation_set", "test": "test_set"}


def save(path: Path, array: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, array)


def write(path: Path, rows: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(",".join(map(str, np.atleast_1d(row))) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def hetero_data(folder: Path) -> Dataset:
    data = HeteroData()
    data["author"].num_nodes = 4
    data["paper"].x, data["paper"].y = torch.from_numpy(X), torch.from_numpy(Y)
    for part, key in (("train", "train_mask"), ("valid", "val_mask"), ("test", "test_mask")):
        data["paper"][key] = torch.from_numpy(np.isin(np.arange(6), SPLIT[part]))
    for ends, pairs in EDGES.items():
        data[ends].edge_index = torch.from_numpy(pairs)
    return diskhop.from_pyg(data, folder / "out")


def graphbolt(folder: Path) -> None:
    save(folder / "x.npy", X)
    save(folder / "y.npy", Y.reshape(-1, 1))
    task: dict[str, Any] = {"name": "node_classification", "num_classes": 3}
    for part, ids in SPLIT.items():
        save(folder / f"{part}.npy", np.array(ids))
        save(folder / f"{part}-y.npy", Y[ids])
        files = [
            {"name": name, "format": "numpy", "path": f"{part}{end}.npy"}
            for name, end in (("seeds", ""), ("labels", "-y"))
        ]
        task[_GB_SETS[part]] = [{"type": "paper", "data": files}]
    for ends, pairs in EDGES.items():
        save(folder / f"{ends[1]}.npy", pairs)
    feature = {"domain": "node", "type": "paper", "format": "numpy"}
    metadata = {
        "dataset_name": "g",
        "graph": {
            "nodes": [{"type": "author", "num": 4}, {"type": "paper", "num": 6}],
            "edges": [{"type": ":".join(ends), "format": "numpy", "path": f"{ends[1]}.npy"} for ends in EDGES],
        },
        "feature_data": [feature | {"name": "feat", "path": "x.npy"}],
        "tasks": [task],
    }
    (folder / "metadata.yaml").write_text(yaml.safe_dump(metadata))


def ogb(folder: Path) -> None:
    raw = folder / "raw"
    write(raw / "triplet-type-list.csv.gz", list(EDGES))
    write(raw / "num-node-dict.csv.gz", [["author", "paper"], [4, 6]])
    for ends, pairs in EDGES.items():
        write(raw / "relations" / "___".join(ends) / "edge.csv.gz", pairs.T)
        write(raw / "relations" / "___".join(ends) / "num-edge-list.csv.gz", [len(pairs.T)])
    write(raw / "node-feat/paper/node-feat.csv.gz", X)
    write(raw / "node-label/paper/node-label.csv.gz", np.where(Y < 0, np.nan, Y))
    for part, ids in SPLIT.items():
        write(folder / f"split/time/paper/{part}.csv.gz", ids)


def folders(folder: Path, between: str, by_rows: bool) -> None:
    root = folder / "processed"
    save(root / "paper/node_feat.npy", X)
    save(root / "paper/node_label.npy", np.where(Y < 0, np.nan, Y).astype(np.float32))
    for part, ids in SPLIT.items():
        save(root / f"paper/{part.replace('valid', 'val')}_idx.npy", np.array(ids))
    for ends, pairs in EDGES.items():
        save(root / between.join(ends) / "edge_index.npy", pairs.T if by_rows else pairs)


def tables(folder: Path) -> None:
    parts = {node: part for part, ids in SPLIT.items() for node in ids}
    rows = [[node, *x, "" if y < 0 else y, parts.get(node, "")] for node, (x, y) in enumerate(zip(X, Y, strict=True))]
    write(folder / "nodes/paper.csv", [["id", "a", "b", "c", "label", "split"], *rows])
    write(folder / "nodes/author.csv", [["id"], *range(4)])
    for ends, pairs in EDGES.items():
        write(folder / f"edges/{'__'.join(ends)}.csv", [["src", "dst"], *pairs.T])


LAYOUTS: dict[str, Callable[[Path], Any]] = {
    "HeteroData": hetero_data,
    "graphbolt": graphbolt,
    "ogb": ogb,
    "mag240m": lambda folder: folders(folder, "___", False),
    "igb-het": lambda folder: folders(folder, "__", True),
    "tables": tables,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_typed_graph_is_the_same_in_every_layout(tmp_path: Path, layout: str) -> None:
    (tmp_path / "g").mkdir()
    dataset = LAYOUTS[layout](tmp_path / "g")
    if dataset is None:
        dataset = import_graph(tmp_path / "g", tmp_path / "out", engine=threads_engine())
    assert {name: each.num_nodes for name, each in dataset.nodes.items()} == {"author": 4, "paper": 6}
    paper, author = dataset.nodes["paper"], dataset.nodes["author"]
    is_text = layout in ("ogb", "tables")
    assert (paper.feature_dim, paper.feature_dtype, author.feature_dim) == (3, "float32" if is_text else "float16", 0)
    table = paper.feature_table()
    assert table is not None
    np.testing.assert_array_equal(np.fromfile(table.path, np.float32 if is_text else np.float16).reshape(6, 3), X)
    np.testing.assert_array_equal(paper.labels, Y)
    assert (paper.num_classes, author.labels) == (3, None)
    for part, ids in SPLIT.items():
        np.testing.assert_array_equal(paper.split(part), ids)
    names = {edges.ends: name for name, edges in dataset.edges.items()}
    assert names.keys() == EDGES.keys()
    for ends, pairs in EDGES.items():
        assert edges_of(dataset, names[ends]) == list(map(tuple, pairs.T.tolist()))
