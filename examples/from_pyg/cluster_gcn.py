"""Cluster-GCN: batches are clusters of the graph, as in PyG's cluster_gcn_reddit.py."""

import example_graphs
import torch
from torch.nn import functional
from torch_geometric.loader import ClusterData, ClusterLoader, NeighborLoader
from torch_geometric.nn import GraphSAGE

data = example_graphs.read("oewn")
nodes = example_graphs.split("oewn")
clusters = ClusterData(data, num_parts=100)
train_loader = ClusterLoader(clusters, batch_size=10, shuffle=True)
test_loader = NeighborLoader(data, [-1, -1], nodes["test"], batch_size=2048)

model = GraphSAGE(test_loader.data.num_features, 64, num_layers=2, out_channels=45, dropout=0.3)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(5):
    model.train()
    for batch in train_loader:
        optimizer.zero_grad()
        out = model(batch.x, batch.edge_index)[batch.train_mask]
        functional.cross_entropy(out, batch.y[batch.train_mask]).backward()
        optimizer.step()

model.eval()
correct = 0
with torch.no_grad():
    for batch in test_loader:
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        correct += int((out.argmax(1) == batch.y[: batch.batch_size]).sum())
result = correct / len(nodes["test"])
print(f"test accuracy {result:.4f}")
