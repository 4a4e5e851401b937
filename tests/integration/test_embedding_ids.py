"""Embeddings go by the ids and names of the source, whatever these are and however the nodes lie on disk."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import diskhop
from diskhop.cli import run
from diskhop.dataset.names import as_field, as_shown
from diskhop.errors import ConfigError, DiskhopError
from tests.embedding import OPTIONS

NUM_NODES = 24
IDLE = {**OPTIONS, "model": "dot", "epochs": 1, "evaluate": False, "lr": 1e-30}
ODD_NAMES = ["a\tb", "c\rd", 'say "no"', '"quoted"', " spaced ", "d,e", "\u2028", "\x85", "x\x01y", "<b>&", "#1", "é"]


def some_ids(step: int, start: int) -> list[int]:
    return [start + step * number for number in range(NUM_NODES)]


def write_text(folder: Path, ids: list[Any]) -> Path:
    path = folder / "edges.tsv"
    edges = [(ids[number], ids[(number * 5 + 1) % len(ids)]) for number in range(len(ids))]
    path.write_text("".join(f"{a}\t{b}\n" for a, b in edges))
    return path


def write_tables(folder: Path, ids: list[Any], with_nodes: bool = True) -> Path:
    source = folder / "tables"
    source.mkdir()
    mixed = [ids[(7 * number) % len(ids)] for number in range(len(ids))]
    if with_nodes:
        nodes = pa.table({"id": mixed, "value": np.arange(float(len(ids))), "label": np.arange(len(ids)) % 3})
        pq.write_table(nodes, source / "nodes.parquet")
    pq.write_table(pa.table({"source": mixed, "target": mixed[1:] + mixed[:1]}), source / "edges.parquet")
    return source


def write_arrays(folder: Path, ids: list[Any]) -> Path:
    source = folder / "arrays"
    source.mkdir()
    np.save(source / "original_ids.npy", np.array(ids))
    np.save(source / "num_nodes.npy", len(ids))
    np.save(source / "edge_index.npy", np.stack([np.arange(len(ids)), (np.arange(len(ids)) * 5 + 1) % len(ids)]))
    return source


HASHES = [int(each) for each in np.random.default_rng(0).integers(2**62, 2**63 - 1, NUM_NODES)]
GAPS = some_ids(1000, 1005)
KINDS: dict[str, tuple[Callable[[Path, list[Any]], Path], list[Any], list[str]]] = {
    "from 0": (write_text, some_ids(1, 0), []),
    "from 1": (write_text, some_ids(1, 1), []),
    "gaps": (write_text, GAPS, []),
    "gaps, hot": (write_text, GAPS, ["--order", "hot"]),
    "from 0, hot": (write_text, some_ids(1, 0), ["--order", "hot"]),
    "hashes": (write_text, HASHES, []),
    "hashes in tables": (write_tables, HASHES, []),
    "gaps in tables, hot": (write_tables, GAPS, ["--order", "hot"]),
    "numbers as names": (write_text, GAPS, ["--ids", "string"]),
    "names in tables": (write_tables, [f"n{each}" for each in GAPS], []),
    "names, hot": (write_text, [f"n{each}" for each in GAPS], ["--order", "hot"]),
    "arrays with ids": (write_arrays, GAPS, []),
}


class Made(NamedTuple):
    """A run of embeddings, and the ids or names of its source."""

    run: Path
    ids: list[Any]

    @property
    def text(self) -> dict[str, np.ndarray]:
        """The embedding of each node, by its id as text."""
        path = diskhop.export(self.run, self.run / "out.parquet", overwrite=True).path
        table = pq.read_table(path)
        names = table["name" if "name" in table.column_names else "id"].to_pylist()
        return dict(zip(map(str, names), np.array(table["embedding"].to_pylist(), np.float32), strict=True))


@pytest.fixture(scope="module", params=KINDS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    write, ids, options = KINDS[request.param]
    folder = tmp_path_factory.mktemp("ids")
    assert run(["import", str(write(folder, ids)), str(folder / "graph"), *options]) == 0
    diskhop.embed(folder / "graph", out=folder / "run", **{**IDLE, "init_scale": 1.0, "repartitions": 1})
    return Made(folder / "run", ids)


@pytest.mark.fast(6)
def test_every_export_has_the_ids_in_ascending_order(made: Made, tmp_path: Path) -> None:
    expected = made.text
    assert sorted(expected) == sorted(map(str, made.ids))
    table = pq.read_table(made.run / "out.parquet")
    assert table["id"].to_pylist() == sorted(table["id"].to_pylist())
    values = np.array(table["embedding"].to_pylist(), np.float32)
    np.testing.assert_array_equal(np.load(diskhop.export(made.run, tmp_path / "out.npy").path), values)
    diskhop.export(made.run, tmp_path / "out.tsv")
    rows = [line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines()]
    assert [row[0] for row in rows] == list(expected)
    np.testing.assert_array_equal(np.array([row[1:] for row in rows], np.float32), values)


@pytest.mark.fast(6)
def test_questions_are_asked_and_answered_by_ids(made: Made) -> None:
    expected = made.text
    asked = str(made.ids[3])
    near = diskhop.neighbors(made.run, asked, top=5, by="dot")
    others = {name: float(row @ expected[asked]) for name, row in expected.items() if name != asked}
    assert {each.name: each.score for each in near} == pytest.approx(
        {name: others[name] for name in sorted(others, key=others.__getitem__)[-5:]}, rel=1e-4
    )
    for other in (str(made.ids[0]), str(made.ids[-1])):
        found = diskhop.score(made.run, asked, None, other)
        assert found.score == pytest.approx(float(expected[asked] @ expected[other]), rel=1e-4, abs=1e-5)
    known = {each.name for each in diskhop.score(made.run, asked, None, "?", top=NUM_NODES) if each.is_known}
    edges = pq.read_table(exported_graph(made) / "edges.parquet").to_pydict()
    nodes = pq.read_table(made.run / "graph" / "nodes.parquet").to_pydict()
    name_of = dict(zip(nodes["id"], map(str, nodes.get("name", nodes["id"])), strict=True))
    pairs = zip(edges["source"], edges["destination"], strict=True)
    assert known == {name_of[end] for start, end in pairs if name_of[start] == asked}
    assert diskhop.neighbors(made.run, int(asked)) == diskhop.neighbors(made.run, asked) if asked.isdigit() else True


def exported_graph(made: Made) -> Path:
    out = made.run / "graph"
    assert run(["export", str(made.run.parent / "graph"), str(out), "--format", "parquet", "--overwrite"]) == 0
    return out


@pytest.mark.fast(6)
def test_the_commands_go_by_ids(made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = str(made.ids[3])
    for command in (["neighbors", asked], ["score", asked, asked], ["score", asked, "?"]):
        assert run([command[0], str(made.run), *command[1:]]) == 0
    assert run(["report", str(made.run), "--out", str(tmp_path / "page.html")]) == 0
    assert "No map of the embeddings" not in (tmp_path / "page.html").read_text()
    assert run(["map", str(made.run), str(tmp_path / "map.svg")]) == 0
    titles = ElementTree.parse(tmp_path / "map.svg").iterfind("{*}circle/{*}title")
    assert sorted(str(each.text) for each in titles) == sorted(map(str, made.ids))
    capsys.readouterr()
    for unknown in ("2", "n2", "-1", "1e3", "1.0", "9" * 5000, "٣", "", "0x10"):
        if unknown not in map(str, made.ids):
            assert run(["neighbors", str(made.run), "--", unknown]) == 2
            told = capsys.readouterr().err
            assert told.count("\n") == 1
            assert f"'{unknown[:60]}" in told
            assert len(told) < 1000


@pytest.mark.fast(60)
@pytest.mark.parametrize("name", [None, 3.0, np.float64(3), True, b"3", ["3"], np.array([3, 4])])
@pytest.mark.parametrize("ask", ["neighbors", "score", "complete"])
def test_a_name_is_text_or_a_whole_number(made: Made, ask: str, name: Any) -> None:
    calls: dict[str, Callable[[], object]] = {
        "neighbors": lambda: diskhop.neighbors(made.run, name),
        "score": lambda: diskhop.score(made.run, str(made.ids[0]), None, name),
        "complete": lambda: diskhop.score(made.run, name, None, "?"),
    }
    with pytest.raises(DiskhopError, match=r"is given as text, got .*; give it as text, such as '") as caught:
        calls[ask]()
    assert "\n" not in str(caught.value)
    example = re.findall(r"such as '(.*)'", str(caught.value))[0]
    assert diskhop.neighbors(made.run, example, top=1)


@pytest.mark.fast(4)
@pytest.mark.parametrize(("old", "new"), [
    ("from 0", [*some_ids(1, 0)[::2], 100, 200]), ("gaps", [7, 1500, *GAPS, 10**18]), ("gaps, hot", GAPS[3:]),
    ("hashes", [1, *sorted(HASHES)[4:]]), ("names, hot", ["a", *(f"n{each}" for each in GAPS[5:]), "z"]),
    ("from 1", some_ids(1, 0)),
])  # fmt: skip
@pytest.mark.parametrize("order", ["input", "hot"])
def test_a_warm_start_finds_the_same_ids(old: str, new: list[Any], order: str, tmp_path: Path) -> None:
    write, ids, options = KINDS[old]
    (tmp_path / "new").mkdir()
    assert run(["import", str(write(tmp_path, ids)), str(tmp_path / "graph"), *options]) == 0
    grown = write_text(tmp_path / "new", new)
    assert run(["import", str(grown), str(tmp_path / "grown"), "--order", order]) == 0
    diskhop.embed(tmp_path / "graph", out=tmp_path / "run", **IDLE)
    for name, beginning in (("cold", ""), ("warm", str(tmp_path / "run"))):
        diskhop.embed(tmp_path / "grown", out=tmp_path / name, **IDLE, warm_start=beginning)
    before, warm, cold = (Made(tmp_path / name, []).text for name in ("run", "warm", "cold"))
    assert sorted(warm) == sorted(map(str, new))
    for name, values in warm.items():
        np.testing.assert_array_equal(values, before.get(name, cold[name]))


def test_odd_names_survive_every_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_tables(tmp_path, ODD_NAMES, with_nodes=False)
    assert run(["import", str(source), str(tmp_path / "graph")]) == 0
    diskhop.embed(tmp_path / "graph", out=tmp_path / "run", **IDLE)
    diskhop.export(tmp_path / "run", tmp_path / "out.tsv")
    with (tmp_path / "out.tsv").open(newline="", encoding="utf-8") as lines:
        rows = list(csv.reader(lines, delimiter="\t"))
    assert {len(row) for row in rows} == {1 + IDLE["dim"]}
    assert sorted(row[0] for row in rows) == sorted(ODD_NAMES)
    assert sorted(Made(tmp_path / "run", []).text) == sorted(ODD_NAMES)
    assert run(["map", str(tmp_path / "run"), str(tmp_path / "map.svg")]) == 0
    titles = [each.text for each in ElementTree.parse(tmp_path / "map.svg").iterfind("{*}circle/{*}title")]
    assert sorted(each or "" for each in titles) == sorted(map(as_shown, ODD_NAMES))
    capsys.readouterr()
    assert run(["neighbors", str(tmp_path / "run"), ODD_NAMES[0], "--top", "100"]) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) == len(ODD_NAMES) - 1
    assert all(as_shown(name) in shown for name in ODD_NAMES[1:])
    assert "\r" not in shown
    assert run(["neighbors", str(tmp_path / "run"), ODD_NAMES[0], "--top", "100", "--json"]) == 0
    assert sorted(each["name"] for each in json.loads(capsys.readouterr().out)["neighbors"]) == sorted(ODD_NAMES[1:])


@pytest.mark.parametrize("format_name", ["numpy", "graphbolt"])
def test_odd_names_come_back_from_an_exported_graph(tmp_path: Path, format_name: str) -> None:
    source = write_tables(tmp_path, ODD_NAMES, with_nodes=False)
    assert run(["import", str(source), str(tmp_path / "graph")]) == 0
    assert run(["export", str(tmp_path / "graph"), str(tmp_path / "out"), "--format", format_name]) == 0
    assert run(["import", str(tmp_path / "out"), str(tmp_path / "again")]) == 0
    names = [diskhop.open_dataset(tmp_path / name).names("nodes") for name in ("graph", "again")]
    assert names[0] == names[1]
    assert sorted(names[0] or []) == sorted(ODD_NAMES)


def test_fields_and_shown_names() -> None:
    for name in ODD_NAMES:
        assert next(csv.reader([as_field(name) + "\tend"], delimiter="\t")) == [name, "end"]
        assert as_shown(name).isprintable()
        assert as_shown(name) == name or json.loads(as_shown(name)) == name
    assert [as_shown(each) for each in ("plain", "a 'b' c", "a\tb", " c ")] == ["plain", "a 'b' c", '"a\\tb"', '" c "']


def test_graphs_with_and_without_names_are_told_apart(tmp_path: Path) -> None:
    for name, options in (("numbers", []), ("names", ["--ids", "string"])):
        assert run(["import", str(write_text(tmp_path, GAPS)), str(tmp_path / name), *options]) == 0
    diskhop.embed(tmp_path / "numbers", out=tmp_path / "run", **IDLE)
    with pytest.raises(ConfigError, match="one of the graphs has names"):
        diskhop.embed(tmp_path / "names", out=tmp_path / "warm", **IDLE, warm_start=str(tmp_path / "run"))
