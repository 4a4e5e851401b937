"""Sources that are not read, and graphs of several types: what the error says works, or leads to what does."""

from __future__ import annotations

import gzip
import pickle
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import diskhop
from diskhop.cli import run
from diskhop.dataset.dataset import open_dataset


def error_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run a command that is refused, and return its one line."""
    assert run([str(each) for each in arguments]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("diskhop: ")]
    assert len(lines) == 1
    return lines[0]


def typed_dataset(path: Path) -> Path:
    data = HeteroData()
    data["paper"].x = torch.randn(5, 3)
    data["paper"].y = torch.arange(5) % 2
    data["author"].num_nodes = 4
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 1], [4, 0, 2]])
    data["paper", "cites", "paper"].edge_index = torch.tensor([[0, 1, 1], [4, 0, 2]])
    diskhop.from_pyg(data, path)
    return path


@pytest.mark.parametrize("name", ["data.pt", "graph.pth", "model.bin", "data.pkl", "edges.csv"])
def test_saved_objects_are_never_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    source = tmp_path / name
    if name == "data.pkl":
        source.write_bytes(pickle.dumps(Trap()))
    else:
        torch.save(Trap(), source)
    told = error_of(capsys, "import", source, tmp_path / "graph")
    assert "is a saved Python object" in told
    assert "diskhop.from_pyg(" in told
    assert not (tmp_path / "ran").exists()


def test_the_call_that_is_advised_for_saved_objects_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "data.pt"
    torch.save(Data(edge_index=torch.tensor([[0, 1], [1, 2]])), source)
    told = error_of(capsys, "import", source, tmp_path / "graph")
    call = told[told.index("diskhop.from_pyg(") :].replace("'DEST'", repr(str(tmp_path / "graph")))
    assert eval(call, {"diskhop": diskhop, "torch": torch}).num_edges == 2


def test_other_formats_of_graphs_are_converted_as_advised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    networkx = pytest.importorskip("networkx")
    source = tmp_path / "my graph.graphml"
    networkx.write_graphml(networkx.DiGraph([("ana", "ben"), ("ben", "cem d")]), source)
    told = error_of(capsys, "import", source, tmp_path / "graph")
    command = shlex.split(told.split("convert it to edges: ")[1].split(", then import")[0])
    subprocess.run([sys.executable, *command[1:]], check=True, cwd=tmp_path)
    assert run(["import", str(tmp_path / "my graph.tsv"), str(tmp_path / "graph"), "--no-header"]) == 0
    assert open_dataset(tmp_path / "graph").names("nodes") == ["ana", "ben", "cem d"]


@pytest.mark.parametrize("name", ["edges.dat", "edges", "edges.gz"])
def test_a_text_of_any_name_is_told_its_format(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    text = b"0 1\n1 2\n"
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    assert error_of(capsys, "import", tmp_path / name, tmp_path / "graph").endswith("--format edges")
    assert run(["import", str(tmp_path / name), str(tmp_path / "graph"), "--format", "edges"]) == 0


def test_a_folder_around_a_graph_leads_to_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "root" / "arrays").mkdir(parents=True)
    np.save(tmp_path / "root" / "arrays" / "edge_index.npy", np.array([[0, 1], [1, 2]]))
    told = error_of(capsys, "import", tmp_path / "root", tmp_path / "graph")
    assert run(["import", told.rpartition(": ")[2], str(tmp_path / "graph")]) == 0


def test_a_folder_of_links_leads_to_its_edges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "ogbl_mine"
    (source / "raw").mkdir(parents=True)
    (source / "split" / "time").mkdir(parents=True)
    for name, text in {"edge": "0,1\n1,2\n", "num-node-list": "4\n", "num-edge-list": "2\n"}.items():
        (source / "raw" / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    (source / "split" / "time" / "train.pt").write_bytes(b"not opened")
    told = error_of(capsys, "import", source, tmp_path / "graph")
    assert "link prediction" in told
    arguments = shlex.split(told.split("diskhop import ")[1].replace("DEST", str(tmp_path / "graph")))
    assert run(["import", *arguments]) == 0


@pytest.mark.parametrize("text", ["0,0,1\n1,1,2\n", "0,1\n1,x\n", "0,1\n1,7\n", "0,-1\n"])
def test_texts_that_metadata_describes_are_told_no_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    source = tmp_path / "ondisk"
    source.mkdir()
    (source / "metadata.yaml").write_text(
        "graph:\n  nodes:\n    - num: 3\n  edges:\n    - format: csv\n      path: edges.csv\n"
    )
    (source / "edges.csv").write_text(text)
    told = error_of(capsys, "import", source, tmp_path / "graph")
    assert "edges.csv, line" in told
    assert "--" not in told
    assert "correct the file, or what metadata.yaml says of it" in told


@pytest.mark.parametrize("command", ["embed", "pack"])
def test_commands_say_that_graphs_of_several_types_are_not_for_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    typed_dataset(tmp_path / "typed")
    out = ["--out", tmp_path / "run"] if command == "embed" else []
    told = error_of(capsys, command, tmp_path / "typed", "--memory", "64MB", *out)
    assert "only graphs of one node type and one edge type" in told
    assert run(shlex.split(told.rpartition("diskhop ")[2])) == 0


def test_loaders_say_that_graphs_of_several_types_are_not_for_them(tmp_path: Path) -> None:
    dataset = open_dataset(typed_dataset(tmp_path / "typed"))
    with pytest.raises(diskhop.DiskhopError, match="only graphs of one node type and one edge type"):
        diskhop.GraphSAINTNodeSampler(dataset, batch_size=2, memory="64MB")


def test_an_import_of_several_types_does_not_propose_to_train(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed_dataset(tmp_path / "typed")
    assert run(["export", str(tmp_path / "typed"), str(tmp_path / "files"), "--format", "graphbolt"]) == 0
    assert run(["import", str(tmp_path / "files"), str(tmp_path / "again")]) == 0
    told = capsys.readouterr().out
    assert "diskhop inspect" in told
    assert "diskhop train" not in told


def test_the_current_folder_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "data.npz", edge_index=np.array([[0, 1], [1, 2]]))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert error_of(capsys, "import", tmp_path / "data.npz", ".").endswith("choose a new folder in it, as graph")
    assert run(["import", str(tmp_path / "data.npz"), "graph"]) == 0
    assert open_dataset(Path("graph")).num_edges == 2


@pytest.mark.parametrize(
    ("edges", "told"),
    [
        (np.array([[0.0, 1.0], [1.0, 2.0]]), "save it as array.astype(np.int64)"),
        (np.array([[0.0, 1.0], [1.0, 2.0], [2.0, 0.0]]), "save it as array.T.astype(np.int64)"),
        (np.array([[0, 1], [1, 2], [2, 0]]), "save it as array.T"),
        (np.array([[0, -1], [1, 2]]), "number the nodes from 0, as np.unique("),
        (np.array([[0, 2**63], [1, 2]], np.uint64), "number the nodes from 0, as np.unique("),
    ],
)
def test_edges_in_arrays_of_another_kind_are_told_how_to_save_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], edges: Any, told: str
) -> None:
    np.savez(tmp_path / "data.npz", edge_index=edges)
    line = error_of(capsys, "import", tmp_path / "data.npz", tmp_path / "graph")
    assert told in line
    names = {"array": edges, "edge_index": edges, "np": np}
    call = line.rpartition("save it as " if "save it as" in line else "from 0, as ")[2].removesuffix(" does")
    np.savez(tmp_path / "data.npz", edge_index=eval(call, names))
    assert run(["import", str(tmp_path / "data.npz"), str(tmp_path / "graph")]) == 0


@pytest.mark.parametrize(
    "edges", [[[0.0, 1.0, 2.0], [1.0, 2.0, 0.0]], [[0, 1], [1, 2], [2, 0]], [[0.0, 1], [1, 2], [2, 0]]]
)
def test_edges_in_objects_of_another_kind_are_told_how_to_convert_them(tmp_path: Path, edges: Any) -> None:
    data = Data(edge_index=torch.tensor(edges), num_nodes=3)
    with pytest.raises(diskhop.DiskhopError, match=r"; set data\.edge_index = data\.edge_index\.") as caught:
        diskhop.from_pyg(data, tmp_path / "graph")
    exec(str(caught.value).rpartition("; set ")[2], {"data": data})
    assert diskhop.from_pyg(data, tmp_path / "graph").num_edges == 3


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_classes_may_be_floats_with_nan_for_none(tmp_path: Path, shape: tuple[int, ...]) -> None:
    labels = np.array([0, 1, 2, np.nan, 1], np.float32).reshape(shape)
    index = np.array([[0, 1, 2, 3], [1, 2, 3, 4]])
    np.savez(tmp_path / "data.npz", edge_index=index, y=labels)
    assert run(["import", str(tmp_path / "data.npz"), str(tmp_path / "arrays")]) == 0
    diskhop.from_pyg(
        Data(edge_index=torch.from_numpy(index), y=torch.from_numpy(labels), num_nodes=5), tmp_path / "objects"
    )
    for name in ("arrays", "objects"):
        dataset = open_dataset(tmp_path / name)
        found = dataset.labels
        assert found is not None
        assert (found.tolist(), dataset.num_classes) == ([0, 1, 2, -1, 1], 3)


def test_one_column_of_zeros_ones_and_nothing_is_a_task(tmp_path: Path) -> None:
    labels = np.array([[0], [1], [np.nan]], np.float32)
    np.savez(tmp_path / "data.npz", edge_index=np.array([[0, 1], [1, 2]]), y=labels)
    assert run(["import", str(tmp_path / "data.npz"), str(tmp_path / "graph")]) == 0
    assert open_dataset(tmp_path / "graph").num_tasks == 1


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("other", [-3, 2**63])
def test_ids_of_tables_that_are_no_whole_numbers_are_told_to_be_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, other: int
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    columns = {"source": [other, 4], "target": [4, other]}
    if kind == "csv":
        (source / "edges.csv").write_text(f"source,target\n{other},4\n4,{other}\n")
    else:
        pq.write_table(
            pa.table({name: pa.array(ids, pa.int64() if other < 0 else pa.uint64()) for name, ids in columns.items()}),
            source / "edges.parquet",
        )
    told = error_of(capsys, "import", source, tmp_path / "graph", "--format", "tables")
    assert "import ids as names: --ids string" in told
    assert "same command again" not in told
    assert run(["import", str(source), str(tmp_path / "graph"), "--format", "tables", "--ids", "string"]) == 0
    assert open_dataset(tmp_path / "graph").names("nodes") == sorted(["4", str(other)])
