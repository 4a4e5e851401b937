"""Models of torch_geometric.nn.models on batches from disk, and exact predictions layer by layer within the budget.

python examples/pyg_models.py DATASET
"""

import sys

import torch
from torch.nn import functional
from torch_geometric.nn.models import GAT, GCN, GraphSAGE

import diskhop

dataset = diskhop.open_dataset(sys.argv[1])
test = torch.from_numpy(dataset.split("test"))
result = {}
with diskhop.NeighborLoader(dataset, [10, 5], "train", batch_size=100, shuffle=True, memory="100MB") as loader:
    for kind in (GAT, GCN, GraphSAGE):
        torch.manual_seed(0)
        model = kind(dataset.feature_dim, 32, num_layers=2, out_channels=dataset.num_classes)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(5):
            for batch in loader:
                optimizer.zero_grad()
                out = model(batch.x, batch.edge_index)[: batch.batch_size]
                functional.cross_entropy(out, batch.y[: batch.batch_size]).backward()
                optimizer.step()
        logits = torch.from_numpy(diskhop.predict(dataset, model.eval(), memory="100MB"))
        correct = logits[test].argmax(1) == torch.as_tensor(dataset.labels)[test]
        result[kind.__name__] = correct.float().mean().item()
        print(f"{kind.__name__}: test accuracy {result[kind.__name__]:.4f}")
