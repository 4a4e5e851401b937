"""Which edges and features a prediction is due to: PyG's Explainer on a batch from disk.

python examples/explain_nodes.py DATASET
"""

import sys

import torch
from torch.nn import functional
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import GraphSAGE

import diskhop

torch.manual_seed(0)
dataset = diskhop.open_dataset(sys.argv[1])
model = GraphSAGE(dataset.feature_dim, 32, num_layers=2, out_channels=dataset.num_classes)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
with diskhop.NeighborLoader(dataset, [10, 5], "train", batch_size=100, shuffle=True, memory="100MB") as loader:
    for _ in range(3):
        for batch in loader:
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            functional.cross_entropy(out, batch.y[: batch.batch_size]).backward()
            optimizer.step()

explainer = Explainer(
    model,
    GNNExplainer(epochs=50),
    explanation_type="model",
    node_mask_type="attributes",
    edge_mask_type="object",
    model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
)
# All neighbours of one node, two hops deep: what the model sees of it. Numbers of nodes are those of the source.
with diskhop.NeighborLoader(dataset, [-1, -1], "test", batch_size=1, memory="100MB") as loader:
    batch = next(iter(loader))
result = explainer(batch.x, batch.edge_index, index=0)
features = result.node_mask.sum(0).topk(3).indices.tolist()
print(f"node {int(batch.n_id[0])}: features {features}")
for number in result.edge_mask.topk(min(5, batch.num_edges)).indices.tolist():
    source, destination = batch.n_id[batch.edge_index[:, number]].tolist()
    print(f"edge {source} -> {destination}: {result.edge_mask[number]:.2f}")
