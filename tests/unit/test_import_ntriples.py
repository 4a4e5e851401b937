"""Importing N-Triples: resources, predicates, types and literals."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.cli import run
from diskhop.dataset.dataset import Dataset
from diskhop.errors import DiskhopError
from diskhop.importing.ntriples.work import local_names
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.importing.tools import ImportLimits
from tests.graphs import folder_bytes, threads_engine
from tests.unit.test_import_typed_tables import edges_of

RDF = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
XSD = "http://www.w3.org/2001/XMLSchema#"
TEXT = rf"""# people and firms
<http://x/ana> {RDF} <http://x/Person> .
<http://x/ana> {RDF} <http://x/Boss> .
<http://x/ben> {RDF} <http://x/Person> .
<http://x/acme> {RDF} <http://x/org#Firm> .

<http://x/ana> <http://x/worksAt> <http://x/acme> .
	<http://x/ben>	<http://x/worksAt>  <http://x/acme>. # yes
<http://x/ana> <http://x/knows> <http://x/ben> .
_:b0 <http://x/knows> <http://x/ana> .
<http://x/ana> <http://x/age> "31"^^<{XSD}integer> .
<http://x/ana> <http://x/age> "32"^^<{XSD}integer> .
<http://x/acme> <http://x/name> "Acme \"the\" \\ firm."@en .
<http://x/acme> <http://y/age> "1.5e1"^^<{XSD}double> .
<http://x/acme> <http://x/open> "true"^^<{XSD}boolean> .
<http://x/b\u00e9n> <http://x/knows> _:b0 .
"""


def imported(source: Path, destination: Path, **options: Any) -> Dataset:
    return import_graph(source, destination, name="g", engine=threads_engine(), **options)


def written(path: Path, text: str = TEXT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def attribute(dataset: Dataset, node_type: str, name: str) -> list[float]:
    values = dataset.nodes[node_type].attribute(name)
    assert values is not None
    return [float(each) for each in values]


def test_resources_are_nodes_and_predicates_types_of_edges(tmp_path: Path) -> None:
    dataset = imported(written(tmp_path / "g.nt"), tmp_path / "out")
    names = dataset.names("nodes")
    assert names == [
        "_:b0",
        *(f"http://x/{each}" for each in ("Boss", "Person", "acme", "ana", "ben", "bén", "org#Firm")),
    ]
    assert {name: edges.num_edges for name, edges in dataset.edges.items()} == {
        "node__knows__node": 3,
        "node__type__node": 4,
        "node__worksAt__node": 2,
    }
    pairs = edges_of(dataset, "node__knows__node")
    assert pairs == [("http://x/ana", "http://x/ben"), ("_:b0", "http://x/ana"), ("http://x/bén", "_:b0")]
    nan = float("nan")
    # The first number of a node counts, and two predicates of one name stay apart.
    np.testing.assert_array_equal(attribute(dataset, "node", "age"), [nan, nan, nan, nan, 31, nan, nan, nan])
    np.testing.assert_array_equal(attribute(dataset, "node", "age-2"), [nan, nan, nan, 15, nan, nan, nan, nan])
    np.testing.assert_array_equal(attribute(dataset, "node", "open"), [nan, nan, nan, 1, nan, nan, nan, nan])


def test_types_of_resources_are_node_types(tmp_path: Path) -> None:
    dataset = imported(written(tmp_path / "g.nt"), tmp_path / "out", options=ImportOptions(node_types=True))
    # ana is a Boss too, but more nodes are a Person.
    assert dataset.names("nodes", "Person") == ["http://x/ana", "http://x/ben"]
    assert dataset.names("nodes", "entity") == ["_:b0", "http://x/bén"]
    assert {name: edges.num_edges for name, edges in dataset.edges.items()} == {
        "Person__knows__Person": 1,
        "Person__worksAt__Firm": 2,
        "entity__knows__Person": 1,
        "entity__knows__entity": 1,
    }
    assert list(dataset.nodes["Firm"].attributes) == ["age-2", "open"]
    assert attribute(dataset, "Person", "age")[0] == 31


def test_predicates_may_be_relations(tmp_path: Path) -> None:
    dataset = imported(written(tmp_path / "g.nt"), tmp_path / "out", options=ImportOptions(predicates="relations"))
    triples, entities, relations = dataset.triples("all"), dataset.names("entities"), dataset.names("relations")
    assert triples is not None
    assert entities is not None
    assert relations is not None
    named = [(entities[head], relations[relation], entities[tail]) for head, relation, tail in triples.tolist()]
    assert named[4] == ("http://x/ana", "http://x/worksAt", "http://x/acme")
    assert len(named) == 9
    assert dataset.num_relations == 3


def test_parts_slices_and_workers_change_no_byte(tmp_path: Path) -> None:
    options = ImportOptions(node_types=True)
    expected = folder_bytes(imported(written(tmp_path / "g.nt"), tmp_path / "one", options=options).path)
    lines = TEXT.splitlines(keepends=True)
    folder = tmp_path / "parts"
    written(folder / "a.nt", "".join(lines[:7]))
    (folder / "b.nt.gz").write_bytes(gzip.compress("".join(lines[7:]).encode()))
    tiny = ImportLimits(triples_slice_bytes=64)
    again = imported(folder, tmp_path / "two", options=options, limits=tiny, threads=2, workers=2)
    assert folder_bytes(again.path) == expected


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("<http://x/a> <http://x/b> .", "line 17: a line must be a subject, a predicate, an object and a full stop"),
        ('<http://x/a> <http://x/b> "c .', "line 17: a line must be a subject"),
        ("<http://x/a> <http://x/b> <http://x/c>", "line 17: a line must be a subject"),
        (
            f'<http://x/a> <http://x/b> "x"^^<{XSD}integer> .',
            "line 17: a literal of .*integer must be a number, got 'x'",
        ),
        (f'<http://x/a> <http://x/b> "no"^^<{XSD}boolean> .', "line 17: a literal of .*boolean must be a number"),
    ],
)
def test_lines_that_break_a_rule_are_one_line(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(DiskhopError, match=f"g.nt, {words}") as caught:
        imported(written(tmp_path / "g.nt", f"{TEXT}{line}\n"), tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("", {}, "has no triples; add one per line"),
        ("# nothing\n", {}, "has no triples; add one per line"),
        ('<a> <b> "c" .\n', {}, "has no triples between resources"),
        ("<a> <b> <c> .\n", {"node_types": True}, "no node has an rdf:type; remove --node-types"),
        (TEXT, {"node_types": True, "predicates": "relations"}, "--predicates relations needs nodes of one type"),
    ],
)
def test_graphs_that_do_not_fit_are_one_line(tmp_path: Path, text: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(DiskhopError, match=words):
        imported(written(tmp_path / "g.nt", text), tmp_path / "out", options=ImportOptions(**options))


def test_names_of_types_are_short_and_each_once() -> None:
    iris = ["http://x/Person", "http://y#Person", "http://x/a__b c", "urn:isbn:7", "http://x/"]
    assert list(local_names(iris)) == ["Person", "Person-2", "a_b_c", "7", "x"]


def test_what_is_left_out_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", str(written(tmp_path / "g.nt")), str(tmp_path / "out")]) == 0
    captured = capsys.readouterr()
    shown = " ".join(captured.out.split())
    assert "1 repeated numbers of http://x/age (the first is kept), 1 texts of http://x/name" in shown
    assert "numbers: attributes of nodes; text: left out" in captured.err
