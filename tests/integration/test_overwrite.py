"""Outputs that users name: nothing is written over unasked, and what is replaced was of the same kind."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from torch import arange, tensor
from torch_geometric.data import Data

import diskhop
from diskhop._native import CrashError, Engine
from diskhop.cli import run
from diskhop.errors import DestinationError
from diskhop.exporting.formats import EXPORTS
from diskhop.importing.run import import_graph
from diskhop.io import atomic
from diskhop.io.destinations import new_file
from diskhop.io.faults import CrashInjector
from tests.embedding import OPTIONS
from tests.graphs import folder_bytes, threads_engine

PICTURES = ["map RUN {}/map.svg", "report RUN --out {}/page.html"]
EMBEDDINGS = [f"export RUN {{}}/nodes.{suffix}" for suffix in ("npy", "tsv", "parquet")]
FOLDERS = [
    *(f"export GRAPH {{}}/folder --format {name}" for name in EXPORTS),
    "import TEXT {}/graph",
    "generate uniform {}/graph --nodes 50 --edges 100 --dim 2",
]


class World(NamedTuple):
    """A text of edges, its graph, and embeddings of it."""

    text: Path
    graph: Path
    run: Path

    def command(self, line: str, where: Path) -> list[str]:
        names = {"TEXT": self.text, "GRAPH": self.graph, "RUN": self.run}
        return [str(names.get(word, word)) for word in shlex.split(line.format(where))]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("world")
    text = folder / "edges.txt"
    text.write_text("".join(f"{node} {(node * 7 + 1) % 40}\n" for node in range(40)))
    assert run(["import", str(text), str(folder / "graph")]) == 0
    diskhop.embed(folder / "graph", out=folder / "run", **{**OPTIONS, "model": "dot", "epochs": 1, "evaluate": False})
    return World(text, folder / "graph", folder / "run")


def content(where: Path) -> dict[str, bytes]:
    return folder_bytes(where)


@pytest.mark.parametrize("line", [*PICTURES, *EMBEDDINGS, *FOLDERS])
def test_an_output_is_replaced_when_asked_and_only_then(
    world: World, tmp_path: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = world.command(line, tmp_path)
    assert run(command) == 0
    (path,) = tmp_path.iterdir()
    before = content(tmp_path)
    stamp = path.stat().st_mtime_ns
    capsys.readouterr()
    assert run(command) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"{path.name}: already exists; replace it with --overwrite" in told
    assert (content(tmp_path), path.stat().st_mtime_ns) == (before, stamp)
    assert run([*command, "--overwrite"]) == 0
    assert path.stat().st_mtime_ns > stamp
    if line not in PICTURES:
        assert content(tmp_path) == before
    assert list(tmp_path.iterdir()) == [path], "nothing is left beside it"


@pytest.mark.parametrize("line", [*PICTURES, *EMBEDDINGS])
@pytest.mark.parametrize("overwrite", [[], ["--overwrite"]])
def test_a_file_that_is_somebodys_is_replaced_and_a_folder_is_not(
    world: World, tmp_path: Path, line: str, overwrite: list[str]
) -> None:
    command = world.command(line, tmp_path)
    path = Path(command[-1])
    path.write_text("mine")
    assert run([*command, *overwrite]) == (0 if overwrite else 2)
    assert (path.read_bytes() == b"mine") == (not overwrite)
    path.unlink()
    path.mkdir()
    (path / "thesis.txt").write_text("mine")
    assert run([*command, *overwrite]) == 2
    assert content(tmp_path) == {f"{path.name}/thesis.txt": b"mine"}


@pytest.mark.parametrize("line", FOLDERS)
@pytest.mark.parametrize("other", ["thesis.txt", "a folder of another kind", "one file more"])
def test_a_folder_of_another_kind_is_never_replaced(
    world: World, tmp_path: Path, line: str, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*world.command(line, tmp_path), "--overwrite"]
    path = tmp_path / ("folder" if "export" in line else "graph")
    if other == "one file more":
        assert run(command) == 0
        (path / "thesis.txt").write_text("mine")
    elif other == "thesis.txt":
        path.write_text("mine")
    else:
        path.mkdir()
        (path / "nodes").mkdir()
        (path / "nodes" / "x.npy").write_text("mine")
    before = content(tmp_path)
    capsys.readouterr()
    assert run(command) == 2
    told = capsys.readouterr().err
    assert f"{path.name}: already exists and" in told
    assert "--overwrite" not in told
    assert content(tmp_path) == before


def test_python_functions_do_the_same(world: World, tmp_path: Path) -> None:
    data = Data(edge_index=tensor([[0, 1], [1, 2]]), x=arange(6.0).reshape(3, 2))
    calls: dict[str, Callable[..., object]] = {
        "nodes.npy": lambda path, **more: diskhop.export(world.run, path, **more),
        "page.html": lambda path, **more: diskhop.report(world.run, out=path, **more),
        "graph": lambda path, **more: diskhop.from_pyg(data, path, **more),
    }
    for name, call in calls.items():
        call(tmp_path / name)
        with pytest.raises(DestinationError, match=f"{name}: already exists; .*overwrite=True"):
            call(tmp_path / name)
        call(tmp_path / name, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(calls)


def test_a_link_keeps_pointing_to_what_is_replaced(world: World, tmp_path: Path) -> None:
    (tmp_path / "old.npy").write_text("mine")
    (tmp_path / "nodes.npy").symlink_to("old.npy")
    command = world.command("export RUN {}/nodes.npy", tmp_path)
    assert run(command) == 2
    assert run([*command, "--overwrite"]) == 0
    assert (tmp_path / "nodes.npy").is_symlink()
    assert len(np.load(tmp_path / "old.npy")) == 40


def test_a_file_that_came_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "out.tsv"

    def write_late() -> None:
        with new_file(path, overwrite=False) as partial:
            partial.write_text("ours")
            path.write_text("mine")

    with pytest.raises(DestinationError, match="created in the meantime"):
        write_late()
    assert content(tmp_path) == {"out.tsv": b"mine"}


@pytest.mark.fast(1)
@pytest.mark.parametrize("lost", ["names", "data"])
def test_after_any_crash_there_is_the_old_dataset_or_the_new_one(world: World, tmp_path: Path, lost: str) -> None:
    other = tmp_path / "other.txt"
    other.write_text("0 1\n1 2\n")
    old = folder_bytes(world.graph)
    found = []
    for nth in range(1, 200):
        root, after = tmp_path / f"{nth}", tmp_path / f"{nth}-after"
        root.mkdir()
        after.mkdir()
        import_graph(world.text, root / "graph", engine=threads_engine(), name="edges")
        with CrashInjector(root, nth) as injector:
            try:
                engine = Engine("threads", 1, injector.native)
                import_graph(other, root / "graph", engine=engine, injector=injector, name="edges", overwrite=True)
                break
            except CrashError:
                injector.write_survivors(after, lost)  # type: ignore[arg-type]
        found.append(diskhop.open_dataset(after / "graph").num_nodes)
        assert found[-1] == 3 or folder_bytes(after / "graph") == old
        import_graph(other, after / "graph", engine=threads_engine(), name="edges", overwrite=True)
        assert [path.name for path in after.iterdir()] == ["graph"]
    assert set(found) == {3, 40}


def test_a_file_system_that_cannot_swap_says_what_to_type(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = world.command("import TEXT {}/graph", tmp_path)
    assert run(command) == 0

    def refuse(flags: int, source: Path, destination: Path) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(atomic, "_rename_with", refuse)
    assert run([*command, "--overwrite"]) == 2
    assert f"remove it first: rm -r {tmp_path / 'graph'}" in capsys.readouterr().err
    assert folder_bytes(tmp_path / "graph") == folder_bytes(world.graph)
    shutil.rmtree(tmp_path / "graph")
    assert run(command) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]
    assert run(world.command("export RUN {}/nodes.npy", tmp_path)) == 0, "new files need no swap"
