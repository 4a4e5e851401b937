"""Claims about opening a topology: both modes show the same lists, memory is reserved, damage is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.dataset.edge_set import TopologyFiles
from diskhop.errors import BudgetError, ConfigError, FormatError, ReadError
from diskhop.protocols import Purpose, neighbor_spec
from diskhop.sampling.samplers import open_sampler
from diskhop.sampling.topology import open_topology, topology_bytes
from diskhop.sampling.whole_files import FileMode
from tests.unit.sampling_oracle import assert_same_batch

MODES: list[FileMode] = ["memory", "mapped"]


def make_files(folder: Path, dtype: type[np.generic], num_nodes: int, num_edges: int) -> TopologyFiles:
    return TopologyFiles(
        indptr_path=folder / "indptr.bin",
        indices_path=folder / "indices.bin",
        index_dtype=np.dtype(dtype),
        num_nodes=num_nodes,
        num_edges=num_edges,
    )


@pytest.fixture
def engine() -> Engine:
    return Engine("threads", 8)


@pytest.fixture(params=[np.uint32, np.int64])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> TopologyFiles:
    # More than one read of 1 MiB each, and lengths that are no multiple of a block.
    rng = np.random.default_rng(3)
    degrees = rng.integers(0, 7, 150_001)
    num_edges = int(degrees.sum())
    np.cumsum([0, *degrees], dtype=np.int64).tofile(tmp_path / "indptr.bin")
    rng.integers(0, 150_001, num_edges).astype(request.param).tofile(tmp_path / "indices.bin")
    return make_files(tmp_path, request.param, len(degrees), num_edges)


@pytest.mark.parametrize("mode", MODES)
def test_both_modes_show_the_files(files: TopologyFiles, mode: FileMode, engine: Engine) -> None:
    with open_topology(files, mode, engine, Budget(1 << 30)) as topology:
        np.testing.assert_array_equal(topology.indptr, np.fromfile(files.indptr_path, np.int64))
        np.testing.assert_array_equal(topology.indices, np.fromfile(files.indices_path, files.index_dtype))
        assert (topology.num_nodes, topology.num_edges) == (files.num_nodes, files.num_edges)
        assert not topology.indices.flags.writeable


def test_both_modes_give_the_same_batches(files: TopologyFiles, engine: Engine) -> None:
    batches = []
    for mode in MODES:
        with open_topology(files, mode, engine, Budget(1 << 30)) as topology:
            sampler = open_sampler(topology, neighbor_spec([3, 3]), seed=1)
            batches.append(sampler.sample(np.arange(50), purpose=Purpose.TRAIN, epoch=0, number=0))
    assert_same_batch(*batches)


def test_memory_is_reserved_while_open(files: TopologyFiles, engine: Engine) -> None:
    held_bytes = files.indptr_path.stat().st_size + files.indices_path.stat().st_size
    assert topology_bytes(files, "memory") == held_bytes
    budget = Budget(held_bytes)
    with open_topology(files, "memory", engine, budget):
        assert budget.available_bytes == 0
    assert budget.available_bytes == held_bytes
    assert budget.table() == {"topology": held_bytes}
    with pytest.raises(BudgetError), open_topology(files, "memory", engine, Budget(held_bytes - 1)):
        pass
    with open_topology(files, "mapped", engine, Budget(1)):
        pass


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("which", ["indptr_path", "indices_path"])
def test_a_file_of_another_length_is_refused(files: TopologyFiles, mode: FileMode, which: str, engine: Engine) -> None:
    path: Path = getattr(files, which)
    path.write_bytes(path.read_bytes()[:-4])
    budget = Budget(1 << 30)
    with pytest.raises(FormatError, match=f"{path.name}: is [0-9]+ bytes"), open_topology(files, mode, engine, budget):
        pass
    assert budget.available_bytes == 1 << 30
    path.unlink()
    with pytest.raises(ReadError, match=path.name), open_topology(files, mode, engine, budget):
        pass


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("place", "value"), [(0, 1), (70_000, -1), (100_000, 2**40), (-1, 5)])
def test_a_damaged_indptr_is_refused(
    files: TopologyFiles, mode: FileMode, place: int, value: int, engine: Engine
) -> None:
    indptr = np.fromfile(files.indptr_path, np.int64)
    indptr[place] = value
    indptr.tofile(files.indptr_path)
    with (
        pytest.raises(FormatError, match=r"indptr\.bin: indptr must"),
        open_topology(files, mode, engine, Budget(1 << 30)),
    ):
        pass


@pytest.mark.parametrize("mode", MODES)
def test_a_graph_without_edges_opens(tmp_path: Path, mode: FileMode, engine: Engine) -> None:
    np.zeros(4, np.int64).tofile(tmp_path / "indptr.bin")
    (tmp_path / "indices.bin").touch()
    files = make_files(tmp_path, np.uint32, 3, 0)
    with open_topology(files, mode, engine, Budget(1 << 20)) as topology:
        batch = open_sampler(topology, neighbor_spec([5, 5]), 0).sample(
            np.array([2, 0]), purpose=Purpose.TEST, epoch=0, number=0
        )
    assert batch.node_ids.tolist() == [2, 0]
    assert (batch.num_sampled_nodes, batch.num_sampled_edges) == ((2, 0, 0), (0, 0))


def test_unknown_modes_and_dtypes_are_refused(files: TopologyFiles, engine: Engine) -> None:
    budget = Budget(1 << 30)
    with (
        pytest.raises(ConfigError, match="memory, mapped"),
        open_topology(files, "cached", engine, budget),  # type: ignore[arg-type]
    ):
        pass
    floats = replace(files, index_dtype=np.dtype(np.float32))
    with pytest.raises(FormatError, match="uint32 or int64"), open_topology(floats, "memory", engine, budget):
        pass
