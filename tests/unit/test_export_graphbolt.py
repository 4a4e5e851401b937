"""Exporting in GraphBolt's format: as DGL specifies it, with types of nodes and edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from diskhop.budget import Budget
from diskhop.dataset.build.builder import DatasetBuilder
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edges import ArrayEdges
from diskhop.errors import ConfigError
from diskhop.importing.options import ImportOptions
from tests.exports import exported, imported, random_arrays, save
from tests.graphs import make_dataset, threads_engine


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
