"""A dataset is compared with the one that a run was trained on, each mismatch in a line of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.budget import Budget
from diskhop.cli import app
from diskhop.dataset.build.builder import DatasetBuilder
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edges import ArrayEdges
from diskhop.errors import ConfigError, FormatError, SchemaError
from diskhop.runs.nodes.opened import open_classifier
from diskhop.runs.schema import Schema, read_schema, require_schema, schema_of, schema_of_model
from diskhop.runs.start import embed, train
from tests.embedding import OPTIONS as EMBED_OPTIONS
from tests.embedding import small_triples
from tests.graphs import random_pairs, threads_engine
from tests.runs import OPTIONS, import_arrays, random_arrays, small_graph

RUN, DATASET = Path("runs/one"), Path("newer")
TRAINED = Schema(
    feature_dim=4,
    num_outputs=3,
    feature_source="stored",
    feature_dtype="float32",
    label_kind="classes",
    class_names=("cat", "dog", "eel"),
    node_types=("node",),
    edge_types=(("node", "edge", "node"),),
    reciprocal_share=1.0,
)
SHORT = {**OPTIONS, "epochs": 1}


def graph_of(path: Path, pairs: Any, num_nodes: int = 40, names: tuple[str, ...] = ()) -> Dataset:
    """A graph of edges (2, edges), with three classes, whose names may be given."""
    with DatasetBuilder(path, name="g", engine=threads_engine(), budget=Budget(1 << 30), threads=1) as builder:
        builder.add_nodes("node", num_nodes)
        builder.add_edge_list("edge", "node", "node", ArrayEdges(np.asarray(pairs, np.int64).reshape(2, -1)))
        builder.add_features("node", [np.ones((num_nodes, 4), np.float32)], dim=4, dtype="float16")
        builder.add_labels("node", [np.arange(num_nodes) % 3])
        if names:
            lines = "".join(f"{name}\n" for name in names)
            builder.add_names("classes", [np.frombuffer(lines.encode(), np.uint8)], len(names))
        return builder.finish()


def lines_of(trained: Schema, found: Schema) -> list[str]:
    """The lines that refuse a dataset; none for one that fits."""
    try:
        require_schema(trained, RUN, found, DATASET)
    except SchemaError as error:
        return list(error.lines)
    return []


def test_a_schema_has_what_a_model_depends_on(tmp_path: Path) -> None:
    found = schema_of(graph_of(tmp_path / "graph", random_pairs(40, 200), names=("cat", "dog", "eel")))
    assert found == replace(TRAINED, feature_dtype="float16", reciprocal_share=found.reciprocal_share)
    assert found.reciprocal_share is not None
    assert found.reciprocal_share < 0.5
    assert read_schema(write(tmp_path / "schema.json", found)) == found


def write(path: Path, schema: Schema) -> Path:
    path.write_bytes(schema.to_bytes())
    return path


def test_made_features_stand_in_for_missing_ones(tmp_path: Path) -> None:
    arrays = random_arrays()
    del arrays["x"]
    plain = import_arrays(tmp_path, "plain", **arrays)
    assert (schema_of(plain).feature_source, schema_of(plain).feature_dim) == ("degree", 2)
    drawn = schema_of(plain, "random", 0)
    assert (drawn.feature_source, drawn.feature_dim, drawn.feature_dtype) == ("random", 64, "")
    stored = replace(TRAINED, feature_dim=64)
    (line,) = lines_of(stored, replace(stored, feature_source="random", feature_dtype=""))
    assert "newer: features 'random', made for a graph without any, but runs/one was trained on 64 feature" in line
    assert len(lines_of(replace(stored, feature_source="random"), stored)) == 1


@pytest.mark.parametrize("num_edges", [0, 1, 50, 700])
def test_the_reciprocal_share_is_that_of_the_edges(tmp_path: Path, num_edges: int) -> None:
    pairs = random_pairs(40, num_edges)
    both = graph_of(tmp_path / "both", np.concatenate([pairs, pairs[::-1]], axis=1))
    once = graph_of(tmp_path / "once", pairs)
    known = set(zip(*pairs.tolist(), strict=True))
    expected = np.mean([(target, source) in known for source, target in pairs.T.tolist()]) if num_edges else None
    shares = [dataset.edges["edge"].reciprocal_share() for dataset in (both, once)]
    if expected is None:
        assert shares == [None, None]
        return
    assert shares[0] == 1
    # More edges than are sampled: every n-th.
    assert shares[1] == pytest.approx(expected, abs=1e-12 if num_edges <= 300 else 0.1)


def test_ids_out_of_range_are_damage(tmp_path: Path) -> None:
    dataset = graph_of(tmp_path / "graph", random_pairs(40, 200))
    indices = np.fromfile(dataset.topology.indices_path, np.uint32)
    (indices + 1000).tofile(dataset.topology.indices_path)
    with pytest.raises(FormatError, match=r"indices\.bin: is damaged"):
        schema_of(dataset)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ""),
        ({"feature_dim": 5}, "5 feature columns, but runs/one was trained on 4; import the same columns"),
        ({"feature_dtype": "int8"}, "features of type int8, but runs/one was trained on float32; .* --dtype float32"),
        ({"num_outputs": 4}, "4 classes, but runs/one was trained on 3 classes"),
        ({"label_kind": "tasks"}, "3 tasks, but runs/one was trained on 3 classes"),
        ({"num_outputs": 0, "label_kind": ""}, ""),
        ({"class_names": None}, ""),
        ({"class_names": ("cat", "dog", "fox")}, "class 2 is 'fox', but runs/one was trained on 'eel'"),
        ({"node_types": ("paper",)}, "node types paper, but runs/one was trained on node"),
        ({"edge_types": (("node", "cites", "node"),)}, r"edge types cites \(node to node\), but .* on edge \(node"),
        ({"reciprocal_share": 0.5}, "edges of which 50% have an opposite, but .* both directions; .* --undirected"),
        ({"reciprocal_share": 0.97}, ""),
        ({"reciprocal_share": None}, ""),
    ],
    ids=str,
)
def test_a_mismatch_is_a_line(changes: dict[str, Any], expected: str) -> None:
    lines = lines_of(TRAINED, replace(TRAINED, **changes))
    assert len(lines) == (expected != "")
    for line in lines:
        with pytest.raises(SchemaError, match=rf"^newer: {expected}"):
            raise SchemaError([line])


def test_all_mismatches_are_listed() -> None:
    other = replace(
        TRAINED, feature_dim=5, feature_dtype="int8", num_outputs=4, node_types=("paper",), reciprocal_share=0.1
    )
    assert len(lines_of(TRAINED, other)) == 5
    assert "import the graph again with --directed" in lines_of(other, TRAINED)[-1]


def test_the_command_line_prints_a_line_per_mismatch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        require_schema(TRAINED, RUN, replace(TRAINED, feature_dim=5, num_outputs=4), DATASET)

    monkeypatch.setattr(app, "load_commands", refuse)
    assert app.run(["train"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("diskhop: newer: ") for line in lines] == [True, True]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"feature_dim": 3}', b'{"class_names": 3, "node_types": null, "edge_types": null}']
)
def test_a_damaged_schema_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "schema.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"schema\.json: is damaged"):
        read_schema(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_schema(tmp_path)


@pytest.mark.fast(6)
@pytest.mark.parametrize("model", ["sage", "gcn", "gat", "sgc", "sign", "hoga"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_run_records_the_schema_and_its_model_shows_the_shapes(tmp_path: Path, model: str, layers: int) -> None:
    is_sampled = model in ("sage", "gcn", "gat")
    options = {**SHORT, "model": model, "heads": 2}
    options |= {"layers": layers} if model != "sgc" else {}
    options |= {"fanout": (4,) * layers} if is_sampled else {}
    if not is_sampled:
        del options["fanout"]
    graph = small_graph(tmp_path / "graph")
    train(graph, out=tmp_path / "run", **options)
    opened = open_classifier(tmp_path / "run")
    assert opened.schema == schema_of(graph)
    assert (opened.kind, opened.config.model) == ("node" if is_sampled else "hop", model)
    assert (opened.dataset_path, opened.dataset_hash) == (graph.path, graph.hash)
    opened.require_fit(graph)
    (tmp_path / "run" / "schema.json").unlink()
    older = open_classifier(tmp_path / "run")
    assert older.schema == Schema(feature_dim=16, num_outputs=4)
    older.require_fit(graph)
    with pytest.raises(
        SchemaError, match=r"16 feature columns, but .* was trained on 7;.* 4 classes, but .* on 5 class"
    ):
        require_schema(Schema(feature_dim=7, num_outputs=5), RUN, schema_of(graph), DATASET)


def test_what_is_no_classifier_is_refused_in_one_line(tmp_path: Path) -> None:
    graph = small_graph(tmp_path / "graph")
    with pytest.raises(ConfigError, match=r"is no run of 'diskhop train', config\.toml is missing"):
        open_classifier(tmp_path / "none")
    embed(small_triples(tmp_path / "triples"), out=tmp_path / "embedding", **{**EMBED_OPTIONS, "epochs": 1})
    with pytest.raises(ConfigError, match="belongs to a run of kind 'embedding'"):
        open_classifier(tmp_path / "embedding")
    run = tmp_path / "run"
    train(graph, out=run, **SHORT)
    model = run / "model.safetensors"
    content = model.read_bytes()
    model.write_bytes(content[:-1])
    with pytest.raises(ConfigError, match=r"model\.safetensors: is damaged"):
        open_classifier(run)
    model.unlink()
    with pytest.raises(ConfigError, match=r"has no model, .*; finish the run: diskhop train --resume --out"):
        open_classifier(run)
    model.write_bytes(content)
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text("\n".join(line for line in config.splitlines() if not line.startswith("hidden")))
    with pytest.raises(ConfigError, match=r"config\.toml: options are missing"):
        open_classifier(run)
    with pytest.raises(ConfigError, match="is not the model of a node classifier of 2 layers"):
        schema_of_model(model, {}, 2)


def test_a_resumed_run_keeps_the_schema(tmp_path: Path) -> None:
    graph = small_graph(tmp_path / "graph")
    train(graph, out=tmp_path / "run", **SHORT)
    before = json.loads((tmp_path / "run" / "schema.json").read_bytes())
    (tmp_path / "run" / "schema.json").unlink()
    train(out=tmp_path / "run", resume=True)
    assert json.loads((tmp_path / "run" / "schema.json").read_bytes()) == before
