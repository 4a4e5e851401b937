"""Attributes of nodes and edges keep their names, dtypes and shapes from the source to the dataset."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data, HeteroData

import diskhop
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.dataset.manifest import MANIFEST_NAME
from diskhop.dataset.verify import verify
from diskhop.errors import FormatError
from tests.graphs import edges_of

NODES, EDGES = 30, 80
DTYPES = {
    name: getattr(torch, name)
    for name in ("bool", "int8", "int16", "int32", "int64", "uint8", "float16", "bfloat16", "float32", "float64")
}


def some(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(shape, generator=generator) * 100).to(dtype)


def graph(**values: Any) -> Data:
    generator = torch.Generator().manual_seed(1)
    return Data(edge_index=torch.randint(0, NODES, (2, EDGES), generator=generator), num_nodes=NODES, **values)


def as_tensor(stored: NDArray[Any], dtype: str) -> torch.Tensor:
    if dtype == "bfloat16":
        return torch.from_numpy(stored.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.array(stored))


def nodes_of(dataset: Dataset, name: str) -> torch.Tensor:
    """An attribute in the order of the source."""
    nodes = dataset.nodes["node"]
    stored = nodes.attribute(name)
    assert stored is not None
    return as_tensor(dataset.id_map().in_source_order(np.array(stored)), nodes.attributes[name].dtype)


def values_of(dataset: Dataset, name: str) -> torch.Tensor:
    edges = dataset.edges["edge"]
    stored = edges.attribute(name)
    assert stored is not None
    return as_tensor(np.array(stored), edges.attributes[name].dtype)


@pytest.mark.fast(20)
@pytest.mark.parametrize("order", [None, "hot"])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (0,)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_dtype_and_shape_is_kept(tmp_path: Path, dtype: str, shape: tuple[int, ...], order: Any) -> None:
    of_nodes, of_edges = some((NODES, *shape), DTYPES[dtype]), some((EDGES, *shape), DTYPES[dtype], 1)
    dataset = diskhop.from_pyg(graph(pos=of_nodes, kind=of_edges), tmp_path / "graph", order=order)
    for attributes, name in ((dataset.nodes["node"].attributes, "pos"), (dataset.edges["edge"].attributes, "kind")):
        assert (attributes[name].dtype, attributes[name].shape) == (dtype, shape)
    assert torch.equal(nodes_of(dataset, "pos"), of_nodes)
    edge_ids = dataset.edge_ids()
    assert edge_ids is not None
    assert torch.equal(values_of(dataset, "kind"), of_edges[torch.from_numpy(edge_ids.astype(np.int64))])
    assert verify(dataset.path) == []


@pytest.mark.parametrize(
    ("x", "stored_as"),
    [
        (torch.arange(NODES), ""),
        (some((NODES,)), ""),
        (some((NODES, 2, 2)), ""),
        (torch.arange(NODES)[:, None] - 5, "features"),
        (torch.arange(NODES)[:, None] + 2**30, ""),
        (torch.arange(NODES)[:, None] % 2 == 0, "features"),
        (torch.rand(NODES, 3, dtype=torch.float64), ""),
        (torch.rand(NODES, 3, dtype=torch.float64).float().double(), "features"),
        (some((NODES, 2), torch.float16), "features"),
        (some((NODES, 2), torch.bfloat16), "features"),
    ],
    ids=lambda value: f"{value.dtype}, {tuple(value.shape)}" if isinstance(value, torch.Tensor) else value,
)
def test_x_of_any_kind_is_x(tmp_path: Path, x: torch.Tensor, stored_as: str) -> None:
    dataset = diskhop.from_pyg(graph(x=x), tmp_path / "graph")
    info = dataset.nodes["node"].attributes["x"]
    assert (info.dtype, info.shape, info.stored_as) == (str(x.dtype).removeprefix("torch."), x.shape[1:], stored_as)
    assert (dataset.feature_dim > 0) == (x.dim() == 2)
    if not stored_as:
        assert torch.equal(nodes_of(dataset, "x"), x)


def test_a_dtype_that_was_chosen_for_features_is_that_of_x(tmp_path: Path) -> None:
    dataset = diskhop.from_pyg(graph(x=torch.rand(NODES, 3, dtype=torch.float64)), tmp_path / "graph", dtype="float16")
    info = dataset.nodes["node"].attributes["x"]
    assert (info.dtype, info.stored_as) == ("float16", "features")


@pytest.mark.parametrize(
    ("y", "stored", "dtype", "shape"),
    [
        (torch.arange(NODES) % 3, [0, 1, 2], "int64", ()),
        ((torch.arange(NODES) % 3)[:, None], [0, 1, 2], "int64", (1,)),
        ((torch.arange(NODES) % 3).to(torch.uint8), [0, 1, 2], "uint8", ()),
        ((torch.arange(NODES) % 3).double(), [0, 1, 2], "float64", ()),
        (torch.tensor([[0, 1], [1, 1], [0, 0]] * 10), [[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]], "int64", (2,)),
    ],
    ids=["classes", "column", "uint8", "float", "tasks"],
)
def test_y_keeps_dtype_and_shape(
    tmp_path: Path, y: torch.Tensor, stored: list[Any], dtype: str, shape: tuple[int, ...]
) -> None:
    dataset = diskhop.from_pyg(graph(y=y), tmp_path / "graph")
    info = dataset.nodes["node"].attributes["y"]
    assert (info.dtype, info.shape, info.stored_as) == (dtype, shape, "labels")
    labels = dataset.labels
    assert labels is not None
    assert labels[:3].tolist() == stored


@pytest.mark.parametrize(
    ("given", "dtype", "shape", "stored_as"),
    [
        ({"edge_weight": some((EDGES,))}, "float32", (), "weights"),
        ({"edge_weight": some((EDGES, 1))}, "float32", (1,), "weights"),
        ({"edge_weight": torch.arange(EDGES)}, "int64", (), "weights"),
        ({"edge_weight": some((EDGES,), torch.float64) + 1e-9}, "float64", (), ""),
        ({"edge_attr": some((EDGES,))}, "float32", (), "weights"),
        ({"edge_attr": some((EDGES, 1))}, "float32", (1,), "weights"),
        ({"edge_attr": torch.arange(EDGES)}, "int64", (), ""),
        ({"edge_attr": some((EDGES, 4))}, "float32", (4,), ""),
        ({"edge_attr": torch.full((EDGES,), float("nan"))}, "float32", (), ""),
        ({"edge_time": torch.arange(EDGES)}, "int64", (), "times"),
        ({"edge_time": torch.arange(EDGES, dtype=torch.int32)}, "int32", (), "times"),
        ({"edge_time": some((EDGES,))}, "float32", (), ""),
        ({"time": torch.arange(EDGES)[:, None]}, "int64", (1,), "times"),
    ],
)
def test_values_of_edges_keep_their_names(
    tmp_path: Path, given: dict[str, torch.Tensor], dtype: str, shape: tuple[int, ...], stored_as: str
) -> None:
    ((name, values),) = given.items()
    dataset = diskhop.from_pyg(graph(**given), tmp_path / "graph")
    attributes = dataset.edges["edge"].attributes
    assert list(attributes) == [name]
    assert (attributes[name].dtype, attributes[name].shape, attributes[name].stored_as) == (dtype, shape, stored_as)
    edge_ids = dataset.edge_ids()
    assert edge_ids is not None
    expected = values[torch.from_numpy(edge_ids.astype(np.int64))]
    torch.testing.assert_close(values_of(dataset, name).to(values.dtype), expected, rtol=0, atol=0, equal_nan=True)


def test_where_nodes_and_edges_are_as_many_the_name_tells(tmp_path: Path) -> None:
    data = Data(edge_index=torch.randint(0, 9, (2, 9)), num_nodes=9, time=torch.arange(9), edge_kind=torch.arange(9))
    dataset = diskhop.from_pyg(data, tmp_path / "graph")
    assert list(dataset.nodes["node"].attributes) == ["time"]
    assert list(dataset.edges["edge"].attributes) == ["edge_kind"]


def test_names_of_pyg_tell_the_number_of_nodes(tmp_path: Path) -> None:
    edge_index = torch.tensor([[0, 1], [1, 0]])
    for name in ("pos", "node_type", "my_node_values"):
        dataset = diskhop.from_pyg(Data(edge_index=edge_index, **{name: torch.zeros(5)}), tmp_path / name)
        assert dataset.num_nodes == 5


@pytest.mark.parametrize("options", [{"undirected": True}, {"duplicates": "drop"}, {"edge_ids": "drop"}])
@pytest.mark.parametrize("mapped", [False, True])
def test_values_follow_their_edges(tmp_path: Path, options: dict[str, Any], mapped: bool) -> None:
    values: Any = some((EDGES, 3), torch.float64)
    data = graph(edge_attr=values)
    if mapped:
        np.save(tmp_path / "values.npy", values.numpy())
        data.edge_attr = np.load(tmp_path / "values.npy", mmap_mode="r")
    dataset = diskhop.from_pyg(data, tmp_path / "graph", **options)
    found = values_of(dataset, "edge_attr")
    given = {
        tuple(pair): set[tuple[float, ...]]()
        for pair in [*data.edge_index.T.tolist(), *data.edge_index.flip(0).T.tolist()]
    }
    for pair, row in zip(data.edge_index.T.tolist(), values.tolist(), strict=True):
        for ends in (tuple(pair), tuple(pair[::-1])):
            given[ends].add(tuple(row))
    pairs = list(edges_of(dataset))
    assert len(pairs) == len(found)
    for pair, row in zip(pairs, found.tolist(), strict=True):
        assert tuple(row) in given[pair]
    if "undirected" not in options:
        assert len({tuple(row) for row in found.tolist()}) == len(found)


def test_values_larger_than_the_budget_take_the_disk(tmp_path: Path) -> None:
    num_edges, dim = 20_000, 400
    np.save(tmp_path / "values.npy", np.arange(num_edges * dim, dtype=np.int32).reshape(num_edges, dim))
    edge_index = torch.randint(0, 500, (2, num_edges), generator=torch.Generator().manual_seed(0))
    data = Data(edge_index=edge_index, num_nodes=500, edge_attr=np.load(tmp_path / "values.npy", mmap_mode="r"))
    dataset = diskhop.from_pyg(data, tmp_path / "graph", memory="24MB")
    values, edge_ids = dataset.edges["edge"].attribute("edge_attr"), dataset.edge_ids()
    assert values is not None
    assert edge_ids is not None
    np.testing.assert_array_equal(values[:, 0], edge_ids.astype(np.int64) * dim)
    np.testing.assert_array_equal(values[:, -1], edge_ids.astype(np.int64) * dim + dim - 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph", "values.npy"]


def test_typed_graphs_have_attributes_by_type(tmp_path: Path) -> None:
    data = HeteroData()
    data["paper"].x, data["paper"].year = torch.arange(6), torch.arange(6) + 2000
    data["author"].name_length = torch.arange(4)
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 3], [5, 0]])
    data["author", "writes", "paper"].edge_attr = torch.tensor([[1, 2], [3, 4]])
    data["author"].num_nodes = 4
    dataset = diskhop.from_pyg(data, tmp_path / "graph")
    assert set(dataset.nodes["paper"].attributes) == {"x", "year"}
    assert set(dataset.nodes["author"].attributes) == {"name_length"}
    values = dataset.edges["author__writes__paper"].attribute("edge_attr")
    assert values is not None
    assert values.tolist() == [[3, 4], [1, 2]]


def changed(dataset: Dataset, folder: Path, change: Any) -> Path:
    """A copy of a dataset with another manifest, whose checksum is right."""
    from diskhop.io.checksums import digest_bytes

    shutil.copytree(dataset.path, folder)
    document = json.loads((folder / MANIFEST_NAME).read_text())
    change(document)
    del document["checksum"]
    plain = (json.dumps(document, sort_keys=True, indent=1) + "\n").encode("ascii")
    document["checksum"] = f"{digest_bytes(plain):016x}"
    (folder / MANIFEST_NAME).write_text(json.dumps(document, sort_keys=True, indent=1) + "\n")
    return folder


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dtype": "complex64"}, "'dtype' must be one of bool"),
        ({"shape": [-1]}, "'shape' must be a list of whole numbers"),
        ({"shape": 3}, "'shape' must be a list of whole numbers"),
        ({"shape": [2]}, "its types call for"),
        ({"shape": [1] * 17}, "'shape' must have at most 16 lengths"),
        ({"stored_as": "features"}, "stored as 'features', of which there are 0 values"),
    ],
)
def test_damaged_attributes_are_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    dataset = diskhop.from_pyg(graph(pos=torch.arange(NODES)), tmp_path / "graph")

    def damage(document: Any) -> None:
        document["node_types"]["node"]["attributes"]["pos"].update(change)

    with pytest.raises(FormatError, match=words):
        open_dataset(changed(dataset, tmp_path / "damaged", damage))


def test_keys_of_an_attribute_that_are_not_known_are_kept(tmp_path: Path) -> None:
    dataset = diskhop.from_pyg(graph(pos=torch.arange(NODES)), tmp_path / "graph")

    def extend(document: Any) -> None:
        document["node_types"]["node"]["attributes"]["pos"]["unit"] = "metre"

    other = open_dataset(changed(dataset, tmp_path / "newer", extend))
    assert other.nodes["node"].attributes["pos"].extra == {"unit": "metre"}
