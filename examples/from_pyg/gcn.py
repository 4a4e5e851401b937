"""A GCN of torch_geometric.nn.models with jumping knowledge, on a batch of all training nodes."""

import example_graphs
import torch
from torch.nn import functional
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import GCN

data = example_graphs.read("cora")
nodes = example_graphs.split("cora")
loaders = {
    part: NeighborLoader(data, [-1, -1], ids, batch_size=500, shuffle=part == "train") for part, ids in nodes.items()
}
in_channels = loaders["train"].data.num_features
model = GCN(in_channels, 64, num_layers=2, out_channels=7, dropout=0.5, jk="cat")
optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
for _ in range(25):
    model.train()
    for batch in loaders["train"]:
        optimizer.zero_grad()
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        functional.cross_entropy(out, batch.y[: batch.batch_size]).backward()
        optimizer.step()

model.eval()
correct = 0
with torch.no_grad():
    for batch in loaders["test"]:
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        correct += int((out.argmax(1) == batch.y[: batch.batch_size]).sum())
result = correct / len(nodes["test"])
print(f"test accuracy {result:.4f}")
