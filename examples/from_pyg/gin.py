"""GIN, two layers with batch norm, for nodes of two classes; the measure is ROC-AUC."""

import example_graphs
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import GINConv

data = example_graphs.read("minesweeper")
nodes = example_graphs.split("minesweeper")
loaders = {
    part: NeighborLoader(data, [8, 8], ids, batch_size=500, shuffle=part == "train") for part, ids in nodes.items()
}


class Model(nn.Module):
    def __init__(self, in_channels: int, hidden: int) -> None:
        super().__init__()
        sizes = [in_channels, hidden]
        self.convs = nn.ModuleList(
            GINConv(
                nn.Sequential(nn.Linear(size, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, hidden))
            )
            for size in sizes
        )
        self.last = nn.Linear(hidden, 1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return self.last(x).flatten()


model = Model(loaders["train"].data.num_features, 32)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(8):
    model.train()
    for batch in loaders["train"]:
        optimizer.zero_grad()
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        functional.binary_cross_entropy_with_logits(out, batch.y[: batch.batch_size].float()).backward()
        optimizer.step()

model.eval()
scores, labels = [], []
with torch.no_grad():
    for batch in loaders["test"]:
        scores.append(model(batch.x, batch.edge_index)[: batch.batch_size])
        labels.append(batch.y[: batch.batch_size])
result = example_graphs.area_under_curve(torch.cat(scores), torch.cat(labels))
print(f"test ROC-AUC {result:.4f}")
