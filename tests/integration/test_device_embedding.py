"""Runs of embeddings with partitions on a device, the CPU in its place: the same draws, files, states and resumes."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from diskhop._native import CrashError, Engine
from diskhop.dataset.dataset import Dataset
from diskhop.embedding.device.step import DeviceEdges, DeviceStep
from diskhop.embedding.partitions.edges import EdgeRows
from diskhop.embedding.step.known_edges import KnownEdges
from diskhop.embedding.step.step import Step
from diskhop.errors import BudgetError, ConfigError, TrainingError
from diskhop.io.faults import CrashInjector
from diskhop.nn.devices import CudaState
from diskhop.pipeline.transfer import DeviceCopies, PinnedRing
from diskhop.runs.embedding.defaults import resolve_embed_config
from diskhop.runs.start import run_config
from tests.devices import BY_INTERPRETER, as_on_a_device
from tests.embedding import committed_bytes, embed_config, small_triples
from tests.graphs import memory_folder

THERE: dict[str, Any] = {"partitions": 6, "device": "cuda:7", "device_memory_bytes": 10_000_000}
# Float32 after some steps, whose products add in another order.
CLOSE = 1e-4


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_triples(tmp_path_factory.mktemp("triples"))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with memory_folder(tmp_path) as found:
        yield found


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train runs with device='cuda:7' on the CPU as on a device, through rings of 5000 bytes."""
    cpu = torch.device("cpu")
    monkeypatch.setattr(
        "diskhop.runs.embedding.run.device_of", lambda config: cpu if config.device == "cuda:7" else None
    )
    monkeypatch.setattr(
        "diskhop.runs.embedding.run.DeviceCopies", lambda there: DeviceCopies(there, PinnedRing(there, 5000))
    )


def assert_close_runs(ours: Path, theirs: Path) -> None:
    found, expected = committed_bytes(ours), committed_bytes(theirs)
    assert found.keys() == expected.keys()
    for name in [name for name in found if name.startswith("partition")]:
        mine, other = (np.frombuffer(each[name], np.float32) for each in (found, expected))
        np.testing.assert_allclose(mine, other, rtol=CLOSE, atol=CLOSE, err_msg=name)


@pytest.mark.fast(2)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"prefetch_slot": "leaving", "dropout": 0.3},
        {"repartitions": 2, "model": "dot", "degree_negatives": 0.5, "mask_known": True},
        {"mask_known": True},
    ],
    ids=["spare slot", "leaving slot", "repartitions", "known edges"],
)
def test_batches_are_those_in_memory_and_embeddings_are_close(
    dataset: Dataset, folder: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    """Every edge and negative has the same row in the same batch: slots, order and draws are the same."""
    batches: dict[str, list[list[np.ndarray]]] = {"memory": [], "device": []}
    by_memory, by_device = Step.run, DeviceStep.run

    def record(step: Step, edges: EdgeRows, negatives: np.ndarray, *others: Any) -> float:
        batches["memory"].append([edges.sources, edges.destinations, negatives])
        return by_memory(step, edges, negatives, *others)

    def record_there(step: DeviceStep, edges: DeviceEdges, negatives: torch.Tensor, *others: Any) -> float:
        batches["device"].append([edges.sources.numpy(), edges.destinations.numpy(), negatives.numpy()])
        return by_device(step, edges, negatives, *others)

    for name, options in (("memory", {"partitions": 6}), ("device", THERE)):
        with monkeypatch.context() as patch, as_on_a_device(kernels=False):
            # Planning measures steps, too.
            patch.setattr("diskhop.runs.embedding.run.measure_edges_per_second", lambda *_: 1e6)
            patch.setattr(Step, "run", record)
            patch.setattr(DeviceStep, "run", record_there)
            run_config(dataset, embed_config(**options, **changes), folder / name)
    assert len(batches["device"]) == len(batches["memory"]) > 0
    for ours, theirs in zip(batches["device"], batches["memory"], strict=True):
        for found, expected in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(found, expected)
    assert_close_runs(folder / "device", folder / "memory")


def test_known_edges_are_gone_before_the_next_ones_are_read(
    dataset: Dataset, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, earlier, alive = KnownEdges.read, list[Any](), list[int]()

    def count(*arguments: Any) -> KnownEdges:
        alive.append(sum(each() is not None for each in earlier))
        earlier.append(weakref.ref(known := read(*arguments)))
        return known

    monkeypatch.setattr(KnownEdges, "read", count)
    monkeypatch.setattr("diskhop.runs.embedding.run.measure_edges_per_second", lambda *_: 1e6)
    with as_on_a_device(kernels=False):
        run_config(dataset, embed_config(**THERE, repartitions=2, model="dot", mask_known=True), folder / "device")
    assert alive == [0] * len(alive)
    assert len(alive) > 1


@pytest.mark.slow
@BY_INTERPRETER[0]
@BY_INTERPRETER[1]
def test_kernels_train_what_torch_does(dataset: Dataset, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diskhop.runs.embedding.run.measure_edges_per_second", lambda *_: 1e6)
    for kernels in (True, False):
        with as_on_a_device(kernels=kernels):
            run_config(
                dataset, embed_config(**{**THERE, "partitions": 3}, epochs=1, negatives=3, dim=4), folder / str(kernels)
            )
    assert_close_runs(folder / "True", folder / "False")


@pytest.mark.fast(1)
@pytest.mark.parametrize("changes", [{"overlap": False}, {"checkpoint_every": "1 states"}], ids=str)
def test_how_partitions_move_changes_no_bit(dataset: Dataset, folder: Path, changes: dict[str, Any]) -> None:
    run_config(dataset, embed_config(**THERE), folder / "one")
    run_config(dataset, embed_config(**THERE, **changes), folder / "other")
    assert committed_bytes(folder / "one") == committed_bytes(folder / "other")


def test_a_run_is_resumed_with_the_same_bits(dataset: Dataset, folder: Path) -> None:
    config = embed_config(**THERE, checkpoint_every="1 states")
    run_config(dataset, config, folder / "whole")
    for name in ("crashed", "after"):
        (folder / name).mkdir()
    with CrashInjector(folder / "crashed", 120) as injector:
        engine = Engine("threads", 1, injector.native)
        with pytest.raises(CrashError):
            run_config(dataset, config, folder / "crashed" / "run", engine=engine, injector=injector)
        injector.write_survivors(folder / "after", "data")
    run_config(dataset, config, folder / "after" / "run", resume=True)
    assert committed_bytes(folder / "after" / "run") == committed_bytes(folder / "whole")


def test_what_cannot_be_on_a_device_is_refused(dataset: Dataset, folder: Path) -> None:
    with pytest.raises(ConfigError, match="--model rotate is trained in memory: use --device cpu"):
        embed_config(**THERE, model="rotate")
    with pytest.raises(ConfigError, match="--device-memory 1 MB has no effect with --device cpu"):
        embed_config(device_memory_bytes=1_000_000)
    with pytest.raises(
        BudgetError, match=r"--device-memory 100 KB is too small for 6 partitions, 3 at a time .* works is"
    ):
        run_config(dataset, embed_config(**{**THERE, "device_memory_bytes": 100_000}), folder / "run")
    assert not (folder / "run").exists()


def test_memory_that_runs_out_is_said_in_one_line(
    dataset: Dataset, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> float:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    monkeypatch.setattr("diskhop.runs.embedding.run.measure_edges_per_second", lambda *_: 1e6)
    monkeypatch.setattr(DeviceStep, "run", fail)
    with pytest.raises(TrainingError, match=r"cpu: batches of 64 edges do not fit its memory .* use --batch-size 32"):
        run_config(dataset, embed_config(**THERE), folder / "run")


def test_auto_without_a_gpu_trains_in_memory(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    no_cuda = CudaState(torch_version="2.13.0+cpu", build="", num_devices=0)
    monkeypatch.setattr("diskhop.runs.embedding.defaults.read_cuda", lambda: no_cuda)
    options = {"device": "auto", "device_memory_bytes": 10**6, "memory_bytes": 10**8}
    resolved = resolve_embed_config(dataset, options, None)
    assert (resolved.config.device, resolved.config.device_memory_bytes) == ("cpu", 0)
    assert ("device_memory", "0", "partitions are trained in memory") in resolved.choices
