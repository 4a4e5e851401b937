"""DGL GraphBolt's documented loop, all in memory; benchmarks/peers.py runs it in an environment that has DGL.

`peers_graphbolt.py FOLDER FANOUT BATCH_SIZE HIDDEN CLASSES BATCHES THREADS`: the folder has indptr, indices, rows,
seeds and labels as .npy. Prints the seconds of each batch as JSON. Nothing of diskhop is imported.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from dgl import graphbolt as gb  # type: ignore[import-not-found]  # only in that environment
from dgl.nn import SAGEConv  # type: ignore[import-not-found]
from torch.nn import functional


class Sage(torch.nn.Module):
    """GraphSAGE with means."""

    def __init__(self, dims: list[int]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(SAGEConv(*pair, "mean") for pair in pairwise(dims))

    def forward(self, blocks: list[object], x: torch.Tensor) -> torch.Tensor:
        """Return the scores of the seeds."""
        for number, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            x = layer(block, x)
            if number < len(self.layers) - 1:
                x = functional.relu(x)
        return x


def main() -> None:
    folder, fanout, *sizes = sys.argv[1:]
    fanouts, (batch_size, hidden, classes, num_batches, threads) = fanout.split(","), map(int, sizes)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    indptr, indices, rows, seeds, labels = (
        torch.from_numpy(np.load(Path(folder) / f"{name}.npy"))
        for name in ("indptr", "indices", "rows", "seeds", "labels")
    )
    graph = gb.fused_csc_sampling_graph(indptr, indices)
    features = gb.BasicFeatureStore({("node", None, "rows"): gb.TorchBasedFeature(rows)})
    items = gb.ItemSet((seeds, labels[seeds]), names=("seed_nodes", "labels"))
    steps = gb.ItemSampler(items, batch_size=batch_size, shuffle=True)
    steps = steps.sample_neighbor(graph, [int(each) for each in fanouts])
    steps = steps.fetch_feature(features, node_feature_keys=["rows"])
    model = Sage([rows.shape[1], *[hidden] * (len(fanouts) - 1), classes])
    optimizer = torch.optim.Adam(model.parameters())
    seconds, last = [], time.perf_counter()
    for batch in gb.DataLoader(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(batch.blocks, batch.node_features["rows"]), batch.labels)
        torch.autograd.backward(loss)
        optimizer.step()
        loss.item()
        now = time.perf_counter()
        seconds.append(now - last)
        last = now
        if len(seconds) == num_batches:
            break
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "peak": peak, "remark": f"version {sys.modules['dgl'].__version__}"}))


if __name__ == "__main__":
    main()
