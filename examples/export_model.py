"""A model that diskhop trained, as a file of ONNX and of torch.export that takes batches of any size.

    pip install onnx onnxscript onnxruntime      (for ONNX)
    python examples/export_model.py DATASET [torch|onnx]

Parameters of sage, gcn and gat have the names of PyG's models, whose operators export; those of diskhop's core do not.
"""

import sys

import numpy as np
import torch
from torch.export import Dim
from torch_geometric.nn import GraphSAGE

import diskhop

dataset = diskhop.open_dataset(sys.argv[1])
run = diskhop.train(dataset, model="sage", layers=2, fanout="10,5", hidden=32, norm="none", epochs=3, memory="200MB")
model = GraphSAGE(dataset.feature_dim, 32, num_layers=2, out_channels=dataset.num_classes)
model.load_state_dict(run.model.state_dict())
model.eval()

# All neighbours of the seed nodes: what `diskhop predict` computes. The second batch has other sizes than the first.
with diskhop.NeighborLoader(dataset, [-1, -1], "test", batch_size=30, memory="100MB") as loader:
    first, *_, last = loader
shapes = {"x": {0: Dim("nodes")}, "edge_index": {1: Dim("edges")}}
example = (first.x, first.edge_index)
if sys.argv[2:] == ["onnx"]:
    import onnxruntime

    torch.onnx.export(model, example, "model.onnx", dynamic_shapes=shapes, input_names=["x", "edge_index"], dynamo=True)
    session = onnxruntime.InferenceSession("model.onnx")
    (out,) = session.run(None, {"x": last.x.numpy(), "edge_index": last.edge_index.numpy()})
else:
    torch.export.save(torch.export.export(model, example, dynamic_shapes=shapes), "model.pt2")
    out = torch.export.load("model.pt2").module()(last.x, last.edge_index).detach().numpy()
with torch.no_grad():
    wanted = run.model.eval()(last.x, last.block).numpy()
result = float(np.abs(out[: last.batch_size] - wanted).max())
print(f"{len(first.x)} and {len(last.x)} nodes; logits of the file differ by {result:.1e} at most")
