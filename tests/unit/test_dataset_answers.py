"""Answers of a dataset in Python: rows of features, labels, splits, neighbours, degrees, Arrow, PyG."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import diskhop
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.feature_rows import rows_of_index
from diskhop.dataset.files import drop_cached_pages
from diskhop.dataset.id_map import IdMap
from diskhop.errors import BudgetError, ConfigError

NUM_NODES, DIM = 50, 3


def data_of(seed: int = 0) -> Data:
    """A graph with hubs, so that hot order moves nodes, and edges with weights and attributes."""
    numbers = np.random.default_rng(seed)
    edges = np.unique(np.minimum(numbers.geometric(0.1, (2, 300)) - 1, NUM_NODES - 1), axis=1)
    masks = torch.from_numpy(numbers.permutation(NUM_NODES) % 3)
    return Data(
        x=torch.from_numpy(numbers.normal(size=(NUM_NODES, DIM)).astype(np.float32)),
        y=torch.from_numpy(numbers.integers(0, 4, NUM_NODES)),
        edge_index=torch.from_numpy(edges),
        edge_weight=torch.arange(edges.shape[1], dtype=torch.float32),
        pos=torch.from_numpy(numbers.normal(size=(NUM_NODES, 2))),
        train_mask=masks == 0,
        val_mask=masks == 1,
        test_mask=masks == 2,
    )


@pytest.fixture(scope="module", params=[None, "hot"])
def graph(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Data, Dataset]:
    data = data_of()
    return data, diskhop.from_pyg(data, tmp_path_factory.mktemp("graphs") / "graph", order=request.param)


def test_features_are_indexed_by_ids(graph: tuple[Data, Dataset]) -> None:
    data, dataset = graph
    features, x = dataset.features, data.x.numpy()
    assert features is not None
    assert (features.shape, len(features), features.dtype.name) == (x.shape, NUM_NODES, "float32")
    np.testing.assert_array_equal(features[7], x[7])
    np.testing.assert_array_equal(features[[3, 1, 3]], x[[3, 1, 3]])
    np.testing.assert_array_equal(features[torch.tensor([4, 0])], x[[4, 0]])
    np.testing.assert_array_equal(features[10:30:7], x[10:30:7])
    np.testing.assert_array_equal(features[:], x)
    np.testing.assert_array_equal(features[data.val_mask], x[data.val_mask])
    np.testing.assert_array_equal(features[dataset.splits["train"]], x[dataset.split("train")])
    assert features[[]].shape == (0, DIM)
    for index, message in (
        ([99], "no node"),
        (-1, "no node"),
        (slice(-3, None), "up from 0"),
        ([0.5], "must be an id"),
        ((7, 2), "must be an id"),
        (10**30, "must be an id"),
        (slice("a", None), "up from 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            features[index]


def test_features_do_not_become_an_array_of_all_rows_unasked(graph: tuple[Data, Dataset]) -> None:
    features = graph[1].features
    with pytest.raises(ConfigError, match=r"features\[:\] all of them, as .* in memory"):
        np.asarray(features)
    with pytest.raises(TypeError, match="not iterable"):
        iter(features)  # type: ignore[arg-type]


def bytes_read() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("read_bytes")))


def test_only_the_rows_asked_for_are_read(tmp_path: Path) -> None:
    dataset = diskhop.generate("uniform", tmp_path / "graph", nodes=16_000, edges=16_000, dim=128, memory="100MB")
    features, table = dataset.features, dataset.feature_table()
    assert features is not None
    assert table is not None
    expected = np.fromfile(table.path, np.float32).reshape(-1, 128)[::2000]
    drop_cached_pages(table.path)
    before = bytes_read()
    np.testing.assert_array_equal(features[::2000], expected)
    # A page or two for each of eight rows of 512 bytes, of 8 MB.
    assert bytes_read() - before <= 8 * 2 * 4096


def test_ids_with_gaps_are_ranged_over(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("10 20\n20 35\n35 10\n")
    dataset = diskhop.import_graph(tmp_path / "edges.txt", tmp_path / "graph", random_features=2)
    assert dataset.features is not None
    np.testing.assert_array_equal(dataset.features[15:36], dataset.features[[20, 35]])
    np.testing.assert_array_equal(dataset.features[10::10], dataset.features[[10, 20]])
    assert dataset.neighbors(10).tolist() == [35]


def test_a_range_of_ids_sorts_those_in_it_alone() -> None:
    def positions() -> None:
        raise AssertionError("all nodes were listed")

    id_map = IdMap(Path("graph"), 4, np.array([30, 10, 40, 20]), positions)
    assert rows_of_index(id_map, slice(15, 35)).tolist() == [3, 0]
    assert rows_of_index(id_map, slice(10, None, 10)).tolist() == [1, 3, 0, 2]
    assert rows_of_index(id_map, slice(41, None)).tolist() == []


def test_labels_splits_neighbors_and_degrees(graph: tuple[Data, Dataset]) -> None:
    data, dataset = graph
    assert dataset.labels is not None
    np.testing.assert_array_equal(dataset.labels, data.y)
    assert list(dataset.splits) == ["train", "valid", "test"]
    assert sorted(dataset.splits["test"]) == np.flatnonzero(data.test_mask).tolist()
    sources, destinations = data.edge_index.numpy()
    np.testing.assert_array_equal(dataset.degrees, np.bincount(destinations, minlength=NUM_NODES))
    for node in (0, 7, 49):
        assert sorted(dataset.neighbors(node)) == sorted(sources[destinations == node])
    with pytest.raises(ConfigError, match="no node"):
        dataset.neighbors(50)


def test_arrow_streams_have_all_values(graph: tuple[Data, Dataset]) -> None:
    data, dataset = graph
    nodes = polars.DataFrame(dataset.to_arrow("nodes"))
    assert nodes["id"].to_list() == list(range(NUM_NODES))
    np.testing.assert_array_equal(nodes["feature"].to_numpy(), data.x)
    np.testing.assert_array_equal(nodes["label"].to_numpy(), data.y)
    np.testing.assert_array_equal(nodes["pos"].to_numpy(), data.pos)
    assert (nodes["split"] == "valid").to_list() == data.val_mask.tolist()
    edges = dataset.to_arrow("edges").read_all().to_pydict()
    pairs = {
        (*pair, weight)
        for *pair, weight in zip(*(edges[name] for name in ("source", "destination", "weight")), strict=True)
    }
    assert pairs == {
        (*pair, weight) for *pair, weight in zip(*data.edge_index.tolist(), data.edge_weight.tolist(), strict=True)
    }
    with pytest.raises(ConfigError, match="did you mean 'nodes'"):
        dataset.to_arrow("node")


def test_arrow_streams_have_blocks_of_some_megabytes(tmp_path: Path) -> None:
    wide = np.zeros((300, 40_000), np.float32)
    data = Data(edge_index=torch.tensor([range(300), range(300)]), num_nodes=300)
    data.wide, data.edge_wide = torch.from_numpy(wide), torch.from_numpy(wide)
    dataset = diskhop.from_pyg(data, tmp_path / "graph")
    for part in ("nodes", "edges"):
        blocks = [block.nbytes for block in dataset.to_arrow(part)]
        assert max(blocks) < 10_000_000
        assert sum(blocks) > wide.nbytes


def test_a_whole_graph_comes_back_from_memory(graph: tuple[Data, Dataset], tmp_path: Path) -> None:
    data, dataset = graph
    found = dataset.to_pyg(memory="10MB")
    for name in ("x", "y", "pos", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(found[name], data[name]), name
    order = torch.argsort(found.e_id)
    assert torch.equal(found.edge_index[:, order], data.edge_index)
    assert torch.equal(found.edge_weight[order], data.edge_weight)
    with pytest.raises(BudgetError, match=r"takes .* in memory, and 1 KB may be used; pass memory="):
        dataset.to_pyg(memory="1KB")


def test_typed_graphs_answer_by_type(tmp_path: Path) -> None:
    data = HeteroData()
    data["user"].x, data["item"].num_nodes = torch.rand(4, 2), 3
    data["user", "buys", "item"].edge_index = torch.tensor([[0, 1, 3, 3], [0, 0, 2, 1]])
    dataset = diskhop.from_pyg(data, tmp_path / "graph")
    features = dataset.nodes["user"].features
    assert features is not None
    np.testing.assert_array_equal(features[[3, 0]], data["user"].x[[3, 0]])
    (edges,) = dataset.edges.values()
    assert (edges.neighbors(0).tolist(), edges.degrees.tolist()) == ([0, 1], [2, 1, 1])
    assert dataset.to_arrow("nodes", "item").read_all().to_pydict() == {"id": [0, 1, 2]}
    page = dataset._repr_html_()
    for text in ("2 float32", "user__buys__item", "<td>4</td>"):
        assert text in page
    found = dataset.to_pyg()
    assert torch.equal(found["user"].x, data["user"].x)
    assert found["item"].num_nodes == 3
    assert found["user", "buys", "item"].edge_index.tolist() == [[0, 1, 3, 3], [0, 0, 1, 2]]
    with pytest.raises(ConfigError, match="2 node types"):
        dataset.to_arrow("nodes")
