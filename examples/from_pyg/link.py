"""Links told from random pairs by a GCN, as in PyG's link_pred.py."""

import example_graphs
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.loader import LinkNeighborLoader
from torch_geometric.nn import GCNConv

data = example_graphs.read("cora-links")  # without the edges that are tested
links = example_graphs.links("cora")
loaders = {
    part: LinkNeighborLoader(
        data,
        [10, 10],
        edge_label_index=pairs,
        edge_label=labels if part == "test" else None,
        neg_sampling_ratio=1.0 if part == "train" else 0.0,
        batch_size=1024,
        shuffle=part == "train",
    )
    for part, (pairs, labels) in links.items()
}


class Model(nn.Module):
    def __init__(self, in_channels: int, hidden: int, out_channels: int) -> None:
        super().__init__()
        self.first = GCNConv(in_channels, hidden)
        self.second = GCNConv(hidden, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor, pairs: Tensor) -> Tensor:
        z = self.second(self.first(x, edge_index).relu(), edge_index)
        return (z[pairs[0]] * z[pairs[1]]).sum(-1)


model = Model(loaders["train"].data.num_features, 128, 64)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(4):
    for batch in loaders["train"]:
        optimizer.zero_grad()
        out = model(batch.x, batch.edge_index, batch.edge_label_index)
        functional.binary_cross_entropy_with_logits(out, batch.edge_label).backward()
        optimizer.step()

scores, labels = [], []
with torch.no_grad():
    for batch in loaders["test"]:
        scores.append(model(batch.x, batch.edge_index, batch.edge_label_index))
        labels.append(batch.edge_label)
result = example_graphs.area_under_curve(torch.cat(scores), torch.cat(labels))
print(f"test ROC-AUC {result:.4f}")
