"""Everything that refusals say to type is typed, and leads on (tests/advice.py)."""

from __future__ import annotations

import ast
import bz2
import gzip
import lzma
import re
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
from torch_geometric.data import HeteroData

import diskhop
from diskhop.cli import run
from diskhop.cli.commands import PANEL_OF
from tests.advice import CommandLine, Report, flags_of, follow, moves_of, options_of, typed
from tests.embedding import OPTIONS

ROOT = Path(__file__).parents[2]
EDGES = "1 2\n2 3\n3 1\n"
TRIPLES = "a\tr\tb\nb\tr\tc\nc\ts\ta\n"

# Files of an import by name; the content of tables is columns, of .npy files arrays.
Files = dict[str, Any]
IMPORTS: dict[str, tuple[Files, str]] = {
    "no such source": ({}, "import IN/none.txt OUT"),
    "nothing known": ({"notes.md": "hello"}, "import IN OUT"),
    "a text with an odd name": ({"graph.dat": EDGES}, "import IN/graph.dat OUT"),
    "an unknown format": ({"e.txt": EDGES}, "import IN/e.txt OUT --format edge"),
    "options of another kind": ({"e.txt": EDGES}, "import IN/e.txt OUT --label y --weight w"),
    "three columns": ({"e.csv": "a,b,c\n1,2,x\n"}, "import IN/e.csv OUT"),
    "three numbers": ({"e.txt": "1 2 3\n2 3 4\n"}, "import IN/e.txt OUT"),
    "a row more": ({"e.txt": "1 2\n2 3 4\n3 1\n"}, "import IN/e.txt OUT"),
    "a row less": ({"e.txt": "1 2\n2\n3 1\n"}, "import IN/e.txt OUT"),
    "one column": ({"e.txt": "1\n2\n3\n"}, "import IN/e.txt OUT"),
    "names among numbers": ({"e.txt": "1 2\n2 x\n"}, "import IN/e.txt OUT"),
    "negative": ({"e.txt": "1 -2\n2 3\n"}, "import IN/e.txt OUT"),
    "beyond 64 bits": ({"e.txt": "1 99999999999999999999\n2 3\n"}, "import IN/e.txt OUT"),
    "more than --nodes": ({"e.txt": EDGES}, "import IN/e.txt OUT --nodes 2"),
    "--nodes and names": ({"e.txt": EDGES}, "import IN/e.txt OUT --nodes 9 --ids string"),
    "a column that is not there": ({"e.csv": "a,b\n1,2\n"}, "import IN/e.csv OUT --columns a,c"),
    "the same column twice": ({"e.csv": "a,b\n1,2\n"}, "import IN/e.csv OUT --columns a,a"),
    "another delimiter": ({"e.txt": "1,2\n2,3\n"}, "import IN/e.txt OUT --delimiter tab"),
    "a delimiter of two": ({"e.txt": EDGES}, "import IN/e.txt OUT --delimiter ::"),
    "--ids of another kind": ({"e.txt": EDGES}, "import IN/e.txt OUT --ids float"),
    "no header": ({"e.txt": EDGES}, "import IN/e.txt OUT --columns a,b"),
    "a text in UTF-16": ({"e.txt": EDGES.encode("utf-16")}, "import IN/e.txt OUT"),
    "an empty text": ({"e.txt": ""}, "import IN/e.txt OUT"),
    "cut gzip": ({"e.txt.gz": gzip.compress(EDGES.encode() * 99)[:-9]}, "import IN/e.txt.gz OUT"),
    "bz2": ({"e.txt.bz2": bz2.compress(b"1 2 3\n")}, "import IN/e.txt.bz2 OUT"),
    "xz": ({"e.txt.xz": lzma.compress(b"1 2 3\n")}, "import IN/e.txt.xz OUT"),
    "too little memory": ({"e.txt": EDGES}, "import IN/e.txt OUT --memory 1MB"),
    "no size": ({"e.txt": EDGES}, "import IN/e.txt OUT --memory lots"),
    "a dtype without features": ({"e.txt": EDGES}, "import IN/e.txt OUT --dtype int8"),
    "an unknown dtype": ({"e.txt": EDGES}, "import IN/e.txt OUT --dtype float8"),
    "too many workers": ({"e.txt": EDGES}, "import IN/e.txt OUT --workers 0"),
    "no parent": ({"e.txt": EDGES}, "import IN/e.txt IN/new/graph"),
    "there already": ({"e.txt": EDGES, "OUT": "graph"}, "import IN/e.txt OUT"),
    "a file there": ({"e.txt": EDGES, "here": "mine"}, "import IN/e.txt IN/here"),
    "somebody's folder there": ({"e.txt": EDGES, "here/thesis.txt": "mine"}, "import IN/e.txt IN/here"),
    "a table of one column": ({"e.parquet": {"a": [1, 2]}}, "import IN/e.parquet OUT"),
    "negative ids in a table": ({"edges.parquet": {"source": [-1, 2], "target": [2, 3]}}, "import IN OUT"),
    "negative ids in CSV": ({"edges.csv": "source,target\n-1,2\n2,3\n"}, "import IN OUT"),
    "ids beyond 2^63": ({"edges.csv": "source,target\n9223372036854775809,2\n2,3\n"}, "import IN OUT"),
    "floats in a table": ({"edges.parquet": {"source": [1.5, 2.0], "target": [2.0, 3.0]}}, "import IN OUT"),
    "nothing in a table": ({"edges.parquet": {"source": [1, None], "target": [2, 3]}}, "import IN OUT"),
    "a table's column that is not there": (
        {"edges.parquet": {"source": [1], "target": [2]}}, "import IN OUT --edge-columns from,to"),
    "a label that is not there": (
        {"edges.csv": "source,target\n1,2\n", "nodes.csv": "id,x\n1,.5\n2,.7\n"}, "import IN OUT --label y"),
    "a label of text": (
        {"edges.csv": "source,target\n1,2\n", "nodes.csv": "id,y\n1,cat\n2,dog\n"},
        "import IN OUT --label y --label-kind tasks"),
    "labels of text and of numbers": (
        {"edges.csv": "source,target\n1,2\n", "nodes.csv": "id,y,z\n1,cat,0\n2,dog,1\n"}, "import IN OUT --label y,z"),
    "a feature of text": (
        {"edges.csv": "source,target\n1,2\n", "nodes.csv": "id,y\n1,cat\n2,dog\n"}, "import IN OUT --features y"),
    "a weight that is not there": (
        {"edges.csv": "source,target\n1,2\n", "nodes.csv": "id,x\n1,.5\n2,.7\n"}, "import IN OUT --weight w"),
    "a node twice": (
        {"edges.csv": "source,target\n1,2\n", "nodes.csv": "id,x\n1,.5\n1,.7\n"}, "import IN OUT"),
    "an edge to no node": (
        {"edges.csv": "source,target\n1,9\n", "nodes.csv": "id,x\n1,.5\n2,.7\n"}, "import IN OUT"),
    "triples of two columns": ({"train.txt": "a\tb\n"}, "import IN OUT --format triples"),
    "triples of four": ({"train.txt": "a\tr\tb\t1\n"}, "import IN OUT"),
    "an unknown entity": (
        {"train.txt": "a\tr\tz\n", "entities.dict": "0\ta\n1\tb\n", "relations.dict": "0\tr\n"}, "import IN OUT"),
    "one dictionary": ({"train.txt": TRIPLES, "entities.dict": "0\ta\n1\tb\n2\tc\n"}, "import IN OUT"),
    "features of triples": ({"train.txt": TRIPLES}, "import IN OUT --undirected"),
    "no edges in arrays": ({"x.npy": np.ones((3, 2))}, "import IN OUT"),
    "an array of another name": ({"edge_index.npy": np.ones((2, 1), int), "z.npy": np.ones(2)}, "import IN OUT"),
    "an edge beyond the nodes": (
        {"edge_index.npy": np.array([[0], [9]]), "num_nodes.npy": np.array(3)}, "import IN OUT"),
    "labels of another length": ({"edge_index.npy": np.array([[0], [1]]), "x.npy": np.ones((2, 1)),
                                  "y.npy": np.zeros(5, int)}, "import IN OUT"),
    "features and made-up ones": ({"edge_index.npy": np.array([[0], [1]]), "x.npy": np.ones((2, 1))},
                                  "import IN OUT --random-features 8"),
    "nan in features": ({"edge_index.npy": np.array([[0], [1]]), "x.npy": np.full((2, 1), np.nan)}, "import IN OUT"),
    "metadata that is no YAML": ({"metadata.yaml": "a: [", "e.npy": np.ones(2)}, "import IN OUT"),
    "edges of three columns in GraphBolt": (
        {"metadata.yaml": "graph:\n  nodes: [{num: 4}]\n  edges: [{format: csv, path: e.csv}]\n", "e.csv": "1,2,3\n"},
        "import IN OUT"),
    "an edge beyond the nodes of GraphBolt": (
        {"metadata.yaml": "graph:\n  nodes: [{num: 2}]\n  edges: [{format: csv, path: e.csv}]\n", "e.csv": "0,5\n"},
        "import IN OUT"),
    "a pickle": ({"data.pt": b"PK\x03\x04"}, "import IN/data.pt OUT"),
}  # fmt: skip
COMMANDS = [
    "train", "train GRAPH --memory 10KB --epochs 1", "train GRAPH --model sgae", "train GRAPH --modle sage",
    "train GRAPH --epochs 0", "train GRAPH --fanout ten", "train GRAPH --model sgc --fanout 5",
    "train GRAPH --model sage --hops 2", "train GRAPH --metric auc --epochs 1",
    "train GRAPH --store static --disk 1GB --epochs 1", "train GRAPH --store belady --disk 1KB --epochs 1",
    "train GRAPH --store nope", "train GRAPH --preset corra",
    "train GRAPH --config missing.toml", "train GRAPH --resume", "train GRAPH --resume --out OUT --epochs 1",
    "train GRAPH --out RUN", "train GRAPH --out IN", "train GRAPH --split 3", "train GRAPH --seed -1 --epochs 1",
    "train GRAPH --tensorboard", "train GRAPH --model sgc --operator sgc --operator sign --epochs 1", "train TYPED",
    "train PLAIN", "train TRIPLES", "train IN", "train IN/none", "train GRAPH --threads 0 --epochs 1",
    "train GRAPH --dropout 2 --epochs 1",
    "train GRAPH --resume --out RUN --epochs 9", "train GRAPH --store packed --reuse --epochs 0",
    "train --resume --out EMBEDDED", "train GRAPH --matmul nope", "train GRAPH --engine fast",
    "train GRAPH --memory 100MB --store packed --disk 1KB --epochs 1", "embed GRAPH --epochs 1",
    "train GRAPH --out OUT --epochs 1 --warm-start EMBEDDED", "train GRAPH --warm-start IN/none --epochs 1",
    "train GRAPH --warm-start RUN --epochs 1 --hidden 24", "train GRAPH --warm-start RUN --epochs 1 --model gcn",
    "train GRAPH --keep-optimizer --epochs 1", "train GRAPH --tune 0 --epochs 1 --lr .1 --layers 2",
    "train GRAPH --tune 1 --no-eval --epochs 1 --lr .1 --layers 2", "train GRAPH --tune 1 --resume --out RUN",
    "train GRAPH --tune 1 --processes 2 --epochs 1 --lr .1 --layers 2",
    "embed GRAPH --out OUT --epochs 1 --model complex", "embed GRAPH --out OUT --epochs 1 --partitions 999",
    "embed GRAPH --out OUT --epochs 1 --dim 3 --model rotate",
    "embed TRIPLES --out OUT --dim 3 --model rotate --epochs 1",
    "embed GRAPH --out OUT --epochs 1 --partitions 8 --buffer 9",
    "embed GRAPH --out OUT --epochs 1 --partitions 8 --buffer 1",
    "embed GRAPH --out OUT --epochs 1 --partitions 6 --partition-order cover --buffer 4",
    "embed GRAPH --out OUT --epochs 1 --partitions 6 --partition-order cover",
    "embed GRAPH --out OUT --epochs 1 --memory 10KB",
    "embed GRAPH --out OUT --epochs 1 --repartitions 2 --assignment input",
    "embed GRAPH --out OUT --epochs 1 --valid-share .5 --test-share .5",
    "embed GRAPH --out OUT --epochs 1 --search 2 --no-eval", "embed GRAPH --out OUT --epochs 1 --search 2 --resume",
    "embed GRAPH --out OUT --epochs 1 --warm-start RUN",
    "embed GRAPH --out OUT --epochs 1 --warm-start EMBEDDED --dim 16", "embed GRAPH --out EMBEDDED",
    "embed TYPED --out OUT", "embed GRAPH --out OUT --epochs 1 --loss square",
    "embed GRAPH --out OUT --epochs 1 --lr 0", "evaluate EMBEDDED --part train", "evaluate IN",
    "evaluate RUN --part tset", "evaluate RUN --eval-edges 5", "evaluate EMBEDDED --dataset GRAPH",
    "evaluate RUN --memory 1KB", "evaluate RUN --dataset PLAIN",
    "predict RUN", "predict IN --out OUT", "predict EMBEDDED --out OUT", "predict RUN --out OUT --dataset PLAIN",
    "predict RUN --out OUT --dataset IN", "predict RUN --out OUT --what clas", "predict RUN --out GRAPH",
    "predict RUN --out OUT --what embedding --layer 9", "predict RUN --out OUT --layer 1",
    "predict RUN --out OUT --fanout 1,2,3", "predict RUN --out OUT --format csv", "predict RUN --out OUT --nodes tst",
    "predict RUN --out OUT --nodes IN", "predict RUN --out OUT --memory 10KB", "predict RUN --out OUT --disk 1KB",
    "predict RUN --out OUT --require test", "predict RUN --out OUT --progress dots", "predict RUN --out IN/none/out",
    "plan RUN --task predict --memory 10KB", "plan RUN --task predict --store direct", "plan GRAPH --task predict",
    "plan GRAPH --nodes test", "plan GRAPH --task guess",
    "evaluate EMBEDDED --memory 1MB", "neighbors EMBEDDED nobody", "neighbors EMBEDDED 999",
    "neighbors EMBEDDED 1 --by near", "neighbors EMBEDDED 1 --top 0", "neighbors RUN 1", "neighbors IN 1",
    "score EMBEDDED 1", "score EMBEDDED 1 2 3", "score EMBEDDED '?' '?'", "score EMBEDDED 1 2 3 4",
    "map EMBEDDED OUT.png", "map EMBEDDED OUT.svg --by age", "map EMBEDDED OUT.svg --nodes 0",
    "map EMBEDDED IN/none/map.svg", "export GRAPH OUT --format csv", "export TYPED OUT",
    "export TYPED OUT --format parquet", "export TRIPLES OUT --format parquet",
    "export TRIPLES OUT --format graphbolt", "export EMBEDDED OUT.csv", "export GRAPH OUT --memory 1MB",
    "import GRAPH OUT --features-from EMBEDDED", "import PLAIN OUT --features-from EMBEDDED --undirected",
    "import PLAIN OUT --features-from RUN", "export EMBEDDED OUT.npy --by dot", "export EMBEDDED OUT.tsv --ann",
    "export RUN OUT.npy", "export IN/none OUT.faiss",
    "export GRAPH OUT --format parquet --memory 60MB", "export GRAPH GRAPH", "export IN OUT",
    "report", "report IN", "report RUN --out page.txt", "report RUN --out IN/none/page.html", "plan TYPED",
    "plan PLAIN", "plan GRAPH --memory 1MB", "plan GRAPH --model nope", "plan TRIPLES", "propagate PLAIN",
    "propagate TYPED", "propagate GRAPH --operator nope", "propagate GRAPH --operator ppr:alpha=2",
    "propagate GRAPH --operator sign:alpha=2", "propagate GRAPH --hops 0", "propagate GRAPH --rows none",
    "propagate GRAPH --rows IN/none.npy", "propagate GRAPH --operator sgc --operator sgc",
    "propagate PLAIN --rows labelled", "pack PLAIN", "pack GRAPH --store static --epochs 1", "pack TYPED",
    "pack GRAPH --disk 1KB --epochs 1", "generate circle OUT", "generate uniform OUT --nodes 0",
    "generate uniform GRAPH --nodes 9 --edges 9", "generate uniform OUT --nodes 9 --edges 9 --homophily .5",
    "generate sbm OUT --nodes 9 --edges 9 --dim 4 --memory 1KB", "generate kronecker OUT --initiator .5,.5",
    "generate kronecker OUT --nodes 9 --edges 9 --dim 8 --dtype float8", "inspect IN", "inspect IN/none", "verify IN",
    "clean IN", "clean GRAPH --scratch IN/none", "doctor IN/none", "nonsense",
]  # fmt: skip


def write(folder: Path, files: Files) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, dict):
            pq.write_table(pa.table(content), path)
        elif isinstance(content, np.ndarray):
            np.save(path, content)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Datasets and runs, by the words that stand for them."""
    folder = tmp_path_factory.mktemp("world")
    made = {name: folder / name.lower() for name in ("GRAPH", "PLAIN", "TYPED", "TRIPLES", "RUN", "EMBEDDED")}
    assert (
        run(["generate", "sbm", str(made["GRAPH"]), "--nodes", "60", "--edges", "300", "--dim", "4", "--classes", "3"])
        == 0
    )
    write(folder, {"edges.txt": EDGES, "facts/train.txt": TRIPLES, "facts/test.txt": TRIPLES})
    assert run(["import", str(folder / "edges.txt"), str(made["PLAIN"])]) == 0
    assert run(["import", str(folder / "facts"), str(made["TRIPLES"])]) == 0
    data = HeteroData()
    data["paper"].x, data["author"].x = torch.rand(4, 2), torch.rand(3, 2)
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 2], [1, 2, 3]])
    data["paper", "cites", "paper"].edge_index = torch.tensor([[0, 1], [1, 2]])
    diskhop.from_pyg(data, made["TYPED"])
    diskhop.train(made["GRAPH"], model="sage", epochs=1, memory="100MB", out=made["RUN"], threads=1)
    diskhop.embed(made["GRAPH"], out=made["EMBEDDED"], **{**OPTIONS, "model": "dot", "epochs": 1})
    return made


def assert_leads_on(line: str, names: dict[str, Path], folder: Path) -> None:
    """Type a line, which must be refused in one line, and everything that the refusals advise."""
    words = [
        re.sub(r"^(IN|OUT|[A-Z]+)(?=$|[/.])", lambda found: str(names.get(found[0], found[0])), word)
        for word in shlex.split(line)
    ]
    command = CommandLine.parse(words, folder)
    if command is None:
        assert run(words) == 2
        return
    outcome = typed(command)
    assert outcome.code == 2, outcome
    report = Report()
    follow(words, outcome.message, report, folder)
    assert not report.faults, "\n\n".join(report.faults)
    assert report.steps or not moves_of(outcome.message, command)


@pytest.mark.parametrize("name", IMPORTS)
def test_refusals_of_imports_lead_on(name: str, tmp_path: Path) -> None:
    files, line = IMPORTS[name]
    names = {"IN": tmp_path / "in", "OUT": tmp_path / "out"}
    names["IN"].mkdir()
    if "OUT" in files:
        write(tmp_path, {"other.txt": EDGES})
        assert run(["import", str(tmp_path / "other.txt"), str(names["OUT"])]) == 0
    write(names["IN"], {each: content for each, content in files.items() if each != "OUT"})
    assert_leads_on(line, names, tmp_path)


@pytest.mark.parametrize("line", COMMANDS)
def test_refusals_of_commands_lead_on(line: str, world: dict[str, Path], tmp_path: Path) -> None:
    names = {**world, "IN": tmp_path / "in", "OUT": tmp_path / "out"}
    names["IN"].mkdir()
    (names["IN"] / "notes.md").write_text("hello")
    assert_leads_on(line, names, tmp_path)


def test_options_and_commands_that_messages_name_exist() -> None:
    """Whatever an error, or a note, calls an option or a command is one."""
    flags = {flag for name in PANEL_OF for each in options_of(name) for flag in flags_of(each)} | {"--help"}
    unknown = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not re.search("(Error|add_note)$", ast.unparse(node.func)):
                continue
            for text in (each.value for each in ast.walk(node) if isinstance(each, ast.Constant)):
                found = re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+(?![\w-]*[=*{])", str(text))
                unknown += [f"{path.name}:{node.lineno}: {flag}" for flag in found if flag not in flags]
                names = re.findall(r"'diskhop ([a-z]+)", str(text))
                unknown += [f"{path.name}:{node.lineno}: diskhop {name}" for name in names if name not in PANEL_OF]
    assert unknown == []


@pytest.mark.slow
def test_every_refusal_that_tests_of_imports_run_into_leads_on() -> None:
    """`make test-all` does the same with the shared cases."""
    files = sorted((ROOT / "tests" / "unit").glob("test_import_*.py"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.recorder", *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "pieces of advice typed" in done.stdout
    assert done.returncode == 0, done.stdout[-10_000:]
