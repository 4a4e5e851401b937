"""Attributes in files: arrays and GraphBolt folders bring them in, exports bring them out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
import torch
import yaml
from torch_geometric.data import Data, HeteroData

import diskhop
from diskhop.dataset.dataset import Dataset
from diskhop.errors import SourceError
from diskhop.exporting.formats import Exported, export_dataset
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from tests.graphs import folder_bytes, threads_engine

NODES, EDGES = 30, 80


def arrays(**changes: Any) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    values = {
        "edge_index": generator.integers(0, NODES, (2, EDGES)),
        "num_nodes": NODES,
        "edge_attr": generator.random((EDGES, 3)),
        "edge.kind": generator.integers(0, 9, EDGES).astype(np.int8),
        "node.pos": generator.random((NODES, 2, 2)),
        "node.time": np.arange(NODES, dtype=np.int32),
        **changes,
    }
    return {key: value for key, value in values.items() if value is not None}


def imported(source: Path, destination: Path) -> Dataset:
    return import_graph(source, destination, engine=threads_engine())


def exported(dataset: Dataset, destination: Path, format_name: str) -> Exported:
    return export_dataset(dataset, destination, format_name=format_name, engine=threads_engine())


def write(folder: Path, values: dict[str, Any], *, packed: bool) -> Path:
    folder.mkdir()
    if packed:
        np.savez_compressed(folder / "data.npz", **values)
    else:
        for key, value in values.items():
            np.save(folder / f"{key}.npy", value)
    return folder


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("x", [None, np.arange(NODES), np.zeros((NODES, 2, 3), np.float32)], ids=["no", "1-D", "3-D"])
def test_arrays_have_attributes_by_name(tmp_path: Path, packed: bool, x: Any) -> None:
    values = arrays(x=x)
    dataset = imported(write(tmp_path / "source", values, packed=packed), tmp_path / "graph")
    assert dataset.nodes["node"].attributes.keys() == {"pos", "time", *(["x"] if x is not None else [])}
    for name in ("pos", "time"):
        np.testing.assert_array_equal(dataset.nodes["node"].attribute(name), values[f"node.{name}"])
    if x is not None:
        np.testing.assert_array_equal(dataset.nodes["node"].attribute("x"), x)
    edge_ids = dataset.edge_ids()
    for name, key in (("edge_attr", "edge_attr"), ("kind", "edge.kind")):
        found = dataset.edges["edge"].attribute(name)
        assert found is not None
        assert found.dtype == values[key].dtype
        np.testing.assert_array_equal(found, values[key][edge_ids])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"edge_attr": np.zeros((EDGES - 1, 3))}, "edge_attr: must have a row for each of 80 edges, got shape (79, 3)"),
        (
            {"node.time": np.zeros(NODES - 1)},
            "its arrays differ in the number of nodes (num_nodes 30, node.pos 30, node.time 29)",
        ),
        ({"node.": np.zeros(NODES)}, "names of attributes are letters"),
        ({"node.a b": np.zeros(NODES)}, "names of attributes are letters"),
        ({"edge.one": np.float64(3)}, "must have a row per node or edge"),
        ({"color": np.zeros(NODES)}, "or node.NAME or edge.NAME to keep it by its name"),
    ],
)
def test_arrays_that_are_no_attributes_are_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    source = write(tmp_path / "source", arrays(**changes), packed=True)
    with pytest.raises(SourceError) as caught:
        imported(source, tmp_path / "graph")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def data_with_attributes() -> Data:
    generator = torch.Generator().manual_seed(0)
    return Data(
        edge_index=torch.randint(0, NODES, (2, EDGES), generator=generator),
        x=torch.arange(NODES),
        pos=torch.rand(NODES, 2, 2, generator=generator),
        half=torch.rand(NODES, generator=generator).to(torch.bfloat16),
        empty=torch.zeros(NODES, 0),
        edge_attr=torch.rand(EDGES, 3, generator=generator).double(),
    )


@pytest.mark.parametrize("order", [None, "hot"])
def test_numpy_exports_bring_attributes_back(tmp_path: Path, order: Any) -> None:
    data = data_with_attributes()
    dataset = diskhop.from_pyg(data, tmp_path / "graph", order=order)
    files = exported(dataset, tmp_path / "files", "numpy")
    assert files.left_out == ()
    assert {"x.npy", "node.pos.npy", "node.half.npy", "node.empty.npy", "edge.edge_attr.npy"} <= {*files.files}
    again = imported(tmp_path / "files", tmp_path / "again")
    plain = diskhop.from_pyg(data, tmp_path / "plain")
    for name, info in plain.nodes["node"].attributes.items():
        expected = data[name].float().numpy() if name == "half" else data[name].numpy()
        np.testing.assert_array_equal(again.nodes["node"].attribute(name), expected)
        assert again.nodes["node"].attributes[name].shape == info.shape
    of_edges = plain.edges["edge"].attribute("edge_attr")
    np.testing.assert_array_equal(again.edges["edge"].attribute("edge_attr"), of_edges)
    exported(again, tmp_path / "files2", "numpy")
    assert folder_bytes(tmp_path / "files") == folder_bytes(tmp_path / "files2")


def test_graphbolt_folders_have_attributes_by_type(tmp_path: Path) -> None:
    data = HeteroData()
    data["paper"].x, data["paper"].year = torch.rand(6, 2), torch.arange(6)
    data["author"].age = torch.rand(4, 3)
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 3], [5, 0]])
    data["author", "writes", "paper"].edge_attr = torch.rand(2, 5)
    dataset = diskhop.from_pyg(data, tmp_path / "graph")
    exported(dataset, tmp_path / "files", "graphbolt")
    entries = yaml.safe_load((tmp_path / "files" / "metadata.yaml").read_text())["feature_data"]
    assert {entry["name"] for entry in entries} == {"feat", "year", "age", "edge_attr"}
    again = imported(tmp_path / "files", tmp_path / "again")
    (edges,) = again.edges.values()
    (before,) = dataset.edges.values()
    np.testing.assert_array_equal(edges.attribute("edge_attr"), before.attribute("edge_attr"))
    np.testing.assert_array_equal(again.nodes["author"].attribute("age"), data["author"].age.numpy())
    # GraphBolt's arrays have two dimensions.
    np.testing.assert_array_equal(again.nodes["paper"].attribute("year"), data["paper"].year.numpy()[:, None])


def test_parquet_exports_name_what_they_leave_out(tmp_path: Path) -> None:
    dataset = diskhop.from_pyg(data_with_attributes(), tmp_path / "graph")
    assert exported(dataset, tmp_path / "files", "parquet").left_out == ("empty", "half", "pos", "x", "edge_attr")


def tables(folder: Path, *, parquet: bool) -> Path:
    """Two nodes without edges, and three edges; floats may be missing."""
    folder.mkdir()
    nodes = "id,age,height,member\n7,30,1.5,true\n3,40,,false\n9,50,1.75,true\n5,60,2.5,false\n"
    edges = "source,destination,rating,kind,at\n7,3,4.5,1,2020-01-01\n3,7,,2,2020-01-02\n9,3,1.25,3,2020-01-03\n"
    for name, text in (("nodes", nodes), ("edges", edges)):
        (folder / f"{name}.csv").write_text(text)
        if parquet:
            types = {"nodes": "'age': 'SMALLINT', 'height': 'FLOAT'", "edges": "'kind': 'UTINYINT', 'rating': 'FLOAT'"}
            query = f"SELECT * FROM read_csv('{folder / name}.csv', types={{{types[name]}}})"
            duckdb.sql(f"COPY ({query}) TO '{folder / name}.parquet'")
            (folder / f"{name}.csv").unlink()
    return folder


@pytest.mark.parametrize("order", [None, "hot"])
@pytest.mark.parametrize("parquet", [False, True])
def test_columns_of_tables_are_attributes_by_option(tmp_path: Path, parquet: bool, order: Any) -> None:
    # In CSV, true is a text.
    of_nodes = ("age", "height", *(["member"] if parquet else []))
    options = ImportOptions(node_attributes=of_nodes, edge_attributes=("rating", "kind", "at"), order=order)
    source = tables(tmp_path / "source", parquet=parquet)
    dataset = import_graph(source, tmp_path / "graph", options=options, engine=threads_engine())
    assert dataset.feature_dim == 0
    nodes, edges = dataset.nodes["node"], dataset.edges["edge"]
    dtypes = {name: info.dtype for name, info in {**nodes.attributes, **edges.attributes}.items()}
    small = {"age": "int16", "height": "float32", "rating": "float32", "kind": "uint8", "member": "bool"}
    plain = {"age": "int64", "height": "float64", "rating": "float64", "kind": "int64", "at": "int64"}
    assert dtypes == (plain | small if parquet else plain)
    ids = dataset.node_ids().tolist()
    assert ids == [7, 3, 9, 5]

    def values(name: str) -> Any:
        return dataset.id_map().in_source_order(np.array(nodes.attribute(name))).tolist()

    assert values("age") == [30, 40, 50, 60]
    assert not parquet or values("member") == [True, False, True, False]
    np.testing.assert_array_equal(values("height"), [1.5, np.nan, 1.75, 2.5])
    edge_ids = dataset.edge_ids()
    np.testing.assert_array_equal(edges.attribute("rating"), np.array([4.5, np.nan, 1.25])[edge_ids])
    np.testing.assert_array_equal(edges.attribute("kind"), np.array([1, 2, 3])[edge_ids])
    day = 24 * 3600 * 10**6
    found = edges.attribute("at")
    assert found is not None
    np.testing.assert_array_equal((found - found.min()) // day, np.arange(3)[edge_ids])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"node_attributes": ("name",)}, "--node-attributes must name columns of numbers, 'name' is VARCHAR"),
        ({"node_attributes": ("nothing",)}, "has no column 'nothing'"),
        ({"edge_attributes": ("nothing",)}, "has no column 'nothing'"),
        ({"node_attributes": ("age",)}, "the value (age) must be a whole number, got nothing"),
        ({"node_attributes": ("my age",)}, "names of attributes are letters"),
    ],
)
def test_columns_that_are_no_attributes_are_refused(tmp_path: Path, given: Any, words: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "nodes.csv").write_text("id,name,age,my age\n1,a,3,4\n2,b,,5\n")
    (source / "edges.csv").write_text("source,destination\n1,2\n")
    with pytest.raises(SourceError) as caught:
        import_graph(source, tmp_path / "graph", options=ImportOptions(**given), engine=threads_engine())
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
