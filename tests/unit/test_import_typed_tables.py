"""Importing tables per type: by names of files and columns, and by schema.toml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from diskhop.cli import run
from diskhop.dataset.dataset import Dataset
from diskhop.errors import DiskhopError
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.importing.tables.typed.evidence import is_typed_tables
from tests.graphs import folder_bytes, threads_engine

USERS = "id,age,plan,split,joined\n" + "".join(
    f"{name},{20 + place},{plan},{part},2024-0{1 + place}-01\n"
    for place, (name, plan, part) in enumerate(
        [("ana", "free", "train"), ("ben", "pro", "val"), ("cem", "free", "test"), ("dua", "", "train")]
    )
)
ITEMS = "id,price,w_1,w_2\n10,2.5,1,2\n11,3.5,3,4\n7,4.5,5,6\n"
BUYS = "item,user,amount,at\n10,ana,1.5,3\n7,ben,2.5,4\n10,dua,3.5,5\n"
FOLLOWS = "src,dst\nana,ben\nben,cem\nana,ben\n"
SELLS = "shop,item\n5,10\n9,11\n5,7\n"
SCHEMA = """\
[nodes.user]
label = "plan"
features = []
time = "joined"

[nodes.item]
features = ["price", "w_*"]
dtype = "float16"
attributes = ["price"]

[nodes.shop]

[edges.buys]
source_type = "user"
destination_type = "item"
source = "user"
destination = "item"
weight = "amount"
time = "at"

[edges.user__follows__user]
[edges.shop__sells__item]
file = ["edges/shop__sells__item.csv"]
"""


def shop(folder: Path, schema: str = "", **changed: str) -> Path:
    tables = {
        "nodes/user": USERS,
        "nodes/item": ITEMS,
        "edges/buys": BUYS,
        "edges/user__follows__user": FOLLOWS,
        "edges/shop__sells__item": SELLS,
        **{name.replace("_of_", "/"): text for name, text in changed.items()},
    }
    for name, text in tables.items():
        path = folder / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if schema:
        (folder / "schema.toml").write_text(schema)
    return folder


def imported(source: Path, destination: Path, **options: Any) -> Dataset:
    return import_graph(source, destination, engine=threads_engine(), **options)


def edges_of(dataset: Dataset, name: str) -> list[tuple[Any, Any]]:
    """Pairs of source ids (names where nodes have some), in the source's order."""
    edges = dataset.edges[name]
    topology = edges.topology
    sources = np.fromfile(topology.indices_path, topology.index_dtype)
    starts = np.fromfile(topology.indptr_path, np.int64)
    degrees = starts[1:] - starts[:-1]
    destinations = np.repeat(np.arange(len(degrees)), degrees)
    numbers = edges.edge_ids()
    assert numbers is not None
    ends = []
    for node_type, rows in ((edges.source, sources), (edges.destination, destinations)):
        names = dataset.names("nodes", node_type)
        ids = dataset.nodes[node_type].original_ids()
        known = names if names is not None else range(dataset.nodes[node_type].num_nodes) if ids is None else ids
        ends.append([known[row] for row in rows])
    return [(ends[0][place], ends[1][place]) for place in np.argsort(numbers)]


@pytest.mark.parametrize("with_schema", [False, True])
def test_types_are_those_of_the_tables(tmp_path: Path, with_schema: bool) -> None:
    source = shop(tmp_path / "shop", SCHEMA if with_schema else "")
    dataset = imported(source, tmp_path / "out")
    assert {name: each.num_nodes for name, each in dataset.nodes.items()} == {"user": 4, "item": 3, "shop": 2}
    ends = {name: (each.source, each.destination) for name, each in dataset.edges.items()}
    # The first column of buys.csv is the item; the schema turns it round.
    buys = "user__buys__item" if with_schema else "item__buys__user"
    assert ends == {
        buys: ("user", "item") if with_schema else ("item", "user"),
        "user__follows__user": ("user", "user"),
        "shop__sells__item": ("shop", "item"),
    }
    pairs = [(10, "ana"), (7, "ben"), (10, "dua")]
    assert edges_of(dataset, buys) == [pair[::-1] if with_schema else pair for pair in pairs]
    assert edges_of(dataset, "user__follows__user") == [("ana", "ben"), ("ben", "cem"), ("ana", "ben")]
    assert edges_of(dataset, "shop__sells__item") == [(5, 10), (9, 11), (5, 7)]
    item, user = dataset.nodes["item"], dataset.nodes["user"]
    assert (item.feature_dim, item.feature_dtype) == (3, "float16" if with_schema else "float32")
    table = item.feature_table()
    assert table is not None
    rows = np.fromfile(table.path, np.float16 if with_schema else np.float32).reshape(3, -1)
    assert rows.tolist() == [[2.5, 1, 2], [3.5, 3, 4], [4.5, 5, 6]]
    assert [ids if ids is None else ids.tolist() for ids in map(user.split, ("train", "valid", "test"))] == [
        [0, 3],
        [1],
        [2],
    ]
    if with_schema:
        np.testing.assert_array_equal(user.label_rows(), [0, 1, 0, -1])
        assert dataset.names("classes", "user") == ["free", "pro"]
        assert (user.attributes["time"].dtype, item.attributes["price"].dtype) == ("int64", "float64")
        weights, times = dataset.edges[buys].edge_weights(), dataset.edges[buys].edge_times()
        assert weights is not None
        assert times is not None
        assert sorted(weights.tolist()) == [1.5, 2.5, 3.5]
        assert sorted(times.tolist()) == [3, 4, 5]


def test_parquet_in_parts_gives_what_text_does(tmp_path: Path) -> None:
    source = shop(tmp_path / "shop")
    for path in source.rglob("*.csv"):
        parts = path.with_suffix("")
        parts.mkdir()
        for number, condition in enumerate(("rowid = 0", "rowid > 0")):
            duckdb.sql(f"CREATE OR REPLACE TABLE t AS FROM '{path}'")
            duckdb.sql(f"COPY (FROM t WHERE {condition}) TO '{parts}/part-{number}.parquet'")
        path.unlink()
    other = imported(shop(tmp_path / "text" / "shop"), tmp_path / "other")
    assert folder_bytes(imported(source, tmp_path / "out").path) == folder_bytes(other.path)


def test_neither_threads_nor_budget_change_a_byte(tmp_path: Path) -> None:
    source = shop(tmp_path / "shop", SCHEMA)
    expected = folder_bytes(imported(source, tmp_path / "one", threads=1).path)
    assert folder_bytes(imported(source, tmp_path / "two", threads=2, workers=2).path) == expected


def test_a_type_may_be_counted_and_need_no_table(tmp_path: Path) -> None:
    schema = SCHEMA.replace("[nodes.shop]", "[nodes.shop]\ncount = 12")
    dataset = imported(shop(tmp_path / "shop", schema), tmp_path / "out")
    assert dataset.nodes["shop"].num_nodes == 12
    assert edges_of(dataset, "shop__sells__item") == [(5, 10), (9, 11), (5, 7)]


def test_parts_of_one_table_are_no_types(tmp_path: Path) -> None:
    for name in ("nodes/part-0.csv", "nodes/part-1.csv", "edges/part-00000.csv", "edges/part-00001.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("id,x\n1,2\n")
    assert not is_typed_tables(tmp_path)
    assert is_typed_tables(shop(tmp_path / "shop"))


LINES = [
    (
        'label = "plan"',
        'label = "plam"',
        "line 2: .*has no column 'plam' .did you mean 'plan'.*; label can name id, age",
    ),
    ('label = "plan"', 'lable = "plan"', "line 2: unknown key 'lable' in .nodes.user. .did you mean 'label'"),
    ('label = "plan"', "label = 3", "line 2: label must be a text or a list of texts, got 3"),
    ('"w_*"', '"v_*"', r"line 7: .*has no column 'v_\*'"),
    ("float16", "float64", "line 8: dtype must be one of float32"),
    ('source_type = "user"', 'source_type = "usr"', "line 14: there are no nodes 'usr' .did you mean 'user'"),
    ('source_type = "user"\n', "", "line 13: must say source_type, or have a name such as author__writes__paper"),
    ("sells__item.csv", "sels__item.csv", "line 23: .*sels__item.csv does not exist, or is no table"),
    ("[nodes.shop]", "[nodes.shop", "line 11: is not TOML"),
    ("[nodes.shop]", "[shops.shop]", "line 11: unknown key 'shops'; the known ones are nodes, edges"),
    ("[nodes.shop]", '[nodes.shop]\nlabel = "a"', "line 11: has no file, and there is no nodes/shop.parquet"),
    ("[nodes.shop]\n", "", "there are no nodes 'shop'; add .nodes.shop."),
    ('weight = "amount"', 'weight = "user"', "line 18: .*weight must name a column of numbers, 'user' is VARCHAR"),
    ('time = "joined"', 'time = "plan"', "line 4: .*time must name a column of whole numbers or timestamps"),
    ('source = "user"\n', "", "line 16: must name the columns of both ends|line 13: must name the columns of both"),
    (
        "[edges.user__follows__user]",
        "[edges.user__buys__item]\nfile='edges/buys.csv'\n[edges.user__follows__user]",
        "twice",
    ),
]


@pytest.mark.parametrize(("old", "new", "words"), LINES)
def test_faults_of_a_schema_have_its_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in SCHEMA
    source = shop(tmp_path / "shop", SCHEMA.replace(old, new))
    with pytest.raises(DiskhopError, match=f"schema.toml.*({words})") as caught:
        imported(source, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"edges_of_buys": BUYS + "10,zed,1,2\n12,zoe,1,2\n"},
            r"buys.csv, row 4: the destination must be an id of the nodes 'user', got 'zed' "
            r"\(the first of 3 such ends of 5 edges\); add the node",
        ),
        ({"nodes_of_item": ITEMS + "11,1,2,3\n"}, "item.csv, row 4: has the same id '11' as .*item.csv, row 2"),
        (
            {"edges_of_rents": "a,b\n1,2\n"},
            "rents.csv: neither its name, such as author__writes__paper, nor its columns",
        ),
        (
            {
                "nodes_of_user": USERS.replace("ana,", "1,")
                .replace("ben,", "2,")
                .replace("cem,", "3,")
                .replace("dua,", "4,")
            },
            "ids must be of one kind",
        ),
    ],
)
def test_faults_of_tables_are_one_line(tmp_path: Path, changed: dict[str, str], words: str) -> None:
    with pytest.raises(DiskhopError, match=words):
        imported(shop(tmp_path / "shop", **changed), tmp_path / "out")


def test_finished_work_is_not_reused_where_ids_changed(tmp_path: Path) -> None:
    """Shops have no table: a new one in a table of other edges moves the numbers of all."""
    source = shop(tmp_path / "shop", edges_of_shop__owns__user="shop,user\n5,ana\n9,zed\n")
    with pytest.raises(DiskhopError, match="got 'zed'"):
        imported(source, tmp_path / "out")
    shop(source, edges_of_shop__owns__user="shop,user\n5,ana\n2,ben\n")
    resumed = imported(source, tmp_path / "out")
    assert edges_of(resumed, "shop__sells__item") == [(5, 10), (9, 11), (5, 7)]
    assert folder_bytes(imported(source, tmp_path / "again").path) == folder_bytes(resumed.path)


def test_columns_named_after_types_are_a_header(tmp_path: Path) -> None:
    source = shop(tmp_path / "shop", edges_of_trusts="user_id,shop_id\nana,a\n", edges_of_buys="user,item\nana,10\n")
    source.joinpath("edges", "shop__sells__item.csv").write_text("shop,item\na,10\n")
    source.joinpath("nodes", "shop.csv").write_text("id\na\n")
    dataset = imported(source, tmp_path / "out")
    assert edges_of(dataset, "user__trusts__shop") == [("ana", "a")]
    assert edges_of(dataset, "user__buys__item") == [("ana", 10)]


def test_options_of_one_table_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DiskhopError, match=r"--label has no effect on tables of several types; describe each in"):
        imported(shop(tmp_path / "shop"), tmp_path / "out", options=ImportOptions(label=("plan",)))


def test_what_was_decided_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", str(shop(tmp_path / "shop", SCHEMA)), str(tmp_path / "out")]) == 0
    shown = " ".join(capsys.readouterr().err.split())
    for words in (
        "nodes shop the ids that occur in edges no table",
        "user: column plan label label in schema.toml",
        "user__buys__item: column user source schema.toml",
        "user: ids names as the columns are",
    ):
        assert words in shown
