"""Graph attention for several labels per node, as in PyG's ppi.py."""

import example_graphs
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import GATConv

data = example_graphs.read("topics")
nodes = example_graphs.split("topics")
loaders = {
    part: NeighborLoader(data, [15, 15], ids, batch_size=250, shuffle=part == "train") for part, ids in nodes.items()
}


class Model(nn.Module):
    def __init__(self, in_channels: int, num_labels: int) -> None:
        super().__init__()
        self.first = GATConv(in_channels, 16, heads=4)
        self.first_linear = nn.Linear(in_channels, 64)
        self.second = GATConv(64, num_labels, heads=4, concat=False)
        self.second_linear = nn.Linear(64, num_labels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = functional.elu(self.first(x, edge_index) + self.first_linear(x))
        return self.second(x, edge_index) + self.second_linear(x)


model = Model(loaders["train"].data.num_features, loaders["train"].data.y.shape[1])
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(6):
    model.train()
    for batch in loaders["train"]:
        optimizer.zero_grad()
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        functional.binary_cross_entropy_with_logits(out, batch.y[: batch.batch_size]).backward()
        optimizer.step()

model.eval()
hits, errors = 0, 0
for batch in loaders["test"]:
    found = model(batch.x, batch.edge_index)[: batch.batch_size] > 0
    wanted = batch.y[: batch.batch_size] > 0
    hits += int((found & wanted).sum())
    errors += int((found != wanted).sum())
result = 2 * hits / (2 * hits + errors)
print(f"test micro-F1 {result:.4f}")
