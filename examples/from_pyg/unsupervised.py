"""Embeddings of nodes from links alone, judged by a linear classifier, as in PyG's graph_sage_unsup.py."""

import example_graphs
import torch
from torch import nn
from torch.nn import functional
from torch_geometric.loader import LinkNeighborLoader, NeighborLoader
from torch_geometric.nn import GraphSAGE

data = example_graphs.read("cora")
nodes = example_graphs.split("cora")
link_loader = LinkNeighborLoader(data, [10, 10], neg_sampling_ratio=1.0, batch_size=512, shuffle=True)
node_loader = NeighborLoader(data, [-1, -1], None, batch_size=500)

model = GraphSAGE(link_loader.data.num_features, 64, num_layers=2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(2):
    for batch in link_loader:
        optimizer.zero_grad()
        h = model(batch.x, batch.edge_index)
        source, destination = batch.edge_label_index
        scores = (h[source] * h[destination]).sum(-1)
        functional.binary_cross_entropy_with_logits(scores, batch.edge_label).backward()
        optimizer.step()

model.eval()
with torch.no_grad():
    h = torch.cat([model(batch.x, batch.edge_index)[: batch.batch_size] for batch in node_loader])
y = node_loader.data.y
classifier = nn.Linear(64, 7)
optimizer = torch.optim.Adam(classifier.parameters(), lr=0.05, weight_decay=1e-3)
for _ in range(200):
    optimizer.zero_grad()
    functional.cross_entropy(classifier(h[nodes["train"]]), y[nodes["train"]]).backward()
    optimizer.step()
result = (classifier(h).argmax(1) == y)[nodes["test"]].float().mean().item()
print(f"test accuracy {result:.4f}")
