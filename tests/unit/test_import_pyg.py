"""Data and HeteroData of PyTorch Geometric: PyG's own view of a graph and the dataset's agree edge for edge."""

from __future__ import annotations

import tracemalloc
import warnings
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData, TemporalData
from torch_geometric.testing import MyFeatureStore, MyGraphStore
from torch_geometric.utils import coalesce, to_undirected
from torch_geometric.utils.sparse import index2ptr

import diskhop
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edge_set import EdgeSet
from diskhop.dataset.verify import verify
from diskhop.errors import BudgetError, ConfigError, SourceError
from tests.graphs import SHARED_DATA, edges_of, folder_bytes


def good_data(**changes: Any) -> Data:
    generator = torch.Generator().manual_seed(0)
    values = {
        "x": torch.randn(20, 3, generator=generator),
        "edge_index": torch.randint(0, 20, (2, 60), generator=generator),
        "y": torch.arange(20) % 4,
        "train_mask": torch.arange(20) < 8,
        "val_mask": (torch.arange(20) >= 8) & (torch.arange(20) < 12),
        "test_mask": torch.arange(20) >= 12,
        **changes,
    }
    return Data(**{key: value for key, value in values.items() if value is not None})


def lists_of(edges: EdgeSet) -> list[tuple[int, int]]:
    topology = edges.topology
    starts = np.fromfile(topology.indptr_path, np.int64).tolist()
    sources = np.fromfile(topology.indices_path, topology.index_dtype).tolist()
    return [(each, v) for v, (start, stop) in enumerate(pairwise(starts)) for each in sources[start:stop]]


def pairs_of(edge_index: torch.Tensor) -> Counter[tuple[int, int]]:
    return Counter(map(tuple, edge_index.T.tolist()))


def table_of(dataset: Dataset, node_type: str = "node") -> Any:
    table = dataset.nodes[node_type].feature_table()
    assert table is not None
    return np.fromfile(table.path, np.float32).reshape(table.num_rows, -1)


def test_data_and_dataset_have_the_same_edges_and_values(tmp_path: Path) -> None:
    data = good_data()
    dataset = diskhop.from_pyg(data, tmp_path / "graph")
    assert Counter(edges_of(dataset)) == pairs_of(data.edge_index)
    np.testing.assert_array_equal(table_of(dataset), data.x.numpy())
    np.testing.assert_array_equal(dataset.labels, data.y.numpy())
    for part, mask in (("train", data.train_mask), ("valid", data.val_mask), ("test", data.test_mask)):
        np.testing.assert_array_equal(dataset.split(part), mask.nonzero().flatten().numpy())
    assert (dataset.name, dataset.num_nodes, dataset.num_classes, dataset.feature_dtype) == ("graph", 20, 4, "float32")
    assert verify(dataset.path) == []
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


def test_options_do_what_pyg_does(tmp_path: Path) -> None:
    data = good_data()
    simple = diskhop.from_pyg(data, tmp_path / "simple", duplicates="drop")
    assert Counter(edges_of(simple)) == pairs_of(coalesce(data.edge_index))
    both = diskhop.from_pyg(data, tmp_path / "both", undirected=True, duplicates="drop", threads=1, memory="200MB")
    assert Counter(edges_of(both)) == pairs_of(to_undirected(data.edge_index))
    hot = diskhop.from_pyg(data, tmp_path / "hot", order="hot", dtype="float16", name="other")
    original = hot.original_ids()
    assert original is not None
    assert Counter((original[s], original[d]) for s, d in edges_of(hot)) == pairs_of(data.edge_index)
    assert (hot.name, hot.feature_dtype) == ("other", "float16")


def test_arrays_maps_and_tensors_give_the_same_bytes(tmp_path: Path) -> None:
    data = good_data()
    expected = folder_bytes(diskhop.from_pyg(data, tmp_path / "tensors", name="same").path)
    arrays = {key: value.numpy() for key, value in data.to_dict().items()}
    for key, array in arrays.items():
        np.save(tmp_path / f"{key}.npy", array)
    mapped = {key: np.load(tmp_path / f"{key}.npy", mmap_mode="r") for key in arrays}
    turned = {**arrays, "edge_index": np.asfortranarray(arrays["edge_index"]), "x": np.asfortranarray(arrays["x"])}
    for number, values in enumerate((arrays, mapped, turned)):
        made = diskhop.from_pyg(Data(**values), tmp_path / str(number), name="same")
        assert folder_bytes(made.path) == expected


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [
        (torch.float32, "float32"),
        (torch.float64, "float32"),
        (torch.float16, "float16"),
        (torch.bfloat16, "bfloat16"),
        (torch.int64, "float32"),
        (torch.bool, "float32"),
    ],
)
def test_features_keep_their_dtype(tmp_path: Path, dtype: torch.dtype, stored: str) -> None:
    x = (torch.arange(60).reshape(20, 3) % 2).to(dtype)
    x = x.requires_grad_() if dtype.is_floating_point else x
    dataset = diskhop.from_pyg(good_data(x=x), tmp_path / "graph")
    assert dataset.feature_dtype == stored
    as_told = diskhop.from_pyg(good_data(x=x), tmp_path / "told", dtype="float32")
    np.testing.assert_array_equal(table_of(as_told), x.detach().float().numpy())


def test_bfloat16_rows_are_the_tensors_bits(tmp_path: Path) -> None:
    x = torch.randn(20, 3).to(torch.bfloat16)
    table = diskhop.from_pyg(good_data(x=x), tmp_path / "graph").feature_table()
    assert table is not None
    np.testing.assert_array_equal(np.fromfile(table.path, np.int16).reshape(20, 3), x.view(torch.int16).numpy())


def test_weights_and_times_follow_their_edges(tmp_path: Path) -> None:
    pairs = torch.tensor([[3, 1, 2, 1], [0, 0, 1, 0]])
    weights, times = torch.tensor([0.5, 2.0, -1.0, 4.0]), torch.tensor([40, 30, 20, 10])
    for number, values in enumerate(
        (
            {"edge_weight": weights, "edge_time": times},
            {"edge_attr": weights[:, None], "time": times},
            {"edge_attr": weights, "time": times[:, None]},
        )
    ):
        dataset = diskhop.from_pyg(Data(edge_index=pairs, num_nodes=5, **values), tmp_path / str(number))
        edge_weights, edge_times = dataset.edge_weights(), dataset.edge_times()
        assert edge_weights is not None
        assert edge_times is not None
        found = zip(edges_of(dataset), edge_weights.tolist(), edge_times.tolist(), strict=True)
        assert sorted(found) == [((1, 0), 2.0, 30), ((1, 0), 4.0, 10), ((2, 1), -1.0, 20), ((3, 0), 0.5, 40)]


def test_several_splits_and_one_part_that_they_share(tmp_path: Path) -> None:
    masks = torch.rand(20, 3) < 0.5
    masks[0] = True
    dataset = diskhop.from_pyg(good_data(train_mask=masks, val_mask=~masks), tmp_path / "graph")
    assert dataset.num_splits == 3
    for number in range(3):
        train, test = dataset.split("train", number), dataset.split("test", number)
        assert train is not None
        assert test is not None
        assert train.tolist() == masks[:, number].nonzero().flatten().tolist()
        assert test.tolist() == list(range(12, 20))


def test_labels_of_one_column_are_classes_and_floats_are_tasks(tmp_path: Path) -> None:
    column = diskhop.from_pyg(good_data(y=torch.arange(20)[:, None] % 4), tmp_path / "column")
    assert (column.num_classes, column.num_tasks) == (4, 0)
    tasks = torch.tensor([[0.0, 1.0], [float("nan"), 1.0]] * 10)
    dataset = diskhop.from_pyg(good_data(y=tasks), tmp_path / "tasks")
    np.testing.assert_array_equal(dataset.labels, tasks.numpy())


def test_what_is_left_out_is_told(tmp_path: Path) -> None:
    data = good_data(city="Rome", ratio=torch.tensor(0.5), node_index=torch.zeros(20, 2), odd=torch.zeros(7))
    data["two words"] = torch.zeros(20)
    data.mixed = torch.zeros(20, 2).to_sparse()
    with pytest.warns(UserWarning, match="not imported: ") as caught:
        dataset = diskhop.from_pyg(data, tmp_path / "graph")
    told = str(caught[0].message)
    for word in (
        "data.city",
        "data.ratio",
        "data.odd",
        "data.node_index (PyG stores an index by columns)",
        "data.two words (names of attributes are letters",
        "data.mixed (is sparse; give data.mixed.to_dense())",
    ):
        assert word in told
    assert caught[0].filename == __file__
    assert dataset.edge_weights() is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        diskhop.from_pyg(good_data(), tmp_path / "nothing")


def hetero_data() -> HeteroData:
    data = HeteroData()
    data["paper"].x = torch.randn(6, 4)
    data["paper"].y = torch.arange(6) % 2
    data["paper"].train_mask = torch.arange(6) < 3
    data["author"].num_nodes = 4
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 3, 3, 1], [5, 0, 1, 5]])
    data["author", "writes", "paper"].edge_weight = torch.tensor([1.0, 2.0, 3.0, 4.0])
    data["paper", "cites", "paper"].edge_index = torch.tensor([[0, 1, 1], [1, 2, 2]])
    data["paper", "cites", "paper"].time = torch.tensor([7, 8, 9])
    data["paper", "at", "venue"].edge_index = torch.tensor([[0, 1], [2, 0]])
    return data


def test_types_of_nodes_and_edges_stay(tmp_path: Path) -> None:
    data = hetero_data()
    dataset = diskhop.from_pyg(data, tmp_path / "graph")
    assert {name: nodes.num_nodes for name, nodes in dataset.nodes.items()} == {"paper": 6, "author": 4, "venue": 3}
    for ends in data.edge_types:
        edges = dataset.edges["__".join(ends)]
        assert (edges.source, edges.destination) == (ends[0], ends[2])
        assert Counter(lists_of(edges)) == pairs_of(data[ends].edge_index)
    weights = dataset.edges["author__writes__paper"].edge_weights()
    assert weights is not None
    assert sorted(zip(lists_of(dataset.edges["author__writes__paper"]), weights.tolist(), strict=True)) == [
        ((0, 5), 1.0), ((1, 5), 4.0), ((3, 0), 2.0), ((3, 1), 3.0)
    ]  # fmt: skip
    assert dataset.edges["paper__cites__paper"].edge_times() is not None
    np.testing.assert_array_equal(table_of(dataset, "paper"), data["paper"].x.numpy())
    assert dataset.nodes["paper"].split("train") is not None
    assert dataset.nodes["author"].feature_table() is None
    assert verify(dataset.path) == []


def test_what_a_typed_graph_has_besides_is_told(tmp_path: Path) -> None:
    data = hetero_data()
    data.city = "Rome"
    data["author"].ages = torch.zeros(5)
    data["paper", "cites", "paper"].kinds = torch.ones(4, 5)
    with pytest.warns(UserWarning, match="not imported") as caught:
        diskhop.from_pyg(data, tmp_path / "graph")
    told = str(caught[0].message)
    for word in ("data.city", "data['author'].ages", "data['paper', 'cites', 'paper'].kinds"):
        assert word in told


def hetero_with(ends: tuple[str, str, str]) -> HeteroData:
    data = hetero_data()
    data[ends].edge_index = torch.zeros(2, 1, dtype=torch.int64)
    return data


def data_with_adj() -> Data:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that they are in beta
        return Data(adj=torch.eye(3).to_sparse_csr())


NAN = torch.full((20, 3), float("nan"))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (good_data(edge_index=None), "data: has no edge_index"),
        (good_data(edge_index=torch.zeros(3, 4, dtype=torch.int64)), "data.edge_index: must be integers of shape"),
        (good_data(edge_index=torch.zeros(2, 4)), "got shape (2, 4) of float32"),
        (good_data(edge_index=torch.tensor([[0], [20]])), "data.edge_index: edge 0 has destination 20"),
        (good_data(edge_index=torch.tensor([[-1], [2]])), "data.edge_index: edge 0 has source -1"),
        (good_data(edge_index=[[0], [1]]), "data.edge_index: must be a tensor or a NumPy array, got list"),
        (data_with_adj(), "data.adj: is a matrix, and edge_index or adj_t is required"),
        (good_data(x=torch.eye(20).to_sparse()), "data.x: is sparse; give data.x.to_dense()"),
        (good_data(x=torch.tensor(3.0)), "data.x: must be an array of plain"),
        (good_data(x=torch.zeros(20, 3, dtype=torch.complex64)), "data.x: must be an array of plain"),
        (good_data(x=np.zeros((20, 3), object)), "data.x: must be an array of plain"),
        (good_data(x=torch.zeros(20, 3, device="meta")), "data.x: must be in main memory, is on meta; give data.cpu()"),
        (good_data(x=torch.zeros(19, 3)), "data: its attributes differ in the number of nodes (x 19, y 20"),
        (good_data(x=NAN), "feature 0 of node 0 is nan"),
        (good_data(y=torch.full((20,), -1.0)), "data.y: label of node 0 is -1.0; a class must be a whole number"),
        (good_data(y=torch.full((20,), -2)), "label of node 0 is -2"),
        (good_data(y=torch.tensor(3)), "data.y: must be an array of plain"),
        (good_data(y=torch.full((20, 2), 3.0)), "task 0 of node 0 is 3.0"),
        (good_data(train_mask=torch.arange(20)), "data.train_mask: must be booleans"),
        (good_data(train_mask=torch.zeros(20, 0, dtype=torch.bool)), "data.train_mask: must be booleans"),
        (good_data(train_mask=torch.zeros(20, dtype=torch.bool)), "split 'train' is empty"),
        (
            good_data(train_mask=torch.ones(20, 2).bool(), val_mask=torch.ones(20, 3).bool()),
            "has 3 splits of 'valid' but 2 of other parts",
        ),
        (good_data(num_nodes=21), "(num_nodes 21, x 20"),
        (good_data(num_nodes=-1), "data.num_nodes: must be a whole number"),
        (good_data(num_nodes="many"), "data.num_nodes: must be a whole number"),
        (good_data(edge_weight=torch.ones(59)), "data.edge_weight: must be one number for each of 60 edges"),
        (good_data(edge_weight=torch.full((60,), float("inf"))), "weight of edge 0 is inf"),
        (good_data(edge_weight=torch.full((60,), 1e300, dtype=torch.float64)), "weight of edge 0 is inf"),
        (
            good_data(edge_time=torch.arange(20)),
            "data.edge_time: must be one number for each of 60 edges, got shape (20",
        ),
        (Data(edge_index=torch.zeros(2, 0, dtype=torch.int64)), "the graph has no nodes"),
        (Data(edge_index=torch.tensor([[0], [2**60]])), "node 1152921504606846976 is out of range"),
        (HeteroData(), "data: has no edges"),
        (hetero_with(("paper", "is in", "venue")), "data['paper', 'is in', 'venue']: type name 'paper__is in__venue'"),
        (hetero_with(("../x", "in", "venue")), "type name '../x"),
        (hetero_with(("paper", "in", "no way")), "type name 'paper__in__no way'"),
    ],
)
def test_bad_data_is_one_line_and_leaves_nothing(tmp_path: Path, data: Any, words: str) -> None:
    with pytest.raises(SourceError) as caught:
        diskhop.from_pyg(data, tmp_path / "graph")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_two_types_of_edges_with_one_name_are_refused(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyG's own of names with two underscores
        data = hetero_with(("paper__cites", "paper", "x"))
        data["paper", "cites__paper", "x"].edge_index = torch.zeros(2, 1, dtype=torch.int64)
        with pytest.raises(SourceError, match="has the same name paper__cites__paper__x as other edges"):
            diskhop.from_pyg(data, tmp_path / "graph")


def test_what_adj_is_told_to_become_is_the_graph(tmp_path: Path) -> None:
    import torch_geometric

    edge_index = torch.tensor([[0, 2, 1], [1, 0, 2]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = torch.ones(3)
        data = Data(adj=torch.sparse_coo_tensor(edge_index, values, (3, 3)).coalesce().to_sparse_csr())
        with pytest.raises(SourceError) as caught:
            diskhop.from_pyg(data, tmp_path / "graph")
        told = str(caught.value).split("set ")[1]
        exec(told, {"data": data, "torch_geometric": torch_geometric, "weights": None})
    del data.adj
    assert Counter(edges_of(diskhop.from_pyg(data, tmp_path / "graph"))) == pairs_of(edge_index)


@pytest.mark.parametrize("data", [[1, 2], np.zeros(3), None])
def test_other_objects_are_refused(tmp_path: Path, data: Any) -> None:
    with pytest.raises(ConfigError, match="must be a torch_geometric"):
        diskhop.from_pyg(data, tmp_path / "graph")


def test_data_that_counts_its_nodes_needs_no_edges(tmp_path: Path) -> None:
    dataset = diskhop.from_pyg(Data(num_nodes=5), tmp_path / "graph")
    assert (dataset.num_nodes, dataset.num_edges) == (5, 0)
    typed = diskhop.from_pyg(HeteroData(paper={"num_nodes": 5}), tmp_path / "typed")
    assert [edges.ends for edges in typed.edges.values()] == [("paper", "to", "paper")]
    assert (typed.num_nodes, typed.num_edges) == (5, 0)
    with pytest.raises(SourceError, match="has no edges; add an edge type"):
        diskhop.from_pyg(HeteroData(a={"num_nodes": 5}, b={"num_nodes": 5}), tmp_path / "several")


def test_events_are_no_graph(tmp_path: Path) -> None:
    events = TemporalData(src=torch.tensor([0]), dst=torch.tensor([1]), t=torch.tensor([5]))
    with pytest.raises(SourceError, match="has no edge_index"):
        diskhop.from_pyg(events, tmp_path / "graph")


def test_bad_options_and_budgets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"dtype must be one of .* got 'float8'"):
        diskhop.from_pyg(good_data(), tmp_path / "graph", dtype="float8")
    with pytest.raises(BudgetError, match="too small"):
        diskhop.from_pyg(good_data(), tmp_path / "graph", memory=1000)
    assert list(tmp_path.iterdir()) == []


def test_a_mapped_table_is_streamed(tmp_path: Path) -> None:
    table = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=np.float32, shape=(200_000, 100))
    data = Data(x=table, edge_index=torch.tensor([[0], [1]]))
    tracemalloc.start()
    dataset = diskhop.from_pyg(data, tmp_path / "graph")
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert dataset.num_nodes == 200_000
    assert peak_bytes < table.nbytes / 2


@pytest.mark.skipif(not SHARED_DATA.is_dir(), reason="../shared/data is absent")
def test_cora_as_data_is_cora(tmp_path: Path) -> None:
    from diskhop.importing.run import import_graph
    from tests.graphs import threads_engine

    expected = import_graph(SHARED_DATA / "cora", tmp_path / "cora", engine=threads_engine())
    table = expected.feature_table()
    assert table is not None
    x = torch.from_numpy(np.fromfile(table.path, np.float32).reshape(2708, -1))
    with np.load(SHARED_DATA / "cora" / "data.npz") as arrays:
        masks = {}
        for part in ("train", "val", "test"):
            masks[f"{part}_mask"] = torch.zeros(2708, dtype=torch.bool)
            masks[f"{part}_mask"][arrays[f"{part}_idx"]] = True
        data = Data(x=x, edge_index=torch.from_numpy(arrays["edge_index"]), y=torch.from_numpy(arrays["y"]), **masks)
    dataset = diskhop.from_pyg(data, tmp_path / "pyg", name="cora")
    assert Counter(edges_of(dataset)) == pairs_of(data.edge_index)
    assert dataset.hash == expected.hash


@pytest.mark.parametrize("layout", ["coo", "csc", "csr"])
def test_stores_give_the_graph_of_the_data(tmp_path: Path, layout: str) -> None:
    data = good_data(time=torch.arange(20), train_mask=None, val_mask=None, test_mask=None)
    features, graph = MyFeatureStore(), MyGraphStore()
    for name in ("x", "y", "time"):
        features.put_tensor(data[name], group_name=None, attr_name=name, index=None)
    source, destination = coalesce(data.edge_index)
    order = destination.argsort(stable=True) if layout == "csc" else torch.arange(len(source))
    pairs = {
        "coo": (source, destination),
        "csr": (index2ptr(source, 20), destination),
        "csc": (source[order], index2ptr(destination[order], 20)),
    }
    graph.put_edge_index(pairs[layout], edge_type=None, layout=layout, size=(20, 20))
    dataset = diskhop.from_pyg((features, graph), tmp_path / "graph")
    assert Counter(edges_of(dataset)) == pairs_of(coalesce(data.edge_index))
    np.testing.assert_array_equal(table_of(dataset), data.x.numpy())
    assert dataset.nodes["node"].attributes.keys() == {"x", "y", "time"}


def test_stores_with_types_keep_them(tmp_path: Path) -> None:
    features, graph = MyFeatureStore(), MyGraphStore()
    features.put_tensor(torch.arange(10), group_name="user", attr_name="x", index=None)
    edge_index = torch.tensor([[0, 1, 5], [2, 0, 3]])
    graph.put_edge_index(edge_index, edge_type=("user", "buys", "item"), layout="coo", size=(10, 4))
    dataset = diskhop.from_pyg((features, graph), tmp_path / "graph")
    assert {name: nodes.num_nodes for name, nodes in dataset.nodes.items()} == {"user": 10, "item": 4}
    assert Counter(lists_of(dataset.edges["user__buys__item"])) == pairs_of(edge_index)
