"""Exporting a table per type: it imports to the same dataset."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.budget import Budget
from diskhop.cli import run
from diskhop.dataset.attribute_info import AttributeInfo
from diskhop.dataset.build.builder import DatasetBuilder
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edges import ArrayEdges
from diskhop.errors import ConfigError
from diskhop.generating import TypedConfig, generate_typed_graph
from diskhop.importing.options import ImportOptions
from tests.exports import exported, imported, save, table
from tests.graphs import folder_bytes, threads_engine
from tests.unit.test_import_typed_tables import SCHEMA, shop

NO_IDS = ImportOptions(edge_ids="drop")


def typed_dataset(destination: Path) -> Dataset:
    """A dataset with any of what types may have: short floats, several splits, tasks, attributes, values of edges."""
    generator = np.random.default_rng(0)
    with DatasetBuilder(destination, name="g", engine=threads_engine(), budget=Budget(1 << 30), threads=1) as builder:
        for name, count in (("author", 10), ("day", 5), ("paper", 40)):
            builder.add_nodes(name, count)
        for name, limits in (("author__writes__paper", (10, 40)), ("paper__on__day", (40, 5))):
            pairs = np.stack([generator.integers(0, limit, 90) for limit in limits])
            source, _, destination_type = name.split("__")
            extra: dict[str, Any] = {}
            if name == "author__writes__paper":
                extra = {"weights": generator.normal(size=90).astype(np.float32), "times": np.arange(90)}
            builder.add_edge_list(name, source, destination_type, ArrayEdges(pairs), **extra)
        builder.add_attribute(
            "edges", "paper__on__day", "kind", AttributeInfo(dtype="int8"), [np.arange(90, dtype=np.int8)]
        )
        builder.add_features("paper", [np.eye(40, 4, dtype=np.float16)], dim=4, dtype="float16")
        builder.add_labels("paper", [np.arange(40) % 4 - 1], 5)
        for number in range(2):
            builder.add_split("paper", "train", [np.array([2, 7, 30])], number, 2)
            builder.add_split("paper", "test", [np.array([1, 8 + number])], number, 2)
        builder.add_features("author", [np.eye(10, 3, dtype=np.float32)], dim=3, dtype="bfloat16")
        builder.add_tasks("author", [np.array([[0, 1, np.nan, 1, 0], [1, np.nan, 1, 0, 0]] * 5, np.float32)[:, :2]], 2)
        builder.add_split("author", "valid", [np.arange(4)])
        builder.add_attribute("nodes", "author", "time", AttributeInfo(dtype="int64"), [np.arange(10)])
        return builder.finish()


def test_tables_of_every_kind_of_column_come_back(tmp_path: Path) -> None:
    dataset = typed_dataset(tmp_path / "g")
    out = exported(dataset, tmp_path / "out", "tables")
    schema = tomllib.loads((out / "schema.toml").read_text())
    assert schema["nodes"]["day"] == {"count": 5}
    again = imported(out, tmp_path / "again", options=NO_IDS)
    assert folder_bytes(again.path) == folder_bytes(dataset.path)


def test_names_and_ids_of_a_source_come_back(tmp_path: Path) -> None:
    dataset = imported(shop(tmp_path / "shop", SCHEMA), tmp_path / "g")
    out = exported(dataset, tmp_path / "out", "tables")
    assert table(out / "nodes/shop.parquet") == [(5,), (9,)]
    assert table(out / "edges/user__buys__item.parquet") == [(0, 10, 1.5, 3), (1, 7, 2.5, 4), (3, 10, 3.5, 5)]
    assert table(out / "nodes/user.parquet", "name, label, split")[1] == ("ben", "pro", "valid")
    again = imported(out, tmp_path / "again")
    assert again.names("nodes", "user") == ["ana", "ben", "cem", "dua"]
    # The order of rows is that of ids: items were 10, 11, 7.
    assert again.nodes["item"].node_ids().tolist() == [7, 10, 11]
    for part in ("train", "valid", "test"):
        np.testing.assert_array_equal(again.nodes["user"].split(part), dataset.nodes["user"].split(part))
    assert exported(again, tmp_path / "twice", "tables")
    assert folder_bytes(imported(tmp_path / "twice", tmp_path / "third").path) == folder_bytes(again.path)


def test_a_graph_of_one_type_keeps_its_names(tmp_path: Path) -> None:
    source = tmp_path / "s"
    source.mkdir()
    (source / "nodes.csv").write_text("id,plan,x\nben,pro,1\nana,free,2\n")
    (source / "edges.csv").write_text("src,dst\nana,ben\nben,ana\n")
    dataset = imported(source, tmp_path / "one", options=ImportOptions(label=("plan",), id="id"))
    again = imported(exported(dataset, tmp_path / "out", "tables"), tmp_path / "again")
    assert again.names("nodes") == ["ben", "ana"]
    assert again.names("classes") == ["free", "pro"]
    assert folder_bytes(again.path) == folder_bytes(dataset.path)


@pytest.mark.parametrize("shape", ["company", "mag"])
def test_generated_graphs_come_back(tmp_path: Path, shape: str) -> None:
    config = TypedConfig(shape=shape, num_nodes=2000, dim=5)
    dataset = generate_typed_graph(tmp_path / "g", config, engine=threads_engine(), name="g")
    out = exported(dataset, tmp_path / "out", "tables", budget=Budget(200_000_000))
    again = imported(out, tmp_path / "again", options=NO_IDS, budget=Budget(150_000_000))
    assert folder_bytes(again.path) == folder_bytes(dataset.path)


def test_what_tables_cannot_have_is_refused_or_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    triples = imported(save(tmp_path / "t", {"train": np.array([[0, 0, 1]])}), tmp_path / "triples")
    with pytest.raises(ConfigError, match="has triples or no edges, and format 'tables' cannot store that"):
        exported(triples, tmp_path / "out", "tables")
    arrays = {
        "edge_index": np.array([[0, 1], [1, 2]]),
        "num_nodes": 3,
        "node.pos": np.zeros((3, 2)),
        "node.a": np.arange(3),
    }
    imported(save(tmp_path / "a", arrays), tmp_path / "one")
    assert run(["export", str(tmp_path / "one"), str(tmp_path / "out"), "--format", "tables"]) == 0
    shown = capsys.readouterr().out
    assert "pos (format 'tables' does not store them" in " ".join(shown.split())
    assert table(tmp_path / "out/nodes/node.parquet") == [(0, 0), (1, 1), (2, 2)]
    assert run(["export", str(tmp_path / "one"), str(tmp_path / "out"), "--format", "tables", "--overwrite"]) == 0
