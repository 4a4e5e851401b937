"""Rows of hop tables delivered on a device, with the CPU as the device: the same batches from every place."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, ReadError
from diskhop.hops.read.placement import DeviceRoom, place_tables
from diskhop.hops.tables import TILE_ROWS
from diskhop.loaders.destination import device_of
from diskhop.loaders.hops import HopLoader
from diskhop.nn.devices import CudaState
from diskhop.pipeline.transfer import RING_BYTES
from diskhop.runs.plan import plan_run
from diskhop.runs.start import train
from tests.hop_tables import write_hop_tables
from tests.integration.test_hop_loader import SHAPES, values_of
from tests.runs import assert_same_run, small_graph

CPU = torch.device("cpu")
PLACES = ("device", "memory", "disk")
OPTIONS: dict[str, Any] = {
    "model": "sign",
    "hidden": 8,
    "hops": 2,
    "batch_size": 40,
    "epochs": 2,
    "shuffle": "chunks",
    "class_weights": "balanced",
    "memory_bytes": 100_000_000,
    "threads": 1,
    "engine": "threads",
}


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the CPU be a device."""
    monkeypatch.setattr("diskhop.loaders.hops.device_of", lambda wanted: wanted)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("shape", ["odd-rows", "odd-tiles"])
def test_batches_on_a_device_have_the_rows(tmp_path: Path, place: Any, shape: str) -> None:
    options = SHAPES[shape]
    values = values_of(3, TILE_ROWS + 9, options["dim"])
    tables = write_hop_tables(
        tmp_path / "t", list(values), dtype=options["dtype"], tile_columns=options["tile_columns"]
    )
    which = [2, 0]
    with HopLoader(tables, which=which, batch_size=3000, place=place, memory="100MB", seed=4, device=CPU) as loader:
        assert loader.budget.table()["transfer buffers"] == RING_BYTES
        for shuffle in ("rows", "none"):
            kept = []
            for batch in loader.run(shuffle=shuffle):
                np.testing.assert_array_equal(batch.x.float().numpy(), values[which][:, batch.rows])
                kept.append(batch)
            # They are the device's: no later batch is written over them.
            for batch in kept:
                np.testing.assert_array_equal(batch.x.float().numpy(), values[which][:, batch.rows])


@pytest.mark.parametrize("place", PLACES)
def test_passes_that_end_early_leave_nothing_in_flight(tmp_path: Path, place: Any) -> None:
    values = values_of(2, 900, 8)
    tables = write_hop_tables(tmp_path / "t", list(values))
    with HopLoader(tables, batch_size=100, place=place, memory="100MB", device=CPU) as loader:
        num_threads = threading.active_count()
        for _ in range(50):
            with loader.run() as batches:
                next(batches)
        assert threading.active_count() <= num_threads + 2
        assert sum(len(batch.rows) for batch in loader) == 900
    assert loader.budget.available_bytes == 100_000_000


def test_a_failed_read_reaches_the_consumer(tmp_path: Path) -> None:
    tables = write_hop_tables(tmp_path / "t", list(values_of(2, 900, 128)))
    with HopLoader(tables, batch_size=100, place="disk", memory="100MB", device=CPU) as loader:
        path = tables.table_path(1)
        content = path.read_bytes()
        path.write_bytes(content[:1000])
        with pytest.raises(ReadError):
            list(loader)
        path.write_bytes(content)
        assert len(list(loader)) == 9


def test_tables_go_to_the_device_if_they_fit_there() -> None:
    for free, place in ((100, "device"), (99, "memory")):
        chosen = place_tables(num_bytes=100, memory_bytes=100, device=DeviceRoom(100, free))
        assert (chosen.place, chosen.shuffle) == (place, "rows")
        assert chosen.reason.startswith(f"placement {place} (")
    assert place_tables(num_bytes=100, memory_bytes=99, device=DeviceRoom(100, 99)).place == "disk"


def test_a_place_on_a_device_needs_one(tmp_path: Path) -> None:
    tables = write_hop_tables(tmp_path / "t", list(values_of(2, 90, 8)))
    with pytest.raises(ConfigError, match="place must be 'memory' or 'disk' without a device, got 'device'; add dev"):
        HopLoader(tables, place="device", memory="100MB")
    with HopLoader(tables, device=CPU, device_memory="1MB", memory="100MB") as loader:
        assert loader.placement.place == "device"
    with HopLoader(tables, device=CPU, device_memory="1KB", memory="100MB") as loader:
        assert loader.placement.place == "memory"
    with pytest.raises(ConfigError, match="device_memory must be None for batches in memory, got '1MB'; leave it out"):
        HopLoader(tables, device_memory="1MB", memory="100MB")


def test_auto_without_a_gpu_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_cuda = CudaState(torch_version="2.13.0+cpu", build="", num_devices=0)
    monkeypatch.setattr("diskhop.loaders.destination.read_cuda", lambda: no_cuda)
    monkeypatch.setattr("diskhop.loaders.hops.device_of", device_of)
    tables = write_hop_tables(tmp_path / "t", list(values_of(2, 90, 8)))
    with HopLoader(tables, device="auto", device_memory="1MB", memory="100MB") as loader:
        assert loader.placement.place == "memory"
        line = "Device cpu: torch 2.13.0+cpu is a build without CUDA; device_memory '1MB' is not used"
        assert loader.placement.reason.endswith(f"; shuffling rows. {line}")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "g", num_nodes=300, num_edges=1500, dim=8)


@pytest.fixture(scope="module")
def in_memory(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run without a device."""
    out = tmp_path_factory.mktemp("runs") / "memory"
    train(dataset, out=out, **OPTIONS)
    return out


@pytest.mark.fast("device")
@pytest.mark.parametrize("place", PLACES)
def test_delivered_rows_train_the_same_model(
    dataset: Dataset, in_memory: Path, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diskhop.runs.nodes.hops.device_of", lambda _: CPU)
    monkeypatch.setattr("diskhop.runs.nodes.defaults.choose_run_device", lambda *_: None)
    out = tmp_path / "device"
    trained = train(dataset, out=out, device="cuda", placement=place, **OPTIONS)
    assert_same_run(out, in_memory)
    assert trained.result["plan"]["reserved"]["transfer buffers"] == RING_BYTES
    assert trained.result["plan"]["placement"] == place


def test_placement_on_a_device_needs_one(dataset: Dataset) -> None:
    with pytest.raises(ConfigError, match="--placement device needs a GPU: add --device cuda, or use --placement mem"):
        train(dataset, model="sign", placement="device")


def test_a_plan_compares_the_device_with_memory_and_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = small_graph(tmp_path / "g", num_nodes=300, num_edges=1500, dim=8)
    monkeypatch.setattr("diskhop.runs.kinds.device_of", lambda _: CPU)
    monkeypatch.setattr("diskhop.runs.nodes.defaults.choose_run_device", lambda *_: None)
    options = {**OPTIONS, "device": "cuda", "scratch": str(tmp_path / "scratch")}
    options = {name: value for name, value in options.items() if name not in ("class_weights", "shuffle")}
    ranking = plan_run(dataset, device_memory="10MB", **options)
    predicted = {each.name: each.predicted for each in ranking.options}
    assert predicted.keys() == {"device", "memory", "disk"}
    assert ranking.best.placement in PLACES
    assert all(each is not None and each.epoch_seconds > 0 for each in predicted.values())
    ranking = plan_run(dataset, device_memory="10KB", **options)
    (refused,) = [each.reason for each in ranking.options if each.predicted is None]
    assert refused.startswith("tables take ")
    assert refused.endswith(" of the device, 10 KB are for them (--device-memory)")
    assert plan_run(dataset, device_memory="10KB", placement="device", **options).best.placement == "device"
