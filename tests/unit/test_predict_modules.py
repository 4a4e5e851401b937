"""Layers that can be computed in batches, those that cannot, and what is said about them in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric import nn as pyg

from diskhop.dataset.dataset import Dataset
from diskhop.errors import BudgetError, ConfigError, DestinationError, DiskhopError, PredictionError
from diskhop.predicting.batched.dry_run import dry_run
from diskhop.predicting.batched.modules import Layer
from diskhop.predicting.predict import predict_array
from diskhop.runtime.tasks import WorkFolder
from tests.batched import (
    WithNorm,
    assert_close,
    build_graph,
    predict_small,
    small_batches,
    stored_features,
    tables_of,
    values,
    whole_graph,
)
from tests.graphs import random_pairs

DIM = 8


class Calls(nn.Module):
    """A layer that calls a function with itself, x and edges; attributes are given."""

    def __init__(self, function: Any, **modules: Any) -> None:
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.function(self, x, edge_index)


def perceptron(in_dim: int) -> nn.Module:
    return nn.Sequential(nn.Linear(in_dim, DIM), nn.BatchNorm1d(DIM), nn.ReLU())


def parallel(self: Any, x: Tensor, edges: Tensor) -> Tensor:
    out: Tensor = self.one(x, edges) + self.other(x, edges)
    return out


def chained(self: Any, x: Tensor, edges: Tensor) -> Tensor:
    out: Tensor = self.other(self.one(x, edges), edges)
    return out


def normed(norm: nn.Module) -> nn.Module:
    return Calls(lambda self, x, edges: self.norm(self.conv(x, edges)), conv=pyg.GCNConv(DIM, DIM), norm=norm)


TAKEN: dict[str, nn.Module] = {
    "two convolutions next to each other": Calls(parallel, one=pyg.GCNConv(DIM, DIM), other=pyg.GATConv(DIM, DIM)),
    "row norm": normed(pyg.LayerNorm(DIM, mode="node")),
    "running statistics": normed(pyg.BatchNorm(DIM)),
    "one iteration with degrees": pyg.AntiSymmetricConv(DIM),
    "gated": pyg.GatedGraphConv(DIM, 1),
    "degrees of destinations": pyg.ClusterGCNConv(DIM, DIM),
    "filters without degrees": pyg.EGConv(DIM, DIM, aggregators=["mean", "max"]),
    "local extrema": pyg.LEConv(DIM, DIM),
    "transformer": pyg.TransformerConv(DIM, 4, heads=2),
    "edges": pyg.EdgeConv(perceptron(2 * DIM)),
    "softmax of messages": pyg.GENConv(DIM, DIM),
    "double": pyg.SAGEConv(DIM, DIM).double(),
}


@pytest.fixture
def graph(tmp_path: Path) -> tuple[Dataset, NDArray[np.int64]]:
    pairs = random_pairs(60, 400, seed=3)
    return build_graph(
        tmp_path / "graph", pairs, np.random.default_rng(0).normal(size=(60, DIM)).astype(np.float32)
    ), pairs


@pytest.mark.parametrize("name", TAKEN)
def test_what_one_hop_determines_is_exact(graph: tuple[Dataset, NDArray[np.int64]], tmp_path: Path, name: str) -> None:
    dataset, pairs = graph
    with small_batches(100):
        actual = predict_small(dataset, [TAKEN[name]], tmp_path / "work", store="direct")
    assert_close(actual, whole_graph([TAKEN[name]], stored_features(dataset), pairs))


NEIGHBORS, ROWS, OTHERS = (
    "depends on edges of its neighbours",
    "mixes rows of unrelated nodes",
    "depends on edges into other",
)
REFUSED: dict[str, tuple[nn.Module, str]] = {
    "degrees": (pyg.SGConv(DIM, DIM), f"SGConv\\) {NEIGHBORS}"),
    "some degrees": (pyg.EGConv(DIM, DIM), NEIGHBORS),
    "laplacian": (pyg.ChebConv(DIM, DIM, 2), NEIGHBORS),
    "hops": (pyg.TAGConv(DIM, DIM, normalize=False), NEIGHBORS),
    "personalised": (pyg.APPNP(2, 0.1), NEIGHBORS),
    "two iterations": (pyg.AntiSymmetricConv(DIM, num_iters=2), "\\(GCNConv in it\\)"),
    "chain": (Calls(chained, one=pyg.SAGEConv(DIM, DIM), other=pyg.SAGEConv(DIM, DIM)), "\\(SAGEConv in it\\)"),
    "out-edges": (pyg.DirGNNConv(pyg.SAGEConv(DIM, DIM)), NEIGHBORS),
    "flow": (pyg.GCNConv(DIM, DIM, flow="target_to_source"), NEIGHBORS),
    "longest list": (pyg.SAGEConv(DIM, DIM, aggr="lstm"), OTHERS),
    "graph norm": (normed(pyg.GraphNorm(DIM)), ROWS),
    "pair norm": (normed(pyg.PairNorm()), ROWS),
    "layer norm of the graph": (normed(pyg.LayerNorm(DIM)), ROWS),
    "no running statistics": (normed(nn.BatchNorm1d(DIM, track_running_stats=False)), ROWS),
    "attention to all": (pyg.GPSConv(DIM, None, heads=2, norm=None), ROWS),
    "relations": (pyg.RGCNConv(DIM, DIM, 2), "layer 1 \\(RGCNConv\\) fails on x with 8 columns: AssertionError"),
    "more arguments": (pyg.GCN2Conv(DIM, 0.1), "missing 1 required positional argument"),
    "rows only": (nn.Linear(DIM, DIM), "it is called as layer\\(x, edge_index\\)"),
    "other width": (pyg.SAGEConv(3, DIM), "mat1 and mat2 shapes"),
    "other edges": (Calls(lambda self, x, e: self.c(x, e.clone()), c=pyg.GCNConv(DIM, DIM)), "gets other edges"),
    "edge weights": (
        Calls(lambda self, x, e: self.c(x, e, torch.ones(e.shape[1])), c=pyg.GCNConv(DIM, DIM)),
        "gets edge weights",
    ),
    "a pair of tensors": (Calls(lambda self, x, e: (x, e)), "returned a tuple"),
    "whole numbers": (Calls(lambda self, x, e: x.long()), "returned torch.int64"),
    "too few rows": (Calls(lambda self, x, e: x[:3]), "returned shape \\(3, 8\\)"),
    "no columns": (Calls(lambda self, x, e: x[:, 0]), "must return one row per node"),
    "random": (Calls(lambda self, x, e: x + next(self.draws), draws=iter(range(99))), "gives other rows"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_more_than_one_hop_determines_is_refused_in_one_line(name: str) -> None:
    module, reason = REFUSED[name]
    with pytest.raises(ConfigError, match=reason) as caught:
        dry_run(Layer(1, module), DIM)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        ([], "empty list"),
        ([lambda x, edges: x], "layer 1 is a function, must be a torch.nn.Module"),
        ([torch.jit.script(nn.Linear(DIM, DIM))], "ScriptModule"),
        ([pyg.SAGEConv(-1, DIM)], "parameters without values"),
        ([pyg.GCN(DIM, 4, 2)], "layer 1 is a whole model \\(GCN\\)"),
        (pyg.SAGEConv(DIM, DIM), "must be a list of modules, one per hop"),
        (type("Own", (pyg.GCN,), {"forward": lambda self, x, e: x})(DIM, 4, 2), "Own has its own forward"),
        (pyg.GCN(DIM, 4, 2, norm="graph_norm"), "mixes rows"),
    ],
)
def test_what_is_no_list_of_layers_is_refused(graph: Any, tmp_path: Path, layers: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        predict_small(graph[0], layers, tmp_path / "work")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("fanout", ["some", 0, [3], [3, -2], []])
def test_fanouts_are_checked(graph: Any, tmp_path: Path, fanout: Any) -> None:
    layers = [pyg.SAGEConv(DIM, DIM), pyg.SAGEConv(DIM, DIM)]
    with pytest.raises(ConfigError, match="fanout must be 'all', a count, or a list of 2 counts"):
        predict_small(graph[0], layers, tmp_path / "work", fanout=fanout)


def test_a_value_that_is_not_finite_is_named_with_layer_and_node(tmp_path: Path) -> None:
    features = np.ones((30, DIM), np.float32)
    features[7] = 1e30
    order = np.random.default_rng(0).permutation(30)
    dataset = build_graph(tmp_path / "graph", np.array([[1], [2]]), features, order=order)
    layers = [Calls(lambda self, x, edges: x * 1e5), Calls(lambda self, x, edges: x * 1e5)]
    with (
        small_batches(10),
        pytest.raises(PredictionError, match=r"layer 2 \(Calls\): its result for node 7 is"),
    ):
        predict_small(dataset, layers, tmp_path / "work")


def test_modules_stay_as_they_are(graph: tuple[Dataset, NDArray[np.int64]], tmp_path: Path) -> None:
    own, last = WithNorm(DIM, 6), pyg.GCNConv(6, 4, cached=True)
    layers = nn.ModuleList([own, last]).train()
    own.norm.eval()
    before = {name: value.clone() for name, value in layers.state_dict().items()}
    threads, was_deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    state = torch.get_rng_state()
    predict_small(graph[0], layers, tmp_path / "work")
    assert [each.training for each in layers.modules() if isinstance(each, nn.BatchNorm1d | nn.Dropout)] == [
        False,
        True,
    ]
    assert own.conv.normalize
    assert last.training
    assert last._cached_edge_index is None
    assert not any(each._forward_pre_hooks for each in layers.modules())
    assert all(torch.equal(value, before[name]) for name, value in layers.state_dict().items())
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == (threads, was_deterministic)
    assert torch.equal(torch.get_rng_state(), state)


def test_tables_that_are_asked_for_are_kept_and_others_removed(graph: Any, tmp_path: Path) -> None:
    dataset, pairs = graph
    layers = [pyg.SAGEConv(DIM, 6), pyg.SAGEConv(6, 5), pyg.SAGEConv(5, 4)]
    with WorkFolder(tmp_path / "out") as work:
        tables = tables_of(dataset, layers, work, keep=[2])
        assert {path.name for path in (work.path / "tables").glob("*.bin")} == {"layer-2.bin", "layer-3.bin"}
        assert_close(values(tables, 2), whole_graph(layers[:2], stored_features(dataset), pairs))
        assert_close(values(tables), whole_graph(layers, stored_features(dataset), pairs))
        assert tables_of(dataset, layers, work, keep=[2]).plans == {}
        with pytest.raises(ConfigError, match="layer 4 does not exist; the model has layers 1 to 3"):
            tables_of(dataset, layers, work, keep=[4])
        work.remove()
    assert not list(tmp_path.glob(".out*"))


@pytest.mark.parametrize("change", ["weights", "setting", "seed"])
def test_another_model_reuses_nothing(graph: Any, tmp_path: Path, change: str) -> None:
    dataset, _ = graph
    layers = [pyg.GATConv(DIM, 6), pyg.SAGEConv(6, 5)]
    with WorkFolder(tmp_path / "out") as work:
        tables_of(dataset, layers, work)
        if change == "weights":
            with torch.no_grad():
                layers[1].lin_l.bias += 1
        elif change == "setting":
            layers[0].negative_slope = 0.5
        again = tables_of(dataset, layers, work, seed=1 if change == "seed" else 0)
        assert sorted(again.plans) == [1, 2]
        work.remove()


def test_a_graph_without_features_or_edges_is_predicted_too(tmp_path: Path) -> None:
    pairs = random_pairs(30, 90)
    dataset = build_graph(tmp_path / "plain", pairs, None, num_nodes=30)
    layers = [pyg.SAGEConv(2, 3), pyg.GCNConv(3, 2)]
    degrees = np.bincount(pairs[1], minlength=30)
    expected = whole_graph(layers, np.stack([np.ones(30), np.log1p(degrees)], axis=1), pairs)
    assert_close(predict_small(dataset, layers, tmp_path / "work"), expected)
    pairs = np.empty((2, 0), np.int64)
    lonely = build_graph(tmp_path / "lonely", pairs, None, num_nodes=3)
    expected = whole_graph(layers, np.array([[1.0, 0.0]] * 3), pairs)
    assert_close(predict_small(lonely, layers, tmp_path / "work"), expected)


def test_arrays_come_in_the_order_of_the_source(tmp_path: Path) -> None:
    pairs, features = random_pairs(40, 200), np.random.default_rng(0).normal(size=(40, DIM)).astype(np.float32)
    layers = [pyg.GCNConv(DIM, 3)]
    plain = build_graph(tmp_path / "plain", pairs, features)
    order = np.random.default_rng(1).permutation(40)
    hot = build_graph(tmp_path / "hot", pairs, features, order=order)
    expected = predict_array(plain.path, layers, memory="80MB")
    np.testing.assert_allclose(predict_array(hot, layers, memory="80MB"), expected, rtol=1e-5, atol=1e-6)
    assert not list((hot.path / "derived").iterdir())


def test_too_little_memory_or_disk_is_told_before_any_work(
    graph: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, _ = graph
    layers = [pyg.SAGEConv(DIM, 6), pyg.SAGEConv(6, 4)]
    with pytest.raises(
        BudgetError, match=r"layer 1 \(SAGEConv\): --memory 1 MB is too small: .* the smallest"
    ) as caught:
        predict_small(dataset, layers, tmp_path / "work", memory_bytes=1_000_000)
    assert caught.value.smallest_bytes is not None
    enough = -(-caught.value.smallest_bytes // 1_000_000) * 1_000_000
    predict_small(dataset, layers, tmp_path / "work", memory_bytes=enough)
    monkeypatch.setattr("diskhop.predicting.disk.free_bytes", lambda _folder: 100_000)
    with pytest.raises(DestinationError, match=r"tables between .* take 145 KB, only .* KB are free; free some"):
        predict_small(dataset, [pyg.SAGEConv(DIM, 600), pyg.SAGEConv(600, 4)], tmp_path / "work")


def test_memory_that_only_a_later_layer_lacks_is_asked_for_before_any_layer_is_computed(
    graph: Any, tmp_path: Path
) -> None:
    """Both where the last layer is the largest and where the head of a model with jumping knowledge is."""
    dataset, _ = graph

    def enough_for(model: Any, memory_bytes: int, seen: list[str]) -> int:
        with pytest.raises(BudgetError, match=r"--memory .* is too small: .* the smallest that works") as caught:
            predict_small(
                dataset,
                model,
                tmp_path / "work",
                memory_bytes=memory_bytes,
                progress=lambda stage, _done, _total: seen.append(stage),
            )
        assert caught.value.smallest_bytes is not None
        return -(-caught.value.smallest_bytes // 1_000_000) * 1_000_000

    for model, first in (
        ([pyg.SAGEConv(DIM, 6), pyg.GCNConv(6, 4000)], [pyg.SAGEConv(DIM, 6)]),
        (pyg.GraphSAGE(DIM, 8, 2, 8000, jk="cat"), pyg.GraphSAGE(DIM, 8, 2, 8)),
    ):
        seen: list[str] = []
        memory_bytes = enough_for(first, 1_000_000, [])
        enough_bytes = enough_for(model, memory_bytes, seen)
        assert not [stage for stage in seen if stage.startswith("layer")]
        assert not list(tmp_path.rglob("layer-*.bin"))
        assert not list((dataset.path / "derived").iterdir())
        predict_small(dataset, model, tmp_path / "work", memory_bytes=enough_bytes)


def test_errors_of_a_layer_reach_the_caller(graph: Any, tmp_path: Path) -> None:
    def fail(_self: Any, x: Tensor, _edges: Tensor) -> Tensor:
        if x.shape[0] not in (64, 4096):
            raise DiskhopError("as the test wants it")
        return x

    with pytest.raises(DiskhopError, match="as the test wants it"):
        predict_small(graph[0], [Calls(fail)], tmp_path / "work")
