"""Predictions for published graphs equal one forward pass of PyG over the whole graph in float64."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, SAGEConv, SGConv
from torch_geometric.transforms import SIGN

import diskhop
from diskhop.config.hop import HopConfig
from diskhop.dataset.dataset import Dataset
from diskhop.importing.run import import_graph
from diskhop.io.engine import open_engine
from diskhop.nn.models import Hoga, HopNetwork, Sgc, Sign, build_hop_model
from diskhop.planning.predict import StreamedPlan
from diskhop.runs.nodes.opened import open_classifier
from diskhop.runs.predict.run import predict_run
from diskhop.runs.start import train
from tests import batched
from tests.batched import assert_close, stored_features
from tests.graphs import SHARED_DATA, edges_of
from tests.hop_formulas import hoga_by_formula, sign_by_formula
from tests.streamed_networks import build_network, streamed, whole_graph

HIDDEN, HEADS, HOPS = 96, 4, 2
GRAPHS = ("cora", "oewn")


def on_each_graph(*models: str) -> pytest.MarkDecorator:
    """Parametrize by graphs and models: all models on cora, and on oewn, where they are slow."""
    cases = [(graph, model) for graph in GRAPHS for model in models]
    marked = [pytest.param(*case, marks=() if case[0] == GRAPHS[0] else pytest.mark.slow) for case in cases]
    return pytest.mark.parametrize(("graph", "model"), marked, indirect=["graph"])


@dataclass(frozen=True, slots=True)
class Graph:
    """A dataset and its arrays: features float64 (nodes, dim), edges int64 (2, edges)."""

    dataset: Dataset
    features: NDArray[np.float64]
    pairs: NDArray[np.int64]

    @property
    def table_bytes(self) -> int:
        """Bytes of the features in float32, the largest table."""
        return 4 * self.features.size


@pytest.fixture(scope="module")
def graph(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Graph:
    source = SHARED_DATA / request.param
    if not source.is_dir():
        pytest.skip(f"needs the graph '{request.param}' in ../shared/data")
    folder = tmp_path_factory.mktemp("graph")
    dataset = import_graph(source, folder / request.param, engine=open_engine("threads").engine)
    return Graph(dataset, stored_features(dataset), np.array(edges_of(dataset), np.int64).T.copy())


@pytest.mark.fast("cora-sage")
@on_each_graph("gcn", "gat", "sage")
def test_streamed_networks(graph: Graph, tmp_path: Path, model: str) -> None:
    """The memory is a twentieth of the features' table."""
    dim, num_classes = graph.features.shape[1], graph.dataset.num_classes
    network = build_network(model, dim, num_classes, layers=2, hidden=HIDDEN, heads=HEADS, norm="batch")
    plans = list[StreamedPlan]()
    found = streamed(
        graph.dataset,
        network,
        tmp_path / "work",
        wanted=(1, 2),
        memory_bytes=graph.table_bytes // 20,
        threads=2,
        plans=plans,
    )
    assert max(layer.num_blocks for layer in plans[0].layers) > 1
    for rows, expected in zip(found.values(), whole_graph(network, graph.features, graph.pairs), strict=True):
        assert_close(rows, expected)


@pytest.mark.parametrize("graph", [GRAPHS[0], pytest.param(GRAPHS[1], marks=pytest.mark.slow)], indirect=True)
def test_layers_by_batches(graph: Graph) -> None:
    dim, num_classes = graph.features.shape[1], graph.dataset.num_classes
    torch.manual_seed(0)
    layers: list[nn.Module] = [SAGEConv(dim, 16), GATConv(16, 8, heads=HEADS), GCNConv(8 * HEADS, num_classes)]
    found = diskhop.predict(graph.dataset, layers, memory="160MB", threads=2)
    assert_close(found, batched.whole_graph(layers, graph.features, graph.pairs))


@pytest.mark.fast("cora-sign")
@pytest.mark.filterwarnings("ignore:Sparse")  # PyG's own, of how torch checks what it is given
@on_each_graph("sgc", "hoga", "sign")
def test_trained_models_of_hop_tables(graph: Graph, tmp_path: Path, model: str) -> None:
    options: dict[str, Any] = {} if model == "sgc" else {"layers": 2, "hidden": 16, "norm": "none"}
    if model == "hoga":
        options["heads"] = HEADS
    options |= {
        "normalize_input": False,
        "hops": HOPS,
        "dtype": "float32",
        "direction": "in",
        "epochs": 1,
        "memory": "60MB",
        "threads": 2,
    }
    train(graph.dataset, out=tmp_path / "run", model=model, **options)
    out = tmp_path / "out"
    predict_run(tmp_path / "run", out=out, what=("logits",), format="npy", memory="40MB", threads=2)
    assert_close(np.load(out / "logits.npy"), dense_hops(tmp_path / "run", graph))


def dense_hops(run: Path, graph: Graph) -> NDArray[np.float64]:
    """The logits of a run, its hops by PyG."""
    opened = open_classifier(run)
    assert isinstance(opened.config, HopConfig)
    dim, num_classes = graph.features.shape[1], graph.dataset.num_classes
    network = build_hop_model(opened.config, dim, 1 if opened.config.model == "sgc" else 1 + HOPS, num_classes)
    opened.load_into(network)
    x, edges = torch.from_numpy(graph.features), torch.from_numpy(graph.pairs)
    with torch.no_grad():
        out = of_hops(network, x, edges)
    return out.numpy()


def of_hops(network: HopNetwork, x: Tensor, edges: Tensor) -> Tensor:
    model = network.model
    if isinstance(model, Sgc):
        convolution = SGConv(x.shape[1], len(model.linear.bias), K=HOPS).double()
        convolution.lin.load_state_dict(model.linear.state_dict())
        out: Tensor = convolution(x, edges)
        return out
    data = SIGN(HOPS)(Data(x=x, edge_index=edges, edge_weight=torch.ones(edges.shape[1], dtype=x.dtype)))
    tables = torch.stack([data.x, *(data[f"x{hop}"] for hop in range(1, HOPS + 1))])
    if isinstance(model, Sign):
        return sign_by_formula(model, tables)
    assert isinstance(model, Hoga)
    return hoga_by_formula(model, tables, HEADS)
