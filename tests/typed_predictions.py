"""Typed runs on small graphs, and their model on the whole graph as one batch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import HeteroData

import diskhop
from diskhop.dataset.dataset import Dataset
from diskhop.nn.typed.block import RelationLists, TypedBlock
from diskhop.runs.nodes.opened import open_classifier
from diskhop.runs.typed.model import make_model
from tests.typed_graphs import typed_data

OPTIONS: dict[str, Any] = {"memory": "80MB", "epochs": 1, "batch_size": 25, "hidden": 16, "heads": 2, "fanout": (3, 2)}
# Edge types that typed_data() has no opposite of, as training adds them.
REVERSED = (("paper", "cites", "paper"), ("author", "knows", "author"))


def train_run(dataset: Dataset, out: Path, **options: Any) -> Path:
    """Train a run for an epoch."""
    diskhop.train(dataset, out=out, **{**OPTIONS, **options})
    return out


def whole_block(data: HeteroData, num_nodes: Mapping[str, int]) -> TypedBlock:
    """All edges of a graph, with those of its reverse types, as one batch of all nodes."""
    edges = {ends: data[ends].edge_index for ends in data.edge_types}
    edges |= {(end, f"rev_{name}", start): data[start, name, end].edge_index.flip(0) for start, name, end in REVERSED}
    lists = {}
    for ends, edge_index in edges.items():
        sources, destinations = edge_index[:, edge_index[1].argsort(stable=True)]
        counts = torch.bincount(destinations, minlength=num_nodes[ends[2]])
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
        lists[ends] = RelationLists(indptr.to(torch.int32), sources.to(torch.int32))
    return TypedBlock(
        {name: (count, 0) for name, count in num_nodes.items()},
        {ends: (len(each.sources),) for ends, each in lists.items()},
        lists,
        by_hop=False,
    )


def dense(run: Path, merged: Dataset, data: HeteroData, layer: int = 0) -> NDArray[np.float32]:
    """Outputs of a run's model for all papers by one forward pass; layer: hidden rows of a layer by number instead."""
    opened = open_classifier(run)
    config: Any = opened.config
    model = make_model(merged, config)
    opened.load_into(model)
    network = model.network.eval()
    num_nodes = {name: data[name].num_nodes for name in data.node_types}
    rows: dict[str, Tensor] = {}
    for name, learned in model.learned.items():
        rows[str(name)] = learned(np.arange(num_nodes[str(name)]))
    rows |= {name: data[name].x for name in data.node_types if "x" in data[name]}
    block = whole_block(data, num_nodes)
    with torch.no_grad():
        h, carried = network.project({name: rows[name] for name in num_nodes}), None
        for index in range(layer or len(network.convs)):
            h, carried = network.layer(index, h, block.layer(index), carried)
        out = h["paper"] if layer else network.finish(h["paper"])
    return out.numpy()


def graph(folder: Path, seed: int = 0) -> tuple[HeteroData, Dataset]:
    """A random graph with types, and the same on disk."""
    data = typed_data(seed)
    return data, diskhop.from_pyg(data, folder)
