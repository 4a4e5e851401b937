"""Seed nodes by names and unknown ids: what nodes they are, or one line that names the first unknown one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import diskhop
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.importing.options import ImportOptions
from diskhop.importing.pyg.source import PygGraph
from diskhop.importing.run import import_graph
from diskhop.importing.tools import ImportLimits
from diskhop.ui.summary import summarize_dataset
from tests.graphs import threads_engine

TEXTS = {"names": "cem,ana\nana,ben\nben,cem\n", "numbers": "5,70\n70,9\n9,5\n"}


def imported(folder: Path, kind: str, order: Any = "hot") -> Dataset:
    (folder / f"{kind}.csv").write_text(TEXTS[kind])
    options = ImportOptions(order=order)
    return import_graph(folder / f"{kind}.csv", folder / f"{kind}-graph", options=options, engine=threads_engine())


def seeds_of(dataset: Dataset, nodes: Any) -> list[int]:
    with diskhop.NeighborLoader(dataset, [1], nodes, batch_size=2, memory="64MB", store="memory") as loader:
        return [seed for batch in loader for seed in batch.n_id[: batch.batch_size].tolist()]


def test_names_are_taken_where_nodes_have_names(tmp_path: Path) -> None:
    dataset = imported(tmp_path, "names")
    names = dataset.names("nodes")
    assert names == ["ana", "ben", "cem"]
    assert seeds_of(dataset, ["cem", "ana"]) == seeds_of(dataset, [2, 0]) == [2, 0]
    with pytest.raises(ConfigError, match="none of the 3 nodes is named 'dan'"):
        seeds_of(dataset, ["ana", "dan"])
    with pytest.raises(
        ConfigError, match=r"input_nodes are names, and the nodes of .* have none; pass ids, such as \[5\]"
    ):
        seeds_of(imported(tmp_path, "numbers"), ["70"])


@pytest.mark.parametrize("given", [[5, 6], np.array([5, 6]), torch.tensor([70, 6])])
def test_an_id_that_no_node_has_is_named(tmp_path: Path, given: Any) -> None:
    dataset = imported(tmp_path, "numbers")
    with pytest.raises(ConfigError, match=r"input_nodes has id 6, which no node of .* has; ids are 5 to 70, 3 of them"):
        seeds_of(dataset, given)
    tables = diskhop.propagate(
        import_with_features(tmp_path), diskhop.PropagationSpec(hops=1), memory="64MB", scratch=tmp_path / "s"
    ).tables
    with pytest.raises(ConfigError, match="has no row for node 6"):
        diskhop.HopLoader(tables, given, memory="64MB")
    with pytest.raises(ConfigError, match="a mask needs one entry for each of the 3 nodes"):
        diskhop.HopLoader(tables, np.ones(4, np.bool_), memory="64MB")
    with pytest.raises(ConfigError, match="a mask needs one entry for each of the 3 nodes"):
        seeds_of(dataset, torch.ones(71, dtype=torch.bool))


def import_with_features(folder: Path) -> Dataset:
    arrays: dict[str, Any] = {"edge_index": [[0, 2, 1], [2, 1, 0]], "x": np.eye(3), "original_ids": [5, 9, 70]}
    np.savez(folder / "graph.npz", **arrays)
    return import_graph(folder / "graph.npz", folder / "features", engine=threads_engine())


@pytest.mark.parametrize(("limit", "kept"), [(2, False), (3, True)])
@pytest.mark.parametrize("has_weights", [False, True])
def test_auto_keeps_numbers_of_few_edges_and_of_weighted_ones(
    tmp_path: Path, limit: int, kept: bool, has_weights: bool
) -> None:
    arrays: dict[str, Any] = {"edge_index": [[0, 2, 1], [2, 1, 0]]}
    if has_weights:
        arrays["edge_weight"] = [0.5, 1.5, 2.5]
    np.savez(tmp_path / "graph.npz", **arrays)
    found: dict[str, Any] = {}
    dataset = import_graph(
        tmp_path / "graph.npz",
        tmp_path / "graph",
        engine=threads_engine(),
        limits=ImportLimits(auto_edge_ids=limit),
        on_facts=found.update,
    )
    is_kept = kept or has_weights
    cost = {"bytes": 12 * is_kept, "bytes_if_kept": 12, "bytes_per_edge": 4}
    assert found["edge_ids"] == {"kept": is_kept, **cost}
    (shown,) = (text for name, text in summarize_dataset(dataset, found=found) if name == "edge ids")
    assert "12 B at 4 bytes per edge" in shown
    assert ("kept as e_id" in shown) == is_kept
    numbers = dataset.edge_ids()
    assert (numbers is not None) == is_kept
    assert numbers is None or numbers.dtype == np.uint32
    with diskhop.NeighborLoader(dataset, [-1], batch_size=3, memory="64MB", store="memory") as loader:
        (batch,) = loader
    assert ("e_id" in batch) == is_kept


def test_auto_keeps_numbers_of_edges_whose_values_stay_with_the_user(tmp_path: Path) -> None:
    edge_index, edge_attr = torch.tensor([[0, 2, 1], [2, 1, 0]]), torch.eye(3)
    for attributes, kept in (({"edge_attr": edge_attr}, True), ({}, False)):
        source = PygGraph(Data(edge_index=edge_index, num_nodes=3, **attributes), "graph")
        dataset = import_graph(
            source,
            tmp_path / f"{kept}",
            origin="data",
            options=ImportOptions(),
            engine=threads_engine(),
            limits=ImportLimits(auto_edge_ids=2),
        )
        with diskhop.NeighborLoader(dataset, [-1], batch_size=3, memory="64MB", store="memory") as loader:
            (batch,) = loader
        assert ("e_id" in batch) == kept
        assert not kept or torch.equal(edge_index[:, batch.e_id], batch.n_id[batch.edge_index])


def test_edge_ids_without_edges_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "triples.npz", triples=np.array([[0, 0, 1]]))
    with pytest.raises(ConfigError, match="--edge-ids has no effect on triples"):
        import_graph(
            tmp_path / "triples.npz", tmp_path / "d", engine=threads_engine(), options=ImportOptions(edge_ids="keep")
        )
