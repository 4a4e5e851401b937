"""Training with Hugging Face's accelerate, on the device that it chooses.

    pip install accelerate
    python examples/accelerate_nodes.py DATASET

The loader is not prepared: in a group of processes it shares out batches itself.
"""

import sys
from typing import Any

import torch
from accelerate import Accelerator
from torch.nn import functional
from torch_geometric.nn import GraphSAGE

import diskhop

accelerator = Accelerator()
torch.manual_seed(0)
dataset = diskhop.open_dataset(sys.argv[1])
options: dict[str, Any] = {"batch_size": 100, "memory": "100MB"}
train_loader = diskhop.NeighborLoader(dataset, [10, 5], "train", shuffle=True, **options)
test_loader = diskhop.NeighborLoader(dataset, [10, 5], "test", **options)

model = GraphSAGE(dataset.feature_dim, 64, num_layers=2, out_channels=dataset.num_classes, dropout=0.3)
model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=0.01))
for _ in range(10):
    model.train()
    for batch in train_loader:
        batch = batch.to(accelerator.device)
        optimizer.zero_grad()
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        accelerator.backward(functional.cross_entropy(out, batch.y[: batch.batch_size]))
        optimizer.step()

model.eval()
counts = torch.zeros(2, device=accelerator.device)  # correct ones, all
with torch.no_grad():
    for batch in test_loader:
        batch = batch.to(accelerator.device)
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        correct = out.argmax(1) == batch.y[: batch.batch_size]
        counts += torch.tensor([float(correct.sum()), float(len(correct))], device=accelerator.device)
correct, total = accelerator.reduce(counts).tolist()
result = correct / total
accelerator.print(f"test accuracy {result:.4f}")
