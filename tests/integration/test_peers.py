"""Every system of benchmarks/peers.py reads the same batches, and its tables and chart are drawn of what it found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

import numpy as np
import pytest

import peers
import peers_reading
import peers_training
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import assumed_disk_model
from diskhop.io.engine import open_engine
from diskhop.sampling.topology import open_topology
from diskhop.stores.stores import STORES
from papers import find_graph

_NUM_BATCHES = 3


@pytest.fixture(scope="module")
def dataset(module_folder: Path) -> Dataset:
    return find_graph(module_folder / "graph", replace(peers.GRAPH, num_nodes=30_000, num_edges=300_000))


@pytest.fixture(autouse=True)
def no_own_stores() -> Iterator[None]:
    """Forget the stores that systems register."""
    with mock.patch.dict(STORES):
        yield


def test_all_systems_read_the_same_batches(dataset: Dataset) -> None:
    found = {
        system: peers_reading.read_batches(dataset, system, 0.2, _NUM_BATCHES) for system in peers_reading.STORE_OF
    }
    assert len({each["batches"] for each in found.values()}) == 1
    assert all(each["seconds"] > 0 for each in found.values())
    assert found["Ginex"]["reads"] > found["AGNES"]["reads"] > 0


@pytest.mark.parametrize(("room", "num_passes"), [(1.1, _NUM_BATCHES), (10, 1)])
def test_hyperbatches_have_the_rows_of_the_table(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, room: float, num_passes: int
) -> None:
    """room: for rows, in batches."""
    monkeypatch.setattr(peers_reading, "_BLOCK_BYTES", 1 << 16)
    monkeypatch.setattr(peers_reading, "BATCH_SIZE", 10)
    reading = peers_reading.Hyperbatches(dataset, 1 << 28)
    features = dataset.features
    assert features is not None
    num_batches = 0
    with open_topology(dataset.topology, "memory", open_engine("threads", 1).engine, Budget(1 << 30)) as topology:
        # A quarter more than the first batch is for the rows of one.
        most_rows = int((1.25 + room) * len(reading.sample(topology, 0)))
        monkeypatch.setattr(reading, "_most_rows", most_rows)
        for ids, rows in reading.batches(topology, _NUM_BATCHES):
            num_batches += 1
            np.testing.assert_array_equal(np.ascontiguousarray(rows).view(np.float32), features[ids])
    assert num_batches == _NUM_BATCHES
    assert reading.num_passes == num_passes


def test_trained_sides_take_seconds(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_training, "WARM_UP_BATCHES", 1)
    for side, train in peers_training.SIDES.items():
        assert len(train(dataset, 1)["seconds"]) == 1, side


def test_tables_claims_and_chart() -> None:
    lines: list[str] = []
    one = {"seconds": [0.1, 0.2, 0.3], "peak": 1 << 30, "remark": "a remark"}
    medians = peers.training_table({side: [one] for side in peers_training.SIDES}, lines.append)
    assert medians[peers_reading.OURS] == 0.2
    assert any(line.startswith(peers_training.TRIMMED) and "0.100..0.300" in line for line in lines)
    read = {"seconds": 0.1, "opening": 0.5, "reads": 10.0, "bytes": 1e6, "written": 3e6, "peak": 1 << 30, "remark": ""}
    shares = [
        (1.0, peers_reading.IN_MEMORY),
        *((share, system) for share in peers.SHARES for system in peers_reading.STORE_OF),
    ]
    found = {key: [read] for key in shares} | {(0.1, "PyG+"): [{"failed": "killed by the kernel"}]}
    lines.clear()
    peers.reading_table(found, assumed_disk_model(), lines.append)
    assert next(line for line in lines if line.startswith("PyG+")).endswith("killed by the kernel")
    assert sum(line.startswith("AGNES") for line in lines) == 2
    assert not any(peers.claims_of(medians).values())
    fast = medians | {peers_reading.OURS: 0.01, peers_training.TENTH: 0.02, peers.GRAPHBOLT: 0.3}
    assert list(peers.claims_of(fast).values()) == [True] * 3
    ElementTree.fromstring(peers.chart(medians, 2))
