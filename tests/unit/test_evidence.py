"""Evidence of what a file is: headers, columns, delimiters and the files of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from diskhop.errors import SourceError
from diskhop.importing.evidence.columns import find_end_columns
from diskhop.importing.evidence.delimiter import find_delimiter
from diskhop.importing.evidence.folder import list_folder
from diskhop.importing.evidence.header import Part, find_header
from diskhop.importing.evidence.names import find_ends, mask_of, role_of
from diskhop.importing.text.packing import plain_name
from diskhop.importing.text.suffixes import has_suffix


@pytest.mark.parametrize(
    ("names", "ends"),
    [
        ("source,target", (0, 1)),
        ("Target;Source", (1, 0)),
        ("~id,~from,~to,~label", (1, 2)),
        (":START_ID(Person),since:int,:END_ID(Person),:TYPE", (0, 2)),
        ("FromNodeId,ToNodeId", (0, 1)),
        ("weight,dst_id,src_id", (2, 1)),
        ("follower,followee", (0, 1)),
        ("from_node,to_node", (0, 1)),
        ("source,target,start,end", (0, 1)),
        ("source_name,source_id,target_name,target_id", (1, 3)),
        ("id_1,id_2", (0, 1)),
        ("node1,node2,f1,f2", (0, 1)),
        ("a,b", None),
        ("id,label", None),
    ],
)
def test_names_tell_the_ends_of_an_edge(names: str, ends: tuple[int, int] | None) -> None:
    found = find_ends(names.replace(";", ",").split(","))
    assert [tuple(each) for each in found] == ([] if ends is None else [ends])


def test_names_tell_other_roles() -> None:
    named = {"": "index", "Unnamed: 0": "index", "__index_level_0__": "index", "~id": "id", "userId:ID(User)": "id"}
    named |= {
        "y": "label",
        "Class": "label",
        "~label": "type",
        ":TYPE": "type",
        "train_mask": "mask",
        "is_test": "mask",
    }
    assert {name: role_of(name) for name in named} == named
    assert role_of("age") is None
    assert (mask_of("val_mask_2"), mask_of("IsTest"), mask_of("mask")) == (("valid", 2), ("test", 0), None)


@pytest.mark.parametrize(
    ("parts", "flags"),
    [
        (["a,b|0,1|1,2"], (True,)),
        (["a,b|17,9|3,9|9,17"], (True,)),
        (["ana,ben|ben,cem|cem,ana"], (False,)),
        (["ana,ben|ana,cem"], (False,)),
        (["pal-7,pal-12|pal-5,pal-30"], (False,)),
        (["0a7f39d2c6b1e845,ben|0b7f39d2c6b1e845,cem"], (False,)),
        (["emma,dracula|1984,ulysses|dracula,emma"], (False,)),
        (["2001,ana|ana,2001"], (False,)),
        (["ana,ben,0.5|ben,cem,1"], (False,)),
        (["person,friend,amount|ana,ben,0.5"], (True,)),
        (["6,2,4,1289241911.7|6,5,2,1289241941.5"], (False,)),
        (["~from,~to|ana,ben"], (True,)),
        (["ana,ana,", "ana,label,"], (False, False)),
        (["person,friend|ann,bob", "person,friend|cid,dan", "person,friend|eva,fay"], (True, True, True)),
        (["person,friend|ann,bob|cid,dan|eva,fay", "person,friend|gus,hal|ivo,jan|kai,lea"], (True, True)),
        (["src,dst|5,6", "6,7"], (True, False)),
        (["a,b|0,1", "5,6|7,8"], (True, False)),
        ([",0,1|0,5,6|1,7,8"], (True,)),
    ],
)
def test_a_header_is_decided_from_all_rows_of_all_parts(parts: list[str], flags: tuple[bool, ...]) -> None:
    given = [Part("line 1", [row.split(",") for row in part.split("|")]) for part in parts]
    assert find_header(given, None, ()).parts == flags


@pytest.mark.parametrize(
    "parts",
    [
        ["ana,ben|7,8", "cem,dan|8,9"],
        ["eva,ben|dan,-5"],
        ["person,friend|ana,ben|cem,dan"],
        ["person,friend,|ana,ana,"],
        ["ana,ben|ben,cem"],
        ["pal1,pal2|pal17,pal5"],
        ["ana,ben"],
        ["ana,ben|1984,1984"],
        ["ana,ben|ben,ana|ana,cem", "ana,ben|dan,ana"],
        ["ana,ben|ben,ana", "ana,ben"],
        ["ana,ben|cem,dan", "ana,ben"],
        ["from,to|to,from|from,back"],
        ["source,spring|water,well"],
    ],
)
def test_a_row_that_may_be_a_header_is_asked_for(parts: list[str]) -> None:
    given = [Part("file, line 1", [row.split(",") for row in part.split("|")]) for part in parts]
    with pytest.raises(SourceError, match=r"may be a header or a row.*--header.*--no-header"):
        find_header(given, None, ())


@pytest.mark.parametrize(
    ("rows", "suffix", "delimiter"),
    [
        (["0 \t1", "1 2"], ".txt", " "),
        (["0;1;0,5", "1;2;0,5"], ".csv", ";"),
        (["ana b,cem d", "eva,f"], ".csv", ","),
        (["Smith, John\tDoe, Jane", "Roe, R\tPoe, E"], ".txt", "\t"),
        (["0,1", "1"], ".txt", ","),
        (["source|target", "a|b c"], ".txt", "|"),
        (['ana,"e\tf"', 'ben,"g\th"'], ".txt", ","),
        (['5"\tx,y', '7"\tz,w'], ".txt", "\t"),
    ],
)
def test_a_delimiter_gives_every_row_as_many_columns(rows: list[str], suffix: str, delimiter: str) -> None:
    assert find_delimiter(rows, suffix, "line 1")[0] == delimiter


def test_delimiters_that_fit_alike_are_asked_for() -> None:
    with pytest.raises(SourceError, match=r"line 1: .*--delimiter comma or --delimiter semicolon"):
        find_delimiter(["a,b;c", "d,e;f"], ".txt", "line 1")
    with pytest.raises(SourceError, match=r"--delimiter comma or --delimiter '\|'"):
        find_delimiter(["ana|a,b", "ben|b,c"], ".txt", "line 1")


def test_columns_are_found_by_name_before_place() -> None:
    assert find_end_columns(["a", "c", "b"], [0, 1, 2], "e", "--columns", by_place=True).ends == (0, 1)
    with pytest.raises(SourceError, match="name the two with ids"):
        find_end_columns(["x", "target", "b"], [0, 1, 2], "e", "--columns", by_place=True)
    assert find_end_columns(["id", "dst", "b"], [0, 1, 2], "e", "--columns", by_place=False).ends == (2, 1)
    with pytest.raises(SourceError, match="name the two with ids, as --columns a,b"):
        find_end_columns(["a", "b", "c"], [0, 1, 2], "e", "--columns", by_place=False)
    with pytest.raises(SourceError, match="nodes of two kinds, A and B"):
        find_end_columns([":START_ID(A)", ":END_ID(B)"], [0, 1], "e", "--columns", by_place=False)


def test_files_of_a_folder_are_edges_nodes_or_named(tmp_path: Path) -> None:
    for name in ("links.csv/part-0.csv", "links.csv/year=2021/p.csv", "labels.csv", "README.txt", "more.csv", "a.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "_SUCCESS").touch()
    found = list_folder(tmp_path, has_suffix, plain_name)
    assert [str(path.relative_to(tmp_path)) for path in found.edges] == [
        "links.csv/part-0.csv",
        "links.csv/year=2021/p.csv",
    ]
    assert [path.name for path in found.nodes] == ["labels.csv"]
    assert {name for name, _ in found.others} == {"README.txt", "more.csv", "a.png", "_SUCCESS"}
    (tmp_path / "links.csv/part-0.csv.gz").touch()
    with pytest.raises(SourceError, match=r"part-0\.csv and part-0\.csv\.gz; keep one of them"):
        list_folder(tmp_path, has_suffix, plain_name)
