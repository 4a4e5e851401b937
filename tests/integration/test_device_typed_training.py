"""Training of typed models and of links with batches delivered on the CPU as a device: the bits of a run in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import diskhop
from diskhop.config.train import LINK
from diskhop.dataset.dataset import Dataset
from diskhop.pipeline.transfer import RING_BYTES, PinnedRing
from diskhop.stores.stores import STORES
from tests.devices import as_on_a_device, deliver_on_the_cpu
from tests.links import OPTIONS as LINK_OPTIONS
from tests.runs import assert_same_run, losses, small_graph
from tests.typed_graphs import typed_dataset
from tests.typed_links import shop

FIXED: dict[str, Any] = {"epochs": 1, "threads": 1, "engine": "threads", "ordered": True}
OPTIONS: dict[str, Any] = {
    **FIXED,
    "memory": "80MB",
    "batch_size": 25,
    "hidden": 8,
    "heads": 2,
    "fanout": (3, 2),
    "matmul": "blas",
}
LINKS: dict[str, Any] = {**LINK_OPTIONS, **FIXED, "matmul": "blas"}
TYPED_LINKS: dict[str, Any] = {**LINKS, "target": "user,buys,item"}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return typed_dataset(tmp_path_factory.mktemp("typed") / "graph")[1]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "sbm")


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return shop(tmp_path_factory.mktemp("graphs") / "shop")


@pytest.fixture(scope="module")
def in_memory(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A typed run without a device."""
    out = tmp_path_factory.mktemp("runs") / "memory"
    diskhop.train(dataset, out=out, store="memory", **OPTIONS)
    return out


@pytest.fixture
def delivered(monkeypatch: pytest.MonkeyPatch) -> list[PinnedRing]:
    """See deliver_on_the_cpu()."""
    return deliver_on_the_cpu(monkeypatch)


@pytest.fixture
def run_both(tmp_path: Path, delivered: list[PinnedRing]) -> Callable[..., Any]:
    """Return what trains in memory, unless it is given that run, and with delivered batches, and compares every bit."""

    def run(dataset: Dataset, options: dict[str, Any], memory: Path | None = None, **device: Any) -> Any:
        if memory is None:
            memory = tmp_path / "memory"
            diskhop.train(dataset, out=memory, **options)
        trained = diskhop.train(dataset, out=tmp_path / "device", device="cuda:7", **options, **device)
        assert_same_run(tmp_path / "device", memory)
        assert trained.result["plan"]["reserved"]["transfer buffers"] == RING_BYTES
        assert any(line.startswith("Device cpu: each batch is copied") for line in trained.result["plan"]["reasons"])
        assert all(epoch["transfer_seconds"] > 0 for epoch in trained.result["epochs"])
        assert len(delivered) == 1
        return trained

    return run


@pytest.mark.fast("packed", "direct")
@pytest.mark.parametrize("store", STORES)
def test_delivered_types_train_the_same_model_from_every_store(
    dataset: Dataset, in_memory: Path, run_both: Callable[..., Any], store: str
) -> None:
    run_both(dataset, {**OPTIONS, "store": store}, in_memory)


@pytest.mark.fast("rgcn", "hgt")
@pytest.mark.parametrize(
    "changes",
    [
        {"model": "rgat", "features": "degree"},
        {"model": "hgt", "features": "random", "sampler": "hgt", "fanout": (20, 20)},
        {"model": "simple-hgn", "accumulate": 2, "class_weights": "balanced"},
        {"model": "rgcn", "num_bases": 2, "norm": "batch"},
    ],
    ids=lambda changes: changes["model"],
)
def test_what_else_a_typed_batch_has_is_delivered_too(
    dataset: Dataset, run_both: Callable[..., Any], changes: dict[str, Any]
) -> None:
    run_both(dataset, {**OPTIONS, "store": "direct", **changes})


@pytest.mark.fast(1)
@pytest.mark.parametrize(
    "changes",
    [
        {"store": "packed"},
        {"model": "gcn", "metric": "mrr", "eval_filtered": True, "eval_candidates": 20},
        {"loss": "margin", "metric": "hits_at_3", "eval_filtered": False, "decoder": "mlp"},
    ],
    ids=["packed", "filtered", "all"],
)
def test_delivered_links_train_the_same_model(
    graph: Dataset, run_both: Callable[..., Any], changes: dict[str, Any]
) -> None:
    run_both(graph, {"store": "direct", **LINKS, **changes})


def test_rows_on_the_device_train_the_same_link_model(graph: Dataset, run_both: Callable[..., Any]) -> None:
    trained = run_both(graph, {**LINKS, "store": "static"}, device_memory=40 * graph.feature_dim * 4)
    assert trained.result["plan"]["row_places"]["device_rows"] == 40


@pytest.mark.fast(1)
@pytest.mark.parametrize("changes", [{}, {"metric": "mrr", "features": "random"}], ids=["auc", "mrr"])
def test_delivered_links_of_a_type_train_the_same_model(
    items: Dataset, run_both: Callable[..., Any], changes: dict[str, Any]
) -> None:
    run_both(items, {"store": "direct", **TYPED_LINKS, **changes})


@pytest.mark.fast(1)
@pytest.mark.parametrize("task", ["nodes", LINK])
def test_runs_without_the_core_learn_the_same(
    dataset: Dataset, items: Dataset, tmp_path: Path, delivered: list[PinnedRing], task: str
) -> None:
    source, options = (dataset, OPTIONS) if task == "nodes" else (items, TYPED_LINKS)
    options = {**options, "dropout": 0.0, "store": "direct", "model": "rgcn"}
    diskhop.train(source, out=tmp_path / "memory", **options)
    with as_on_a_device(kernels=False):
        diskhop.train(source, out=tmp_path / "device", device="cuda:7", **options)
    expected, found = ([float(loss) for loss in losses(tmp_path / name)] for name in ("memory", "device"))
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.fast("packed", "auto")
@pytest.mark.parametrize("store", ["static", "packed", "belady", "auto"])
def test_rows_of_types_on_the_device_train_the_same_model(
    dataset: Dataset, run_both: Callable[..., Any], store: str
) -> None:
    trained = run_both(dataset, {**OPTIONS, "store": store}, device_memory=1000)
    places = trained.result["plan"]["row_places"]
    assert places["device_rows"] == sum(each["device_rows"] for each in places["parts"].values()) > 0
    assert any(": Rows, most accessed first: " in line for line in trained.result["plan"]["reasons"])


def test_rows_of_types_on_the_device_train_the_same_link_model(items: Dataset, run_both: Callable[..., Any]) -> None:
    run_both(items, {"store": "static", **TYPED_LINKS}, device_memory=1000)
