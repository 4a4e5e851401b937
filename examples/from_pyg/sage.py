"""GraphSAGE on sampled neighbours, tested on all neighbours layer by layer, as in PyG's reddit.py."""

import example_graphs
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import SAGEConv

data = example_graphs.read("oewn")
nodes = example_graphs.split("oewn")
train_loader = NeighborLoader(data, [10, 10], nodes["train"], batch_size=1024, shuffle=True)
layer_loader = NeighborLoader(data, [-1], None, batch_size=4096)


class Model(nn.Module):
    def __init__(self, in_channels: int, hidden: int, num_classes: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList([SAGEConv(in_channels, hidden), SAGEConv(hidden, num_classes)])

    def layer(self, number: int, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.convs[number](x, edge_index)
        return x.relu() if number == 0 else x

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = functional.dropout(self.layer(0, x, edge_index), 0.3, self.training)
        return self.layer(1, x, edge_index)

    @torch.no_grad()
    def inference(self) -> Tensor:
        x_all = torch.empty(0)
        for number in range(2):
            outputs = []
            for batch in layer_loader:
                x = batch.x if number == 0 else x_all[batch.n_id]
                outputs.append(self.layer(number, x, batch.edge_index)[: batch.batch_size])
            x_all = torch.cat(outputs)
        return x_all


y = train_loader.data.y
model = Model(train_loader.data.num_features, 64, int(y.max()) + 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(2):
    model.train()
    for batch in train_loader:
        optimizer.zero_grad()
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        functional.cross_entropy(out, batch.y[: batch.batch_size]).backward()
        optimizer.step()

model.eval()
result = (model.inference().argmax(1) == y)[nodes["test"]].float().mean().item()
print(f"test accuracy {result:.4f}")
