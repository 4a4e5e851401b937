"""Training loops of diskhop and PyTorch Geometric on the same graph; benchmarks/peers.py prints them.

Each runs in a process of its own: `peers_training.py DATASET SIDE BATCHES THREADS`, which prints the seconds of each
batch as JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from diskhop import NeighborLoader
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.dataset.files import map_array
from diskhop.nn.models import Network, SageLayer, fastest_products
from peers_reading import BATCH_SIZE, FANOUT, IN_MEMORY, OURS, memory_bytes, table_bytes
from turns import peak_rss_bytes

HIDDEN, CLASSES = 256, 47
WARM_UP_BATCHES = 3
DOCUMENTED, TRIMMED = "PyG, documented", "PyG, trimmed"
TENTH, FIFTH = "diskhop, a tenth in memory", "diskhop, a fifth in memory"

Result = dict[str, Any]


def time_batches(steps: Iterable[Any], num_batches: int) -> list[float]:
    """Return the seconds of each batch, loading and step together, without the first few."""
    seconds = []
    last = time.perf_counter()
    for number, _ in enumerate(steps):
        now = time.perf_counter()
        if number >= WARM_UP_BATCHES:
            seconds.append(now - last)
        last = now
        if len(seconds) == num_batches:
            break
    return seconds


def train_ours(dataset: Dataset, num_batches: int, precision: str = "float32", share: float = 1.0) -> Result:
    """Train with NeighborLoader. share: of the rows that may stay in memory; 1: all are."""
    products = fastest_products(precision)
    model = Network(
        lambda inputs, outputs, _: SageLayer(inputs, outputs, products), dataset.feature_dim, HIDDEN, CLASSES, 3
    )
    optimizer = torch.optim.Adam(model.parameters())
    waiting = []
    with our_loader(dataset, share) as loader:

        def steps() -> Iterator[float]:
            asked = time.perf_counter()
            for batch in loader:
                waiting.append(time.perf_counter() - asked)
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(batch.x, batch.block), batch.y[: batch.batch_size])
                torch.autograd.backward(loss)
                optimizer.step()
                value = loss.item()
                del batch, loss
                yield value
                asked = time.perf_counter()

        seconds = time_batches(steps(), num_batches)
    remark = f"waits {statistics.median(waiting[WARM_UP_BATCHES:]):.3f} s for a batch"
    return {"seconds": seconds, "remark": remark}


def our_loader(dataset: Dataset, share: float = 1.0) -> NeighborLoader:
    """Open our loader. share: see train_ours()."""
    options: dict[str, Any] = {"memory": memory_bytes(dataset, IN_MEMORY, share), "store": "memory"}
    if share < 1:
        cache_bytes = int(share * table_bytes(dataset))
        options = {"memory": memory_bytes(dataset, OURS, share), "cache": cache_bytes, "store": "auto"}
    threads = torch.get_num_threads()
    return NeighborLoader(
        dataset, list(FANOUT), "train", batch_size=BATCH_SIZE, shuffle=True, threads=threads, **options
    )


def train_pyg(dataset: Dataset, num_batches: int, *, trims: bool) -> Result:
    """Train PyG's GraphSAGE as its examples do. trims: each layer leaves out what later ones do not need."""
    from torch_geometric.nn import GraphSAGE

    model = GraphSAGE(dataset.feature_dim, HIDDEN, 3, CLASSES)
    optimizer = torch.optim.Adam(model.parameters())

    def steps() -> Iterator[float]:
        for batch in pyg_batches(dataset):
            optimizer.zero_grad()
            trimming = {}
            if trims:
                trimming = {
                    "num_sampled_nodes_per_hop": list(batch.num_sampled_nodes),
                    "num_sampled_edges_per_hop": list(batch.num_sampled_edges),
                }
            out = model(batch.x, batch.edge_index, **trimming)[: batch.batch_size]
            loss = functional.cross_entropy(out, batch.y[: batch.batch_size])
            torch.autograd.backward(loss)
            optimizer.step()
            yield loss.item()

    seconds = time_batches(steps(), num_batches)
    return {"seconds": seconds, "remark": "its own sampler" if has_pyg_sampler() else "diskhop samples for it"}


def pyg_batches(dataset: Dataset) -> Iterator[Any]:
    """Yield batches of PyG's own loader, or, where it has no sampler, of ours, all in memory."""
    if not has_pyg_sampler():
        with our_loader(dataset) as ours:
            yield from ours
        return
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader as PygLoader

    labels, train_ids = dataset.label_rows(), dataset.split_rows("train")
    assert labels is not None
    assert train_ids is not None
    indptr, sources, x = (torch.from_numpy(each) for each in arrays_of(dataset))
    targets = torch.repeat_interleave(torch.arange(dataset.num_nodes), indptr.diff())
    data = Data(x=x, edge_index=torch.stack([sources, targets]), y=torch.from_numpy(labels.copy()))
    seeds = torch.from_numpy(train_ids.copy())
    yield from PygLoader(data, list(FANOUT), seeds, batch_size=BATCH_SIZE, shuffle=True, is_sorted=True)


def arrays_of(dataset: Dataset) -> tuple[Any, Any, Any]:
    """Return copies in memory of indptr (nodes + 1) and indices (edges), int64, and the rows (nodes, dim), float32."""
    files, table = dataset.topology, dataset.feature_table()
    assert table is not None
    indptr = map_array(files.indptr_path, "<i8", files.num_nodes + 1)
    sources = map_array(files.indices_path, files.index_dtype, files.num_edges).astype("<i8")
    x = map_array(table.path, "<f4", files.num_nodes * dataset.feature_dim)
    return indptr.copy(), sources, x.copy().reshape(-1, dataset.feature_dim)


def has_pyg_sampler() -> bool:
    """Return whether PyG's NeighborLoader can sample here."""
    from torch_geometric import typing

    return bool(typing.WITH_PYG_LIB or typing.WITH_TORCH_SPARSE)


SIDES: dict[str, Callable[[Dataset, int], Result]] = {
    OURS: train_ours,
    "diskhop, bfloat16": partial(train_ours, precision="bfloat16"),
    TENTH: partial(train_ours, share=0.1),
    FIFTH: partial(train_ours, share=0.2),
    DOCUMENTED: partial(train_pyg, trims=False),
    TRIMMED: partial(train_pyg, trims=True),
}


def main() -> None:
    path, side, num_batches, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    result = SIDES[side](open_dataset(Path(path)), int(num_batches))
    print(json.dumps(result | {"peak": peak_rss_bytes()}))


if __name__ == "__main__":
    main()
