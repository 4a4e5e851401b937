"""Built-in networks over all nodes of small graphs, streamed, and by PyG's layers in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.config.sampled import SampledConfig
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import assumed_disk_model
from diskhop.io.atomic import Injector
from diskhop.nn.layers.gat import GatLayer
from diskhop.nn.layers.gcn import GcnLayer
from diskhop.nn.layers.sage import SageLayer
from diskhop.nn.models import Network, build_model
from diskhop.predicting.rows import RowTable
from diskhop.predicting.streamed.run import StreamedRun
from diskhop.predicting.typed.streamed import TypedStreamedRun
from diskhop.runtime.jobs import Executor
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import TaskTools, WorkFolder
from tests.batched import build_graph
from tests.graphs import threads_engine


def build_network(model: str, in_dim: int, num_outputs: int, **options: Any) -> Network:
    """A network with random parameters, in evaluation mode; its norms are not those of a new one."""
    given: dict[str, Any] = {"layers": 3, "hidden": 8, "heads": 2, "norm": "layer", **options}
    config = SampledConfig(
        model=model,
        fanout=(-1,) * given["layers"],
        eval_fanout=(-1,) * given["layers"],
        eval_batch_size=10,
        dropout=0.5,
        batch_size=10,
        epochs=1,
        lr=0.1,
        task="classification",
        loss="cross-entropy",
        metric="accuracy",
        memory_bytes=10**9,
        engine="threads",
        threads=1,
        store="auto",
        **given,
    )
    torch.manual_seed(0)
    network = build_model(config, in_dim, num_outputs)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.5)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm1d):
            assert module.running_mean is not None
            assert module.running_var is not None
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
    return network.eval()


def sparse_graph(folder: Path) -> tuple[Dataset, NDArray[np.int64], NDArray[np.float32]]:
    """A graph of 30,000 nodes: a third has no edges, most of the last are no neighbours."""
    rng, num_nodes = np.random.default_rng(0), 30_000
    pairs = np.stack([rng.integers(0, 24_000, 40_000), np.sort(rng.integers(0, num_nodes, 40_000))])
    pairs[1] -= pairs[1] % 2 * (pairs[1] > 9000)
    features = rng.normal(size=(num_nodes, 16)).astype(np.float32)
    return build_graph(folder / "graph", pairs, features), pairs, features


def streamed(
    dataset: Dataset,
    network: Network,
    work: Path,
    *,
    wanted: Sequence[int] = (3,),
    build: Callable[[], Network] | None = None,
    **options: Any,
) -> dict[int, NDArray[np.float32]]:
    """The outputs of layers for all rows. build: see StreamedRun. options: see in_work_folder()."""
    make_run = partial(StreamedRun, dataset=dataset, network=network, build=build)
    return in_work_folder(make_run, work, wanted=wanted, **options)


def in_work_folder(
    make_run: Callable[..., StreamedRun | TypedStreamedRun],
    work: Path,
    *,
    wanted: Sequence[int],
    memory_bytes: int = 1 << 26,
    threads: int = 1,
    engine: Engine | None = None,
    injector: Injector | None = None,
    plans: list[Any] | None = None,
    range_bytes: int = 1,
    keep: bool = False,
    progress: Progress = silent,
    executor: Executor | None = None,
) -> dict[int, NDArray[np.float32]]:
    """The outputs of layers, computed in a work folder that is removed unless it is kept."""
    run = make_run(
        wanted=frozenset(wanted),
        budget=Budget(memory_bytes),
        threads=threads,
        tools=TaskTools(engine or threads_engine(), injector, executor=executor),
        disk=assumed_disk_model("threads", "small tests"),
        range_bytes=range_bytes,
        progress=progress,
    )
    with WorkFolder(work, injector) as folder:
        with run.compute(folder, (plans if plans is not None else []).append) as computed:
            found = {number: read_rows(table) for number, table in computed.layers.items()}
        if not keep:
            folder.remove()
    return found


def read_rows(table: RowTable) -> NDArray[np.float32]:
    """All rows of a table."""
    return np.concatenate([np.empty((0, table.dim), np.float32), *(block.copy() for block in table.blocks(7))])


def whole_graph(network: Network, x: NDArray[np.float64], pairs: NDArray[np.int64]) -> list[NDArray[np.float64]]:
    """The outputs of all layers by PyG's layers over the whole graph, float64."""
    h, edges, outputs = torch.from_numpy(x), torch.from_numpy(pairs), []
    if network._normalize_input:
        h = h / h.sum(dim=1, keepdim=True).clamp(min=1.0)
    with torch.no_grad():
        for number, conv in enumerate(network.convs):
            below, h = h, _convolve(conv, h, edges)
            if len(network.self_terms) > 0:
                h = h + _linear(network.self_terms[number], below)
            if number < len(network.norms):
                h = _finish(network, number, h)
            if number < len(network.shortcuts):
                h = h + _linear(network.shortcuts[number], below)
            outputs.append(h.numpy())
    return outputs


def _convolve(conv: nn.Module, h: Tensor, edges: Tensor) -> Tensor:
    if isinstance(conv, SageLayer):
        made: nn.Module = SAGEConv(conv.in_channels, conv.out_channels)
    elif isinstance(conv, GcnLayer):
        made = GCNConv(conv.in_channels, conv.out_channels)
    else:
        assert isinstance(conv, GatLayer)
        made = GATConv(conv.in_channels, conv.out_channels, heads=conv.heads)
    made.load_state_dict(conv.state_dict())
    out: Tensor = made.double()(h, edges)
    return out


def _finish(network: Network, number: int, h: Tensor) -> Tensor:
    norm = network.norms[number]
    if isinstance(norm, nn.LayerNorm):
        h = functional.layer_norm(h, norm.normalized_shape, norm.weight.double(), norm.bias.double(), norm.eps)
    elif isinstance(norm, nn.BatchNorm1d):
        assert norm.running_mean is not None
        assert norm.running_var is not None
        mean, variance = norm.running_mean.double(), norm.running_var.double()
        h = functional.batch_norm(h, mean, variance, norm.weight.double(), norm.bias.double(), eps=norm.eps)
    is_gat = isinstance(network.convs[0], GatLayer)
    return functional.elu(h) if is_gat else h.relu()


def _linear(module: nn.Module, h: Tensor) -> Tensor:
    if isinstance(module, nn.Identity):
        return h
    assert isinstance(module, nn.Linear)
    return functional.linear(h, module.weight.double(), module.bias.double())
