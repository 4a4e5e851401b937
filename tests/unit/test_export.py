"""Exporting: what comes back in is what was there, whatever order it lay in; what has no place is one line."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from diskhop.budget import Budget
from diskhop.cli import run
from diskhop.dataset.build.builder import DatasetBuilder
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.dataset.edges import ArrayEdges
from diskhop.dataset.encoding import FEATURE_DTYPES, decode_rows, encode_rows
from diskhop.errors import ConfigError, DestinationError, FormatError
from diskhop.exporting.columns import EDGE_BLOCKS_BYTES
from diskhop.exporting.formats import EXPORTS, export_dataset
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from tests.examples import examples
from tests.graphs import SHARED_DATA, folder_bytes, make_dataset, memory_folder, random_pairs, threads_engine

Arrays = dict[str, Any]
ORDERS: list[Any] = [None, "hot"]


def imported(source: Path, destination: Path, **options: Any) -> Dataset:
    options.setdefault("name", "g")
    return import_graph(source, destination, engine=threads_engine(), **options)


def exported(dataset: Dataset, destination: Path, format_name: str, **options: Any) -> Path:
    return export_dataset(dataset, destination, format_name=format_name, engine=threads_engine(), **options).path


def save(folder: Path, arrays: Arrays) -> Path:
    folder.mkdir()
    for name, value in arrays.items():
        np.save(folder / f"{name}.npy", value)
    return folder


def saved(folder: Path) -> Arrays:
    return {path.stem: np.load(path) for path in folder.glob("*.npy")}


def table(path: Path, columns: str = "*") -> list[tuple[Any, ...]]:
    return duckdb.connect().execute(f"SELECT {columns} FROM read_parquet('{path}')").fetchall()


def sorted_edges(pairs: Any) -> list[tuple[int, int]]:
    return sorted(map(tuple, np.asarray(pairs).T.tolist()))


def random_arrays(generator: np.random.Generator, num_nodes: int, num_edges: int) -> Arrays:
    """Arrays of a graph with any of what nodes may have."""
    arrays: Arrays = {"edge_index": generator.integers(0, num_nodes, (2, num_edges)), "num_nodes": num_nodes}
    if generator.random() < 0.7:
        dtype = [np.float32, np.float16][generator.integers(2)]
        arrays["x"] = generator.normal(size=(num_nodes, generator.integers(1, 6))).astype(dtype)
    kind = generator.integers(3)
    if kind == 1:
        arrays["y"] = generator.integers(-1, 3, num_nodes)
        arrays["num_classes"] = 3 + generator.integers(3)
    elif kind == 2:
        arrays["y"] = generator.choice([0.0, 1.0, np.nan], (num_nodes, generator.integers(1, 4)))
    parts = [part for part in ("train", "val", "test") if generator.random() < 0.7]
    num_splits = generator.integers(1, 4)
    for part in parts:
        if num_splits == 1:
            arrays[f"{part}_idx"] = generator.permutation(num_nodes)[: generator.integers(1, num_nodes + 1)]
        else:
            arrays[f"{part}_masks"] = generator.random((num_splits, num_nodes)) < 0.5
            arrays[f"{part}_masks"][:, 0] = True
    if generator.random() < 0.3:
        arrays["edge_weight"] = generator.normal(size=num_edges).astype(np.float32)
    if generator.random() < 0.3:
        arrays["edge_time"] = generator.integers(-(2**60), 2**60, num_edges)
    return arrays


@examples(60)
@given(
    seed=st.integers(0, 2**32),
    num_nodes=st.integers(1, 40),
    num_edges=st.integers(0, 200),
    format_name=st.sampled_from(["numpy", "graphbolt"]),
    order=st.sampled_from([None, "hot"]),
)
@example(seed=165, num_nodes=1, num_edges=0, format_name="graphbolt", order=None)  # labels, and none is known
def test_what_was_exported_imports_to_the_same_bytes(
    seed: int, num_nodes: int, num_edges: int, format_name: str, order: Any
) -> None:
    arrays = random_arrays(np.random.default_rng(seed), num_nodes, num_edges)
    with memory_folder(Path("/tmp")) as folder:
        source = save(folder / "source", arrays)
        plain = imported(source, folder / "plain")
        moved = imported(source, folder / "moved", options=ImportOptions(order=order))
        again = imported(exported(moved, folder / "out", format_name), folder / "again")
        # Parallel edges of a hot order may come back in another order: their weights and times with them.
        names = {name for name in folder_bytes(plain.path) if "edges" not in name}
        if order is None or not {"edge_weight", "edge_time"} & set(arrays):
            assert again.hash == plain.hash
        assert {name: folder_bytes(again.path)[name] for name in names - {"manifest.json", "checksums.bin"}} == {
            name: folder_bytes(plain.path)[name] for name in names - {"manifest.json", "checksums.bin"}
        }
        assert [path.name for path in sorted(folder.iterdir())] == ["again", "moved", "out", "plain", "source"]


@examples(10)
@given(seed=st.integers(0, 2**32), num_nodes=st.integers(1, 40), num_edges=st.integers(0, 200))
def test_tables_have_what_the_arrays_have(seed: int, num_nodes: int, num_edges: int) -> None:
    arrays = random_arrays(np.random.default_rng(seed), num_nodes, num_edges)
    with memory_folder(Path("/tmp")) as folder:
        source = save(folder / "source", arrays)
        out = exported(imported(source, folder / "d", options=ImportOptions(order="hot")), folder / "out", "parquet")
        assert [path.name for path in sorted(out.iterdir())] == ["edges.parquet", "nodes.parquet"]
        columns = [arrays["edge_index"][0], arrays["edge_index"][1]]
        columns += [arrays[name] for name in ("edge_weight", "edge_time") if name in arrays]
        rows = sorted(zip(*(column.tolist() for column in columns), strict=True))
        assert sorted(table(out / "edges.parquet")) == rows
        assert [row[0] for row in table(out / "nodes.parquet", "id")] == list(range(num_nodes))
        if "x" in arrays:
            features = np.array([row[0] for row in table(out / "nodes.parquet", "feature")], np.float32)
            np.testing.assert_array_equal(features, arrays["x"].astype(np.float32))
        if "y" in arrays:
            labels = [row[0] for row in table(out / "nodes.parquet", "label")]
            if arrays["y"].ndim == 1:
                assert labels == [None if label < 0 else label for label in arrays["y"].tolist()]
            else:
                np.testing.assert_array_equal(np.array(labels, float), arrays["y"])
        parts = {"train_idx": "train", "val_idx": "valid", "test_idx": "test"}
        if set(parts) & set(arrays):
            members = [[name for key, name in parts.items() if v in arrays.get(key, ())] for v in range(num_nodes)]
            assert [row[0] for row in table(out / "nodes.parquet", "split")] == [
                ",".join(names) or None for names in members
            ]
        elif any("masks" in name for name in arrays):
            part = next(name for name in ("train", "val", "test") if f"{name}_masks" in arrays)
            split = [row[0] or "" for row in table(out / "nodes.parquet", "split_1")]
            np.testing.assert_array_equal([part in text for text in split], arrays[f"{part}_masks"][1])


@pytest.mark.parametrize("dtype", FEATURE_DTYPES)
@pytest.mark.parametrize("stride", [0, 3])
def test_rows_are_decoded_as_they_were_encoded(dtype: str, stride: int) -> None:
    values = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)
    rows = np.pad(encode_rows(values, dtype), ((0, 0), (0, stride)))
    decoded = decode_rows(rows, dtype, 7)
    assert decoded.dtype == (np.float16 if dtype == "float16" else np.float32)
    tolerance = {"float32": 0, "float16": 1e-3, "bfloat16": 8e-3, "int8": 8e-3}[dtype]
    np.testing.assert_allclose(decoded, values, atol=tolerance * np.abs(values).max())
    if dtype != "int8":
        np.testing.assert_array_equal(encode_rows(decoded, dtype), encode_rows(values, dtype))


@pytest.mark.parametrize("format_name", EXPORTS)
@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
@pytest.mark.parametrize("order", [None, "hot"])
def test_short_features_come_out_as_float32(tmp_path: Path, format_name: str, dtype: str, order: Any) -> None:
    dataset = imported(
        exported(make_dataset(tmp_path / "first"), tmp_path / "source", "numpy"),
        tmp_path / "short",
        options=ImportOptions(dtype=dtype, order=order),
    )
    values = np.load(tmp_path / "source" / "x.npy")
    out = exported(dataset, tmp_path / "out", format_name)
    if format_name == "parquet":
        found = np.array([row[0] for row in table(out / "nodes.parquet", "feature")], np.float32)
    else:
        found = np.load(out / {"numpy": "x.npy", "graphbolt": "nodes/node-feat.npy"}[format_name])
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, decode_rows(encode_rows(values, dtype), dtype, values.shape[1]))


@pytest.mark.parametrize("budget_bytes", [60_000_000, None])
def test_rows_that_were_moved_go_back_by_way_of_the_disk_too(tmp_path: Path, budget_bytes: int | None) -> None:
    generator = np.random.default_rng(0)
    arrays = {
        "edge_index": generator.integers(0, 40_000, (2, 60_000)),
        "x": generator.normal(size=(40_000, 400)).astype(np.float32),
        "y": generator.integers(0, 9, 40_000),
    }
    hot = imported(save(tmp_path / "source", arrays), tmp_path / "hot", options=ImportOptions(order="hot"))
    budget = None if budget_bytes is None else Budget(budget_bytes)
    stages: set[str] = set()
    out = exported(hot, tmp_path / "out", "numpy", budget=budget, progress=lambda stage, *_: stages.add(stage))
    found = saved(out)
    np.testing.assert_array_equal(found["x"], arrays["x"])
    np.testing.assert_array_equal(found["y"], arrays["y"])
    assert sorted_edges(found["edge_index"]) == sorted_edges(arrays["edge_index"])
    assert any("partitioning" in stage for stage in stages) == (budget is not None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hot", "out", "source"]


@pytest.mark.parametrize("format_name", EXPORTS)
def test_features_are_streamed(tmp_path: Path, format_name: str) -> None:
    dataset = make_dataset(tmp_path / "large", num_nodes=200_000, num_edges=400_000, dim=100)
    tracemalloc.start()
    exported(dataset, tmp_path / "out", format_name)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 40_000_000


def test_edges_of_names_and_of_ids_with_gaps_come_back(tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("ana,ben\nben,cem\nana,ben\ndan,ana\n")
    (tmp_path / "gaps.csv").write_text("7,1000000\n1000000,12\n12,7\n7,12\n")
    for source in ("names", "gaps"):
        for order in ORDERS:
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


@pytest.mark.skipif(not SHARED_DATA.is_dir(), reason="../shared/data is absent")
@pytest.mark.parametrize("format_name", EXPORTS)
def test_cora_goes_out_and_comes_back(tmp_path: Path, format_name: str) -> None:
    dataset = imported(SHARED_DATA / "cora", tmp_path / "cora")
    out = exported(dataset, tmp_path / "out", format_name)
    if format_name != "parquet":
        assert imported(out, tmp_path / "again").hash == dataset.hash
        return
    with np.load(SHARED_DATA / "cora" / "data.npz") as arrays:
        assert sorted(table(out / "edges.parquet")) == sorted_edges(arrays["edge_index"])
        rows = table(out / "nodes.parquet", "id, label, len(feature), split")
        assert [row[:3] for row in rows] == [(v, label, 1433) for v, label in enumerate(arrays["y"].tolist())]


@pytest.mark.skipif(not SHARED_DATA.is_dir(), reason="../shared/data is absent")
def test_triples_with_names_go_out_as_arrays_and_come_back(tmp_path: Path) -> None:
    dataset = imported(SHARED_DATA / "codex-s", tmp_path / "codex")
    assert imported(exported(dataset, tmp_path / "out", "numpy"), tmp_path / "again").hash == dataset.hash
    for format_name in ("parquet", "graphbolt"):
        with pytest.raises(ConfigError, match=r"codex: has triples.* use --format numpy"):
            exported(dataset, tmp_path / format_name, format_name)


def typed_dataset(destination: Path) -> Dataset:
    generator = np.random.default_rng(0)
    with DatasetBuilder(destination, name="t", engine=threads_engine(), budget=Budget(1 << 30), threads=1) as builder:
        builder.add_nodes("paper", 40)
        builder.add_nodes("author", 10)
        for name, ends, limits in (
            ("cites", ("paper", "paper"), (40, 40)),
            ("writes", ("author", "paper"), (10, 40)),
            ("written", ("paper", "author"), (40, 10)),
        ):
            pairs = np.stack([generator.integers(0, limit, 90) for limit in limits])
            weights = generator.normal(size=90).astype(np.float32) if name == "writes" else None
            builder.add_edge_list(name, *ends, ArrayEdges(pairs), weights=weights)
        builder.add_features("paper", [np.eye(40, 4, dtype=np.float16)], dim=4, dtype="float16")
        builder.add_labels("paper", [np.arange(40) % 3], 4)
        builder.add_split("paper", "train", [np.array([7, 2, 30])])
        builder.add_split("paper", "test", [np.array([1])])
        return builder.finish()


def test_a_typed_graph_goes_out_as_graphbolt_and_comes_back(tmp_path: Path) -> None:
    dataset = typed_dataset(tmp_path / "typed")
    out = exported(dataset, tmp_path / "out", "graphbolt")
    again = imported(out, tmp_path / "again", name="t", options=ImportOptions(edge_ids="drop"))
    assert again.hash == dataset.hash
    for format_name in ("numpy", "parquet"):
        with pytest.raises(ConfigError, match=r"typed: has 2 types of nodes and 3 of edges.*use --format graphbolt"):
            exported(dataset, tmp_path / format_name, format_name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "out", "typed"]


def require_specified(folder: Path) -> None:
    """The published specification of metadata.yaml by hand: keys, types, formats, and shapes that DGL asserts."""
    metadata = yaml.safe_load((folder / "metadata.yaml").read_text())
    assert set(metadata) == {"dataset_name", "graph", "feature_data", "tasks"}
    assert isinstance(metadata["dataset_name"], str)
    assert set(metadata["graph"]) == {"nodes", "edges"}
    nodes = {each.get("type"): each["num"] for each in metadata["graph"]["nodes"]}
    # DGL takes a graph for one without types only where no entry has the key.
    is_typed = None not in nodes
    assert is_typed or (len(nodes) == 1 and len(metadata["graph"]["edges"]) == 1)

    def require_data(entry: dict[str, Any], keys: set[str]) -> Any:
        assert set(entry) - {"in_memory", "num_classes"} == keys
        assert entry["format"] == "numpy"
        assert not Path(entry["path"]).is_absolute()
        return np.load(folder / entry["path"], allow_pickle=False)

    num_edges = {}
    for edges in metadata["graph"]["edges"]:
        array = require_data(edges, {"format", "path"} | ({"type"} if is_typed else set()))
        assert array.shape[0] == 2
        num_edges[edges.get("type")] = array.shape[1]
        ends = edges["type"].split(":")[::2] if is_typed else (None, None)
        assert all(row.max(initial=-1) < nodes[end] for row, end in zip(array, ends, strict=True))
    for feature in metadata["feature_data"]:
        keys = {"domain", "name", "format", "path"} | ({"type"} if is_typed else set())
        array = require_data(feature, keys)
        counts = {"node": nodes, "edge": num_edges}[feature["domain"]]
        assert array.ndim == 2, "DGL refuses features of one dimension"
        assert len(array) == counts[feature.get("type")]
    for task in metadata["tasks"]:
        assert set(task) <= {"name", "num_classes", "train_set", "validation_set", "test_set"}
        for name in set(task) - {"name", "num_classes"}:
            for each in task[name]:
                assert set(each) == {"data"} | ({"type"} if is_typed else set())
                arrays = [require_data(data, {"name", "format", "path"}) for data in each["data"]]
                assert [data["name"] for data in each["data"]] in (["seeds"], ["seeds", "labels"])
                assert len({len(array) for array in arrays}) == 1
                assert arrays[0].ndim == 1


def test_metadata_is_as_dgl_specifies_it(tmp_path: Path) -> None:
    require_specified(exported(make_dataset(tmp_path / "plain"), tmp_path / "one", "graphbolt"))
    require_specified(exported(typed_dataset(tmp_path / "typed"), tmp_path / "two", "graphbolt"))
    generator = np.random.default_rng(0)
    for number in range(20):
        source = save(tmp_path / f"{number}", random_arrays(generator, 20, 50))
        dataset = imported(source, tmp_path / f"{number}-dataset", options=ImportOptions(order="hot"))
        require_specified(exported(dataset, tmp_path / f"{number}-out", "graphbolt"))


def test_dgl_itself_takes_the_folder(tmp_path: Path) -> None:
    graphbolt = pytest.importorskip("dgl.graphbolt", reason="dgl is not installed")
    loaded = graphbolt.OnDiskDataset(str(exported(make_dataset(tmp_path / "d"), tmp_path / "out", "graphbolt"))).load()
    assert loaded.graph.total_num_nodes == 50


@pytest.mark.parametrize("format_name", EXPORTS)
def test_the_command_tells_what_it_wrote(tmp_path: Path, format_name: str, capsys: pytest.CaptureFixture[str]) -> None:
    make_dataset(tmp_path / "graph")
    arguments = ["export", str(tmp_path / "graph"), str(tmp_path / "out"), "--format", format_name]
    assert run([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["format"] == format_name
    assert found["files"] == {name: len(content) for name, content in folder_bytes(tmp_path / "out").items()}
    assert run(arguments) == 2
    assert "out: already exists" in capsys.readouterr().err
    arguments[2] = str(tmp_path / "other")
    assert run(arguments) == 0
    assert "exported" in capsys.readouterr().out
    assert folder_bytes(tmp_path / "out") == folder_bytes(tmp_path / "other")


def test_what_cannot_be_exported_is_one_line(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "graph")
    with pytest.raises(ConfigError, match="--format 'csv' is unknown; use one of numpy, parquet, graphbolt"):
        exported(dataset, tmp_path / "out", "csv")
    with pytest.raises(DestinationError, match="does not exist; create it first"):
        exported(dataset, tmp_path / "none" / "out", "numpy")
    for format_name in EXPORTS:
        with pytest.raises(ConfigError, match=r"--memory"):
            exported(dataset, tmp_path / "out", format_name, budget=Budget(1_000_000))
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


@pytest.mark.parametrize("format_name", EXPORTS)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("edges/edge/indices.bin", np.full(300, 50, np.uint32)),
        ("edges/edge/indptr.bin", np.arange(51)[::-1].copy()),
        ("edges/edge/indptr.bin", np.zeros(51, np.int64)),
        ("edges/edge/indptr.bin", np.full(51, 7)),
        ("edges/edge/indptr.bin", np.array([0] * 50 + [301])),
    ],
)
def test_damage_is_one_line_and_leaves_nothing(tmp_path: Path, format_name: str, name: str, value: Any) -> None:
    dataset = make_dataset(tmp_path / "graph")
    dataset = open_dataset(dataset.path)
    value.tofile(dataset.path / name)
    with pytest.raises(FormatError, match=rf"{name}: is damaged; run 'diskhop verify' to list"):
        exported(dataset, tmp_path / "out", format_name)
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


@pytest.mark.parametrize("content", [b"ana\nben\n", b"ana\n\xff\ncem\n"])
def test_damaged_names_are_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "names.csv").write_text("ana,ben\nben,cem\nana,cem\n")
    dataset = imported(tmp_path / "names.csv", tmp_path / "graph")
    (dataset.path / "names" / "nodes.txt").write_bytes(content)
    with pytest.raises(FormatError, match=r"nodes.txt: is damaged"):
        exported(dataset, tmp_path / "out", "parquet")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph", "names.csv"]
