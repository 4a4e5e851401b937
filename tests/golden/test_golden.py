"""The golden datasets: what was written once is read, and written, the same for ever."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from diskhop._native import Engine, why_no_uring
from diskhop.dataset.dataset import open_dataset
from diskhop.dataset.verify import verify
from tests.golden.make_golden import main, make_plain
from tests.graphs import folder_bytes, threads_engine

GOLDEN = Path(__file__).parent


@pytest.mark.parametrize("name", ["plain", "typed"])
def test_the_writer_makes_the_golden_bytes(tmp_path: Path, name: str) -> None:
    main(tmp_path)
    assert folder_bytes(tmp_path / name) == folder_bytes(GOLDEN / name)
    assert verify(GOLDEN / name) == []


def test_plain_reads_as_it_was_meant() -> None:
    dataset = open_dataset(GOLDEN / "plain")
    table, labels, valid = dataset.feature_table(), dataset.labels, dataset.split("valid")
    assert table is not None
    assert labels is not None
    assert valid is not None
    indptr = np.fromfile(dataset.topology.indptr_path, np.int64)
    indices = np.fromfile(dataset.topology.indices_path, np.uint32)
    assert (dataset.num_nodes, dataset.num_edges, dataset.num_classes, dataset.feature_dim) == (12, 24, 3, 2)
    # 1 is next to 0, and 5 * 5 = 25 = 1 (mod 12).
    assert indices[indptr[1] : indptr[2]].tolist() == [0, 5]
    assert np.fromfile(table.path, np.float32).reshape(12, 2)[8].tolist() == [2.0, -1.0]
    assert labels.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, -1]
    assert valid.tolist() == [9, 8, 7, 6]


def test_typed_reads_as_it_was_meant() -> None:
    dataset = open_dataset(GOLDEN / "typed")
    writes, paper = dataset.edges["writes"], dataset.nodes["paper"]
    edge_ids, weights, train, table = (
        writes.edge_ids(),
        writes.edge_weights(),
        paper.split_rows("train", 1),
        paper.feature_table(),
    )
    assert edge_ids is not None
    assert weights is not None
    assert train is not None
    assert table is not None
    # Into paper 4, from authors 0, 2, 2: edges 3, 0, 4.
    assert edge_ids.tolist() == [2, 5, 1, 3, 0, 4]
    assert weights.tolist() == [1.5, 3.0, 1.0, 2.0, 0.5, 2.5]
    assert train.tolist() == [4, 2]
    row = np.fromfile(table.path, np.uint8).reshape(5, 7)[2]
    assert (row[:3].view(np.int8).tolist(), row[3:].view(np.float32).tolist()) == ([0, 127, -127], [1.0])
    assert dataset.names("relations") == ["knows", "married é"]
    assert dataset.num_relations == 2


@pytest.mark.skipif(bool(why_no_uring()), reason=why_no_uring() or "io_uring works")
def test_engines_write_the_same_bytes(tmp_path: Path) -> None:

    make_plain(tmp_path / "uring", Engine("uring", 8))
    make_plain(tmp_path / "threads", threads_engine())
    assert folder_bytes(tmp_path / "uring") == folder_bytes(tmp_path / "threads")
