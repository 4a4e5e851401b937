"""Importing tables: rows become nodes and edges, and what breaks a rule is one line that leaves nothing."""

from __future__ import annotations

import gzip
import random
import tempfile
import tracemalloc
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from diskhop.budget import Budget
from diskhop.cli import run
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.verify import verify
from diskhop.errors import BudgetError, ConfigError, DiskhopError, SourceError
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.importing.tables import files as table_files
from diskhop.importing.tools import ImportLimits
from diskhop.runtime.duck import quoted
from tests.examples import examples
from tests.graphs import edges_of, folder_bytes, threads_engine

Row = Sequence[Any]


def sql_value(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return f"[{', '.join(map(sql_value, value))}]"
    return quoted(value) if isinstance(value, str) else repr(value)


def write_parquet(path: Path, columns: str, rows: Sequence[Row], row_group: int = 2048) -> None:
    """columns: as CREATE TABLE has them."""
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t ({columns})")
        for row in rows:
            connection.execute(f"INSERT INTO t VALUES ({', '.join(map(sql_value, row))})")
        connection.execute(f"COPY t TO {quoted(path)} (FORMAT parquet, ROW_GROUP_SIZE {row_group})")


def csv_text(columns: str, rows: Sequence[Row]) -> str:
    names = ",".join(column.split()[0] for column in columns.split(", "))
    lines = (",".join("" if value is None else str(value) for value in row) for row in rows)
    return "\n".join([names, *lines]) + "\n"


def write_table(folder: Path, what: str, columns: str, rows: Sequence[Row], style: str, parts: int = 1) -> None:
    """Write one file, or parts in a folder."""
    suffix = {"parquet": ".parquet", "csv": ".csv", "gzip": ".csv.gz"}[style]
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{what}{suffix}"]
    if parts > 1:
        (folder / what).mkdir()
        paths = [folder / what / f"part-{number}{suffix}" for number in range(parts)]
    for number, path in enumerate(paths):
        piece = rows[number * len(rows) // parts : (number + 1) * len(rows) // parts]
        if style == "parquet":
            write_parquet(path, columns, piece)
        else:
            text = csv_text(columns, piece).encode()
            path.write_bytes(gzip.compress(text) if style == "gzip" else text)


def imported(
    source: Path,
    destination: str = "graph",
    *,
    threads: int = 2,
    memory_bytes: int = 1 << 30,
    limits: ImportLimits | None = None,
    **options: Any,
) -> Dataset:
    return import_graph(
        source,
        source.parent / destination,
        engine=threads_engine(),
        budget=Budget(memory_bytes),
        threads=threads,
        limits=limits,
        options=ImportOptions(**options),
    )


def features_of(dataset: Dataset) -> Any:
    table = dataset.feature_table()
    assert table is not None
    return np.fromfile(table.path, np.float32).reshape(table.num_rows, -1)


def named_edges(dataset: Dataset) -> list[tuple[Any, Any]]:
    """Edges by what their ends were called, sorted."""
    original = dataset.original_ids()
    called: Any = dataset.names("nodes") or (range(dataset.num_nodes) if original is None else original.tolist())
    return sorted((called[source], called[destination]) for source, destination in edges_of(dataset))


NODES = "id VARCHAR, a INTEGER, b DOUBLE, y INTEGER, split VARCHAR"
NODE_ROWS = [
    ["ana", 1, 0.5, 0, "train"],
    ["cem", 2, -1.5, 1, "val"],
    ["ben", 3, 2.25, None, "test"],
    ["dan", 4, 0.0, 2, None],
]
EDGES = "src VARCHAR, dst VARCHAR, w DOUBLE, t BIGINT"
EDGE_ROWS = [["ana", "ben", 0.5, 30], ["cem", "ana", 1.5, 20], ["ben", "ben", 2.5, 10], ["ana", "ben", 3.5, 5]]


def small(folder: Path, style: str = "parquet", parts: int = 1, **replaced: Any) -> Path:
    write_table(folder, "nodes", NODES, replaced.get("nodes", NODE_ROWS), style, parts)
    write_table(folder, "edges", EDGES, replaced.get("edges", EDGE_ROWS), style, parts)
    return folder


@pytest.mark.fast(3)
@pytest.mark.parametrize("style", ["parquet", "csv", "gzip"])
@pytest.mark.parametrize("parts", [1, 3])
def test_what_comes_out_is_what_went_in(tmp_path: Path, style: str, parts: int) -> None:
    dataset = imported(small(tmp_path / "source", style, parts), weight="w", time="t")
    assert dataset.name == "source"
    assert dataset.names("nodes") == ["ana", "cem", "ben", "dan"]
    assert edges_of(dataset) == [(1, 0), (0, 2), (0, 2), (2, 2)]
    weights = dataset.edge_weights()
    assert weights is not None
    assert weights.tolist() == [1.5, 0.5, 3.5, 2.5]
    times = np.fromfile(dataset.path / "edges/edge/times.bin", np.int64)
    assert times.tolist() == [20, 30, 5, 10]
    assert features_of(dataset).tolist() == [[row[1], row[2]] for row in NODE_ROWS]
    labels = dataset.labels
    assert labels is not None
    assert labels.tolist() == [0, 1, -1, 2]
    splits = [dataset.split(part) for part in ("train", "valid", "test")]
    assert [split.tolist() for split in splits if split is not None] == [[0], [1], [2]]
    assert verify(dataset.path) == []
    assert not (tmp_path / ".graph.work").exists()


IDS = {
    "names": ("VARCHAR", st.text("abc-é '\"%", min_size=1, max_size=4).map(lambda text: f"n{text}")),
    "integers": ("BIGINT", st.integers(0, 2**63 - 1)),
    "small": ("INTEGER", st.integers(0, 40)),
    "unsigned": ("UBIGINT", st.integers(0, 300)),
}


@pytest.mark.fast(4)
@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("has_nodes", [True, False])
@examples(3, [HealthCheck.function_scoped_fixture])
@given(data=st.data(), style=st.sampled_from(["parquet", "csv"]), parts=st.integers(1, 3), group=st.integers(1, 9))
def test_ids_are_numbered_as_a_dict_would(
    kind: str, has_nodes: bool, data: Any, style: str, parts: int, group: int
) -> None:
    stored, ids = IDS[kind]
    if style == "csv":
        ids = ids.map(lambda each: each.replace('"', "").replace("'", "") if isinstance(each, str) else each)
    nodes = data.draw(st.lists(ids, min_size=1, max_size=20, unique=True))
    ends = st.sampled_from(nodes)
    pairs = data.draw(st.lists(st.tuples(ends, ends), min_size=1, max_size=30))
    weights = [float(number) for number in range(len(pairs))]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        rows = [[*pair, weight] for pair, weight in zip(pairs, weights, strict=True)]
        write_table(source, "edges", f"a {stored}, b {stored}, w DOUBLE", rows, style, parts)
        if style == "csv":
            (source / "edges").mkdir(exist_ok=True)  # else it is a text of edges
            for path in source.glob("edges.csv"):
                path.rename(source / "edges" / "0.csv")
        if has_nodes:
            write_table(source, "nodes", f"key {stored}, x DOUBLE", [[node, 0.5] for node in nodes], style, parts)
        # CSV that begins with names of digits alone would be numbers.
        limits = ImportLimits(edges_per_group=group, most_edges_per_group=group)
        dataset = imported(source, limits=limits, weight="w", ids="string" if kind == "names" else None)
        order = nodes if has_nodes else sorted({end for pair in pairs for end in pair}, key=by_bytes)
        number = {node: place for place, node in enumerate(order)}
        # Sorted by destination, then source, then the order of the rows, as the lists are.
        expected = sorted(
            (number[destination], number[source], weight)
            for (source, destination), weight in zip(pairs, weights, strict=True)
        )
        given_weights = dataset.edge_weights()
        assert given_weights is not None
        found = [(b, a, weight) for (a, b), weight in zip(edges_of(dataset), given_weights.tolist(), strict=True)]
        assert found == expected
        called: Any = dataset.names("nodes")
        if kind != "names":
            original = dataset.original_ids()
            called = list(range(dataset.num_nodes)) if original is None else original.tolist()
            assert (original is None) == (order == list(range(len(order))))
        assert called == order


def by_bytes(each: Any) -> Any:
    return each.encode() if isinstance(each, str) else each


def big(folder: Path, *, num_nodes: int = 5000, num_edges: int = 40_000, dim: int = 5) -> Path:
    """Names in no order, over several files, small row groups and lists among the features."""
    folder.mkdir()
    for what, parts in (("nodes", 3), ("edges", 4)):
        (folder / what).mkdir()
        for part in range(parts):
            count = (num_nodes if what == "nodes" else num_edges) // parts
            number = f"(range + {part * count})"
            node = f"'n' || (({{0}} * 7919) % {num_nodes // 3 * 3})"
            columns = {
                "nodes": f"{node.format(number)} AS id, {number} * 0.25 AS a, "
                f"[{number} + i * 0.5 FOR i IN range({dim})]::FLOAT[] AS x, {number} % 7 AS label",
                "edges": f"{node.format(f'({number} * {number} * 31)')} AS source, "
                f"{node.format(f'({number} * 17)')} AS target, {number}::FLOAT AS w, {number} * 3 AS t",
            }[what]
            with duckdb.connect() as connection:
                connection.execute(
                    f"COPY (SELECT {columns} FROM range({count})) TO {quoted(folder / what / f'{part}.parquet')} "
                    "(FORMAT parquet, ROW_GROUP_SIZE 2048)"
                )
    return folder


def test_neither_threads_nor_budget_change_a_byte(tmp_path: Path) -> None:
    source = big(tmp_path / "source")
    expected = folder_bytes(imported(source, weight="w", time="t").path)
    limits = ImportLimits(edges_per_group=700, most_edges_per_group=700)
    for threads in (1, 2, 4):
        destination = f"other-{threads}"
        other = imported(
            source, destination, threads=threads, memory_bytes=130 << 20, limits=limits, weight="w", time="t"
        )
        assert folder_bytes(other.path) == expected
    features = features_of(other)
    numbers = np.arange(len(features))
    assert (features[:, 0] == numbers * 0.25).all()
    assert (features[:, 1:] == numbers[:, None] + np.arange(5) * 0.5).all()


def test_a_wide_table_is_streamed(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_table(source, "edges", "src INTEGER, dst INTEGER", [[0, 1]], "parquet")
    with duckdb.connect() as connection:
        connection.execute(
            "COPY (SELECT range AS id, [range + i FOR i IN range(900)]::FLOAT[] AS x FROM range(20000)) TO "
            f"{quoted(source / 'nodes.parquet')} (FORMAT parquet, ROW_GROUP_SIZE 2048)"
        )
    tracemalloc.start()
    dataset = imported(source)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    features = features_of(dataset)
    assert features.shape == (20000, 900)
    assert (features == np.arange(20000)[:, None] + np.arange(900)).all()
    assert peak_bytes < 16 << 20 < features.nbytes


def test_without_a_set_of_ids_the_bytes_are_the_same(tmp_path: Path) -> None:
    rows = [[random.Random(n).randrange(1000) * 3, n % 50] for n in range(500)]
    write_parquet(tmp_path / "pairs.parquet", "a INTEGER, b INTEGER", rows)
    expected = imported(tmp_path / "pairs.parquet", "one")
    assert expected.name == "pairs"
    assert named_edges(expected) == sorted((a, b) for a, b in rows)
    listed = imported(tmp_path / "pairs.parquet", "two", limits=ImportLimits(id_set_share=1 << 40))
    assert folder_bytes(listed.path) == folder_bytes(expected.path)


def test_columns_can_be_named(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_table(source, "edges", "w INTEGER, z VARCHAR, q VARCHAR", [[1, "b", "a"]], "parquet")
    columns = "n INTEGER, key VARCHAR, f BOOLEAN, g DECIMAL(5, 2), part VARCHAR, class FLOAT"
    nodes = [[7, "a", True, 1.25, "TRAIN", 1.0], [8, "b", False, 2.5, "none", float("nan")], [9, "c", True, 0, "", 0]]
    rows = [[n, key, f, g, part, None if label != label else label] for n, key, f, g, part, label in nodes]
    write_table(source, "nodes", columns, rows, "parquet")
    dataset = imported(
        source, edge_columns=("q", "z"), id="key", features=("g", "f"), label=("class",), split="part", undirected=True
    )
    assert named_edges(dataset) == [("a", "b"), ("b", "a")]
    assert features_of(dataset).tolist() == [[1.25, 1.0], [2.5, 0.0], [0.0, 1.0]]
    labels, train = dataset.labels, dataset.split("train")
    assert labels is not None
    assert train is not None
    assert labels.tolist() == [1, -1, 0]
    assert train.tolist() == [0]


def test_a_name_alone_gives_no_role_to_what_does_not_fit(tmp_path: Path) -> None:
    write_table(tmp_path / "source", "edges", "src INTEGER, dst INTEGER", [[0, 1]], "parquet")
    nodes = [[0, "red", 3, 0.5], [1, "blue", 4, 1.5]]
    write_table(tmp_path / "source", "nodes", "id INTEGER, label VARCHAR, split INTEGER, x FLOAT", nodes, "parquet")
    dataset = imported(tmp_path / "source")
    assert dataset.labels is None
    assert features_of(dataset).tolist() == [[0.5], [1.5]], "and what is named a split is no feature"


@pytest.mark.parametrize(
    ("stored", "values", "expected"),
    [
        ("TIMESTAMP", ["1970-01-02 00:00:00", "1970-01-01 00:00:01.5"], [86_400_000_000, 1_500_000]),
        ("DATE", ["1970-01-02", "1969-12-31"], [86_400_000_000, -86_400_000_000]),
        ("TIMESTAMP WITH TIME ZONE", ["1970-01-01 01:00:00+01", "1970-01-01 00:00:00+00"], [0, 0]),
        ("SMALLINT", [-3, 7], [-3, 7]),
    ],
)
@pytest.mark.parametrize("style", ["parquet", "csv"])
def test_times_are_whole_numbers_or_microseconds(
    tmp_path: Path, stored: str, values: list[Any], expected: list[int], style: str
) -> None:
    rows = [[0, 1, values[0]], [0, 2, values[1]]]
    write_table(tmp_path / "source", "edges", f"src INTEGER, dst INTEGER, t {stored}", rows, style, parts=2)
    dataset = imported(tmp_path / "source", time="t")
    assert np.fromfile(dataset.path / "edges/edge/times.bin", np.int64).tolist() == expected


def test_hot_order_moves_all_that_nodes_have(tmp_path: Path) -> None:
    dataset = imported(small(tmp_path / "source"), order="hot", weight="w")
    called = dataset.names("nodes")
    original = dataset.original_ids()
    assert called == ["ana", "cem", "ben", "dan"]
    assert original is not None
    assert original.tolist() == [0, 1, 2, 3]
    other = imported(small(tmp_path / "more", edges=[["dan", "ana", 1, 1], ["dan", "cem", 1, 1]]), "two", order="hot")
    original = other.original_ids()
    assert original is not None
    assert original.tolist()[0] == 3
    assert features_of(other)[0].tolist() == [4.0, 0.0]


def test_uuids_are_names(tmp_path: Path) -> None:
    ids = [f"00000000-0000-0000-0000-00000000000{n}" for n in range(3)]
    write_table(tmp_path / "source", "edges", "src UUID, dst UUID", [[ids[0], ids[2]], [ids[2], ids[1]]], "parquet")
    assert imported(tmp_path / "source").names("nodes") == ids


def test_integers_may_be_names(tmp_path: Path) -> None:
    write_table(tmp_path / "source", "edges", "src VARCHAR, dst VARCHAR", [["007", "7"], ["7", "07"]], "csv", parts=2)
    assert imported(tmp_path / "source", ids="string").names("nodes") == ["007", "07", "7"]
    assert imported(tmp_path / "source", "two").num_nodes == 1


def test_a_folder_with_a_text_of_edges_alone_stays_one(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "edges.csv").write_text("0,1\n1,2\n")
    assert imported(tmp_path / "source").num_edges == 2
    small(tmp_path / "tables", "csv")
    assert imported(tmp_path / "tables", "two").num_nodes == 4


def test_paths_may_look_like_patterns(tmp_path: Path) -> None:
    folder = tmp_path / "what's [a]*?"
    folder.mkdir()
    small(folder / "source", "csv", 2)
    assert imported(folder / "source").num_nodes == 4
    small(folder / "other", "parquet", 2, nodes=[*NODE_ROWS, ["eve", None, 0.0, 0, None]])
    with pytest.raises(SourceError, match=r"part-1.parquet, row 3: feature 'a' of node 'eve' .*, got nothing"):
        imported(folder / "other", "two")


def nodes_with(place: int, column: int, value: Any) -> list[list[Any]]:
    rows = [list(row) for row in NODE_ROWS]
    rows[place][column] = value
    return rows


def edges_with(place: int, column: int, value: Any) -> list[list[Any]]:
    rows = [list(row) for row in EDGE_ROWS]
    rows[place][column] = value
    return rows


@pytest.mark.fast(11)
@pytest.mark.parametrize("style", ["parquet", "csv"])
@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"nodes": nodes_with(2, 0, None)},
            r"nodes\.\w+, row 3: the id \(id\) must be text that .* empty, got nothing",
        ),
        (
            {"nodes": nodes_with(2, 0, "ana")},
            r"nodes\.\w+, row 3: has the same id 'ana' as .*nodes\.\w+, row 1; give every node",
        ),
        (
            {"nodes": nodes_with(1, 2, None)},
            r"nodes\.\w+, row 2: feature 'b' of node 'cem' must be a .* got nothing",
        ),
        ({"nodes": nodes_with(1, 3, -2)}, r"nodes\.\w+, row 2: the label \(y\) must be .* got '-2'"),
        ({"nodes": nodes_with(0, 4, "training")}, r"nodes\.\w+, row 1: the split \(split\) must .* got 'training'"),
        ({"edges": edges_with(3, 1, "zed")}, r"edges\.\w+, row 4: the destination must be an id of the .* got 'zed'"),
        ({"edges": edges_with(0, 0, None)}, r"edges\.\w+, row 1: the source \(src\) must be text .* got nothing"),
        ({"edges": edges_with(1, 2, None)}, r"edges\.\w+, row 2: the weight \(w\) must be a finite .* got nothing"),
        ({"edges": edges_with(1, 3, None)}, r"edges\.\w+, row 2: the time \(t\) must be .* got nothing"),
        ({"edges": []}, r"edges\.\w+: has no edges"),
        ({"nodes": []}, r"nodes\.\w+: has no nodes"),
    ],
)
def test_rows_that_break_a_rule_are_one_line(tmp_path: Path, style: str, changed: dict[str, Any], told: str) -> None:
    options: dict[str, Any] = {"weight": "w", "time": "t"}
    if style == "csv" and [] in changed.values():
        options = {"ids": "string"}
    refused(small(tmp_path / "source", style, **changed), told, **options)


def refused(source: Path, told: str, **options: Any) -> None:
    before = set(source.parent.iterdir())
    with pytest.raises(DiskhopError, match=told) as caught:
        imported(source, **options)
    assert isinstance(caught.value, SourceError | ConfigError)
    assert "\n" not in str(caught.value)
    assert "\x1f" not in str(caught.value)
    left = set(source.parent.iterdir()) - before
    assert left <= {source.parent / ".graph.work"}
    assert not left or caught.value.__notes__


@pytest.mark.parametrize(
    ("what", "text", "told"),
    [
        ("edges", "src,dst\nana\n", r"edges\.csv, line 2: a row must have 2 columns, as the first has, got 1"),
        ("edges", "src,dst\nana,ben\nana,ben,cem\n", r"edges\.csv, line 3: a row must have 2 columns, .* got 3"),
        ("edges", 'src,dst\nana,"ben\n', r"edges\.csv, line 2: a field that begins with a quote must end"),
        ("edges", b"src,dst\nana,\xff\n", r"edges\.csv, line 2: text must be UTF-8"),
        ("edges", b"src,\xff\nana,ben\n", r"edges\.csv, line 1: text must be UTF-8"),
        ("edges", "", r"edges\.csv: has no rows"),
        ("edges", 'src,"dst\nana,ben\n', r"edges\.csv, line 1: a field that begins with a quote"),
        ("edges", f"src,{'d' * 200000}\nana,ben\n", r"edges\.csv, line 1: 'src,d+\.\.\.' may be a header or a row"),
        ("edges", "src\nana\n", r"edges\.csv: a row must have two columns, source and destination, got 1"),
        ("edges", "src,src\nana,ana\n", r"edges\.csv, line 1: 'src,src' may be a header or a row"),
        ("edges", "src,dst\n1,2\n", r"ids must be of one kind, got 'dst' of the edges .* and 'id' of the nodes"),
        ("edges", 'src,dst\nana,"b\nen"\n', r"edges\.csv, row 1: the destination must be .*, got 'b\\nen'; add"),
        ("edges", '# a\nsrc,dst\nana,"b\n#en\n"\n', r"edges\.csv: has a field of several lines, .* as Parquet"),
        (
            "nodes",
            "id,a\nana,x\nben,2\ncem,3\ndan,4\n",
            r"--features must name a column of numbers, 'a' is VARCHAR",
        ),
        ("nodes", "id,a\nana,nan\nben,1\ncem,2\n", r"nodes\.csv, row 1: feature 'a' of node 'ana' .* got 'nan'"),
        ("nodes", "id,a\nana,1\nben,-inf\ncem,2\n", r"nodes\.csv, row 2: feature 'a' of node 'ben' .* got '-inf'"),
        ("nodes", "id,a\nana,1e39\nben,1\ncem,2\n", r"feature 'a' of node 'ana' must be a finite .* got '1e39'"),
        ("nodes", "id,a,y\nana,1,-2\nben,1,0\ncem,1,0\n", r"nodes\.csv, row 1: the label \(y\) must be .* got '-2'"),
        ("nodes", "id,a,b\nana,1\n", r"nodes\.csv, line 2: a row must have 3 columns"),
    ],
)
def test_malformed_text_is_one_line(tmp_path: Path, what: str, text: str | bytes, told: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "nodes.csv").write_text("id,a\nana,1\nben,2\ncem,3\n")
    (source / "edges.csv").write_text("src,dst\nana,ben\ncem,ana\n")
    (source / f"{what}.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(source, told, **({"features": ("a",)} if what == "nodes" else {}))


def test_a_fault_after_the_sampled_rows_names_its_row(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    num_sampled = table_files.SAMPLE_ROWS
    row = num_sampled + 1
    edges = "src,dst,w\n" + "0,1,5\n" * num_sampled
    nodes = "id,a\n" + "".join(f"{number},{number}\n" for number in range(num_sampled))
    (source / "edges.csv").write_text(edges)
    (source / "nodes.csv").write_text(f"{nodes}{num_sampled},two\n")
    refused(source, rf"nodes\.csv, row {row}: feature 'a' of node '{num_sampled}' must be a finite number .* got 'two'")
    (source / "nodes.csv").write_text(f"{nodes}{num_sampled}.0,2\n")
    refused(source, rf"nodes\.csv, row {row}: the id \(id\) must be a whole number .*, got '{num_sampled}.0'")
    (source / "nodes.csv").write_text(nodes)
    (source / "edges.csv").write_text(f"{edges}2,-1,5\n")
    refused(source, rf"edges\.csv, row {row}: the destination \(dst\) must be a whole number from 0 .* got '-1'")
    (source / "edges.csv").write_text(f"{edges}2,{num_sampled},5\n")
    refused(source, rf"edges\.csv, row {row}: the destination must be an id of the nodes, got '{num_sampled}'")
    (source / "edges.csv").write_text(f"{edges}2,2,much\n")
    refused(source, rf"edges\.csv, row {row}: the weight \(w\) must be a finite number, got 'much'", weight="w")


@pytest.mark.parametrize(
    ("columns", "rows", "told"),
    [
        (
            "id VARCHAR, x FLOAT[]",
            [["a", [1, 2]], ["b", [1]]],
            r"row 2: the list \(x\) must have 2 .*'\[1.0\]'",
        ),
        ("id VARCHAR, x FLOAT[]", [["a", [1, 2]], ["b", None]], r"row 2: the list \(x\) must have 2 .* got nothing"),
        ("id VARCHAR, x FLOAT[]", [["a", [1, 2]], ["b", [1, None]]], r"row 2: feature 'x\[2\]' of node 'b' .*nothing"),
        (
            "id VARCHAR, x FLOAT[]",
            [["a", None], ["b", [1, 2]]],
            r"\(nodes, dim\) with dim from 1 .* \(2, 0\)",
        ),
        (
            "id VARCHAR, x DOUBLE",
            [["a", 1], ["b", 1e300]],
            r"row 2: feature 'x' of node 'b' .* got '1e\+?300'",
        ),
        ("id DOUBLE, x DOUBLE", [[0, 1], [1, 2]], r"ids must be whole numbers or text, column 'id' is DOUBLE"),
        ("id BIGINT, x DOUBLE", [[0, 1], [1, 2]], r"got 'dst' of the edges VARCHAR and 'id' of the nodes BIGINT"),
        ("id VARCHAR, filename DOUBLE", [["a", 1], ["b", 2]], r"has a column 'filename', a name that DuckDB reserves"),
    ],
)
def test_malformed_parquet_is_one_line(tmp_path: Path, columns: str, rows: list[Row], told: str) -> None:
    write_table(tmp_path / "source", "edges", "src VARCHAR, dst VARCHAR", [["a", "b"]], "parquet")
    write_table(tmp_path / "source", "nodes", columns, rows, "parquet")
    refused(tmp_path / "source", told)


def test_ids_beyond_64_bits_are_refused(tmp_path: Path) -> None:
    write_table(tmp_path / "source", "edges", "src UBIGINT, dst UBIGINT", [[1, 2], [2**63, 1]], "parquet")
    refused(tmp_path / "source", r"row 2: the source \(src\) must be .* 2\^63 - 1, got '9223372036854775808'")


def test_files_that_are_no_parquet_or_cut_short_are_refused(tmp_path: Path) -> None:
    source = small(tmp_path / "source")
    path = source / "edges.parquet"
    whole = path.read_bytes()
    for content in (b"", b"src,dst\n1,2\n", whole[: len(whole) // 2], whole[:-1], whole[:-8] + b"\xff\xff\xff\x7fPAR1"):
        path.write_bytes(content)
        refused(source, r"source/edges\.parquet: cannot be read: .*; it is damaged or not Parquet: write it again")
    path.write_bytes(whole)
    damaged = bytearray((source / "nodes.parquet").read_bytes())
    damaged[4:120] = bytes(116)
    (source / "nodes.parquet").write_bytes(damaged)
    refused(source, r"source/nodes\.parquet")


@cache
def many_edges() -> bytes:
    rows = (f"{1 + n * n % 7 % 2},{1 + n % 2}\n" for n in np.random.default_rng(0).integers(0, 9999, 200_000).tolist())
    return gzip.compress(f"source,destination\n{''.join(rows)}".encode(), mtime=0)


@pytest.mark.parametrize(
    ("begin", "num_bytes", "told"),
    [
        (40, None, "gzip must end with its checksum"),
        (500, 3, "gzip must match its checksum"),
        (20_000, None, "gzip must end with its checksum"),
        (20_000, 4, "gzip must match its checksum"),
    ],
)
def test_gzip_that_is_damaged_where_columns_are_looked_at_has_file_and_line(
    tmp_path: Path, begin: int, num_bytes: int | None, told: str
) -> None:
    """num_bytes: of damage; None: the file ends there."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "nodes.csv").write_text("id\n1\n2\n")
    whole = many_edges()
    assert begin < len(whole) // 2
    rest = b"" if num_bytes is None else b"\xff\x00\xff\xff"[:num_bytes] + whole[begin + num_bytes :]
    (source / "edges.csv.gz").write_bytes(whole[:begin] + rest)
    with pytest.raises(SourceError, match=rf"edges\.csv\.gz, line \d+: {told}") as caught:
        import_graph(source, tmp_path / "graph", engine=threads_engine())
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_table_needs_no_header(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "nodes.csv").write_text("id\n1\n2\n")
    (source / "edges.csv").write_text("1,2\n2,1\n")
    assert named_edges(imported(source)) == [(1, 2), (2, 1)]
    (source / "edges.csv").write_text("1,2,3\n2,1,3\n")
    refused(source, r"edges\.csv: a row must have two columns, .* got 3; .* --edge-columns 1,2")
    assert named_edges(imported(source, "other", edge_columns=("2", "1"), weight="3")) == [(1, 2), (2, 1)]


def test_gzip_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "source"
    rows = [[f"{n * n % 9973}", f"{n}"] for n in range(9000)]
    write_table(source, "edges", "src VARCHAR, dst VARCHAR", rows, "gzip", parts=2)
    path = source / "edges" / "part-1.csv.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[:-2000])
    refused(source, r"part-1\.csv\.gz")
    path.write_bytes(whole[:-8] + bytes(8))
    refused(source, r"part-1\.csv\.gz, line \d+: gzip must match its checksum")
    path.write_bytes(whole[:5])
    refused(source, r"part-1\.csv\.gz")


@pytest.mark.parametrize(
    ("style", "told"),
    [
        ("parquet", r"has columns a BIGINT, b BIGINT, and .* a VARCHAR, b.*; give all files the same"),
        ("csv", r"line 1: must have the same header as .*x\.csv; import one of them alone"),
    ],
)
def test_files_of_other_columns_are_refused(tmp_path: Path, style: str, told: str) -> None:
    folder = tmp_path / "source" / "edges"
    folder.mkdir(parents=True)
    if style == "parquet":
        write_parquet(folder / "x.parquet", "a VARCHAR, b VARCHAR", [["1", "2"]])
        write_parquet(folder / "y.parquet", "a BIGINT, b BIGINT", [[1, 2]])
    else:
        (folder / "x.csv").write_text("a,b\n1,2\n")
        (folder / "y.csv").write_text("a,c\n1,2\n")
        refused(tmp_path / "source", r"x\.csv, line 1: 'a,b' may be a header or a row.* add --header")
    header = None if style == "parquet" else True
    refused(tmp_path / "source", rf"y\.{style}.* {told}", header=header)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"edge_columns": ("src", "to")},
            r"edges\.parquet: has no column 'to'; --edge-columns can name src, dst, w",
        ),
        ({"id": "key"}, r"nodes\.parquet: has no column 'key'; --id can name id, a, b, y, split"),
        ({"features": ("a", "c")}, r"has no column 'c'; --features can name id, a, b"),
        ({"label": ("class",)}, r"has no column 'class'; --label can name"),
        ({"split": "part"}, r"has no column 'part'; --split can name"),
        ({"weight": "q"}, r"has no column 'q'; --weight can name src, dst, w, t"),
        ({"time": "q"}, r"has no column 'q'; --time can name"),
        ({"label": ("split", "a")}, r"column 'split' is text, which names classes, .*; use --label split"),
        ({"split": "a"}, r"--split must name a column of train, valid, test or none, 'a' is INTEGER"),
        ({"edge_columns": ("src",)}, r"edge_columns must be two columns, source and destination, got \['src'\]"),
        ({"features": ("a", "a")}, r"features must be names of columns, each once, got \['a', 'a'\]"),
        ({"time": "w"}, r"--time must name a column of whole numbers or timestamps, 'w' is DOUBLE"),
        ({"weight": "src"}, r"--weight must name a column of numbers, 'src' is VARCHAR"),
        ({"features": ("id",)}, r"--features must name a column of numbers, 'id' is VARCHAR"),
        (
            {"label": ("b",), "label_kind": "classes", "features": ("a",)},
            r"row \d: the label \(b\) must be a whole number .* got '-?\d\.\d+'",
        ),
        ({"ids": "integer"}, r"row 1: the id \(id\) must be a whole number .* got 'ana'"),
        ({"columns": ("1", "2")}, r"--columns does not apply"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, options: dict[str, Any], told: str) -> None:
    refused(small(tmp_path / "source"), told, **options)


def test_options_of_nodes_need_a_table_of_nodes(tmp_path: Path) -> None:
    write_table(tmp_path / "source", "edges", EDGES, EDGE_ROWS, "parquet")
    refused(tmp_path / "source", r"--label has no effect without a table of nodes", label=("y",))


def test_two_tables_of_one_name_are_refused(tmp_path: Path) -> None:
    source = small(tmp_path / "source")
    (source / "edges.csv").write_text("src,dst\nana,ben\n")
    refused(source, r"source: has edges\.csv and edges\.parquet; keep one of them")


def test_too_small_a_budget_is_refused_with_one_that_does(tmp_path: Path) -> None:
    source = small(tmp_path / "source")
    with pytest.raises(BudgetError) as caught:
        imported(source, memory_bytes=20 << 20)
    assert "reading tables" in str(caught.value)
    assert not (tmp_path / ".graph.work").exists()
    assert imported(source, memory_bytes=112 << 20, weight="w", time="t").num_edges == 4


def test_the_command_line_tells_what_was_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = small(tmp_path / "source", "csv")
    arguments = ["--edge-columns", "src,dst", "--id", "id", "--features", "a,b", "--label", "y", "--split", "split"]
    assert run(["import", str(source), str(tmp_path / "graph"), *arguments, "--weight", "w", "--time", "t"]) == 0
    told = capsys.readouterr().out
    assert "source src; destination dst; weight w; time t" in told
    assert "id id; label y; split split; features a, b" in told
    assert run(["import", str(source), str(tmp_path / "two")]) == 0
    assert "source src; destination dst; unused: w, t" in capsys.readouterr().out
