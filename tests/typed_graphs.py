"""Random graphs with types, and what sampling all neighbours of them gives, by plain loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch_geometric.data import HeteroData

import diskhop
from diskhop.dataset.dataset import Dataset

# Nodes of each type, and columns and dtype of its features; a venue has none.
NODES = {"author": (40, 3, torch.float32), "paper": (90, 6, torch.float16), "venue": (5, 0, torch.float32)}
EDGES = {
    ("author", "writes", "paper"): 150,
    ("paper", "cites", "paper"): 300,
    ("paper", "in", "venue"): 90,
    ("venue", "has", "paper"): 90,
    ("paper", "by", "author"): 120,
    ("author", "knows", "author"): 0,
}


def typed_data(seed: int = 0) -> HeteroData:
    """A random graph of authors, papers and venues; papers have classes and a split."""
    generator = torch.Generator().manual_seed(seed)
    data = HeteroData()
    for name, (num_nodes, dim, dtype) in NODES.items():
        if dim:
            data[name].x = torch.randn(num_nodes, dim, generator=generator).to(dtype)
        else:
            data[name].num_nodes = num_nodes
    num_papers = NODES["paper"][0]
    data["paper"].y = torch.randint(0, 3, (num_papers,), generator=generator)
    order = torch.randperm(num_papers, generator=generator)
    for part, chosen in (("train", order[:50]), ("val", order[50:70]), ("test", order[70:])):
        mask = torch.zeros(num_papers, dtype=torch.bool)
        mask[chosen] = True
        data["paper"][f"{part}_mask"] = mask
    for (source, relation, destination), num_edges in EDGES.items():
        data[source, relation, destination].edge_index = torch.stack(
            [
                torch.randint(0, NODES[source][0], (num_edges,), generator=generator),
                torch.randint(0, NODES[destination][0], (num_edges,), generator=generator),
            ]
        )
    data["author", "writes", "paper"].edge_attr = torch.arange(2 * 150).view(150, 2).float()
    return data


def typed_dataset(folder: Path, seed: int = 0) -> tuple[HeteroData, Dataset]:
    """The same as a dataset on disk."""
    data = typed_data(seed)
    return data, diskhop.from_pyg(data, folder)


@dataclass(frozen=True, slots=True)
class Neighborhood:
    """Everything within some hops. nodes: ids by type. edges: numbers of the source's edges by type."""

    nodes: Mapping[str, set[int]]
    edges: Mapping[tuple[str, str, str], set[int]]


def neighborhood(data: HeteroData, seed_type: str, seeds: list[int], num_hops: int) -> Neighborhood:
    """Expand seeds along all edges that end at a node, hop by hop."""
    nodes = {name: set() for name in data.node_types}  # type: dict[str, set[int]]
    edges = {ends: set() for ends in data.edge_types}  # type: dict[tuple[str, str, str], set[int]]
    nodes[seed_type] |= set(seeds)
    frontier = {name: set(found) for name, found in nodes.items()}
    for _ in range(num_hops):
        reached = {name: set() for name in data.node_types}  # type: dict[str, set[int]]
        for ends in data.edge_types:
            for number, (source, destination) in enumerate(data[ends].edge_index.t().tolist()):
                if destination in frontier[ends[-1]]:
                    edges[ends].add(number)
                    reached[ends[0]].add(source)
        frontier = {name: reached[name] - nodes[name] for name in nodes}
        for name in nodes:
            nodes[name] |= reached[name]
    return Neighborhood(nodes, edges)
