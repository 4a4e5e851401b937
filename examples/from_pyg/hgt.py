"""Heterogeneous Graph Transformer on batches of HGTLoader, as in PyG's hgt_dblp.py and to_hetero_mag.py."""

from typing import Any

import example_graphs
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.loader import HGTLoader
from torch_geometric.nn import HGTConv, Linear

data = example_graphs.read("dblp")
authors = example_graphs.split("dblp", "_60")
loaders = {
    part: HGTLoader(data, [256] * 3, input_nodes=("author", ids), batch_size=250, shuffle=part == "train")
    for part, ids in authors.items()
}
NODES = ["author", "conference", "paper", "term"]
EDGES = [
    ("author", "writes", "paper"),
    ("paper", "written_by", "author"),
    ("term", "mentioned_by", "paper"),
    ("paper", "mentions", "term"),
    ("conference", "publishes", "paper"),
    ("paper", "in", "conference"),
]


class Model(nn.Module):
    def __init__(self, hidden: int, num_classes: int) -> None:
        super().__init__()
        self.conference = nn.Embedding(20, hidden)  # a type without features
        self.linears = nn.ModuleDict({name: Linear(-1, hidden) for name in NODES})
        self.convs = nn.ModuleList(HGTConv(hidden, hidden, (NODES, EDGES), heads=2) for _ in range(2))
        self.last = Linear(hidden, num_classes)

    def forward(self, batch: Any) -> Tensor:
        x = {**batch.x_dict, "conference": self.conference(batch["conference"].n_id)}
        x = {name: self.linears[name](rows).relu() for name, rows in x.items()}
        for conv in self.convs:
            x = conv(x, batch.edge_index_dict)
        return self.last(x["author"][: batch["author"].batch_size])


def labels(batch: Any) -> Tensor:
    return batch["author"].y[: batch["author"].batch_size]


model = Model(64, 4)
with torch.no_grad():
    model(next(iter(loaders["valid"])))  # sizes of parameters
optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=1e-3)
for _ in range(40):
    for batch in loaders["train"]:
        optimizer.zero_grad()
        functional.cross_entropy(model(batch), labels(batch)).backward()
        optimizer.step()

with torch.no_grad():
    correct = sum(int((model(batch).argmax(1) == labels(batch)).sum()) for batch in loaders["test"])
result = correct / len(authors["test"])
print(f"test accuracy {result:.4f}")
