"""The graphs of the examples, as objects of PyTorch Geometric.  python examples/from_pyg/example_graphs.py [FOLDER]

The command imports all of them into FOLDER (default: graphs), where the examples find them once two lines are changed.
GRAPHS names the folder with the arrays of real graphs: GRAPHS/cora/data.npz has edge_index, x, y, train_idx ...
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch_geometric.data import Data, HeteroData

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
NAMES = ("cora", "cora-links", "minesweeper", "oewn", "topics", "dblp", "aifb")
PARTS = {"train": "train", "valid": "val", "test": "test"}


def arrays(name: str, file: str = "data") -> dict[str, Any]:
    """Read the arrays of a graph. Ends the script where there are none."""
    path = Path(os.environ.get("GRAPHS", SHARED)) / name / f"{file}.npz"
    if not path.exists():
        sys.exit(f"{path} does not exist; set GRAPHS to the folder that has {name}/{file}.npz")
    return dict(np.load(path))


def read(name: str) -> Any:
    """Read or make a graph: a Data, or a HeteroData of a graph with types."""
    if name == "topics":
        return topics()
    if name in ("dblp", "aifb"):
        return dblp() if name == "dblp" else aifb()
    loaded = arrays(_folder(name))
    edge_index = torch.from_numpy(loaded["edge_index"])
    if name == "cora-links":
        edge_index = edge_index[:, ~held_out(edge_index)]
    x = features(loaded)
    degree = torch.bincount(edge_index[1], minlength=len(x))
    train_mask = torch.zeros(len(x), dtype=torch.bool)
    train_mask[split(name)["train"]] = True
    return Data(x=x, edge_index=edge_index, y=labels(loaded), degree=degree, train_mask=train_mask)


def split(name: str, first: str = "") -> dict[str, Tensor]:
    """Read the ids of the nodes of each part. first: end of the part's names in a file that has several splits."""
    if name == "topics":
        place = torch.randperm(3000, generator=torch.Generator().manual_seed(1))
        return {"train": place[:1500], "valid": place[1500:2000], "test": place[2000:]}
    loaded = arrays(_folder(name), "labels" if name in ("dblp", "aifb") else "data")
    found = {}
    for part, stored in PARTS.items():
        if f"{stored}_masks" in loaded:
            found[part] = torch.from_numpy(loaded[f"{stored}_masks"][0].nonzero()[0])
        for key in (f"{stored}{first}", f"{part}{first}", f"{stored}_idx"):
            if key in loaded:
                found[part] = torch.from_numpy(loaded[key].astype(np.int64))
    return found


def links(name: str) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the pairs to predict with their labels: for test held-out edges, and as many random pairs."""
    edge_index = torch.from_numpy(arrays(name)["edge_index"])
    out = held_out(edge_index)
    generator = torch.Generator().manual_seed(2)
    edges = edge_index[:, out & (edge_index[0] < edge_index[1])]
    random = torch.randint(0, int(edge_index.max()) + 1, (2, edges.shape[1]), generator=generator)
    tested = torch.cat([edges, random], 1), torch.arange(2 * edges.shape[1]) < edges.shape[1]
    return {"train": (edge_index[:, ~out], torch.ones(int((~out).sum()))), "test": (tested[0], tested[1].float())}


def area_under_curve(scores: Tensor, labels: Tensor) -> float:
    """Return the share of pairs of a positive and a negative in which the positive has the higher score."""
    positive, negative = scores[labels == 1], scores[labels == 0].sort().values
    below = torch.searchsorted(negative, positive) + torch.searchsorted(negative, positive, right=True)
    return float(below.float().mean() / (2 * len(negative)))


def held_out(edge_index: Tensor) -> Tensor:
    """Mark a tenth of the edges, both directions of each."""
    low, high = edge_index.min(0).values, edge_index.max(0).values
    return (low * 7919 + high * 104729) % 10 == 0


def topics() -> Data:
    """Make a graph with three labels per node, each of which shows in its features and neighbours."""
    generator = torch.Generator().manual_seed(0)
    y = (torch.rand(3000, 6, generator=generator) < 0.4).float()
    pairs = torch.randint(0, 3000, (2, 120_000), generator=generator)
    agreement = (y[pairs[0]] == y[pairs[1]]).float().mean(1)
    kept = pairs[:, torch.rand(120_000, generator=generator) < agreement**6]
    x = torch.cat([y, torch.zeros(3000, 4)], 1) + 1.5 * torch.randn(3000, 10, generator=generator)
    return Data(x=x, edge_index=torch.cat([kept, kept.flip(0)], 1), y=y)


def dblp() -> HeteroData:
    """Read authors, papers, terms and conferences; authors have labels, and conferences no features."""
    graph = HeteroData()
    for kind in ("author", "paper", "term"):
        graph[kind].x = features(arrays("dblp", f"nodes-{kind}"))
    graph["author"].y = labels(arrays("dblp", "labels"))
    graph["conference"].num_nodes = 20
    _add_edges(graph, "dblp")
    return graph


def aifb() -> Data:
    """Read an institute's knowledge graph: each relation is an edge type, its inverse another one."""
    graph = HeteroData()
    _add_edges(graph, "aifb")
    lists = [edges.edge_index for edges in graph.edge_stores]
    lists += [edges.flip(0) for edges in lists]
    kinds = torch.cat([torch.full((edges.shape[1],), kind) for kind, edges in enumerate(lists)])
    y = labels(arrays("aifb", "labels"))
    return Data(edge_index=torch.cat(lists, 1), edge_type=kinds, y=y, num_nodes=len(y))


def features(loaded: dict[str, Any]) -> Tensor:
    """Return features as a dense tensor."""
    if "x_data" in loaded:
        matrix = csr_matrix((loaded["x_data"], loaded["x_indices"], loaded["x_indptr"]), loaded["x_shape"])
        return torch.from_numpy(matrix.toarray().astype(np.float32))
    return torch.from_numpy(loaded["x"].astype(np.float32))


def labels(loaded: dict[str, Any]) -> Tensor:
    """Return labels, -1 where there is none."""
    return torch.from_numpy(loaded["y"].astype(np.int64))


def _folder(name: str) -> str:
    return {"cora-links": "cora", "minesweeper": "heterophilous-minesweeper"}.get(name, name)


def _add_edges(graph: HeteroData, name: str) -> None:
    folder = Path(os.environ.get("GRAPHS", SHARED)) / name
    for path in sorted(folder.glob("edges-*.npy")):
        source, relation, destination = path.stem.removeprefix("edges-").split("--")
        graph[source, relation, destination].edge_index = torch.from_numpy(np.load(path).astype(np.int64))


if __name__ == "__main__":
    import diskhop

    into = Path(sys.argv[1] if len(sys.argv) > 1 else "graphs")
    into.mkdir(exist_ok=True)
    for each in NAMES:
        print(diskhop.from_pyg(read(each), into / each, overwrite=True))
