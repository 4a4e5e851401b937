"""Training scripts as PyG's examples are written: only the import and the first argument of the loader change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, GraphSAGE, SAGEConv
from torch_geometric.transforms import NormalizeFeatures, RandomLinkSplit

import diskhop
from diskhop import LinkNeighborLoader, NeighborLoader

NODES, CLASSES = 400, 4


def communities(*, column: bool) -> Data:
    """A graph in which a node's class shows in its features and neighbours. column: y of shape (nodes, 1), as OGB's."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(NODES) % CLASSES
    offsets = torch.randint(0, NODES // CLASSES, (NODES, 6), generator=generator) * CLASSES
    sources = (torch.arange(NODES)[:, None] % CLASSES + offsets).flatten() % NODES
    edge_index = torch.stack([sources, torch.arange(NODES).repeat_interleave(6)])
    x = functional.one_hot(y, 8).float() + torch.randn(NODES, 8, generator=generator)
    place = torch.randperm(NODES, generator=generator)
    masks = {"train_mask": place < 200, "val_mask": (place >= 200) & (place < 300), "test_mask": place >= 300}
    return Data(x=x, edge_index=edge_index, y=y[:, None] if column else y, **masks)


class SAGE(torch.nn.Module):
    """The network of PyG's reddit.py."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList(
            [SAGEConv(in_channels, hidden_channels), SAGEConv(hidden_channels, out_channels)]
        )

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Compute classes of all nodes of a batch."""
        for i, conv in enumerate(self.convs):
            x = conv(x, edge_index)
            if i < len(self.convs) - 1:
                x = functional.dropout(x.relu_(), p=0.5, training=self.training)
        return x

    @torch.no_grad()
    def inference(self, x_all: torch.Tensor, subgraph_loader: NeighborLoader) -> torch.Tensor:
        """Compute classes of all nodes layer by layer, with a loader of one hop."""
        num_done = 0
        for i, conv in enumerate(self.convs):
            xs = []
            for batch in subgraph_loader:
                x = conv(x_all[batch.n_id], batch.edge_index)
                x = x.relu_() if i < len(self.convs) - 1 else x
                xs.append(x[: batch.batch_size])
                num_done += batch.batch_size
            x_all = torch.cat(xs, dim=0)
        assert num_done == len(subgraph_loader.dataset) * len(self.convs)
        return x_all


def test_reddit(tmp_path: Path) -> None:
    torch.manual_seed(0)
    data = communities(column=False)
    dataset = diskhop.from_pyg(data, tmp_path / "graph")
    kwargs: dict[str, Any] = {"memory": "100MB", "batch_size": 64, "num_workers": 6, "persistent_workers": True}
    train_loader = NeighborLoader(dataset, input_nodes=data.train_mask, num_neighbors=[25, 10], shuffle=True, **kwargs)
    subgraph_loader = NeighborLoader(dataset, input_nodes=None, num_neighbors=[-1], shuffle=False, **kwargs)
    # No need to maintain these features during evaluation:
    del subgraph_loader.data.x, subgraph_loader.data.y
    # Add global node index information:
    subgraph_loader.data.num_nodes = data.num_nodes  # type: ignore[misc]
    subgraph_loader.data.n_id = torch.arange(data.num_nodes)
    model = SAGE(train_loader.data.num_features, 32, train_loader.data.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(6):
        model.train()
        for batch in train_loader:
            optimizer.zero_grad()
            y = batch.y[: batch.batch_size]
            loss = functional.cross_entropy(model(batch.x, batch.edge_index)[: batch.batch_size], y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    model.eval()
    y_hat = model.inference(data.x, subgraph_loader).argmax(dim=-1)
    torch.testing.assert_close(
        model.inference(data.x, subgraph_loader), model(data.x, data.edge_index), rtol=1e-4, atol=1e-4
    )
    accuracies = [
        (y_hat[mask] == data.y[mask]).float().mean() for mask in (data.train_mask, data.val_mask, data.test_mask)
    ]
    assert min(accuracies) > 0.9
    for loader in (train_loader, subgraph_loader):
        loader.close()


def test_ogbn_train(tmp_path: Path) -> None:
    torch.manual_seed(0)
    data = communities(column=True)
    dataset = diskhop.from_pyg(data, tmp_path / "graph")
    split_idx = {part: data[f"{part}_mask"].nonzero().flatten() for part in ("train", "val", "test")}
    loaders = {
        part: NeighborLoader(
            dataset,
            input_nodes=split_idx[part],
            num_neighbors=[10, 5],
            batch_size=64,
            shuffle=part == "train",
            num_workers=2,
            persistent_workers=True,
            disjoint=False,
            memory="100MB",
        )
        for part in split_idx
    }
    model = GraphSAGE(data.num_features, 32, num_layers=2, out_channels=CLASSES)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(6):
        model.train()
        for batch in loaders["train"]:
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            y = batch.y[: batch.batch_size].squeeze().to(torch.long)
            loss = functional.cross_entropy(out, y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    model.eval()
    for part, loader in loaders.items():
        correct = 0
        for batch in loader:
            assert batch.y.shape == (len(batch.n_id), 1)
            pred = model(batch.x, batch.edge_index)[: batch.batch_size].argmax(dim=-1)
            correct += int((pred == batch.y[: batch.batch_size].squeeze()).sum())
            assert torch.equal(batch[f"{part}_mask"], data[f"{part}_mask"][batch.n_id])
        assert correct / len(split_idx[part]) > 0.9
        loader.close()


def area_under_curve(scores: torch.Tensor, labels: torch.Tensor) -> float:
    """The chance that a link with label 1 has a higher score than one with label 0."""
    higher = scores[labels == 1][:, None] > scores[labels == 0]
    return float(higher.float().mean())


def test_graph_sage_unsup(tmp_path: Path) -> None:
    torch.manual_seed(0)
    data = communities(column=False)
    data.x = data.x.clamp(min=0)
    dataset = diskhop.from_pyg(data, tmp_path / "graph")
    train_loader = LinkNeighborLoader(
        dataset,
        batch_size=256,
        shuffle=True,
        neg_sampling_ratio=1.0,
        num_neighbors=[10, 10],
        transform=NormalizeFeatures(),
        memory="100MB",
    )
    model = GraphSAGE(data.num_node_features, hidden_channels=32, num_layers=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(10):
        total_loss = 0.0
        for batch in train_loader:
            optimizer.zero_grad()
            h = model(batch.x, batch.edge_index)
            h_src = h[batch.edge_label_index[0]]
            h_dst = h[batch.edge_label_index[1]]
            pred = (h_src * h_dst).sum(dim=-1)
            loss = functional.binary_cross_entropy_with_logits(pred, batch.edge_label)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total_loss += loss.item() * pred.size(0)
        losses.append(total_loss / data.num_nodes)
    assert losses[-1] < 0.85 * losses[0]
    train_loader.close()


class Net(torch.nn.Module):
    """The network of PyG's link_pred.py."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv1 = GCNConv(in_channels, hidden_channels)
        self.conv2 = GCNConv(hidden_channels, out_channels)

    def encode(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Embed all nodes of a batch."""
        embedded: torch.Tensor = self.conv2(self.conv1(x, edge_index).relu(), edge_index)
        return embedded

    def decode(self, z: torch.Tensor, edge_label_index: torch.Tensor) -> torch.Tensor:
        """Score links."""
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)


def test_link_pred(tmp_path: Path) -> None:
    torch.manual_seed(0)
    split = RandomLinkSplit(num_val=0.05, num_test=0.1, add_negative_train_samples=False)
    train_data, _, test_data = split(communities(column=False))
    # edge_label_index and edge_label are the loader's arguments, which the dataset does not keep.
    train_set, test_set = (
        diskhop.from_pyg(Data(**{k: v for k, v in part.to_dict().items() if "label" not in k}), tmp_path / name)
        for name, part in (("train", train_data), ("test", test_data))
    )
    train_loader = LinkNeighborLoader(
        train_set,
        num_neighbors=[10, 10],
        edge_label_index=train_data.edge_label_index,
        neg_sampling={"mode": "binary", "amount": 1},
        batch_size=128,
        shuffle=True,
        memory="100MB",
    )
    test_loader = LinkNeighborLoader(
        test_set,
        num_neighbors=[-1, -1],
        edge_label_index=test_data.edge_label_index,
        edge_label=test_data.edge_label,
        batch_size=128,
        memory="100MB",
    )
    assert len(train_loader.dataset) == train_data.edge_label_index.shape[1]
    model = Net(train_data.num_features, 32, 16)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(5):
        model.train()
        for batch in train_loader:
            optimizer.zero_grad()
            out = model.decode(model.encode(batch.x, batch.edge_index), batch.edge_label_index).view(-1)
            loss = functional.binary_cross_entropy_with_logits(out, batch.edge_label)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    model.eval()
    with torch.no_grad():
        scores = [model.decode(model.encode(b.x, b.edge_index), b.edge_label_index) for b in test_loader]
        auc = area_under_curve(torch.cat(scores), test_data.edge_label)
    assert auc > 0.7
    for loader in (train_loader, test_loader):
        loader.close()
