"""Exporting edges: their ids, order and numbers come back, whatever order they lay in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from diskhop.budget import Budget
from diskhop.dataset.build.builder import DatasetBuilder
from diskhop.dataset.edges import ArrayEdges
from diskhop.exporting.columns import EDGE_BLOCKS_BYTES
from diskhop.importing.options import ImportOptions
from tests.exports import exported, imported, save, saved, table
from tests.graphs import random_pairs, threads_engine


def test_edges_of_names_and_of_ids_with_gaps_come_back(tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("ana,ben\nben,cem\nana,ben\ndan,ana\n")
    (tmp_path / "gaps.csv").write_text("7,1000000\n1000000,12\n12,7\n7,12\n")
    for source in ("names", "gaps"):
        for order in (None, "hot"):
            base = tmp_path / f"{source}-{order}"
            base.mkdir()
            dataset = imported(
                tmp_path / f"{source}.csv",
                base / "dataset",
                options=ImportOptions(order=order),
            )
            plain = imported(tmp_path / f"{source}.csv", base / "plain")
            for format_name in ("numpy", "graphbolt"):
                out = exported(dataset, base / format_name, format_name)
                assert imported(out, base / f"{format_name}-again").hash == plain.hash
            out = exported(dataset, base / "parquet", "parquet")
            if source == "names":
                assert table(out / "nodes.parquet") == [(0, "ana"), (1, "ben"), (2, "cem"), (3, "dan")]
            else:
                assert table(out / "nodes.parquet") == [(7,), (12,), (1000000,)]
                assert sorted(table(out / "edges.parquet")) == [(7, 12), (7, 1000000), (12, 7), (1000000, 12)]


def test_the_order_of_edges_comes_back_with_their_numbers(tmp_path: Path) -> None:
    pairs = np.random.default_rng(0).integers(0, 30, (2, 500))
    weights = np.arange(500, dtype=np.float32)
    with DatasetBuilder(
        tmp_path / "d", name="d", engine=threads_engine(), budget=Budget(1 << 30), threads=1
    ) as builder:
        builder.add_nodes("node", 30)
        builder.add_edge_list("edge", "node", "node", ArrayEdges(pairs), edge_id_dtype="int64", weights=weights)
        dataset = builder.finish()
    found = saved(exported(dataset, tmp_path / "out", "numpy"))
    np.testing.assert_array_equal(found["edge_index"], pairs)
    np.testing.assert_array_equal(found["edge_weight"], weights)
    rows = table(exported(dataset, tmp_path / "tables", "parquet") / "edges.parquet")
    assert rows == list(zip(*pairs.tolist(), weights.tolist(), strict=True))


@pytest.mark.fast(2)
@pytest.mark.parametrize("budget_bytes", [1 << 30, 12_000_000])
@pytest.mark.parametrize("undirected", [None, True])
def test_numbers_of_edges_come_back_in_every_order(tmp_path: Path, undirected: bool | None, budget_bytes: int) -> None:
    """Numbers are the places of the edges, or stand beside them, as for edges that memory has no room to reorder."""
    pairs = random_pairs(300, 500_000)
    options = ImportOptions(undirected=undirected, order="hot")
    dataset = imported(save(tmp_path / "source", {"edge_index": pairs}), tmp_path / "d", options=options)
    out = exported(dataset, tmp_path / "out", "numpy", budget=Budget(EDGE_BLOCKS_BYTES + budget_bytes))
    found = saved(out)
    ends, numbers = found["edge_index"], found.get("edge_ids")
    assert (numbers is None) == (undirected is None and budget_bytes == 1 << 30)
    if numbers is None:
        np.testing.assert_array_equal(ends, pairs)
    else:
        same = (ends == pairs[:, numbers]).all(axis=0)
        reversed_too = same | (ends == pairs[::-1, numbers]).all(axis=0)
        assert (reversed_too if undirected else same).all()
    again = imported(out, tmp_path / "again").edge_ids()
    kept = dataset.edge_ids()
    assert again is not None
    assert kept is not None
    np.testing.assert_array_equal(np.sort(again), np.sort(kept))


def test_long_lists_and_many_blocks_of_nodes_keep_their_ends(tmp_path: Path) -> None:
    num_nodes, num_edges = 1_200_000, 700_001
    pairs = np.stack([np.arange(num_edges) % 977, np.where(np.arange(num_edges) % 3, 5, num_nodes - 1)])
    pairs[1, ::7] = np.arange(0, num_edges, 7)
    source = save(tmp_path / "source", {"edge_index": pairs, "num_nodes": num_nodes})
    found = saved(exported(imported(source, tmp_path / "d"), tmp_path / "out", "numpy"))["edge_index"]
    np.testing.assert_array_equal(found, pairs)
