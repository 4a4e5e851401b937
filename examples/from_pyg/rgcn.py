"""R-GCN on a knowledge graph: each edge has a type, and nodes have learned embeddings, as in PyG's rgcn.py."""

import example_graphs
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import RGCNConv

data = example_graphs.read("aifb")
nodes = example_graphs.split("aifb")
loaders = {
    part: NeighborLoader(data, [-1, -1], ids, batch_size=140, shuffle=part == "train") for part, ids in nodes.items()
}


class Model(nn.Module):
    def __init__(self, num_nodes: int, hidden: int, num_classes: int, num_relations: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_nodes, hidden)
        self.first = RGCNConv(hidden, hidden, num_relations, num_bases=30)
        self.second = RGCNConv(hidden, num_classes, num_relations, num_bases=30)

    def forward(self, n_id: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        x = self.first(self.embedding(n_id), edge_index, edge_type).relu()
        return self.second(x, edge_index, edge_type)


model = Model(loaders["train"].data.num_nodes, 16, 4, 90)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for _ in range(30):
    for batch in loaders["train"]:
        optimizer.zero_grad()
        out = model(batch.n_id, batch.edge_index, batch.edge_type)[: batch.batch_size]
        functional.cross_entropy(out, batch.y[: batch.batch_size]).backward()
        optimizer.step()

correct = 0
with torch.no_grad():
    for batch in loaders["test"]:
        out = model(batch.n_id, batch.edge_index, batch.edge_type)[: batch.batch_size]
        correct += int((out.argmax(1) == batch.y[: batch.batch_size]).sum())
result = correct / len(nodes["test"])
print(f"test accuracy {result:.4f}")
