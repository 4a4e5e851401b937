"""Training with batches delivered on a device: the CPU as the device gives every bit of a run in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, TrainingError
from diskhop.nn.devices import CudaState
from diskhop.pipeline.transfer import RING_BYTES, PinnedRing
from diskhop.runs.devices import device_of_rank
from diskhop.runs.kinds import find_kind
from diskhop.runs.start import train
from diskhop.runtime.ranks import Ranks
from diskhop.stores.packed.layout import read_layout
from diskhop.stores.stores import STORES
from diskhop.ui.summary import summarize
from tests.devices import as_on_a_device, deliver_on_the_cpu
from tests.runs import assert_same_run, import_arrays, interrupt, losses, random_arrays, small_graph

OPTIONS: dict[str, Any] = {
    "hidden": 8,
    "fanout": (3, 3),
    "eval_fanout": (3, 3),
    "batch_size": 50,
    "epochs": 2,
    "memory_bytes": 100_000_000,
    "threads": 1,
    "engine": "threads",
    "ordered": True,
}
NO_CUDA = CudaState(torch_version="2.13.0+cpu", build="", num_devices=0)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "g", num_nodes=300, num_edges=1500, dim=8)


@pytest.fixture
def delivered(monkeypatch: pytest.MonkeyPatch) -> list[PinnedRing]:
    """See deliver_on_the_cpu()."""
    return deliver_on_the_cpu(monkeypatch)


Make = Callable[..., Any]


@pytest.fixture
def run_both(tmp_path: Path, delivered: list[PinnedRing]) -> Make:
    """Return what trains in memory, unless it is given that run, and with delivered batches, and compares every bit."""

    def run(dataset: Dataset, memory: Path | None = None, **changes: Any) -> Any:
        options = {**OPTIONS, **changes}
        if memory is None:
            memory = tmp_path / "memory"
            train(dataset, out=memory, **options)
        trained = train(dataset, out=tmp_path / "device", device="cuda:7", **options)
        assert_same_run(tmp_path / "device", memory)
        assert trained.result["plan"]["reserved"]["transfer buffers"] == RING_BYTES
        assert len(delivered) == 1
        return trained

    return run


@pytest.fixture(scope="module")
def in_memory(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run of an epoch without a device."""
    out = tmp_path_factory.mktemp("runs") / "memory"
    train(dataset, out=out, store="memory", **{**OPTIONS, "epochs": 1})
    return out


@pytest.mark.fast("packed", "belady", "direct")
@pytest.mark.parametrize("store", STORES)
def test_delivered_batches_train_the_same_model_from_every_store(
    dataset: Dataset, in_memory: Path, run_both: Make, store: str
) -> None:
    trained = run_both(dataset, in_memory, store=store, epochs=1)
    assert any(reason.startswith("Device cpu: each batch is copied") for reason in trained.result["plan"]["reasons"])
    assert all(epoch["transfer_seconds"] > 0 for epoch in trained.result["epochs"])
    assert any(name == "transfer" for name, _ in summarize(trained.result, None))


@pytest.mark.fast("packed", "auto")
@pytest.mark.parametrize("store", ["static", "packed", "belady", "auto"])
def test_rows_on_the_device_train_the_same_model(dataset: Dataset, in_memory: Path, run_both: Make, store: str) -> None:
    trained = run_both(dataset, in_memory, store=store, epochs=1, device_memory_bytes=3200)
    plan = trained.result["plan"]
    assert plan["row_places"]["device_rows"] == 100
    assert any(line.startswith("Rows, most accessed first: 100 (33.3%) on the device") for line in plan["reasons"])
    # An address per row, and the ids of those that are placed.
    ids = 300 if plan["store"] == "memory" else 100
    assert plan["reserved"]["row addresses of the device"] == 8 * (300 + ids)


@pytest.mark.fast(1)
@pytest.mark.parametrize(
    ("cache", "device", "places"),
    [(50, 100, (100, 50)), (1, 60, (60, 1)), (300, 500, (295, 0))],
    ids=["both", "few in memory", "all that is accessed"],
)
def test_batches_packed_ahead_lack_the_rows_on_the_device(
    dataset: Dataset, tmp_path: Path, run_both: Make, cache: int, device: int, places: tuple[int, int]
) -> None:
    train(dataset, out=tmp_path / "direct", store="direct", reuse=True, **OPTIONS)
    options: dict[str, Any] = {"store": "packed", "reuse": True, "scratch": str(tmp_path), "cache_bytes": cache * 32}
    trained = run_both(dataset, tmp_path / "direct", device_memory_bytes=device * 32, **options)
    plan = trained.result["plan"]
    assert plan["row_places"] == {"device_rows": places[0], "pinned_rows": places[1]}
    (manifest,) = tmp_path.glob("packed-*/layout.json")
    assert read_layout(manifest.parent).num_held == sum(places)
    assert any(line.startswith("Using 1 epoch packed in") for line in plan["reasons"])
    for epoch in trained.result["epochs"]:
        assert (epoch["rows_hit"] == epoch["rows_requested"]) == (device >= 300)


def test_a_cache_stays_beside_rows_on_the_device(dataset: Dataset, in_memory: Path, run_both: Make) -> None:
    trained = run_both(dataset, in_memory, store="belady", epochs=1, device_memory_bytes=320)
    assert trained.result["plan"]["row_places"] == {"device_rows": 10, "pinned_rows": 0}
    (epoch,) = trained.result["epochs"]
    assert epoch["bytes_read"] < epoch["bytes_needed"] / 2


@pytest.mark.fast("gat", "ladies")
@pytest.mark.parametrize(
    "changes",
    [
        {"model": "gcn", "class_weights": "balanced", "norm": "batch"},
        {"model": "gat", "heads": 2},
        {"sampler": "saint-node", "fanout": (-1, -1), "batch_size": 100, "sample_coverage": 3},
        {"sampler": "cluster", "fanout": (-1, -1), "batch_size": 2, "clusters": 8},
        {"sampler": "ladies", "fanout": (60, 60), "accumulate": 2, "clip_norm": 0.5},
    ],
    ids=lambda changes: changes.get("sampler", changes.get("model")),
)
def test_what_else_a_batch_has_is_delivered_too(dataset: Dataset, run_both: Make, changes: dict[str, Any]) -> None:
    run_both(dataset, store="direct", epochs=1, **changes)


def test_values_are_standardised_on_the_device_with_the_same_bits(tmp_path: Path, run_both: Make) -> None:
    arrays = random_arrays()
    arrays["y"] = np.random.default_rng(1).normal(3, 5, (200, 2)).astype(np.float32)
    arrays["y"][5, 1] = np.nan
    run_both(import_arrays(tmp_path, **arrays), store="direct")


def test_weights_of_edges_are_delivered(tmp_path: Path, run_both: Make) -> None:
    weights = np.random.default_rng(1).random(800, np.float32) + 0.5
    run_both(import_arrays(tmp_path, **random_arrays(), edge_weight=weights), store="direct", model="gcn")


def test_a_run_resumes_on_another_device(dataset: Dataset, tmp_path: Path, delivered: list[PinnedRing]) -> None:
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    train(dataset, out=whole, store="direct", **OPTIONS)
    interrupt(dataset, resumed, 1, store="direct", device="cuda:7", **OPTIONS)
    assert len(delivered) == 1
    trained = train(out=resumed, resume=True, device="cpu")
    assert_same_run(whole, resumed)
    assert "transfer buffers" not in trained.result["plan"]["reserved"]
    assert len(delivered) == 1


def test_a_run_without_the_core_learns_the_same(dataset: Dataset, tmp_path: Path, delivered: list[PinnedRing]) -> None:
    options = {**OPTIONS, "dropout": 0.0, "store": "direct", "model": "gcn"}
    train(dataset, out=tmp_path / "memory", **options)
    with as_on_a_device(kernels=False):
        train(dataset, out=tmp_path / "device", device="cuda:7", **options)
    expected, found = ([float(loss) for loss in losses(tmp_path / name)] for name in ("memory", "device"))
    assert found == pytest.approx(expected, rel=1e-4)


def test_a_step_that_does_not_fit_is_one_line(
    dataset: Dataset, delivered: list[PinnedRing], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("diskhop.runs.trainer.torch.autograd.backward", fail)
    with pytest.raises(TrainingError, match="batches of 50 does not fit its memory; use --batch-size 25, a smaller"):
        train(dataset, device="cuda:7", store="direct", **OPTIONS)


def test_without_a_gpu_auto_says_why_and_cuda_is_refused(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diskhop.runs.devices.read_cuda", lambda: NO_CUDA)
    resolved = find_kind("sage").resolve(dataset, {"device": "auto", **OPTIONS}, None)
    assert resolved.config.device == "auto"
    assert ("device", "cpu", "torch 2.13.0+cpu is a build without CUDA") in resolved.choices
    with pytest.raises(ConfigError, match=r"--device cuda:1: torch 2.13.0\+cpu is a build without CUDA; install"):
        train(dataset, out=tmp_path / "run", device="cuda:1")
    with pytest.raises(ConfigError, match="device must be auto, cpu, cuda or cuda:N, got 'gpu'; for example"):
        train(dataset, out=tmp_path / "run", device="gpu")
    assert not (tmp_path / "run").exists()


def test_memory_of_a_device_needs_one(dataset: Dataset, tmp_path: Path) -> None:
    refused = "--device-memory 2 GB has no effect with --device cpu; use --device-memory 0, or --device cuda"
    with pytest.raises(ConfigError, match=f"^{refused}$"):
        train(dataset, out=tmp_path / "run", device_memory="2GB")


def test_ranks_divide_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    two = CudaState(torch_version="2.13.0", build="12.9", num_devices=2)
    monkeypatch.setattr("diskhop.runs.devices.read_cuda", lambda: two)
    ranks = [Ranks(rank=rank, count=3, local_rank=rank, local_count=3) for rank in range(3)]
    assert [device_of_rank("cuda", each) for each in ranks] == ["cuda:0", "cuda:1", "cuda:0"]
    assert [device_of_rank("auto", each) for each in ranks] == ["cuda:0", "cuda:1", "cuda:0"]
    assert {device_of_rank("cuda:1", each) for each in ranks} == {"cuda:1"}
    monkeypatch.setattr("diskhop.runs.devices.read_cuda", lambda: NO_CUDA)
    assert device_of_rank("auto", ranks[1]) == "auto"
