"""ShaDow: a small graph around each node, a deeper network than hops, as in PyG's shadow.py."""

import example_graphs
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.loader import ShaDowKHopSampler
from torch_geometric.nn import SAGEConv, global_mean_pool

data = example_graphs.read("cora")
nodes = example_graphs.split("cora")
loaders = {
    part: ShaDowKHopSampler(data, depth=2, num_neighbors=5, node_idx=ids, batch_size=100, shuffle=part == "train")
    for part, ids in nodes.items()
}


class Model(nn.Module):
    def __init__(self, in_channels: int, hidden: int, num_classes: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(SAGEConv(size, hidden) for size in (in_channels, hidden, hidden))
        self.last = nn.Linear(2 * hidden, num_classes)

    def forward(self, x: Tensor, edge_index: Tensor, graph: Tensor, root: Tensor) -> Tensor:
        for conv in self.convs:
            x = functional.dropout(conv(x, edge_index).relu(), 0.5, self.training)
        # The root of each small graph, and the mean of its nodes.
        return self.last(torch.cat([x[root], global_mean_pool(x, graph)], dim=-1))


model = Model(1433, 64, 7)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for _ in range(15):
    model.train()
    for batch in loaders["train"]:
        optimizer.zero_grad()
        out = model(batch.x, batch.edge_index, batch.batch, batch.root_n_id)
        functional.cross_entropy(out, batch.y).backward()
        optimizer.step()

model.eval()
correct = 0
with torch.no_grad():
    for batch in loaders["test"]:
        out = model(batch.x, batch.edge_index, batch.batch, batch.root_n_id)
        correct += int((out.argmax(1) == batch.y).sum())
result = correct / len(nodes["test"])
print(f"test accuracy {result:.4f}")
