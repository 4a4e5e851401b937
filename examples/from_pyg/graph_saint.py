"""GraphSAINT: subgraphs of random walks, whose norms correct the loss and the sums, as in PyG's graph_saint.py."""

from typing import Any

import example_graphs
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.loader import GraphSAINTRandomWalkSampler, NeighborLoader
from torch_geometric.nn import GraphConv

data = example_graphs.read("minesweeper")
nodes = example_graphs.split("minesweeper")
train_loader = GraphSAINTRandomWalkSampler(data, batch_size=500, walk_length=2, num_steps=10, sample_coverage=50)
test_loader = NeighborLoader(data, [-1, -1], nodes["test"], batch_size=1000)


class Model(nn.Module):
    def __init__(self, in_channels: int, hidden: int) -> None:
        super().__init__()
        self.first = GraphConv(in_channels, hidden, aggr="add")
        self.second = GraphConv(hidden, hidden, aggr="add")
        self.last = nn.Linear(2 * hidden, 1)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        first = self.first(x, edge_index, edge_weight).relu()
        second = self.second(first, edge_index, edge_weight).relu()
        return self.last(torch.cat([first, second], dim=-1)).flatten()


def weights(batch: Any) -> Tensor:
    """Return 1 / degree of each edge's target in the whole graph, which makes sums means."""
    return 1 / batch.degree[batch.edge_index[1]]


model = Model(test_loader.data.num_features, 64)
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
for _ in range(20):
    for batch in train_loader:
        optimizer.zero_grad()
        out = model(batch.x, batch.edge_index, batch.edge_norm * weights(batch))
        losses = functional.binary_cross_entropy_with_logits(out, batch.y.float(), reduction="none")
        (losses * batch.node_norm)[batch.train_mask].sum().backward()
        optimizer.step()

scores, labels = [], []
with torch.no_grad():
    for batch in test_loader:
        scores.append(model(batch.x, batch.edge_index, weights(batch))[: batch.batch_size])
        labels.append(batch.y[: batch.batch_size])
result = example_graphs.area_under_curve(torch.cat(scores), torch.cat(labels))
print(f"test ROC-AUC {result:.4f}")
