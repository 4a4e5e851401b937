"""A model compiled by torch.compile, once for batches of every size.

python examples/compile_model.py DATASET      (needs a C++ compiler on a CPU)
"""

import sys

import torch
from torch.nn import functional
from torch_geometric.nn import GraphSAGE

import diskhop

torch.manual_seed(0)
dataset = diskhop.open_dataset(sys.argv[1])
model = GraphSAGE(dataset.feature_dim, 32, num_layers=2, out_channels=dataset.num_classes)
compiled = torch.compile(model, dynamic=True)  # sizes of batches differ
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
losses = []
with diskhop.NeighborLoader(dataset, [10, 5], "train", batch_size=100, shuffle=True, memory="100MB") as loader:
    for _ in range(5):
        for batch in loader:
            optimizer.zero_grad()
            out = compiled(batch.x, batch.edge_index)[: batch.batch_size]
            loss = functional.cross_entropy(out, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    with torch.no_grad():
        result = (compiled(batch.x, batch.edge_index) - model(batch.x, batch.edge_index)).abs().max().item()
print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}; compiled logits differ by {result:.1e} at most")
