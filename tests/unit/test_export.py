"""Exporting nodes and whole graphs: what comes back in is what was there, whatever order it lay in."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from diskhop.budget import Budget
from diskhop.cli import run
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.encoding import FEATURE_DTYPES, decode_rows, encode_rows
from diskhop.errors import ConfigError
from diskhop.exporting.formats import EXPORTS
from diskhop.importing.options import ImportOptions
from tests.examples import examples
from tests.exports import exported, imported, random_arrays, save, saved, sorted_edges, table
from tests.graphs import SHARED_DATA, folder_bytes, make_dataset, memory_folder


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


@pytest.mark.fast(6)
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
    if format_name in ("parquet", "tables"):
        path = out / ("nodes.parquet" if format_name == "parquet" else "nodes/node.parquet")
        found = np.array([row[0] for row in table(path, "feature")], np.float32)
    else:
        found = np.load(out / {"numpy": "x.npy", "graphbolt": "nodes/node-feat.npy"}[format_name])
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, decode_rows(encode_rows(values, dtype), dtype, values.shape[1]))


@pytest.mark.fast("60000000")
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


@pytest.fixture(scope="module")
def large(module_folder: Path) -> Dataset:
    """80 MB of features."""
    return make_dataset(module_folder / "large", num_nodes=200_000, num_edges=400_000, dim=100)


@pytest.mark.fast("numpy", "tables")
@pytest.mark.parametrize("format_name", EXPORTS)
def test_features_are_streamed(tmp_path: Path, large: Dataset, format_name: str) -> None:
    # Modules that a format loads, such as those of PyArrow, are no rows.
    exported(make_dataset(tmp_path / "small"), tmp_path / "loaded", format_name)
    tracemalloc.start()
    exported(large, tmp_path / "out", format_name)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 40_000_000


@pytest.mark.fast("tables", "numpy")
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
