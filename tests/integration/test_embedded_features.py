"""Embeddings as features: a graph without any gets a run's, by ids or names, and trains a network on them."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import diskhop
from diskhop.cli import run as run_command
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.verify import verify
from diskhop.errors import ConfigError, DiskhopError
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from tests.batched import stored_features
from tests.graphs import folder_bytes, threads_engine

NUM_NODES, NUM_CLASSES, DIM = 400, 4, 16


def communities() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Edges of a graph with four communities, and the community of each node."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, NUM_CLASSES, NUM_NODES)
    members = [np.flatnonzero(labels == each) for each in range(NUM_CLASSES)]
    sources = np.repeat(np.arange(NUM_NODES), 12)
    same = np.concatenate([generator.choice(members[label], 12) for label in labels])
    strangers = generator.integers(0, NUM_NODES, len(sources))
    destinations = np.where(generator.random(len(sources)) < 0.9, same, strangers)
    return np.stack([sources, destinations]), labels


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Arrays without features, their dataset, and a run of its embeddings in several partitions."""
    folder = tmp_path_factory.mktemp("embedded")
    (folder / "source").mkdir()
    edges, labels = communities()
    order = np.random.default_rng(1).permutation(NUM_NODES)
    parts = {"train_mask": order[:100], "val_mask": order[100:200], "test_mask": order[200:]}
    arrays: dict[str, Any] = {name: np.isin(np.arange(NUM_NODES), ids) for name, ids in parts.items()}
    np.savez(folder / "source/data.npz", edge_index=edges, y=labels, **arrays)
    options = ImportOptions(undirected=True, order="hot")
    import_graph(folder / "source", folder / "graph", options=options, engine=threads_engine())
    diskhop.embed(
        folder / "graph", out=folder / "run", dim=DIM, epochs=20, partitions=4, memory="50MB", lr=0.1, batch_size=500
    )
    diskhop.export(folder / "run", folder / "rows.npy")
    return folder


def by_id(dataset: Dataset) -> NDArray[np.float64]:
    """Features in the ascending order of the ids."""
    ids = dataset.id_map().ids(dataset.id_map().all_rows())
    rows = dataset.id_map().rows(np.sort(ids))  # type: ignore[arg-type]
    return stored_features(dataset)[rows]


@pytest.mark.slow
def test_a_network_learns_from_embeddings_what_the_graph_alone_shows(folder: Path, tmp_path: Path) -> None:
    made = diskhop.from_embeddings(folder / "run", tmp_path / "made", memory="50MB")
    assert (made.feature_dim, made.feature_dtype, made.order) == (DIM, "float32", "hot")
    np.testing.assert_array_equal(by_id(made), np.load(folder / "rows.npy"))
    labels = made.labels
    assert labels is not None
    np.testing.assert_array_equal(labels, communities()[1])
    assert verify(made.path) == []
    done = diskhop.train(made, out=tmp_path / "trained", model="sage", epochs=20, hidden=16, seed=0, memory="200MB")
    assert done.result["test"]["accuracy"] > 0.8


def test_the_graph_is_linked_and_blocks_change_no_byte(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = diskhop.from_embeddings(folder / "run", tmp_path / "made", memory="50MB")
    lists = "edges/edge/indices.bin"
    assert (made.path / lists).samefile(folder / "graph" / lists)
    monkeypatch.setattr("diskhop.runs.embedding.features._block_bytes", lambda dim, _: 4 * 4 * dim * 7)
    in_blocks = diskhop.from_embeddings(folder / "run", tmp_path / "blocks", folder / "graph", memory="50MB")
    assert folder_bytes(in_blocks.path) == folder_bytes(made.path)

    def no_links(*_: Any) -> None:
        raise OSError(errno.EXDEV, "other disk")

    monkeypatch.setattr(os, "link", no_links)
    copied = diskhop.from_embeddings(folder / "run", tmp_path / "copied", memory="50MB")
    assert folder_bytes(copied.path) == folder_bytes(made.path)
    assert not (copied.path / lists).samefile(folder / "graph" / lists)


def test_a_newer_graph_is_matched_by_ids_and_new_nodes_have_zeros(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = np.load(folder / "rows.npy")
    (tmp_path / "edges.txt").write_text("7 3\n3 500\n900 7\n399 500\n")
    arguments = ["import", str(tmp_path / "edges.txt"), str(tmp_path / "new"), "--features-from", str(folder / "run")]
    assert run_command([*arguments, "--dtype", "float16"]) == 0
    assert re.search(r"embeddings +of 3 nodes, 2 without have zeros", capsys.readouterr().out)
    new = diskhop.open_dataset(tmp_path / "new")
    assert new.feature_dtype == "float16"
    expected = np.stack([rows[3], rows[7], rows[399], np.zeros(DIM), np.zeros(DIM)])
    np.testing.assert_allclose(by_id(new), expected, rtol=2e-3, atol=1e-4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edges.txt", "new"]
    import_graph(tmp_path / "edges.txt", tmp_path / "plain", engine=threads_engine())
    with pytest.warns(UserWarning, match="2 nodes have no embedding; their features are 0"):
        diskhop.from_embeddings(folder / "run", tmp_path / "again", tmp_path / "plain", memory="50MB")


def test_nodes_with_names_are_matched_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_text("".join(f"n{each} n{(each + 1) % 30}\n" for each in range(30)))
    (tmp_path / "new.txt").write_text("zoe n7\nn29 n0\nn7 n29\n")
    options = ImportOptions(ids="string", header=False)
    for name in ("old", "new"):
        import_graph(tmp_path / f"{name}.txt", tmp_path / name, options=options, engine=threads_engine())
    diskhop.embed(tmp_path / "old", out=tmp_path / "run", dim=4, epochs=1, memory="50MB", evaluate=False)
    diskhop.export(tmp_path / "run", tmp_path / "rows.npy")
    names = diskhop.open_dataset(tmp_path / "old").names("nodes")
    assert names is not None
    rows = dict(zip(names, np.load(tmp_path / "rows.npy"), strict=True))
    facts: dict[str, Any] = {}
    made = diskhop.from_embeddings(
        tmp_path / "run", tmp_path / "made", tmp_path / "new", memory="50MB", on_facts=facts.update
    )
    assert facts == {"with_embedding": 3, "without_embedding": 1}
    found = dict(zip(made.names("nodes") or [], stored_features(made), strict=True))
    assert set(found) == {"n0", "n29", "n7", "zoe"}
    for name, row in found.items():
        np.testing.assert_array_equal(row, rows.get(name, np.zeros(4)))


def test_what_cannot_be_is_one_line_and_leaves_nothing(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, graph = str(folder / "run"), str(folder / "graph")
    (tmp_path / "others.txt").write_text("5000 6000\n6000 7000\n")
    (tmp_path / "words.txt").write_text("ana ben\nben ana\n")
    (tmp_path / "with-x").mkdir()
    np.savez(tmp_path / "with-x/data.npz", edge_index=[[0, 1], [1, 0]], x=np.ones((2, 3), np.float32))
    diskhop.from_embeddings(folder / "run", tmp_path / "full", memory="50MB")
    words = ["--ids", "string", "--no-header"]
    before = {path.name for path in tmp_path.iterdir()}
    mistakes: list[tuple[list[str], str]] = [
        (
            [str(tmp_path / "others.txt"), "new", "--features-from", run],
            "no node has an id or name that .* was trained",
        ),
        ([str(tmp_path / "words.txt"), "new", "--features-from", run, *words], "one of the graphs has names and"),
        ([str(tmp_path / "with-x"), "new", "--features-from", run], "has features, and embeddings stand in for"),
        ([str(tmp_path / "full"), "new", "--features-from", run], "full: has features, and embeddings stand in"),
        ([graph, "new", "--features-from", run, "--undirected"], "is a dataset already, --undirected does not apply"),
        ([graph, "new", "--features-from", run, "--format", "tables"], "is a dataset already, --format does not"),
        ([graph, "full", "--features-from", run], "full: already exists; replace it with --overwrite"),
        ([graph, "new", "--features-from", graph], "is no embedding run, config.toml is missing"),
        ([graph, "new", "--features-from", run, "--memory", "1KB"], r"--memory 1 KB is too small: .* the smallest"),
        ([str(tmp_path / "others.txt"), "new", "--features-from", run, "--random-features", "8"], "remove one of them"),
    ]
    for (source, name, *options), message in mistakes:
        capsys.readouterr()
        assert run_command(["import", source, str(tmp_path / name), *options]) == 2, message
        lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("diskhop: ")]
        assert len(lines) == 1
        assert re.search(message, lines[0]), lines[0]
        assert {path.name for path in tmp_path.iterdir()} == before
    with pytest.raises(DiskhopError, match="unknown dtype 'float8'"):
        diskhop.from_embeddings(folder / "run", tmp_path / "new", dtype="float8")
    with pytest.raises(ConfigError, match="embeddings stand in for missing ones"):
        diskhop.from_embeddings(folder / "run", tmp_path / "new", tmp_path / "full")
