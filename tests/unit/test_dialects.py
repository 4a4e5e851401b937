"""Published formats of edges as text: what is read, what is left out with a word, and what is refused."""

from __future__ import annotations

import bz2
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from diskhop.budget import Budget
from diskhop.cli import run
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.errors import SourceError
from diskhop.importing.evidence.decisions import Decision
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from tests.graphs import edges_of, threads_engine

MATRIX = "%%MatrixMarket matrix coordinate {} {}\n% a comment\n%\n{}"
CHAIN = [(1, 2), (2, 3)]
NEEDS_BZCAT = pytest.mark.skipif(shutil.which("bzcat") is None, reason="bzcat is not installed")


def imported(source: Path, **options: Any) -> Dataset:
    return import_graph(
        source,
        source.parent / "graph",
        options=ImportOptions(**options),
        engine=threads_engine(),
        budget=Budget(300 << 20),
    )


def by_id(dataset: Dataset) -> list[tuple[int, int]]:
    ids = dataset.node_ids()
    return sorted((int(ids[source]), int(ids[destination])) for source, destination in edges_of(dataset))


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(bz2.compress(text.encode()) if name.endswith("bz2") else text.encode())
    return path


@pytest.mark.parametrize("rows", ["ana|a,b\n", "ana|a,b\nbob|c,d\n"])
def test_a_text_that_two_delimiters_fit_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: str
) -> None:
    source = write(tmp_path, "edges.txt", rows)
    assert run(["import", str(source), str(tmp_path / "graph")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("several characters may separate the columns; add --delimiter comma or --delimiter '|'")
    assert not (tmp_path / "graph").exists()
    dataset = imported(source, delimiter="|", header=False)
    assert dataset.names("nodes") == sorted({end for row in rows.split() for end in row.split("|")})


@pytest.mark.parametrize("name", ["graph.mtx", "graph.txt", "graph.mtx.bz2"])
@pytest.mark.parametrize(
    ("field", "rows"),
    [
        ("pattern", "3 3 2\n1 2\n2 3\n"),
        ("real", "3 3 2\n1 2 0.5\n2 3 -1.5e-3\n"),
        ("integer", "3 3 2\n1 2 7\n2 3 -1\n"),
        ("complex", "3 3 2\n1 2 7 1.\n2 3 -1 2.\n"),
        ("real", "  3   3  2\n\n 1\t 2   0.5\n 2 3 1\n"),
        ("pattern", "3 3 2\r\n1 2\r\n2 3\r\n"),
    ],
)
def test_matrix_market(tmp_path: Path, name: str, field: str, rows: str) -> None:
    assert by_id(imported(write(tmp_path, name, MATRIX.format(field, "general", rows)))) == CHAIN


@pytest.mark.parametrize("symmetry", ["symmetric", "skew-symmetric", "hermitian"])
def test_symmetric_matrices_have_both_entries(tmp_path: Path, symmetry: str) -> None:
    source = write(tmp_path, "graph.mtx", MATRIX.format("real", symmetry, "3 3 3\n2 1 1\n3 2 1\n3 3 1\n"))
    assert by_id(imported(source)) == [(1, 2), (2, 1), (2, 3), (3, 2), (3, 3)]


def test_symmetric_matrices_are_stored_once_if_asked(tmp_path: Path) -> None:
    source = write(tmp_path, "graph.mtx", MATRIX.format("pattern", "symmetric", "3 3 2\n2 1\n3 2\n"))
    assert by_id(imported(source, undirected=False)) == [(2, 1), (3, 2)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (MATRIX.format("pattern", "general", "3 3 3\n1 2\n2 3\n"), "has 2 rows, but states 3; download it again"),
        (MATRIX.format("pattern", "general", "3 3 1\n1 2\n2 3\n"), "has 2 rows, but states 1; download it again"),
        (MATRIX.format("pattern", "general", "1 2\n2 3\n"), "line 4: must be the numbers of rows, columns and entries"),
        ("%%MatrixMarket matrix array real general\n2 2\n0\n1\n1\n0\n", "line 1: only sparse matrices are graphs"),
    ],
)
def test_matrices_that_are_not_whole_are_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(SourceError) as caught:
        imported(write(tmp_path, "graph.mtx", text))
    assert told in str(caught.value)


def test_what_is_there_of_a_truncated_matrix_is_imported_if_asked(tmp_path: Path) -> None:
    source = write(tmp_path, "graph.mtx", MATRIX.format("pattern", "general", "3 3 3\n1 2\n2 3\n"))
    with pytest.raises(SourceError, match="import what is there with: --skip-lines 4"):
        imported(source)
    assert by_id(imported(source, skip_lines=4)) == CHAIN


@pytest.mark.parametrize("name", ["out.network", "network.txt", "network.tsv", "network.txt.bz2"])
@pytest.mark.parametrize(
    "text",
    [
        "% sym unweighted\n% 2 3 3\n1 2\n2 3\n",
        "% asym weighted\n1 2 5 1000\n2 3 4 1001\n",
        "% asym\n1\t2\n2\t3\n",
        "% asym posweighted\n1\t2\t0.5\n2\t3\t1.5\n",
        "% sym signed\n1 2\t-1\n2 3\t1\n",
        "% sym unweighted \n1 2 \n2 3 \n",
    ],
)
def test_konect(tmp_path: Path, name: str, text: str) -> None:
    assert by_id(imported(write(tmp_path, name, text))) == CHAIN


def test_a_folder_of_konect_has_its_edges_in_one_file(tmp_path: Path) -> None:
    folder = tmp_path / "zachary"
    folder.mkdir()
    write(folder, "out.ucidata-zachary", "% sym unweighted\n% 2 3 3\n1 2 \n2 3 \n")
    write(folder, "meta.ucidata-zachary", "name: Zachary\n")
    write(folder, "README.ucidata-zachary", "about it\n")
    assert by_id(imported(folder)) == CHAIN


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("out.actors", "% bip\n% 2 2 2\n1 2\n2 3\n"),
        ("actors.mtx", MATRIX.format("pattern", "general", "2 3 2\n1 2\n2 3\n")),
        pytest.param("actors.mtx.bz2", MATRIX.format("pattern", "general", "2 3 2\n1 2\n2 3\n"), marks=NEEDS_BZCAT),
    ],
)
def test_equal_ids_of_two_kinds_of_nodes_are_not_mixed_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    source = write(tmp_path, name, text)
    assert run(["import", str(source), str(tmp_path / "graph")]) == 2
    told = capsys.readouterr().err
    subprocess.run(told.split("with: ")[1].split("; or")[0], shell=True, check=True, cwd=tmp_path)
    named = imported(tmp_path / "named.txt")
    assert named.names("nodes") == ["u1", "u2", "v2", "v3"]
    assert sorted(edges_of(named)) == [(0, 2), (1, 3)]
    options = shlex.split(told.rpartition("with: ")[2])
    assert run(["import", str(source), str(tmp_path / "mixed"), *options]) == 0
    assert by_id(open_dataset(tmp_path / "mixed")) == CHAIN


@pytest.mark.parametrize(
    "text",
    [
        "c comment\nc\np sp 3 2\nc more\na 1 2 7\na 2 3 9\n",
        "p max 3 2\nn 1 s\nn 3 t\na 1 2 7\na 2 3 9\n",
        "c comment\np edge 3 4\ne 1 2\ne 2 3\n",
        "p col 3 2\ne 1 2\ne 2 3\n",
    ],
)
def test_dimacs(tmp_path: Path, text: str) -> None:
    assert by_id(imported(write(tmp_path, "graph.gr", text))) == CHAIN


def test_a_truncated_file_of_dimacs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="has 2 rows, but states 3"):
        imported(write(tmp_path, "graph.gr", "p sp 3 3\na 1 2 7\na 2 3 9\n"))


@pytest.mark.parametrize("names", ["b c\nc d\n", "p sp\nc p\n", "c,c\nc,p\n", "a b\nb a\n"])
def test_names_are_no_dimacs(tmp_path: Path, names: str) -> None:
    assert imported(write(tmp_path, "graph.txt", names), header=False).num_edges == 2


@pytest.mark.parametrize(
    "text",
    [
        '*Vertices 3\n1 "ana"\n2 "ben f"\n3 "cem"\n*Arcs\n1 2 1\n2 3 1\n',
        '% comment\n*vertices 3\r\n1 "ana" 0.1 0.2\r\n2 "ben"\r\n3 "cem"\r\n*edges\r\n1 2\r\n2 3\r\n',
        '*Network kin\n*Vertices 3\n*Arcs :1 "knows"\n 1  2 0.5\n 2  3 1\n',
    ],
)
def test_pajek(tmp_path: Path, text: str) -> None:
    assert by_id(imported(write(tmp_path, "graph.net", text))) == CHAIN


@pytest.mark.parametrize("name", ["graph.net", pytest.param("graph.net.bz2", marks=NEEDS_BZCAT)])
def test_a_pajek_file_of_several_lists_is_written_as_one_as_advised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    text = '*Vertices 4\n1 "ana"\n2 "ben"\n3 "cem"\n*Arcs\n1 2 1\n*Edges\n2 3 1\n3 3\n*Arcslist\n4 1 2\n'
    source = write(tmp_path, name, text)
    assert run(["import", str(source), str(tmp_path / "graph")]) == 2
    told = capsys.readouterr().err
    assert "got *vertices, *arcs, *edges" in told
    subprocess.run(told.split("with: ")[1].split("; then import")[0], shell=True, check=True, cwd=tmp_path)
    assert by_id(imported(tmp_path / "edges.txt")) == [(1, 2), (2, 3), (3, 2), (3, 3), (4, 1), (4, 2)]


WEIGHTED = {
    "graph.mtx": MATRIX.format("real", "general", "3 3 2\n1 2 .5\n2 3 -2\n"),
    "graph.txt": MATRIX.format("real", "general", "3 3 2\n1 2 .5\n2 3 -2\n"),
    "out.graph": "% asym weighted\n1 2 .5\n2 3 -2\n",
    "graph.gr": "c\np sp 3 2\na 1 2 0.5\nc\na 2 3 -2\n",
}


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_are_taken_with_the_option_that_the_table_of_decisions_names(tmp_path: Path, name: str) -> None:
    source = write(tmp_path, name, WEIGHTED[name])
    found: list[Decision] = []
    import_graph(source, tmp_path / "alone", engine=threads_engine(), on_decisions=found.extend)
    why = next(each.why for each in found if each.role == "not imported" and "--weight" in each.why)
    weighted = imported(source, weight=re.findall(r"--weight (\d)", why)[0])
    assert by_id(weighted) == CHAIN
    weights = weighted.edge_weights()
    assert weights is not None
    assert sorted(weights.tolist()) == [-2, 0.5]


def test_both_entries_of_a_symmetric_matrix_have_the_weight(tmp_path: Path) -> None:
    source = write(tmp_path, "graph.mtx", MATRIX.format("real", "symmetric", "3 3 3\n2 1 .5\n3 2 2\n3 3 1\n"))
    dataset = imported(source, weight="3")
    assert by_id(dataset) == [(1, 2), (2, 1), (2, 3), (3, 2), (3, 3)]
    weights = dataset.edge_weights()
    assert weights is not None
    assert sorted(weights.tolist()) == [0.5, 0.5, 1, 2, 2]


def test_weights_of_opposite_entries_with_another_sign_are_refused(tmp_path: Path) -> None:
    source = write(tmp_path, "graph.mtx", MATRIX.format("real", "skew-symmetric", "3 3 2\n2 1 .5\n3 2 2\n"))
    with pytest.raises(SourceError, match="the opposite of an entry has another value"):
        imported(source, weight="3")
    assert imported(source, weight="3", undirected=False).num_edges == 2


def test_weights_of_a_truncated_matrix_are_refused(tmp_path: Path) -> None:
    source = write(tmp_path, "graph.mtx", MATRIX.format("real", "general", "3 3 3\n1 2 1\n2 3 1\n"))
    with pytest.raises(SourceError, match="has 2 rows, but states 3"):
        imported(source, weight="3")


def test_several_graphs_in_a_folder_are_not_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "matrices"
    folder.mkdir()
    for name in ("a.mtx", "b.mtx"):
        write(folder, name, MATRIX.format("pattern", "general", "3 3 2\n1 2\n2 3\n"))
    assert run(["import", str(folder), str(tmp_path / "graph")]) == 2
    arguments = shlex.split(capsys.readouterr().err.split("diskhop import ")[1].replace("DEST", str(tmp_path / "one")))
    assert run(["import", *arguments]) == 0


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    source = write(tmp_path, "graph.mtx", MATRIX.format("real", "symmetric", "3 3 2\n2 1 .5\n3 2 .5\n"))
    found: list[Decision] = []
    import_graph(source, tmp_path / "graph", engine=threads_engine(), on_decisions=found.extend)
    said = {each.subject: each for each in found}
    assert said["format"].role == "MatrixMarket"
    assert said["edges"].role == "stored in both directions"
    assert said["values of entries"].role == "not imported"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("5 5 3\n1 2\n2 3\n3 5\n", {}),
        ("3\n1 2\n2 3\n3 1\n", {}),
        ("5,3\n1,2,0.5\n2,3,1\n3,5,2\n", {"columns": ("1", "2")}),
    ],
)
def test_a_first_row_of_numbers_that_is_unlike_the_others_is_asked_for(
    tmp_path: Path, text: str, options: dict[str, Any]
) -> None:
    source = write(tmp_path, "graph.txt", text)
    with pytest.raises(SourceError, match="leave it out with --skip-lines 1 if it is no edge"):
        imported(source, **options)
    assert imported(source, skip_lines=1, **options).num_edges == 3


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("5 5 3\n1 2 0.5\n2 3 0.25\n3 5 0.75\n", {"columns": ("1", "2")}),
        ("5 3\n1 2\n2 3\n3 5\n", {}),
        ("# made by a program\n5 3\n0 1\n1 2\n3 4\n", {}),
    ],
)
def test_a_first_row_with_the_numbers_of_nodes_and_edges_is_asked_for(
    tmp_path: Path, text: str, options: dict[str, Any]
) -> None:
    source = write(tmp_path, "graph.txt", text)
    with pytest.raises(SourceError, match=r"may be the numbers of nodes and edges, since 3 rows follow") as caught:
        imported(source, **options)
    skipped = int(str(caught.value).split("--skip-lines ")[1].split(",")[0])
    assert imported(source, skip_lines=skipped, **options).num_edges == 3
    (tmp_path / "kept").mkdir()
    kept = write(tmp_path / "kept", "graph.txt", text)
    assert imported(kept, header=False, **options).num_edges == 4
