"""The transfer stage, with the CPU as its device: the same ring and copies, and the same bytes from every store."""

from __future__ import annotations

import importlib
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import diskhop
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, PipelineError
from diskhop.loaders.destination import device_of
from diskhop.loaders.shares import LoaderShare
from diskhop.nn.devices import CudaState
from diskhop.pipeline.device_report import DeviceReport, measure_copy_rate, report_devices
from diskhop.pipeline.transfer import RING_BYTES, DeviceCopies, PinnedRing
from diskhop.plans import RowPlaces
from diskhop.protocols import TableGroup, TablePart
from diskhop.stores.stores import STORES
from tests.examples import examples
from tests.mini_batches import assert_same_batches
from tests.runs import small_graph
from tests.typed_graphs import typed_dataset

CPU = torch.device("cpu")
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.bool)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    path = tmp_path_factory.mktemp("graphs") / "g"
    return small_graph(path, num_nodes=300, num_edges=1500, dim=8, num_classes=3, train_fraction=0.5, seed=1)


@pytest.fixture
def rings(monkeypatch: pytest.MonkeyPatch) -> list[PinnedRing]:
    """Make loaders deliver on the CPU through rings of 100 bytes, which are listed."""
    made: list[PinnedRing] = []

    def copies(device: torch.device) -> DeviceCopies:
        made.append(PinnedRing(device, buffer_bytes=100, num_buffers=3))
        return DeviceCopies(device, made[-1])

    monkeypatch.setattr("diskhop.loaders.planned.DeviceCopies", copies)
    monkeypatch.setattr("diskhop.loaders.planned.device_of", lambda wanted: wanted)
    return made


def loader_for(dataset: Dataset, **changes: Any) -> diskhop.NeighborLoader:
    arguments = {"num_neighbors": [3, 2], "input_nodes": np.arange(40), "batch_size": 5, "memory": "50MB", "seed": 3}
    return diskhop.NeighborLoader(dataset, **{**arguments, **changes})


@examples(40)
@given(
    shape=st.lists(st.integers(0, 9), max_size=3),
    dtype=st.sampled_from(DTYPES),
    buffer_bytes=st.integers(8, 300),
    seed=st.integers(0, 99),
    transposed=st.booleans(),
)
def test_copies_through_a_ring_have_the_bytes(
    shape: list[int], dtype: torch.dtype, buffer_bytes: int, seed: int, transposed: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    tensor = torch.randint(0, 100, shape, generator=generator).to(dtype)
    if transposed:
        tensor = tensor.permute(tuple(reversed(range(len(shape)))))
    copies = DeviceCopies(CPU, PinnedRing(CPU, buffer_bytes))
    found = copies.copy(tensor)
    assert found.data_ptr() != tensor.data_ptr() or tensor.numel() == 0
    assert found.dtype == dtype
    assert torch.equal(found, tensor)
    if tensor.dim() and len(tensor):
        rows = torch.randint(0, len(tensor), (11,), generator=generator)
        assert torch.equal(copies.copy(tensor, rows.numpy()), tensor[rows])
        assert len(copies.finish().tensors) == 2


@pytest.mark.fast(4)
@pytest.mark.parametrize("store", STORES)
def test_batches_on_a_device_are_those_in_memory(dataset: Dataset, store: str, rings: list[PinnedRing]) -> None:
    arguments: dict[str, Any] = {"store": store, "ordered": store == "shared", "shuffle": True}
    with loader_for(dataset, **arguments) as loader:
        expected = [batch for _ in range(2) for batch in loader]
    with loader_for(dataset, **arguments, device=CPU) as loader:
        found = [batch for _ in range(2) for batch in loader]
        assert loader.plan.reserved["transfer buffers"] == RING_BYTES
    assert_same_batches(found, expected)
    for batch, other in zip(found, expected, strict=True):
        assert torch.equal(batch.block.sources, other.block.sources)
        assert torch.equal(batch.block.indptr, other.block.indptr)
    assert len(rings) == 1


@pytest.mark.fast(4)
@pytest.mark.parametrize("store", STORES)
def test_batches_with_rows_on_the_device_are_those_in_memory(
    dataset: Dataset, store: str, rings: list[PinnedRing]
) -> None:
    arguments: dict[str, Any] = {"store": store, "ordered": store == "shared", "shuffle": True}
    with loader_for(dataset, **arguments) as loader:
        expected = [batch for _ in range(2) for batch in loader]
    # 30 rows of 32 bytes.
    with loader_for(dataset, **arguments, device=CPU, device_memory=960) as loader:
        found = [batch for _ in range(2) for batch in loader]
        places = loader.plan.row_places
        assert places is not None
        assert places.device_rows == 30
        assert places.pinned_rows == (270 if store in ("memory", "static", "packed") else 0)
        ids = 300 if store == "memory" else 30
        assert loader.plan.reserved["row addresses of the device"] == 8 * (300 + ids)
        assert any(line.startswith("Rows, most accessed first: 30 (10.0%) on the") for line in loader.plan.reasons)
    assert_same_batches(found, expected)


def test_single_batches_and_graphs_per_seed_are_delivered_there_too(dataset: Dataset, rings: list[PinnedRing]) -> None:
    with loader_for(dataset) as memory, loader_for(dataset, device=CPU) as device:
        assert_same_batches([device([3, 1])], [memory([3, 1])])
    arguments: dict[str, Any] = {"depth": 2, "num_neighbors": 3, "node_idx": np.arange(9), "memory": "50MB"}
    with (
        diskhop.ShaDowKHopSampler(dataset, **arguments) as memory,
        diskhop.ShaDowKHopSampler(dataset, **arguments, device=CPU) as device,
        diskhop.ShaDowKHopSampler(dataset, **arguments, device=CPU, device_memory=960) as with_rows,
    ):
        expected = list(memory)
        assert_same_batches(device, expected)
        assert_same_batches(with_rows, expected)
    assert len(rings) == 3


@pytest.mark.parametrize("store", ["direct", "belady", "packed"])
def test_a_table_of_int8_may_lie_on_the_device_whole(tmp_path: Path, store: str, rings: list[PinnedRing]) -> None:
    whole = small_graph(tmp_path / "int8", num_nodes=200, num_edges=900, dim=16, dtype="int8")
    arguments: dict[str, Any] = {"store": store, "out_dtype": torch.bfloat16, "input_nodes": [7, 7, 3, 150]}
    with loader_for(whole, **arguments) as loader:
        expected = list(loader)
    with loader_for(whole, **arguments, device=CPU, device_memory="1MB") as loader:
        assert loader.plan.row_places == RowPlaces(device_rows=200, pinned_rows=0)
        assert_same_batches(loader, expected)


def test_an_x_that_users_set_is_no_address(dataset: Dataset, rings: list[PinnedRing]) -> None:
    with loader_for(dataset, store="direct", device=CPU, device_memory=960) as loader:
        loader.data.x = torch.arange(300).view(-1, 1)
        for batch in loader:
            assert torch.equal(batch.x, batch.n_id.view(-1, 1))


@pytest.mark.fast("direct")
@pytest.mark.parametrize("store", ["direct", "shared", "packed"])
def test_batches_with_types_are_delivered_there_too(tmp_path: Path, store: str, rings: list[PinnedRing]) -> None:
    _, typed = typed_dataset(tmp_path)
    changes: dict[str, Any] = {"store": store, "ordered": store == "shared", "memory": "80MB", "shuffle": True}
    changes["input_nodes"] = "paper"
    with loader_for(typed, **changes) as loader:
        expected = [batch for _ in range(2) for batch in loader]
    with loader_for(typed, **changes, device=CPU) as loader:
        assert_same_batches([batch for _ in range(2) for batch in loader], expected)
        assert loader.plan.reserved["transfer buffers"] == RING_BYTES
    assert len(rings) == 1


@pytest.mark.fast("packed", "auto", "direct")
@pytest.mark.parametrize("store", [*STORES, "auto"])
def test_rows_of_types_on_the_device_make_the_same_batches(tmp_path: Path, store: str, rings: list[PinnedRing]) -> None:
    _, typed = typed_dataset(tmp_path)
    changes: dict[str, Any] = {"store": store, "ordered": store == "shared", "memory": "80MB", "shuffle": True}
    changes |= {"input_nodes": "paper", "out_dtype": torch.float64, "disjoint": store == "direct"}
    with loader_for(typed, **changes) as loader:
        expected = list(loader)
    with loader_for(typed, **changes, device=CPU, device_memory=1000) as loader:
        places = loader.plan.row_places
        assert places is not None
        sizes = {part.name: part.table for part in features_of_types(loader)}
        assert sum(each.device_rows * sizes[name].row_bytes for name, each in places.parts.items()) <= 1000
        assert places.device_rows == sum(each.device_rows for each in places.parts.values()) > 0
        if store == "memory":
            assert places.num_rows == sum(table.num_rows for table in sizes.values())
        assert_same_batches(loader, expected)


def features_of_types(loader: diskhop.NeighborLoader) -> tuple[TablePart, ...]:
    table = loader.data.feature_table()
    assert isinstance(table, TableGroup)
    return table.parts


@pytest.mark.parametrize("negatives", ["binary", "triplet"])
def test_links_are_delivered_there_too(dataset: Dataset, rings: list[PinnedRing], negatives: str) -> None:
    arguments: dict[str, Any] = {"num_neighbors": [3, 2], "batch_size": 200, "shuffle": True, "memory": "50MB"}
    arguments |= {"neg_sampling": negatives, "store": "static"}
    with diskhop.LinkNeighborLoader(dataset, **arguments) as loader:
        expected = list(loader)
    with diskhop.LinkNeighborLoader(dataset, **arguments, device=CPU, device_memory=960) as loader:
        assert_same_batches(loader, expected)
        assert loader.plan.row_places == RowPlaces(device_rows=30, pinned_rows=270)
    assert len(rings) == 1


def test_links_of_a_type_are_delivered_there_too(tmp_path: Path, rings: list[PinnedRing]) -> None:
    _, typed = typed_dataset(tmp_path)
    edge_type = ("paper", "cites", "paper")
    arguments: dict[str, Any] = {"num_neighbors": [3, 2], "batch_size": 100, "memory": "80MB"}
    arguments |= {"edge_label_index": edge_type, "neg_sampling": "binary"}
    with diskhop.LinkNeighborLoader(typed, **arguments) as loader:
        expected = list(loader)
    with diskhop.LinkNeighborLoader(typed, **arguments, device=CPU) as loader:
        assert_same_batches(loader, expected)
        assert loader.plan.reserved["transfer buffers"] == RING_BYTES
    assert len(rings) == 1


def test_processes_that_share_a_graph_deliver_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    class Peers:
        count = 2

        def gather(self, own: dict[str, Any]) -> list[dict[str, Any]]:
            return [{"device": "cuda", "device_memory": 5}, own]

    share = LoaderShare("NeighborLoader", None, None)
    share.compare({"device": None, "device_memory": 0})
    monkeypatch.setattr(share, "_local", Peers())
    share.compare({"device": "cuda", "device_memory": 5})
    refused = "device_memory is 5 in process 0 and 7 in process 1, which open the graph together; pass the same to all"
    with pytest.raises(ConfigError, match=refused):
        share.compare({"device": "cuda", "device_memory": 7})


def test_copies_are_measured_without_a_gpu_and_none_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measure_copy_rate(CPU, 1 << 20) > 0
    none = CudaState(torch_version="2.13.0+cpu", build="", num_devices=0)
    monkeypatch.setattr("diskhop.pipeline.device_report.read_cuda", lambda: none)
    report = report_devices()
    install = "install a build of PyTorch for CUDA (pip install --force-reinstall torch)"
    to_do = f"with a GPU in this machine: {install}; until then, runs use the CPU"
    reason = "torch 2.13.0+cpu is a build without CUDA"
    assert report.to_rows() == [("GPU", f"no GPU: {reason}"), ("  to do", to_do)]
    assert report.to_dict() == {"gpus": [], "gpu_reason": reason, "gpu_next_step": install}
    card = DeviceReport(
        device="cuda:0", card="Card", total_bytes=10**10, free_bytes=9 * 10**9, copy_bytes_per_second=2e10
    )
    expected = "cuda:0: Card, 10 GB, 9 GB free; batches are copied there at 20 GB/s (measured)"
    assert card.describe() == expected


def test_modules_of_devices_are_imported_without_cuda() -> None:
    package = Path(diskhop.__file__).parent
    found = [path for path in package.rglob("*.py") if path.parent.name == "kernels" or "device" in path.stem]
    names = {"diskhop.pipeline.transfer", "diskhop.loaders.destination", "diskhop.runs.nodes.delivery"}
    for path in found:
        names.add(".".join(("diskhop", *path.relative_to(package).with_suffix("").parts)).removesuffix(".__init__"))
    assert {"diskhop.pipeline.device_rows", "diskhop.nn.devices", "diskhop.nn.kernels.triton_assembly"} < names
    for name in sorted(names):
        importlib.import_module(name)


def test_memory_of_a_device_needs_one(dataset: Dataset) -> None:
    with pytest.raises(ConfigError, match="device_memory must be None for batches in memory, got '1MB'; leave it out"):
        loader_for(dataset, device_memory="1MB")
    with pytest.raises(ConfigError, match="device_memory must be None for batches in memory, got '1MB'; leave it out"):
        loader_for(dataset, device="cpu", device_memory="1MB")
    loader_for(dataset, device_memory="0MB").close()


def test_auto_without_a_gpu_delivers_in_memory_and_says_why(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    no_cuda = CudaState(torch_version="2.13.0+cpu", build="", num_devices=0)
    monkeypatch.setattr("diskhop.loaders.destination.read_cuda", lambda: no_cuda)
    monkeypatch.setattr("diskhop.loaders.planned.device_of", device_of)
    why = "Device cpu: torch 2.13.0+cpu is a build without CUDA"
    with loader_for(dataset, device="auto", device_memory="1MB") as loader:
        assert loader.plan.reasons[-1] == f"{why}; device_memory '1MB' is not used"
        assert loader.plan.row_places is None
        assert next(iter(loader)).x.device == CPU
    with loader_for(dataset, device="auto") as loader:
        assert loader.plan.reasons[-1] == why
    with loader_for(dataset) as loader:
        assert not any(line.startswith("Device") for line in loader.plan.reasons)


@pytest.mark.parametrize("count", [20, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("device_memory", [None, 960])
def test_passes_that_end_early_leave_the_ring_whole(
    dataset: Dataset, rings: list[PinnedRing], count: int, device_memory: int | None
) -> None:
    num_threads = threading.active_count()
    with loader_for(dataset, store="direct", device=CPU, batch_size=8, device_memory=device_memory) as loader:
        for _ in range(count):
            next(iter(loader))
        assert threading.active_count() == num_threads
        (ring,) = rings
        buffers = set()
        for _ in range(3):
            buffers.add(ring.take().data_ptr())
            ring.give(None)
        assert len(buffers) == 3
        assert len(list(loader)) == 5


def test_a_batch_that_does_not_fit_the_device_is_one_line(
    dataset: Dataset, rings: list[PinnedRing], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(DeviceCopies, "copy", fail)
    with loader_for(dataset, device=CPU) as loader, pytest.raises(PipelineError, match="use a smaller batch size"):
        next(iter(loader))


def test_a_device_that_is_not_there_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="device must be auto, cpu, cuda or cuda:N, got 'gpu'"):
        diskhop.NeighborLoader(tmp_path, num_neighbors=[2], device="gpu")


def test_the_cpu_as_a_device_is_memory(dataset: Dataset) -> None:
    with loader_for(dataset, device="cpu") as loader:
        assert "transfer buffers" not in loader.plan.reserved
