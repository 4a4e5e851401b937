"""Indexes of embeddings: they find what an exact search finds, by the source's ids, and mistakes are one line."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import diskhop
from diskhop.cli import run as run_command
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.runs.embedding.index import IndexOptions, require_index
from tests.graphs import random_pairs, threads_engine

COUNT, DIM, TOP = 300, 12, 10
NEARNESS = ("cosine", "dot", "l2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of a graph with ids that have gaps, and of one with names; rows.npy has the first run's embeddings."""
    folder = tmp_path_factory.mktemp("index")
    pairs = random_pairs(COUNT, 3000)
    ids = np.random.default_rng(0).choice(1 << 60, COUNT, replace=False)
    np.savetxt(folder / "edges.txt", ids[pairs].T, fmt="%d")
    import_graph(folder / "edges.txt", folder / "graph", options=ImportOptions(), engine=threads_engine())
    options: dict[str, Any] = {"dim": DIM, "epochs": 3, "evaluate": False, "lr": 0.1, "seed": 0}
    diskhop.embed(folder / "graph", out=folder / "run", partitions=4, memory="30MB", **options)
    diskhop.export(folder / "run", folder / "rows.npy")
    names = ['a "b"', "tab", "c'est", "Grün", *(f"n{each}" for each in range(20))]
    (folder / "names.txt").write_text("".join(f"{one}|{names[number - 1]}\n" for number, one in enumerate(names)))
    named = ImportOptions(ids="string", header=False, delimiter="|")
    import_graph(folder / "names.txt", folder / "named-graph", options=named, engine=threads_engine())
    diskhop.embed(folder / "named-graph", out=folder / "named", memory="30MB", **options)
    return folder


def nearest(folder: Path, by: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """All embeddings, and the ids of the TOP nearest ones to each, by NumPy."""
    rows = np.load(folder / "rows.npy")
    ids = np.sort(diskhop.open_dataset(folder / "graph").node_ids())
    wide = rows.astype(np.float64)
    if by == "cosine":
        wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    scores = wide @ wide.T if by != "l2" else -((wide[:, None] - wide) ** 2).sum(axis=2)
    return rows, ids[np.argsort(-scores, axis=1, kind="stable")[:, :TOP]]


def queries_of(rows: NDArray[np.float32], by: str) -> NDArray[np.float32]:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True) if by == "cosine" else rows


def recall(found: NDArray[Any], expected: NDArray[np.int64]) -> float:
    return float(np.mean([len(np.intersect1d(*pair)) / TOP for pair in zip(found, expected, strict=True)]))


@pytest.mark.parametrize("by", NEARNESS)
def test_faiss_finds_the_exact_neighbours_by_the_ids_of_the_source(folder: Path, tmp_path: Path, by: str) -> None:
    faiss = pytest.importorskip("faiss")
    diskhop.export(folder / "run", tmp_path / "index.faiss", by=by)
    rows, expected = nearest(folder, by)
    index = faiss.read_index(str(tmp_path / "index.faiss"))
    assert (index.ntotal, index.d) == (COUNT, DIM)
    assert recall(index.search(queries_of(rows, by), TOP)[1], expected) > 0.999, "ties may round to another order"
    assert [path.name for path in tmp_path.iterdir()] == ["index.faiss"], "there are no names"
    own = faiss.IndexFlatL2(DIM) if by == "l2" else faiss.IndexFlatIP(DIM)
    written = faiss.IndexIDMap(own)
    written.add_with_ids(queries_of(rows, by), np.sort(diskhop.open_dataset(folder / "graph").node_ids()))
    assert len(faiss.serialize_index(written)) == (tmp_path / "index.faiss").stat().st_size


@pytest.mark.parametrize("by", NEARNESS)
def test_graphs_find_most_neighbours(folder: Path, tmp_path: Path, by: str) -> None:
    rows, expected = nearest(folder, by)
    faiss, usearch = pytest.importorskip("faiss"), pytest.importorskip("usearch.index")
    for suffix in ("faiss", "usearch"):
        diskhop.export(folder / "run", tmp_path / f"index.{suffix}", by=by, ann=True, memory="200MB", threads=1)
    graph = faiss.read_index(str(tmp_path / "index.faiss"))
    assert recall(graph.search(queries_of(rows, by), TOP)[1], expected) > 0.9
    keys = usearch.Index.restore(str(tmp_path / "index.usearch")).search(rows, TOP).keys
    assert recall(np.asarray(keys).astype(np.int64), expected) > 0.9


def test_the_memory_that_is_asked_for_covers_a_graph(tmp_path: Path) -> None:
    """The bytes are those that usearch counts; what it reserves at the start is in the constant part."""
    usearch = pytest.importorskip("usearch.index")
    count, dim = 20_000, 8
    index = usearch.Index(ndim=dim, metric="l2sq", dtype="f32")
    index.add(np.arange(count, dtype=np.uint64), np.random.default_rng(0).random((count, dim), np.float32))
    with pytest.raises(diskhop.DiskhopError, match="search graph") as caught:
        require_index(tmp_path / "x.usearch", count, dim, IndexOptions(memory_bytes=1_000_000))
    assert getattr(caught.value, "smallest_bytes", 0) > index.memory_usage


def test_blocks_fit_the_memory_that_is_asked_for(tmp_path: Path) -> None:
    count, dim = 3000, 16
    np.savetxt(tmp_path / "edges.txt", random_pairs(count, 9000).T, fmt="%d")
    import_graph(tmp_path / "edges.txt", tmp_path / "graph", options=ImportOptions(), engine=threads_engine())
    run = tmp_path / "run"
    diskhop.embed(tmp_path / "graph", out=run, dim=dim, epochs=1, memory="200MB", evaluate=False, seed=0)

    def blocks(name: str, **options: Any) -> int:
        done: list[int] = []
        diskhop.export(run, tmp_path / name, progress=lambda _stage, count, _total: done.append(count), **options)
        return len(done)

    assert blocks("all.npy") == 1
    assert blocks("small.npy", memory=300_000) == 3
    assert (tmp_path / "small.npy").read_bytes() == (tmp_path / "all.npy").read_bytes()
    faiss = pytest.importorskip("faiss")
    assert blocks("all.faiss", ann=True) == 1
    with pytest.raises(diskhop.DiskhopError) as refused:
        blocks("refused.faiss", ann=True, memory="1MB")
    assert blocks("tight.faiss", ann=True, memory=getattr(refused.value, "smallest_bytes", 0)) == 3
    assert (
        faiss.read_index(str(tmp_path / "tight.faiss")).ntotal == faiss.read_index(str(tmp_path / "all.faiss")).ntotal
    )


def test_names_stand_next_to_the_index(folder: Path, tmp_path: Path) -> None:
    faiss = pytest.importorskip("faiss")
    assert run_command(["export", str(folder / "named"), str(tmp_path / "index.faiss"), "--by", "dot"]) == 0
    index = faiss.read_index(str(tmp_path / "index.faiss"))
    with (tmp_path / "index.faiss.names.tsv").open(newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t"))
    assert [row["name"] for row in rows] == diskhop.open_dataset(folder / "named-graph").names("nodes")
    assert [int(row["id"]) for row in rows] == faiss.vector_to_array(index.id_map).tolist()


def test_a_mistake_is_one_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss")
    pytest.importorskip("usearch")
    run, named = str(folder / "run"), str(folder / "named")
    (tmp_path / "taken.faiss").touch()
    (tmp_path / "named.faiss.names.tsv").touch()
    mistakes: list[tuple[list[str], str]] = [
        ([run, "index.annoy"], r"exported to \.npy, \.parquet, \.tsv, \.faiss, \.usearch; use index\.npy"),
        ([run, "index.npy", "--by", "dot"], r"--by is an option of an index; remove it, or use index\.faiss"),
        ([run, "index.tsv", "--ann"], r"--ann is an option of an index; remove it, or use index\.faiss"),
        ([run, "index.faiss", "--by", "hamming"], "unknown nearness 'hamming'; use --by cosine or --by dot or --by l2"),
        ([run, "index.usearch", "--memory", "1MB"], r"--memory 1 MB is too small: .*search graph .* --memory \d+MB"),
        ([run, "index.faiss", "--ann", "--memory", "1MB"], "--memory 1 MB is too small"),
        ([run, "taken.faiss"], "taken.faiss: already exists; replace it with --overwrite"),
        ([named, "named.faiss"], r"named\.faiss\.names\.tsv: already exists; replace it with --overwrite"),
        ([str(folder / "graph"), "out", "--ann"], "--ann is for indexes of embeddings, and .* is no run"),
    ]
    before = sorted(tmp_path.iterdir())
    for (source, name, *options), message in mistakes:
        assert run_command(["export", source, str(tmp_path / name), *options]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert re.search(message, line), line
        assert sorted(tmp_path.iterdir()) == before
    for module, suffix in (("faiss", "faiss"), ("usearch.index", "usearch")):
        monkeypatch.setitem(sys.modules, module, None)
        assert run_command(["export", run, str(tmp_path / f"index.{suffix}")]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.endswith("install it with: pip install 'diskhop[index]'")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", ["near.faiss", "rows.npy"])
def test_a_run_that_is_missing_is_named(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["export", str(tmp_path / "none"), str(tmp_path / name)]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path}/none: there is no such run to export to {name}; name the folder of a run, or make" in said
    assert list(tmp_path.iterdir()) == []
